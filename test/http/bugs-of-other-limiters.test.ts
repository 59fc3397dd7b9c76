import {
  type AsyncStore,
  createLimiter,
  memoryStore,
  parseDuration,
  type SyncStore,
  tokenBucket,
} from '@sluice/core'
import { type RateLimitOptions as ExpressOptions, rateLimit as expressRateLimit } from '@sluice/express'
import type { RateLimitOptions as FastifyOptions } from '@sluice/fastify'
import { type RateLimitOptions as KoaOptions, rateLimit as koaRateLimit } from '@sluice/koa'
import request from 'supertest'
import { describe, expect, expectTypeOf, it, test, vi } from 'vitest'
import { clock, closing } from '../support/each-test.js'
import { scriptedStore } from '../support/scripted-store.js'
import { type AnyRequest, type App, type Limit, type Passage, servers } from '../support/servers/index.js'

/*
 * Bug reports of other limiters, on every adapter. Time stands still unless a test moves it.
 */

/** Gives the connection the peer address that the request asks for, for the framework to find where it looks. */
function peerOfHeader({ req }: Passage): void {
  Object.defineProperty(req.socket, 'remoteAddress', {
    value: req.headers['x-peer'] ?? '10.0.0.1',
    configurable: true,
  })
}

describe.each(servers)('on $name', ({ start }) => {
  async function serve(app: App) {
    const server = await start(app)
    closing.push(server.close)
    return server
  }

  // S10 fastify/fastify-rate-limit#307, #324: the whole window, or milliseconds
  it('Retry-After is the time that is left, in whole seconds', async () => {
    const server = await serve({ app: [{ limit: 1, window: '60s', clock }] })
    await request(server.url).get('').expect(200)
    clock.advance(45_000)
    await request(server.url).get('').expect(429).expect('Retry-After', '15')
    clock.advance(14_000.001)
    await request(server.url).get('').expect(429).expect('Retry-After', '1')
  })

  // S12 animir/node-rate-limiter-flexible, readme: ms / 1000
  it.each([
    [1, 1, '4'],
    [2, 2, '7'],
  ])('Retry-After of a burst of %d and a cost of %d is whole', async (burst, cost, seconds) => {
    const limiter = createLimiter(tokenBucket({ limit: 3, window: '10s', burst }), { clock })
    const server = await serve({ app: [{ limiter, cost }] })
    await request(server.url).get('').expect(200)
    const { headers } = await request(server.url).get('').expect(429).expect('Retry-After', seconds)
    expect(headers.ratelimit).toBe(`"default";r=0;t=${seconds}`)
    clock.advance(`${Number(seconds)}s`)
    await request(server.url).get('').expect(200)
  })

  describe('a client behind a proxy', () => {
    const behind = (options: Partial<Limit>) =>
      serve({ before: peerOfHeader, app: [{ limit: 1, window: '1m', clock, ...options } as Limit] })
    const forwarded = (url: string, client: string, peer = '10.0.0.1') =>
      request(url).get('').set('X-Forwarded-For', client).set('X-Peer', peer)

    // S36 GHSA-46wh-pxpv-q5gq, Yeraze/meshmonitor#2001
    it('is the same through a dual-stack socket, as proxy and as client', async () => {
      const server = await behind({ trustedProxies: ['10.0.0.0/8'] })
      await forwarded(server.url, '1.2.3.4').expect(200)
      await forwarded(server.url, '::ffff:1.2.3.4', '::ffff:10.0.0.2').expect(429)
      await forwarded(server.url, '::ffff:5.6.7.8', '::ffff:10.0.0.2').expect(200)
    })

    // S37 express-rate-limit/express-rate-limit#234
    it.each<[string, Partial<Limit>]>([
      ['networks', { trustedProxies: ['10.0.0.0/8'] }],
      ['hops', { hops: 1 }],
    ])('has one key for all of its ports (%s)', async (_, options) => {
      const server = await behind(options)
      await forwarded(server.url, '203.0.113.7:51000').expect(200)
      await forwarded(server.url, '203.0.113.7:51001').expect(429)
      await forwarded(server.url, '203.0.113.7').expect(429)
      await forwarded(server.url, '[2001:db8::1]:443').expect(200)
      await forwarded(server.url, '2001:db8::1').expect(429)
    })

    // S37, where a framework hands on what a socket or proxy has said
    it('has one key for all of its ports, also as the framework sees it', async () => {
      const server = await behind({})
      const from = (peer: string) => request(server.url).get('').set('X-Peer', peer)
      await from('203.0.113.7:51000').expect(200)
      await from('203.0.113.7:51001').expect(429)
    })

    // S39 tdurieux/anonymous_github#750
    it('is found through one, two and three known proxies, and no further', async () => {
      const server = await behind({ trustedProxies: ['10.0.0.0/8', '192.0.2.0/24'] })
      await forwarded(server.url, '198.51.100.9').expect(200)
      await forwarded(server.url, '198.51.100.9, 192.0.2.8').expect(429)
      await forwarded(server.url, '198.51.100.9, 10.9.9.9, 192.0.2.8').expect(429)
      await forwarded(server.url, '6.6.6.6, 198.51.100.9, 10.9.9.9').expect(429)
      await forwarded(server.url, '198.51.100.10, 10.9.9.9, 192.0.2.8').expect(200)
    })

    // S38 nestjs/throttler#427, safe-global/safe-client-gateway#3170
    it('is the socket, and never what a header says, as long as no proxy is trusted', async () => {
      const limiter = createLimiter(tokenBucket({ limit: 9, window: '1m' }), { clock })
      const server = await serve({ before: peerOfHeader, app: [{ limiter }] })
      await forwarded(server.url, '198.51.100.9').expect(200)
      await forwarded(server.url, '198.51.100.10').expect(200)
      expect(limiter.peek('10.0.0.1').remaining).toBe(7)
      for (const claimed of ['198.51.100.9', '198.51.100.10']) expect(limiter.peek(claimed).remaining).toBe(9)
    })
  })
})

