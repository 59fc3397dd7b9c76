import { createLimiter, memoryStore, tokenBucket, tryAcquireAll } from '@sluice/core'
import { redisStore } from '@sluice/redis'
import { describe, expect, test } from 'vitest'
import { ALGORITHMS, asOnRedis } from './algorithms.js'
import { callsOf } from './server.js'
import { BOOKABLE, sharedLimits } from './shared-limits.js'

const here = sharedLimits()

describe('two processes that call at once', () => {
  // nestjs/throttler#1303
  test.each(ALGORITHMS)('get no more permits together than one alone: $name', async ({ of }) => {
    const [mine, yours] = here.twoProcesses(of(5, '1h'))
    const alone = createLimiter(asOnRedis(of(5, '1h')), { clock: here.clock, store: memoryStore() })
    const asks = Array.from({ length: 1000 }, (_, index) => index)
    const expected = asks.filter(() => alone.tryAcquire('A').allowed).length
    const decisions = await Promise.all(asks.map(index => (index % 2 ? mine : yours).tryAcquire('A')))
    expect(decisions.filter(({ allowed }) => allowed)).toHaveLength(expected)
    expect(expected).toBeGreaterThanOrEqual(1)
    expect(expected).toBeLessThanOrEqual(6)
  })

  test.each(BOOKABLE)('book different instants: $name', async ({ of }) => {
    const [mine, yours] = here.twoProcesses(of(1, '1s'))
    const bookings = await Promise.all(
      Array.from({ length: 10 }, (_, index) => (index % 2 ? mine : yours).reserve('k', { maxWait: '1h' })),
    )
    const granted = bookings.filter(({ allowed }) => allowed).map(({ waitMs }) => waitMs)
    expect(granted.length).toBeGreaterThan(1)
    // A rested key with several permits grants all of them at once.
    const ahead = granted.filter(waitMs => waitMs > 0)
    expect(new Set(ahead).size).toBe(ahead.length)
  })
})

test.each(ALGORITHMS)('acquire grants waiting callers in the order of their calls: $name', async ({ of }) => {
  const limiter = here.limiterOf(of(6, '6s'))
  await limiter.drain('k')
  const order: number[] = []
  const waits = Array.from({ length: 5 }, (_, index) => limiter.acquire('k').then(() => order.push(index)))
  // Time stands still until all of them wait.
  await until(() => limiter.stats().waiting === waits.length)
  for (let seconds = 0; order.length < waits.length && seconds < 60; seconds++) {
    await until(() => here.clock.alarms > 0 || order.length === waits.length)
    here.clock.advance('1s')
  }
  await Promise.all(waits)
  expect(order).toEqual([0, 1, 2, 3, 4])
})

/** Lets the server answer until a condition holds. */
async function until(holds: () => boolean): Promise<void> {
  while (!holds()) {
    await here.redis.ping()
    await new Promise(setImmediate)
  }
}

test('drain takes all permits while other callers keep taking some', async () => {
  const limiter = here.byServerClock(tokenBucket({ limit: 1_000_000, window: '100h' }))
  let isOver = false
  let taken = 0
  const callers = Array.from({ length: 16 }, async () => {
    for (; !isOver; taken++) await limiter.tryAcquire('k')
  })
  await until(() => taken > 100)
  const drained = await limiter.drain('k')
  isOver = true
  await Promise.all(callers)
  expect(drained).toBeGreaterThan(900_000)
  expect((await limiter.peek('k')).remaining).toBeLessThan(100)
})

test('tryAcquireAll makes one call to the server, for one limiter and for two', async () => {
  const single = here.byServerClock(tokenBucket({ limit: 9, window: '1h' }))
  const store = redisStore(here.redis, { deadline: '10s' })
  const both = ['a', 'b'].map(name => createLimiter(tokenBucket({ limit: 9, window: '1h' }), { name, store }))
  const asks = both.map(limiter => ({ limiter, key: 'k' }))
  await tryAcquireAll(asks)
  await tryAcquireAll([{ limiter: single, key: 'k' }])
  expect(await scriptsDuring(() => tryAcquireAll([{ limiter: single, key: 'k' }]))).toBe(1)
  expect(await scriptsDuring(() => tryAcquireAll(asks))).toBe(1)
})

/** How many script calls the server gets during an act. */
async function scriptsDuring(act: () => Promise<unknown>): Promise<number> {
  await callsOf(here.redis)
  await act()
  const { evalsha = 0, eval: evaluated = 0 } = await callsOf(here.redis)
  return evalsha + evaluated
}
