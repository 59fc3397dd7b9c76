import { setTimeout as sleep } from 'node:timers/promises'
import {
  createLimiter,
  type Limiter,
  type OnStoreError,
  RateLimitedError,
  type Reservation,
  tokenBucket,
  tryAcquireAll,
} from '@sluice/core'
import { type RedisClient, redisStore } from '@sluice/redis'
import { Redis } from 'ioredis'
import { createClient } from 'redis'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest'
import { type RedisServer, startRedis } from '../support/redis-server.js'

const BUCKET = tokenBucket({ limit: 10, window: '1h' })
const DEADLINE_MS = 100
/** Long after every deadline, on the slowest machine. */
const MUCH_LATER_MS = 5_000

let server: RedisServer
let names = 0
const unhandled: unknown[] = []
const onUnhandled = (error: unknown) => unhandled.push(error)

beforeAll(async () => {
  server = await startRedis()
  process.on('unhandledRejection', onUnhandled)
})
afterAll(async () => {
  process.off('unhandledRejection', onUnhandled)
  server.resume()
  await server.stop()
})
afterEach(async () => {
  server.resume()
  await new Promise(setImmediate)
  expect(unhandled.splice(0)).toEqual([])
})

interface Connection {
  readonly client: RedisClient
  close(): void
}

const CONNECT: Record<string, (port: number) => Promise<Connection>> = {
  async ioredis(port) {
    const client = new Redis({ port, retryStrategy: () => 50 })
    client.on('error', () => {})
    await client.ping()
    return { client, close: () => client.disconnect() }
  },
  async 'node-redis'(port) {
    const client = createClient({ socket: { port, reconnectStrategy: () => 50 } })
    client.on('error', () => {})
    await client.connect()
    return { client, close: () => client.destroy() }
  },
}

type L = Limiter<true>
type Verb = (limiter: L, booking: Reservation<true>) => Promise<unknown>

/** Verbs that return a decision. */
const ASKS: Record<string, Verb> = {
  tryAcquire: limiter => limiter.tryAcquire('k'),
  peek: limiter => limiter.peek('k'),
  reserve: limiter => limiter.reserve('k', { maxWait: '1s' }),
  'several together': limiter =>
    tryAcquireAll([
      { limiter, key: 'k' },
      { limiter, key: 'l' },
    ]),
}
/** Verbs that return a number of permits. While the server fails it is 0. */
const COUNTS: Record<string, Verb> = {
  cancel: (_, booking) => booking.cancel(),
  refund: (_, booking) => booking.refund(),
  release: limiter => limiter.release('k', 2),
  drain: limiter => limiter.drain('k'),
}
/** Verbs that return nothing. */
const ACTS: Record<string, Verb> = {
  reset: limiter => limiter.reset('k'),
  block: limiter => limiter.block('k', '1s'),
  unblock: limiter => limiter.unblock('k'),
}
const VERBS = { ...ASKS, ...COUNTS, ...ACTS }

const FAILED = expect.objectContaining({ code: 'SLUICE_STORE_ERROR' })

/** What a call comes to; a string if it does not settle. */
async function outcome(act: Promise<unknown>): Promise<unknown> {
  const never = sleep(MUCH_LATER_MS, 'has not settled', { ref: false })
  return Promise.race([never, act.catch(error => ({ error }))])
}

