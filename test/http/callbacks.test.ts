import { connect } from 'node:net'
import { type Algorithm, createLimiter, memoryStore, tokenBucket } from '@sluice/core'
import request from 'supertest'
import { describe, expect, it, vi } from 'vitest'
import { asynchronous } from '../support/async-store.js'
import { clock, closing } from '../support/each-test.js'
import { type App, servers } from '../support/servers/index.js'

/*
 * What lies between the options: callbacks that fail without an error, connections with several requests, dry runs while
 * a store fails, and limits of several middlewares.
 */

describe.each(servers)('on $name', ({ start }) => {
  async function serve(app: App) {
    const server = await start(app)
    closing.push(server.close)
    return server
  }

  const open = (name: string, algorithm: Algorithm) => createLimiter(algorithm, { name, clock })

  it.each([undefined, null, false, '', 0, 'route', 'router'])(
    'a key that rejects with %j is one coded error, and no way in',
    async nothing => {
      const server = await serve({
        app: [{ limit: 1, window: '1h', clock, key: () => Promise.reject(nothing) }],
      })
      await request(server.url).get('').expect(500)
      expect(server.handled).toBe(0)
      expect(server.errors).toMatchObject([{ code: 'SLUICE_CALLBACK_FAILED' }])
    },
  )

  it('an onRefused that rejects with nothing is an error, and the handler does not run', async () => {
    const server = await serve({
      app: [{ limit: 0, window: '1h', clock, onRefused: () => Promise.reject() }],
    })
    await request(server.url).get('').expect(500)
    expect(server.handled).toBe(0)
  })

  it('who hangs up with requests behind one another on a connection gives every place back', async () => {
    const limiter = open('held', tokenBucket({ limit: 1, window: '1s' }))
    limiter.tryAcquire('all')
    const server = await serve({ app: [{ limiter: limiter, key: () => 'all', maxWait: '60s' }] })
    const { port, pathname } = new URL(server.url)
    const socket = connect(Number(port), '127.0.0.1')
    for (let number = 0; number < 3; number++) socket.write(`GET ${pathname} HTTP/1.1\r\nHost: a\r\n\r\n`)
    await vi.waitFor(() => expect(limiter.stats().waiting).toBeGreaterThan(0), { timeout: 4000, interval: 5 })
    socket.destroy()
    await vi.waitFor(() => expect(limiter.stats().waiting).toBe(0), { timeout: 4000, interval: 5 })
    expect(server.handled).toBe(0)
  })

  it('a dry run holds nobody', async () => {
    const limiter = open('dry', tokenBucket({ limit: 1, window: '1h' }))
    const server = await serve({ app: [{ limiter, key: () => 'all', maxWait: '60s', dryRun: true }] })
    await request(server.url).get('').expect(200)
    await request(server.url).get('').expect(200)
  })

  it('a dry run passes while the store fails', async () => {
    const store = asynchronous(memoryStore())
    store.failWith(new Error('down'))
    const server = await serve({ app: [{ limit: 1, window: '1h', name: 'dry', clock, store, dryRun: true }] })
    await request(server.url).get('').expect(200)
    expect(server.errors).toEqual([])
  })

  it('Retry-After is the longest of all that the response says is spent', async () => {
    const hour = open('hour', tokenBucket({ limit: 1, window: '1h' }))
    const burst = open('burst', tokenBucket({ limit: 1, window: '5s' }))
    burst.tryAcquire('all')
    const server = await serve({
      app: [{ limiter: hour, key: () => 'all' }],
      route: [{ limiter: burst, key: () => 'all' }],
    })
    const response = await request(server.url).get('').expect(429)
    expect(response.headers).toMatchObject({
      ratelimit: '"hour";r=0;t=3600, "burst";r=0;t=5',
      'retry-after': '3600',
    })
  })
})
