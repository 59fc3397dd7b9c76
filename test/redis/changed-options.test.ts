import { setTimeout as sleep } from 'node:timers/promises'
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
  tryAcquireAll,
} from '@sluice/core'
import { manualClock } from '@sluice/core/testing'
import { redisStore } from '@sluice/redis'
import { describe, expect, test } from 'vitest'
import { callsOf, server } from './server.js'

/*
 * What shows only by the clock of the server, or when processes do not agree. A store is a process here: it knows nothing
 * of others but what they have written.
 */

const here = server()
let names = 0

const on = (algorithm: Algorithm, name = `n${names++}`, clock = undefined as never) =>
  createLimiter(algorithm, { name, store: redisStore(here.redis, { deadline: '10s' }), clock })

/** A clock that can be set to any time. */
class AnyTime {
  us = Date.now() * 1000

  nowUs(): number {
    return this.us
  }
}

/** Calls of scripts that the server has been sent meanwhile. */
async function scriptsDuring(act: () => Promise<unknown>): Promise<number> {
  await callsOf(here.redis)
  await act()
  const { evalsha = 0, eval: evaluated = 0 } = await callsOf(here.redis)
  return evalsha + evaluated
}

test('who waits when the options change is booked anew, and nobody is charged twice', async () => {
  const limiter = on(tokenBucket({ limit: 10, window: '10s', burst: 1 }))
  const waits = Array.from({ length: 3 }, () => limiter.acquire('k'))
  await waits[0]
  await limiter.update(tokenBucket({ limit: 1000, window: '10s', burst: 1 }))
  for (const wait of waits) expect((await wait).allowed).toBe(true)
  expect((await limiter.peek('k')).balance).toBeGreaterThanOrEqual(0)
  expect(limiter.stats().storeErrors).toBe(0)
})

describe('a booking that is given back in the very turn in which the options change', () => {
  test.each<[string, (limit: number) => Algorithm]>([
    ['tokenBucket', limit => tokenBucket({ limit, window: '1h' })],
    ['leakyBucket', limit => leakyBucket({ limit, window: '1h', capacity: limit })],
    ['fixedWindow', limit => fixedWindow({ limit, window: '1h' })],
    ['slidingWindow', limit => slidingWindow({ limit, window: '1h' })],
    ['slidingLog', limit => slidingLog({ limit, window: '1h' })],
    ['cycle', limit => cycle({ limit, period: '1h' })],
    ['smoothBursty', limit => smoothBursty({ limit, window: '1h', maxBurst: '1h' })],
  ])('comes back: %s', async (_, make) => {
    const limiter = on(make(10))
    const booking = await limiter.reserve('k', { cost: 4, maxWait: 0 })
    const updated = limiter.update(make(20))
    const given = await booking.refund()
    await updated
    expect(given).toBeGreaterThan(3.9)
  })
})

describe('a process that does not know of a change', () => {
  test('is not converted as of then, for as long as it goes on', async () => {
    const clock = manualClock()
    const name = `n${names++}`
    const made = tokenBucket({ limit: 10, window: '1s' })
    const [first, second] = [on(made, name, clock as never), on(made, name, clock as never)]
    await first.update(tokenBucket({ limit: 10, window: '1h' }))
    clock.advance('10s')
    await second.tryAcquire('k')
    expect((await first.tryAcquire('k')).remaining).toBe(8)
  })

  test('grants no more than both limits together, whatever they ask in turn', async () => {
    const clock = manualClock()
    const name = `n${names++}`
    const first = on(tokenBucket({ limit: 10, window: '100s' }), name, clock as never)
    const second = on(tokenBucket({ limit: 10, window: '100s' }), name, clock as never)
    await first.update(tokenBucket({ limit: 20, window: '20s' }))
    clock.advance('5s')
    let granted = 0
    for (let asks = 0; asks < 100; asks++) {
      if ((await first.tryAcquire('k')).allowed) granted++
      if ((await second.tryAcquire('k')).allowed) granted++
    }
    expect(granted).toBeLessThanOrEqual(30)
  })

  test('and has other slices shares no window, rather than to clear it', async () => {
    const name = `n${names++}`
    const rates = [10, 20].map(slices => on(slidingWindow({ limit: 5, window: '1h', slices }), name))
    let granted = 0
    for (let asks = 0; asks < 20; asks++)
      for (const limiter of rates) if ((await limiter.tryAcquire('k')).allowed) granted++
    expect(granted).toBe(10)
  })
})

