import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import {
  type Algorithm,
  createLimiter,
  fixedWindow,
  type Limiter,
  memoryStore,
  tokenBucket,
} from '@sluice/core'
import { limitRoute } from '@sluice/core/http'
import { type ManualClock, manualClock } from '@sluice/core/testing'
import { type RedisClient, redisStore } from '@sluice/redis'
import { Redis } from 'ioredis'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { ALGORITHMS, asOnRedis } from './algorithms.js'
import { keysUnder, server } from './server.js'

/** What others got wrong, and what only a store that is shared can get wrong. */
const here = server()
const PATIENT = { deadline: '5s' } as const
const HOUR_MS = 3_600_000

/** A client of another process, for all that the server knows. */
let other: Redis
beforeAll(() => {
  other = new Redis(here.port)
})
afterAll(() => other.disconnect())

let clock: ManualClock
beforeEach(async () => {
  await here.redis.flushall()
  clock = manualClock()
})

/** The limiter of a process; those of one name share their keys. */
function limiterOf(
  algorithm: Algorithm,
  options: { client?: RedisClient; clock?: ManualClock | undefined; maxWait?: number } = {},
): Limiter<true> {
  const { client = here.redis, maxWait } = options
  const time = 'clock' in options ? options.clock : clock
  return createLimiter(algorithm, { name: 'n', clock: time, maxWait, store: redisStore(client, PATIENT) })
}

const BOOKABLE = ALGORITHMS.filter(({ of }) => of(1, '1s').bookable)
/** Those whose rest does not depend on how fast they were asked. */
const RESTING = ALGORITHMS.filter(({ name }) => !name.startsWith('smooth'))

describe('a check and its charge are one act', () => {
  // nestjs/throttler#1303 (S01)
  test.each(ALGORITHMS)('of two processes at once: $name', async ({ of }) => {
    const [mine, yours] = [here.redis, other].map(client => limiterOf(of(5, '1h'), { client })) as [L, L]
    const alone = createLimiter(asOnRedis(of(5, '1h')), { clock, store: memoryStore() })
    const asks = Array.from({ length: 1000 }, (_, index) => index)
    const expected = asks.filter(() => alone.tryAcquire('A').allowed).length
    const decisions = await Promise.all(asks.map(index => (index % 2 ? mine : yours).tryAcquire('A')))
    expect(decisions.filter(({ allowed }) => allowed)).toHaveLength(expected)
    expect(expected).toBeGreaterThanOrEqual(1)
    expect(expected).toBeLessThanOrEqual(6)
  })
})

type L = Limiter<true>

