import { get } from 'node:http'
import { connect } from 'node:net'
import { createLimiter, type LimiterOptions, leakyBucket, tokenBucket } from '@sluice/core'
import { rateLimit } from '@sluice/express'
import { rateLimit as fastifyRateLimit } from '@sluice/fastify'
import Fastify from 'fastify'
import request from 'supertest'
import { describe, expect, it, test, vi } from 'vitest'
import { clock, closing } from '../support/each-test.js'
import { type App, reference, servers } from '../support/servers/index.js'

/*
 * Requests that are held until their permits are there. Time stands still unless a test moves it.
 */

/** One permit a second, for everybody together. */
function oneASecond(options: LimiterOptions = {}) {
  return createLimiter(tokenBucket({ limit: 1, window: '1s' }), { clock, ...options })
}

/** Waits for what sockets do on their own; the clock stands still meanwhile. */
const until = (expectation: () => void) => vi.waitFor(expectation, { timeout: 4000, interval: 5 })

describe.each(servers)('on $name', server => {
  const { start } = server
  /** Hanging up is what a framework has a part in, and a few rounds show; the rest runs without one. */
  const rounds = server === reference ? 20 : 2

  async function serve(app: App) {
    const server = await start(app)
    closing.push(server.close)
    return server
  }

  it('a request waits before its handler runs, and the fields are those after the wait', async () => {
    const server = await serve({ app: [{ limiter: oneASecond(), key: () => 'all', maxWait: '2s' }] })
    await request(server.url).get('').expect(200)
    const held = request(server.url).get('').expect(200).then()
    await until(() => expect(clock.alarms).toBe(1))
    expect(server.handled).toBe(1)
    clock.advance('1s')
    const response = await held
    expect(response.headers).toMatchObject({ ratelimit: '"default";r=0;t=1' })
    expect(response.headers).not.toHaveProperty('retry-after')
    expect(server.handled).toBe(2)
  })

  it('a leaky bucket makes requests wait without maxWait, up to its capacity', async () => {
    const limiter = createLimiter(leakyBucket({ limit: 1, window: '1s', capacity: 1 }), { clock })
    const server = await serve({ app: [{ limiter, key: () => 'all' }] })
    await request(server.url).get('').expect(200)
    const held = request(server.url).get('').expect(200).then()
    await until(() => expect(clock.alarms).toBe(1))
    await request(server.url).get('').expect(429).expect('Retry-After', '2')
    clock.advance('1s')
    await held
    expect(server.handled).toBe(2)
  })

  it('a leaky bucket with maxWait 0 refuses at once', async () => {
    const limiter = createLimiter(leakyBucket({ limit: 1, window: '1s', capacity: 1 }), { clock })
    const server = await serve({ app: [{ limiter, key: () => 'all', maxWait: 0 }] })
    await request(server.url).get('').expect(200)
    await request(server.url).get('').expect(429).expect('Retry-After', '1')
  })

  it('a request that would wait longer than maxWait is refused at once and takes no permit (S26, SGrondin/bottleneck#169)', async () => {
    const limiter = createLimiter(tokenBucket({ limit: 1, window: 800 }), { clock })
    const server = await serve({ app: [{ limiter, key: () => 'all', maxWait: 500 }] })
    await request(server.url).get('').expect(200)
    await request(server.url).get('').expect(429).expect('Retry-After', '1')
    expect(limiter.peek('all').waitMs).toBe(800)
    expect(server.handled).toBe(1)
  })

  it('a request is refused at once when the queue of its key is full', async () => {
    const limiter = oneASecond({ maxQueuePerKey: 1 })
    const server = await serve({ app: [{ limiter, key: () => 'all', maxWait: '10s' }] })
    await request(server.url).get('').expect(200)
    const held = request(server.url).get('').expect(200).then()
    await until(() => expect(clock.alarms).toBe(1))
    await request(server.url).get('').expect(429).expect('Retry-After', '2')
    clock.advance('1s')
    await held
  })

  it('a client that disconnects while it waits gets its permit back, and the handler never runs', async () => {
    const limiter = oneASecond()
    const server = await serve({ app: [{ limiter, key: () => 'all', maxWait: '10s' }] })
    await request(server.url).get('').expect(200)
    const client = get(server.url).on('error', () => {})
    await until(() => expect(limiter.peek('all').balance).toBe(-1))
    client.destroy()
    await until(() => expect(limiter.peek('all').balance).toBe(0))
    clock.advance('5s')
    await request(server.url).get('').expect(200)
    expect(server.handled).toBe(2)
    expect(server.errors).toEqual([])
  })

  it('no permit is lost to many clients that disconnect while they wait', async () => {
    const limiter = oneASecond({ maxQueue: 2000, maxQueuePerKey: 2000, maxWait: Infinity })
    const key = () => 'all'
    const server = await serve({ app: [{ limiter, key, maxWait: '60s' }] })
    await request(server.url).get('').expect(200)
    for (let round = 0; round < rounds; round++) {
      const clients = Array.from({ length: 50 }, () => get(server.url).on('error', () => {}))
      await until(() => expect(limiter.peek('all').balance).toBe(-50))
      for (const client of clients) client.destroy()
      await until(() => expect(limiter.peek('all').balance).toBe(0))
    }
    const held = request(server.url).get('').expect(200).then()
    await until(() => expect(clock.alarms).toBe(1))
    clock.advance('1s')
    await held
    expect(server.handled).toBe(2)
  }, 20_000)

  it('a client that disconnects with several requests in a pipeline leaves no waiter behind', async () => {
    const limiter = oneASecond()
    limiter.tryAcquire('all')
    const server = await serve({ app: [{ limiter, key: () => 'all', maxWait: '60s' }] })
    const { port, pathname } = new URL(server.url)
    const socket = connect(Number(port), '127.0.0.1')
    for (let number = 0; number < 3; number++) socket.write(`GET ${pathname} HTTP/1.1\r\nHost: a\r\n\r\n`)
    await vi.waitFor(() => expect(limiter.stats().waiting).toBeGreaterThan(0), { timeout: 4000, interval: 5 })
    socket.destroy()
    await vi.waitFor(() => expect(limiter.stats().waiting).toBe(0), { timeout: 4000, interval: 5 })
    expect(server.handled).toBe(0)
  })

  it('closing the limiter answers waiting requests with 503', async () => {
    const limiter = oneASecond()
    const server = await serve({ app: [{ limiter, key: () => 'all', maxWait: '10s' }] })
    await request(server.url).get('').expect(200)
    const held = request(server.url).get('').expect(503).then()
    await until(() => expect(clock.alarms).toBe(1))
    limiter.close()
    await held
    expect(server.errors).toEqual([expect.objectContaining({ code: 'SLUICE_CLOSED' })])
  })
})

test('a Fastify server that closes answers its waiting requests with 503', async () => {
  const app = Fastify()
  const own = { limiter: oneASecond(), key: () => 'all', maxWait: '10s' } as const
  await app.register(fastifyRateLimit, { limiter: oneASecond(), key: () => 'all', maxWait: '10s' })
  app.get('/', () => 'ok')
  app.get('/own', { config: { rateLimit: own } }, () => 'ok')
  const url = await app.listen({ port: 0, host: '127.0.0.1' })
  const held: Promise<unknown>[] = []
  for (const path of ['/', '/own']) {
    await request(url).get(path).expect(200)
    held.push(request(url).get(path).expect(503).then())
  }
  await until(() => expect(clock.alarms).toBe(2))
  await app.close()
  await Promise.all(held)
  expect(clock.alarms).toBe(0)
})

test.each(['61s', Infinity, -1, Number.NaN, 'soon'])('maxWait %o throws at construction', maxWait => {
  const make = () => rateLimit({ limit: 1, window: '1s', maxWait: maxWait as never })
  expect(make).toThrow(RangeError)
  expect(make).toThrow(/^maxWait: /)
})