describe.each(Object.entries(CONNECT))('with %s', (_, connect) => {
  let connection: Connection
  beforeEach(async () => {
    connection = await connect(server.port)
  })
  afterEach(() => connection.close())

  async function limiterOf(store: OnStoreError | undefined, own?: OnStoreError) {
    const options = { onStoreError: store, deadline: DEADLINE_MS }
    const limiter: L = createLimiter(BUCKET, {
      name: `n${names++}`,
      store: redisStore(connection.client, options),
      onStoreError: own,
    })
    // One call before the failure, so that the server knows the scripts, and a booking to give back.
    const booking = await vi.waitFor(() => limiter.reserve('booked', { cost: 2 }), MUCH_LATER_MS)
    return { limiter, booking }
  }

  describe.each<
    [what: string, store: OnStoreError | undefined, own: OnStoreError | undefined, expected: OnStoreError]
  >([
    ['an option left out', undefined, undefined, 'throw'],
    ["'throw' of the store", 'throw', undefined, 'throw'],
    ["'allow' of the store", 'allow', undefined, 'allow'],
    ["'refuse' of the store", 'refuse', undefined, 'refuse'],
    ["'allow' of the limiter and 'refuse' of the store", 'refuse', 'allow', 'allow'],
    ["'refuse' of the limiter and 'allow' of the store", 'allow', 'refuse', 'refuse'],
    ["'throw' of the limiter and 'allow' of the store", 'allow', 'throw', 'throw'],
  ])('onStoreError: %s', (_, store, own, expected) => {
    test(`settles every call to a server that hangs: ${expected}`, async () => {
      const made = await Promise.all(Object.values(VERBS).map(() => limiterOf(store, own)))
      server.pause()
      const calls = Object.entries(VERBS).map(async ([verb, act], index) => {
        const { limiter, booking } = made[index] as (typeof made)[number]
        return [verb, await outcome(act(limiter, booking)), limiter.stats().storeErrors] as const
      })
      for (const [verb, came, errors] of await Promise.all(calls)) {
        if (expected === 'throw' || verb in ACTS) expect(came, verb).toEqual({ error: FAILED })
        else if (verb in COUNTS) expect(came, verb).toBe(0)
        else expect(came, verb).toMatchObject({ code: 'SLUICE_STORE_ERROR', allowed: expected === 'allow' })
        // A joint call counts one error for each of its asks.
        expect(errors, verb).toBeGreaterThanOrEqual(1)
      }
    })
  })

  test('rejects waiting calls when the server hangs', async () => {
    const { limiter } = await limiterOf('throw')
    const slow: L = createLimiter(tokenBucket({ limit: 1, window: '200ms' }), {
      name: `n${names++}`,
      store: redisStore(connection.client, { deadline: DEADLINE_MS }),
    })
    await slow.tryAcquire('k')
    const waiting = [slow.acquire('k'), slow.acquire('k')]
    await vi.waitFor(() => expect(slow.stats().waiting).toBe(2), MUCH_LATER_MS)
    server.pause()
    const failed = { error: FAILED }
    expect(await Promise.all(waiting.map(outcome))).toEqual([failed, failed])
    expect(await outcome(limiter.acquire('k'))).toEqual({ error: FAILED })
    server.resume()
    await vi.waitFor(() => limiter.acquire('k'), MUCH_LATER_MS)
    await vi.waitFor(() => slow.acquire('k'), MUCH_LATER_MS)
  })

  test('refuses calls that would wait, with onStoreError: refuse', async () => {
    const { limiter } = await limiterOf('refuse')
    server.pause()
    expect(await outcome(limiter.acquire('k', { maxWait: '1h' }))).toEqual({
      error: expect.any(RateLimitedError),
    })
  })

  test('rejects a list when the server hangs', async () => {
    const store = redisStore(connection.client, { deadline: DEADLINE_MS })
    server.pause()
    expect(await outcome(store.list().next())).toEqual({ error: FAILED })
  })

  test('ignores replies that arrive after the deadline, and counts their permits as taken', async () => {
    const { limiter } = await limiterOf('throw')
    await limiter.tryAcquire('k')
    server.pause()
    const late = await Promise.all(
      Array.from({ length: 3 }, () => outcome(limiter.tryAcquire('k', { cost: 2 }))),
    )
    expect(late).toEqual(late.map(() => ({ error: FAILED })))
    server.resume()
    const peeks = await vi.waitFor(
      () => Promise.all([limiter.peek('k'), limiter.peek('other'), limiter.peek('k')]),
      MUCH_LATER_MS,
    )
    expect(peeks.map(({ remaining }) => remaining)).toEqual([3, 10, 3])
  })

  test('applies an update at once while the server hangs', async () => {
    const { limiter } = await limiterOf('throw')
    await limiter.tryAcquire('k', { cost: 4 })
    server.pause()
    expect(await outcome(limiter.update(tokenBucket({ limit: 20, window: '1h' })))).toBeUndefined()
    expect(limiter.policy.limit).toBe(20)
    expect(await outcome(limiter.peek('k'))).toEqual({ error: FAILED })
    server.resume()
    const peeked = await vi.waitFor(() => limiter.peek('k'), MUCH_LATER_MS)
    expect([peeked.limit, peeked.remaining]).toEqual([20, 6])
  })

  test('fails each call while the server is gone, and works again when it is back', async () => {
    const { limiter } = await limiterOf('throw')
    const lenient = (await limiterOf('allow')).limiter
    await limiter.tryAcquire('k')
    await server.stop()
    try {
      for (let asks = 0; asks < 2; asks++) {
        expect(await outcome(limiter.tryAcquire('k'))).toEqual({ error: FAILED })
        expect(await outcome(lenient.tryAcquire('k'))).toMatchObject({
          allowed: true,
          code: 'SLUICE_STORE_ERROR',
        })
      }
    } finally {
      await server.restart()
    }
    // The server has lost its keys and its scripts.
    const decision = await vi.waitFor(() => limiter.tryAcquire('new'), MUCH_LATER_MS)
    expect(decision).toMatchObject({ allowed: true, remaining: expect.any(Number) })
    await vi.waitFor(
      async () => expect((await lenient.peek('k')).code).not.toBe('SLUICE_STORE_ERROR'),
      MUCH_LATER_MS,
    )
    const { limiter: fresh } = await limiterOf('throw')
    expect((await fresh.tryAcquire('k')).remaining).toBe(9)
  })
})