describe('a clock that differs, or jumps,', () => {
  // spring-cloud/spring-cloud-gateway#2412 (S05)
  test.each([undefined, 0, 500])('earns nothing (maxWait %s)', async maxWait => {
    const bucket = tokenBucket({ limit: 2, window: '1s', burst: 4 })
    const behind = manualClock({ startMs: clock.nowMs - 10_000 })
    const hostA = limiterOf(bucket, { ...(maxWait !== undefined && { maxWait }) })
    const hostB = limiterOf(bucket, { clock: behind, ...(maxWait !== undefined && { maxWait }) })
    for (let asks = 0; asks < 4; asks++) expect((await hostA.tryAcquire('k')).allowed).toBe(true)
    expect((await hostB.tryAcquire('k')).allowed).toBe(false)
    behind.advance(500)
    expect((await hostB.tryAcquire('k')).allowed).toBe(false)
    for (let asks = 0; asks < 4; asks++) expect((await hostA.tryAcquire('k')).allowed).toBe(false)
  })

  test.each(ALGORITHMS)('earns nothing: $name', async ({ of }) => {
    const limiter = limiterOf(of(4, '2s'))
    await limiter.drain('k')
    const thenMs = clock.nowMs
    for (const backMs of [1, 999, 10_000]) {
      clock.set(thenMs - backMs)
      expect((await limiter.tryAcquire('k')).allowed).toBe(false)
    }
    clock.set(thenMs)
    expect((await limiter.tryAcquire('k')).allowed).toBe(false)
  })

  test.each(RESTING)(
    'does not block a key for longer than it may have been used up: $name',
    async ({ of }) => {
      const limiter = limiterOf(of(4, '2s'))
      await limiter.drain('k')
      clock.set(clock.nowMs - 86_400_000)
      const refused = await limiter.tryAcquire('k')
      expect(refused.allowed).toBe(false)
      expect(refused.retryAfterMs).toBeLessThanOrEqual(4000)
      clock.advance(refused.retryAfterMs)
      expect((await limiter.tryAcquire('k')).allowed).toBe(true)
      clock.advance('4s')
      expect((await limiter.peek('k')).remaining).toBe((await limiter.peek('never seen')).remaining)
    },
  )

  test.each(RESTING)('earns nothing for those with other options either: $name', async ({ of }) => {
    await limiterOf(of(10, '1h')).drain('k')
    clock.set(clock.nowMs - 86_400_000)
    const after = limiterOf(of(10, '1m'), { client: other })
    expect((await after.tryAcquire('k')).allowed).toBe(false)
    expect((await after.peek('k')).remaining).toBe(0)
  })

  test('leaves the bookings that may have been made', async () => {
    const limiter = limiterOf(tokenBucket({ limit: 2, window: '1s', burst: 4 }), { maxWait: 1000 })
    await limiter.reserve('k', { cost: 4 })
    await limiter.reserve('k', { cost: 2 })
    expect((await limiter.peek('k')).balance).toBe(-2)
    clock.set(clock.nowMs - 86_400_000)
    const refused = await limiter.tryAcquire('k')
    expect(refused).toMatchObject({ allowed: false, balance: -2, retryAfterMs: 1500 })
    clock.advance(1500)
    expect((await limiter.tryAcquire('k')).allowed).toBe(true)
  })

  test('leaves every wait to who stated it', async () => {
    const limiter = limiterOf(tokenBucket({ limit: 1, window: '1s' }), { maxWait: 1000 })
    const waits: number[] = []
    for (let asks = 0; asks < 6; asks++) waits.push((await limiter.reserve('k', { maxWait: '1h' })).waitMs)
    expect(waits).toEqual([0, 1000, 2000, 3000, 4000, 5000])
  })
})

