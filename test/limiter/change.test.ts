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
  unlimited,
} from '@sluice/core'
import { manualClock } from '@sluice/core/testing'
import { describe, expect, test } from 'vitest'
import { nextTick, outcome } from '../support/outcome.js'

type Rate = { limit: number; window: '1h' | '1s' | '1m' }

const FACTORIES: readonly (readonly [string, (rate: Rate) => Algorithm])[] = [
  ['tokenBucket', tokenBucket],
  ['leakyBucket', rate => leakyBucket({ ...rate, capacity: 20 })],
  ['fixedWindow', fixedWindow],
  ['slidingWindow', slidingWindow],
  ['slidingLog', slidingLog],
  ['cycle', ({ limit, window }) => cycle({ limit, period: window })],
]

describe.each(FACTORIES)('%s, updated while callers wait', (_name, algorithm) => {
  function exhausted() {
    const clock = manualClock()
    const limiter = createLimiter(algorithm({ limit: 10, window: '1h' }), { clock })
    while (limiter.tryAcquire('key').allowed);
    return { clock, limiter }
  }

  test('a limit exhausted at 10 per hour and changed to 10 per second admits a waiter within a second', async () => {
    const { clock, limiter } = exhausted()
    const wait = outcome(limiter.acquire('key'), clock)
    expect(clock.alarms).toBe(1)
    limiter.update(algorithm({ limit: 10, window: '1s' }))
    clock.advance('1s')
    const { settledAfterMs, value } = await wait
    expect(value).toMatchObject({ allowed: true })
    expect(settledAfterMs).toBeLessThanOrEqual(1000)
    expect(clock.alarms).toBe(0)
  })

  test('refuses a waiter if its wait at the new limit exceeds its maxWait', async () => {
    const clock = manualClock()
    const limiter = createLimiter(algorithm({ limit: 1, window: '1s' }), { clock })
    while (limiter.tryAcquire('key').allowed);
    const wait = outcome(limiter.acquire('key', { maxWait: '2s' }), clock)
    limiter.update(algorithm({ limit: 0, window: '1h' }))
    clock.advance('1h')
    expect((await wait).error).toMatchObject({ code: 'SLUICE_RATE_LIMITED' })
    expect(clock.alarms).toBe(0)
  })

  test('keeps the order of the waiters', async () => {
    const { clock, limiter } = exhausted()
    const order: number[] = []
    const waits = [0, 1, 2].map(number => limiter.acquire('key').then(() => order.push(number)))
    limiter.update(algorithm({ limit: 2, window: '1s' }))
    for (let half = 0; half < 8; half++) {
      clock.advance(500)
      await nextTick()
    }
    await Promise.all(waits)
    expect(order).toEqual([0, 1, 2])
  })

  test('a reset of the key grants its waiter', async () => {
    const { clock, limiter } = exhausted()
    const wait = outcome(limiter.acquire('key'), clock)
    limiter.reset('key')
    expect(await wait).toMatchObject({ settledAfterMs: 0, value: { allowed: true } })
  })
})

test('an update to unlimited() grants every waiter', async () => {
  const clock = manualClock()
  const limiter = createLimiter(tokenBucket({ limit: 1, window: '1h' }), { clock })
  limiter.tryAcquire('key')
  const waits = [limiter.acquire('key'), limiter.acquire('key')]
  limiter.update(unlimited())
  expect(await Promise.all(waits)).toMatchObject([{ allowed: true }, { allowed: true }])
})

test('keeps waiters across updates between algorithms that can and cannot book', async () => {
  const clock = manualClock()
  const limiter = createLimiter(tokenBucket({ limit: 1, window: '1h' }), { clock })
  limiter.tryAcquire('key')
  const first = outcome(limiter.acquire('key'), clock)
  const second = outcome(limiter.acquire('key'), clock)
  limiter.update(fixedWindow({ limit: 1, window: '1m' }))
  expect(await first).toMatchObject({ settledAfterMs: 0, value: { allowed: true } })
  limiter.update(smoothBursty({ limit: 1, window: '1s' }))
  expect(await second).toMatchObject({ settledAfterMs: 0, value: { allowed: true } })
})

test('released permits grant a waiter of a window', async () => {
  const clock = manualClock()
  const limiter = createLimiter(slidingLog({ limit: 2, window: '1h' }), { clock })
  limiter.tryAcquire('key', { cost: 2 })
  const wait = outcome(limiter.acquire('key'), clock)
  expect(limiter.release('key', 1)).toBe(1)
  expect(await wait).toMatchObject({ settledAfterMs: 0, value: { allowed: true } })
  expect(limiter.peek('key').remaining).toBe(0)
})

test('the default maxWait of a leaky bucket is the time to empty its capacity', async () => {
  const clock = manualClock()
  const limiter = createLimiter(leakyBucket({ limit: 2, window: '1s', capacity: 2 }), { clock })
  const waits = [0, 1, 2, 3].map(() => outcome(limiter.acquire('key'), clock))
  for (let half = 0; half < 4; half++) {
    await nextTick()
    clock.advance(500)
  }
  const [first, second, third, fourth] = await Promise.all(waits)
  expect([first, second, third].map(wait => wait?.settledAfterMs)).toEqual([0, 500, 1000])
  expect(fourth).toMatchObject({ settledAfterMs: 0, error: { code: 'SLUICE_RATE_LIMITED' } })

  const impatient = createLimiter(leakyBucket({ limit: 2, window: '1s', capacity: 2 }), { clock, maxWait: 0 })
  expect([impatient.reserve('key').allowed, impatient.reserve('key').allowed]).toEqual([true, false])
})

test('the capacity of a leaky bucket is the number of waiters', async () => {
  const clock = manualClock()
  const limiter = createLimiter(leakyBucket({ limit: 10, window: '1s', capacity: 50 }), { clock })
  const waits = Array.from({ length: 52 }, () => outcome(limiter.acquire('key'), clock))
  await nextTick()
  clock.advance('5s')
  const refused = (await Promise.all(waits)).filter(({ error }) => error !== undefined)
  expect(refused).toHaveLength(1)
})
