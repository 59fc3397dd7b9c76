import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import {
  type Algorithm,
  createLimiter,
  cycle,
  fixedWindow,
  leakyBucket,
  slidingLog,
  slidingWindow,
  smoothBursty,
  tokenBucket,
} from '@sluice/core'
import { limitRoute } from '@sluice/core/http'
import { type RedisClient, redisStore } from '@sluice/redis'
import type { Redis } from 'ioredis'
import { describe, expect, test } from 'vitest'
import { ALGORITHMS } from './algorithms.js'
import { keysUnder } from './server.js'
import { BOOKABLE, sharedLimits } from './shared-limits.js'

const here = sharedLimits()

describe('a refund', () => {
  // rhinobase/hono-rate-limiter#67
  test('gives nothing back after the window has ended', async () => {
    const limiter = here.limiterOf(fixedWindow({ limit: 2, window: '200ms' }))
    const slow = await limiter.reserve('k', { maxWait: 0 })
    here.clock.advance(230)
    expect((await limiter.tryAcquire('k')).allowed).toBe(true)
    here.clock.advance(30)
    expect(await slow.refund()).toBe(0)
    here.clock.advance(5)
    expect((await limiter.tryAcquire('k')).allowed).toBe(true)
    here.clock.advance(1)
    expect(await limiter.tryAcquire('k')).toMatchObject({ allowed: false, remaining: 0, balance: 0 })
    for (const key of await here.redis.keys('*')) expect(await here.redis.pttl(key)).toBeGreaterThan(0)
  })

  test('of a failed request gives nothing back after the window has ended', async () => {
    const limiter = here.limiterOf(fixedWindow({ limit: 2, window: '200ms' }))
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
      here.clock.advance(230)
      expect(await status()).toBe(200)
      here.clock.advance(30)
      arrived[0]?.()
      expect((await slow).status).toBe(500)
      here.clock.advance(5)
      expect(await status()).toBe(200)
      here.clock.advance(1)
      expect(await status()).toBe(429)
      expect((await limiter.peek('k')).balance).toBe(0)
    } finally {
      app.close()
    }
  })

  test.each(ALGORITHMS)('gives nothing back once the key has refilled: $name', async ({ of }) => {
    const limiter = here.limiterOf(of(3, '1s'))
    const fresh = (await limiter.peek('k')).balance
    const booking = await limiter.reserve('k', { maxWait: 0 })
    here.clock.advance('1h')
    expect(await booking.refund()).toBe(0)
    expect((await limiter.peek('k')).balance).toBe(fresh)
  })

  test.each(ALGORITHMS)(
    'gives nothing back after another process has reset the key: $name',
    async ({ of }) => {
      const [mine, yours] = here.twoProcesses(of(3, '1m'))
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
    },
  )

  test.each(ALGORITHMS)(
    'gives back once although the client sends the command again: $name',
    async ({ of }) => {
      for (const verb of ['cancel', 'refund'] as const) {
        const { client, again } = resending(here.redis)
        const limiter = here.limiterOf(of(6, '1h'), { client })
        const seen = here.limiterOf(of(6, '1h'))
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
    },
  )

  test.each(BOOKABLE)(
    'of a booking ahead gives back once although the client sends the command again: $name',
    async ({ of }) => {
      const { client, again } = resending(here.redis)
      const limiter = here.limiterOf(of(2, '10s'), { client })
      const seen = here.limiterOf(of(2, '10s'))
      await limiter.drain('k')
      const [booking, later] = [await limiter.reserve('k'), await limiter.reserve('k')]
      expect(later.waitMs).toBeGreaterThan(0)
      expect(await later.cancel()).toBeGreaterThan(0)
      const between = await seen.peek('k')
      await again(2)
      expect((await seen.peek('k')).balance).toBe(between.balance)
      // A later booking of another process stays booked.
      const theirs = await seen.reserve('k')
      await again(2)
      expect((await seen.reserve('k')).waitMs).toBeGreaterThan(theirs.waitMs)
      expect(booking.allowed).toBe(true)
    },
  )

  test('can be repeated after its reply was lost, and gives back once', async () => {
    const { client, losing } = resending(here.redis)
    const limiter = here.limiterOf(tokenBucket({ limit: 5, window: '1h' }), { client })
    const seen = here.limiterOf(tokenBucket({ limit: 5, window: '1h' }))
    const booking = await limiter.reserve('k', { cost: 2 })
    losing(true)
    await expect(booking.refund()).rejects.toMatchObject({ code: 'SLUICE_STORE_ERROR' })
    losing(false)
    await booking.refund()
    expect((await seen.peek('k')).remaining).toBe(5)
  })

  test.each(BOOKABLE)('gives back only the permits of its own process: $name', async ({ of }) => {
    const [mine, yours] = here.twoProcesses(of(4, '1h'))
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

describe('a refund in the same tick as an update', () => {
  test.each<[string, (limit: number) => Algorithm]>([
    ['tokenBucket', limit => tokenBucket({ limit, window: '1h' })],
    ['leakyBucket', limit => leakyBucket({ limit, window: '1h', capacity: limit })],
    ['fixedWindow', limit => fixedWindow({ limit, window: '1h' })],
    ['slidingWindow', limit => slidingWindow({ limit, window: '1h' })],
    ['slidingLog', limit => slidingLog({ limit, window: '1h' })],
    ['cycle', limit => cycle({ limit, period: '1h' })],
    ['smoothBursty', limit => smoothBursty({ limit, window: '1h', maxBurst: '1h' })],
  ])('gives the permits back: %s', async (_, make) => {
    const limiter = here.byServerClock(make(10))
    const booking = await limiter.reserve('k', { cost: 4, maxWait: 0 })
    const updated = limiter.update(make(20))
    const given = await booking.refund()
    await updated
    expect(given).toBeGreaterThan(3.9)
  })
})

test('the note of a refund lives for five minutes at most, however long the window', async () => {
  const limiter = here.byServerClock(fixedWindow({ limit: 10, window: '30d' }), 'noted')
  await limiter.tryAcquire('k')
  await (await limiter.reserve('k', { maxWait: 0 })).refund()
  const [note = ''] = await here.redis.keys('*:noted:given:*')
  expect(await here.redis.pttl(note)).toBeGreaterThan(0)
  expect(await here.redis.pttl(note)).toBeLessThanOrEqual(300_000)
})

test('a release gives back once although the client sends the command twice', async () => {
  const twice = {
    async evalsha(...args: [sha: string, keys: number, ...string[]]) {
      const isRelease = String(args.at(-1)).includes('"release"')
      if (isRelease) await here.redis.evalsha(...args).catch(() => {})
      return here.redis.evalsha(...args)
    },
    eval: (...args: [script: string, keys: number, ...string[]]) => here.redis.eval(...args),
    scan: () => Promise.reject(new Error('not used')),
    unlink: (...keys: string[]) => here.redis.unlink(...keys),
  }
  const store = redisStore(twice, { deadline: '10s' })
  const limiter = createLimiter(tokenBucket({ limit: 100, window: '10h' }), { name: 'released', store })
  await limiter.tryAcquire('k', { cost: 50 })
  await limiter.release('k', 1)
  await limiter.release('k', 10)
  expect((await limiter.peek('k')).remaining).toBe(61)
})

/** A client that can run its last script again, and can lose its replies. */
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