describe('what is given back', () => {
  // rhinobase/hono-rate-limiter#67 (S09)
  test('after its window has ended is nothing', async () => {
    const limiter = limiterOf(fixedWindow({ limit: 2, window: '200ms' }))
    const slow = await limiter.reserve('k', { maxWait: 0 })
    clock.advance(230)
    expect((await limiter.tryAcquire('k')).allowed).toBe(true)
    clock.advance(30)
    expect(await slow.refund()).toBe(0)
    clock.advance(5)
    expect((await limiter.tryAcquire('k')).allowed).toBe(true)
    clock.advance(1)
    expect(await limiter.tryAcquire('k')).toMatchObject({ allowed: false, remaining: 0, balance: 0 })
    for (const key of await here.redis.keys('*')) expect(await here.redis.pttl(key)).toBeGreaterThan(0)
  })

  test('after its window has ended is nothing, over HTTP', async () => {
    const limiter = limiterOf(fixedWindow({ limit: 2, window: '200ms' }))
    const arrived: (() => void)[] = []
    const route = limitRoute({ limiter, key: () => 'k', refund: { ifFailed: true } })((request, response) => {
      const end = () => response.writeHead(request.url === '/fails' ? 500 : 200).end()
      if (request.url === '/fails') arrived.push(end)
      else end()
    })
    const app = createServer((...exchange) => void route(...exchange)).listen(0, '127.0.0.1')
    await once(app, 'listening')
    const url = `http://127.0.0.1:${(app.address() as AddressInfo).port}`
    const status = async () => (await fetch(url)).status
    try {
      const slow = fetch(`${url}/fails`)
      while (arrived.length === 0) await new Promise(setImmediate)
      clock.advance(230)
      expect(await status()).toBe(200)
      clock.advance(30)
      arrived[0]?.()
      expect((await slow).status).toBe(500)
      clock.advance(5)
      expect(await status()).toBe(200)
      clock.advance(1)
      expect(await status()).toBe(429)
      expect((await limiter.peek('k')).balance).toBe(0)
    } finally {
      app.close()
    }
  })

  test.each(ALGORITHMS)('is nothing once it has come back by itself: $name', async ({ of }) => {
    const limiter = limiterOf(of(3, '1s'))
    const fresh = (await limiter.peek('k')).balance
    const booking = await limiter.reserve('k', { maxWait: 0 })
    clock.advance('1h')
    expect(await booking.refund()).toBe(0)
    expect((await limiter.peek('k')).balance).toBe(fresh)
  })

  test.each(ALGORITHMS)('is nothing of a key that was reset, by whomever: $name', async ({ of }) => {
    const [mine, yours] = [here.redis, other].map(client => limiterOf(of(3, '1m'), { client })) as [L, L]
    const [cancelled, refunded] = [
      await mine.reserve('k', { maxWait: 0 }),
      await mine.reserve('l', { maxWait: 0 }),
    ]
    await yours.reset('k')
    await yours.reset('l')
    await yours.drain('k')
    await yours.drain('l')
    const before = [await yours.peek('k'), await yours.peek('l')].map(({ balance }) => balance)
    expect([await cancelled.cancel(), await refunded.refund()]).toEqual([0, 0])
    expect([await yours.peek('k'), await yours.peek('l')].map(({ balance }) => balance)).toEqual(before)
  })

  test.each(ALGORITHMS)('comes back once, though the command is sent again: $name', async ({ of }) => {
    for (const verb of ['cancel', 'refund'] as const) {
      const { client, again } = resending(here.redis)
      const limiter = limiterOf(of(6, '1h'), { client })
      const seen = limiterOf(of(6, '1h'))
      const key = `by ${verb}`
      await seen.tryAcquire(key)
      const booking = await limiter.reserve(key, { cost: 2, maxWait: of(1, '1s').bookable ? '5h' : 0 })
      expect(booking.allowed).toBe(true)
      const given = await booking[verb]()
      const { balance } = await seen.peek(key)
      expect(given, verb).toBeGreaterThan(0)
      expect(await again(3)).toEqual([given, given, given])
      expect((await seen.peek(key)).balance, verb).toBe(balance)
      for (const name of await keysUnder(here.redis, `sluice:{${key}}`))
        expect(await here.redis.pttl(name), name).toBeGreaterThan(0)
    }
  })

  test.each(BOOKABLE)('of a booking ahead comes back once: $name', async ({ of }) => {
    const { client, again } = resending(here.redis)
    const limiter = limiterOf(of(2, '10s'), { client })
    const seen = limiterOf(of(2, '10s'))
    await limiter.drain('k')
    const [booking, later] = [await limiter.reserve('k'), await limiter.reserve('k')]
    expect(later.waitMs).toBeGreaterThan(0)
    expect(await later.cancel()).toBeGreaterThan(0)
    const between = await seen.peek('k')
    await again(2)
    expect((await seen.peek('k')).balance).toBe(between.balance)
    // What another has booked since then stays booked.
    const theirs = await seen.reserve('k')
    await again(2)
    expect((await seen.reserve('k')).waitMs).toBeGreaterThan(theirs.waitMs)
    expect(booking.allowed).toBe(true)
  })

  test('comes back to who asks with the reply lost, as often as it is asked', async () => {
    const { client, losing } = resending(here.redis)
    const limiter = limiterOf(tokenBucket({ limit: 5, window: '1h' }), { client })
    const seen = limiterOf(tokenBucket({ limit: 5, window: '1h' }))
    const booking = await limiter.reserve('k', { cost: 2 })
    losing(true)
    await expect(booking.refund()).rejects.toMatchObject({ code: 'SLUICE_STORE_ERROR' })
    losing(false)
    await booking.refund()
    expect((await seen.peek('k')).remaining).toBe(5)
  })

  test.each(BOOKABLE)("by one of two processes is not the other one's: $name", async ({ of }) => {
    const [mine, yours] = [here.redis, other].map(client => limiterOf(of(4, '1h'), { client })) as [L, L]
    const [a, b] = await Promise.all([mine.reserve('k', { maxWait: 0 }), yours.reserve('k', { maxWait: 0 })])
    const refunds = await Promise.all(
      [a, b].filter(({ allowed }) => allowed).map(booking => booking.refund()),
    )
    for (const given of refunds) expect(given).toBeLessThanOrEqual(1)
    const { balance } = await mine.peek('k')
    const fresh = (await mine.peek('never seen')).balance
    expect(balance).toBeLessThanOrEqual(fresh)
    expect(await a.refund()).toBe(0)
    expect(await b.refund()).toBe(0)
    expect((await mine.peek('k')).balance).toBe(balance)
  })
})