// S38: behind a proxy that no option names, all clients share one limit, so a warning is given
test.each(servers.map(({ name }) => name))('on %s a forwarded header is warned of, once', async name => {
  // Warnings are given once in a process.
  vi.resetModules()
  const { servers } = await import('../support/servers/index.js')
  const warnings: Error[] = []
  const note = (warning: Error) => warnings.push(warning)
  process.on('warning', note)
  try {
    const server = await servers
      .find(factory => factory.name === name)
      ?.start({
        app: [{ limit: 9, window: '1m' }],
        route: [{ limit: 9, window: '1m' }],
      })
    if (server === undefined) throw new Error(`there is no ${name}`)
    closing.push(server.close)
    await request(server.url).get('').expect(200)
    expect(warnings.filter(({ name }) => name === 'SluiceWarning')).toEqual([])
    for (const client of ['198.51.100.9', '198.51.100.10'])
      await request(server.url).get('').set('X-Forwarded-For', client).expect(200)
    await vi.waitFor(() => expect(warnings).not.toEqual([]))
  } finally {
    process.off('warning', note)
  }
  const ours = warnings.filter(({ name }) => name === 'SluiceWarning')
  expect(ours).toMatchObject([{ code: 'SLUICE_PROXY_NOT_TRUSTED' }])
  expect(ours[0]?.message).not.toContain('198.51.100')
})

// S13 express-rate-limit 8.7.5; that the option is refused is in options.test.ts
test('a window from the environment is read by a function of its own, and wants a unit', () => {
  expect(parseDuration('500ms')).toBe(500)
  expect(parseDuration(Number('500'))).toBe(500)
})

// S62 rhinobase/hono-rate-limiter#10, #36
describe('one store', () => {
  it('fits every adapter by its type', () => {
    for (const store of [memoryStore(), scriptedStore()] satisfies (SyncStore | AsyncStore)[]) {
      const express: ExpressOptions = { limit: 5, window: '1m', name: 'express', store }
      const koa: KoaOptions = { limit: 5, window: '1m', name: 'koa', store }
      const fastify: FastifyOptions = { policies: [{ limit: 5, window: '1m', name: 'fastify', store }] }
      expect(expressRateLimit(express)).toBeTypeOf('function')
      expect(koaRateLimit(koa)).toBeTypeOf('function')
      expectTypeOf(fastify.policies).not.toBeAny()
    }
  })

  it.each([
    ['in memory', memoryStore],
    ['asynchronous', scriptedStore],
  ] as [string, () => SyncStore | AsyncStore][])('(%s) counts behind all of them', async (_, make) => {
    const limiter = createLimiter(tokenBucket({ limit: servers.length, window: '1m' }), {
      store: make(),
      clock,
    })
    const key = (_: AnyRequest) => 'ann'
    const left: (string | undefined)[] = []
    for (const { start } of servers) {
      const server = await start({ app: [{ limiter, key }] })
      closing.push(server.close)
      const { headers } = await request(server.url).get('').expect(200)
      left.push(/;r=(\d+);/.exec(headers.ratelimit ?? '')?.[1])
    }
    expect(left).toEqual(servers.map((_, index) => String(servers.length - 1 - index)))
    const [first] = servers as [(typeof servers)[0]]
    const server = await first.start({ app: [{ limiter, key }] })
    closing.push(server.close)
    await request(server.url).get('').expect(429)
  })
})