test('what is given back is noted for minutes, however long the window', async () => {
  const limiter = on(fixedWindow({ limit: 10, window: '30d' }), 'noted')
  await limiter.tryAcquire('k')
  await (await limiter.reserve('k', { maxWait: 0 })).refund()
  const [note = ''] = await here.redis.keys('*:noted:given:*')
  expect(await here.redis.pttl(note)).toBeGreaterThan(0)
  expect(await here.redis.pttl(note)).toBeLessThanOrEqual(300_000)
})

test('a release that the client sends twice gives back once', async () => {
  const twice = {
    async evalsha(...args: [sha: string, keys: number, ...string[]]) {
      const isRelease = String(args.at(-1)).includes('"release"')
      if (isRelease) await here.redis.evalsha(...args).catch(() => {})
      return here.redis.evalsha(...args)
    },
    eval: (...args: [script: string, keys: number, ...string[]]) => here.redis.eval(...args),
    scan: () => Promise.reject(new Error('not here')),
    unlink: (...keys: string[]) => here.redis.unlink(...keys),
  }
  const store = redisStore(twice, { deadline: '10s' })
  const limiter = createLimiter(tokenBucket({ limit: 100, window: '10h' }), { name: 'released', store })
  await limiter.tryAcquire('k', { cost: 50 })
  await limiter.release('k', 1)
  await limiter.release('k', 10)
  expect((await limiter.peek('k')).remaining).toBe(61)
})

test('a drain takes what is left while others go on asking', async () => {
  const limiter = on(tokenBucket({ limit: 1_000_000, window: '100h' }))
  let isOver = false
  const lanes = Array.from({ length: 16 }, async () => {
    while (!isOver) await limiter.tryAcquire('k')
  })
  await sleep(20)
  const drained = await limiter.drain('k')
  isOver = true
  await Promise.all(lanes)
  expect(drained).toBeGreaterThan(900_000)
  expect((await limiter.peek('k')).remaining).toBeLessThan(100)
})

test('one ask of several at once is one call, as several are', async () => {
  const [a, b] = [on(tokenBucket({ limit: 9, window: '1h' })), on(fixedWindow({ limit: 9, window: '1h' }))]
  const store = redisStore(here.redis, { deadline: '10s' })
  const both = [a, b].map((_, index) =>
    createLimiter(tokenBucket({ limit: 9, window: '1h' }), { name: `both-${index}`, store }),
  )
  const asks = both.map(limiter => ({ limiter, key: 'k' }))
  await tryAcquireAll(asks)
  await tryAcquireAll([{ limiter: a, key: 'k' }])
  expect(await scriptsDuring(() => tryAcquireAll([{ limiter: a, key: 'k' }]))).toBe(1)
  expect(await scriptsDuring(() => tryAcquireAll(asks))).toBe(1)
})

describe('a clock that jumps back', () => {
  const HOUR_US = 3_600_000_000
  test('takes blocks with it', async () => {
    const clock = new AnyTime()
    const limiter = on(tokenBucket({ limit: 9, window: '1m' }), undefined, clock as never)
    clock.us += 8760 * HOUR_US
    await limiter.block('k', '10s')
    clock.us -= 8760 * HOUR_US
    expect((await limiter.tryAcquire('k')).waitMs).toBe(10_000)
    clock.us += 10_000_000
    expect((await limiter.tryAcquire('k')).allowed).toBe(true)
  })

  test('makes bookings of before give nothing back', async () => {
    const clock = new AnyTime()
    const limiter = on(tokenBucket({ limit: 10, window: '1s' }), undefined, clock as never)
    clock.us += HOUR_US
    const first = await limiter.reserve('k', { cost: 10 })
    await limiter.reserve('k', { cost: 10 })
    clock.us -= HOUR_US
    expect(await first.cancel()).toBe(0)
  })
})

test('an algorithm that does not run there is refused as such, and changes nothing', async () => {
  const limiter = on(tokenBucket({ limit: 9, window: '1h' }))
  const strange = { ...fixedWindow({ limit: 1, window: '1h' }), name: 'strange', step: () => {} }
  expect(() => limiter.update(strange as never)).toThrow(
    expect.objectContaining({ code: 'SLUICE_INVALID_OPTION', option: 'algorithm' }),
  )
  expect((await limiter.tryAcquire('k')).limit).toBe(9)
  expect(limiter.stats().storeErrors).toBe(0)
})