/** A client that remembers the last script it ran, to run it again, and can lose its replies. */
function resending(redis: Redis) {
  let last: (() => Promise<unknown>) | undefined
  let isLosing = false
  const run = async (call: () => Promise<unknown>) => {
    const reply = await call()
    last = call
    if (isLosing) throw new Error('the connection was lost')
    return reply
  }
  const client: RedisClient = {
    evalsha: (sha, count, ...rest) => run(() => redis.evalsha(sha, count, ...rest)),
    eval: (text, count, ...rest) => run(() => redis.eval(text, count, ...rest)),
    scan: redis.scan.bind(redis),
    unlink: redis.unlink.bind(redis),
  }
  return {
    client,
    losing: (on: boolean) => {
      isLosing = on
    },
    async again(times: number): Promise<number[]> {
      const replies: number[] = []
      for (let time = 0; time < times; time++) replies.push(Number(await last?.()))
      return replies
    },
  }
}

describe('bookings of two processes', () => {
  test.each(BOOKABLE)('are for different instants: $name', async ({ of }) => {
    const [mine, yours] = [here.redis, other].map(client => limiterOf(of(1, '1s'), { client })) as [L, L]
    const bookings = await Promise.all(
      Array.from({ length: 10 }, (_, index) => (index % 2 ? mine : yours).reserve('k', { maxWait: '1h' })),
    )
    const granted = bookings.filter(({ allowed }) => allowed).map(({ waitMs }) => waitMs)
    expect(granted.length).toBeGreaterThan(1)
    // Where a rested key has more than one permit, they are all for now.
    const ahead = granted.filter(waitMs => waitMs > 0)
    expect(new Set(ahead).size).toBe(ahead.length)
  })

  test.each(ALGORITHMS)('in acquire are waited for in the order of coming: $name', async ({ of }) => {
    const limiter = limiterOf(of(6, '6s'))
    await limiter.drain('k')
    const order: number[] = []
    const waits = Array.from({ length: 5 }, (_, index) => limiter.acquire('k').then(() => order.push(index)))
    // All have been booked, or told to wait, before time goes on.
    await until(() => limiter.stats().waiting === waits.length)
    for (let seconds = 0; order.length < waits.length && seconds < 60; seconds++) {
      await until(() => clock.alarms > 0 || order.length === waits.length)
      clock.advance('1s')
    }
    await Promise.all(waits)
    expect(order).toEqual([0, 1, 2, 3, 4])
  })
})

/** Lets the server answer until something is the case. */
async function until(isSo: () => boolean): Promise<void> {
  while (!isSo()) {
    await here.redis.ping()
    await new Promise(setImmediate)
  }
}

describe('a window', () => {
  // express-rate-limit/rate-limit-redis 6.0.1 (S46)
  test.each(ALGORITHMS)('of a fraction of a microsecond is none: $name', ({ of }) => {
    expect(() => of(5, 1000 / 3)).toThrow(expect.objectContaining({ code: 'SLUICE_INVALID_OPTION' }))
  })

  test.each(ALGORITHMS)(
    'of a fraction of a millisecond is the same here and in memory: $name',
    async ({ of }) => {
      const ours = limiterOf(of(3, 333.333))
      const alone = createLimiter(asOnRedis(of(3, 333.333)), { clock, store: memoryStore() })
      for (let asks = 0; asks < 40; asks++) {
        const [a, b] = [await ours.tryAcquire('k'), alone.tryAcquire('k')]
        expect(a.toJSON()).toEqual(b.toJSON())
        clock.advance(asks % 3 === 0 ? 111.111 : 7.001)
      }
      for (const key of await here.redis.keys('*')) expect(await here.redis.pttl(key)).toBeGreaterThan(0)
    },
  )
})

describe('another process with other options', () => {
  // Tabcorp/redis-rate-limiter#44 (S52)
  // A smooth limiter has granted the last of them in advance, and who comes next waits for that as it was granted.
  test.each(RESTING)('has a shorter window at once: $name', async ({ of }) => {
    const before = limiterOf(of(10, '1h'))
    await before.drain('k')
    const after = limiterOf(of(10, '1s'), { client: other })
    const refused = await after.tryAcquire('k')
    expect(refused.retryAfterMs).toBeLessThanOrEqual(1000)
    clock.advance(refused.retryAfterMs)
    expect((await after.tryAcquire('k')).allowed).toBe(true)
    clock.advance('5s')
    for (let asks = 0; asks < 4; asks++) {
      const { retryAfterMs } = await after.tryAcquire('k')
      expect(retryAfterMs).toBeLessThanOrEqual(1000)
    }
  })

  test.each(ALGORITHMS)('has a longer window at once: $name', async ({ of }) => {
    await limiterOf(of(10, '1s')).drain('k')
    const after = limiterOf(of(10, '1h'), { client: other })
    clock.advance(1)
    expect((await after.tryAcquire('k')).allowed).toBe(false)
  })

  test.each(RESTING)(
    'has what a higher limit adds, and not what a lower one takes: $name',
    async ({ of }) => {
      await limiterOf(of(10, '1h')).drain('k')
      const higher = limiterOf(of(14, '1h'), { client: other })
      expect((await higher.peek('k')).remaining).toBeLessThanOrEqual(5)
      const lower = limiterOf(of(5, '1h'), { client: other })
      expect((await lower.tryAcquire('k')).allowed).toBe(false)
    },
  )

  test.each(RESTING)('gains nothing by taking turns with those of the old ones: $name', async ({ of }) => {
    const [old, young] = [limiterOf(of(10, '1h')), limiterOf(of(10, '30m'), { client: other })]
    let granted = 0
    for (let asks = 0; asks < 60; asks++)
      if ((await (asks % 2 ? old : young).tryAcquire('k')).allowed) granted++
    expect(granted).toBeLessThanOrEqual(10)
    expect(granted).toBeGreaterThanOrEqual(1)
    for (const key of await here.redis.keys('*'))
      expect(await here.redis.pttl(key)).toBeGreaterThan(HOUR_MS / 1000)
  })
})

describe('an update', () => {
  test.each(ALGORITHMS)('here and in another process comes to one state: $name', async ({ of }) => {
    const [mine, yours] = [here.redis, other].map(client => limiterOf(of(4, '1m'), { client })) as [L, L]
    await mine.drain('k')
    clock.advance('5s')
    await mine.update(of(8, '1m'))
    await yours.update(of(8, '1m'))
    clock.advance('5s')
    expect((await mine.peek('k')).toJSON()).toEqual((await yours.peek('k')).toJSON())
  })
})
