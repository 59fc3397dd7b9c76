import { type SmoothWarmingUpOptions, smoothWarmingUp } from '@sluice/core'
import { describe, expect, test } from 'vitest'
import { describeFaults, NOT_A_SPAN, NOT_A_WAIT, NOT_WHOLE } from './faults.js'
import { expectSteps, fromStart, type Table } from './steps.js'

/** 500 ms apart when warm, 1500 ms when cold; 8 permits are stored then, and those above 4 are dear. */
const twoPerSecond = { limit: 2, window: '1s', warmup: '4s' } as const
const DAY_MS = 86_400_000

test.each<Table<SmoothWarmingUpOptions>>([
  [
    'a key never seen is cold, and warms up in use',
    twoPerSecond,
    [
      [0, 0, 0, 'granted', 0, { remaining: 1, refillMs: 0, resetMs: 0, balance: 1 }],
      [0, 1, Infinity, 'granted', 0, { remaining: 0, refillMs: 1375, resetMs: 1875, balance: -1.75 }],
      [0, 1, Infinity, 'granted', 1375, { remaining: 0, refillMs: 2500, resetMs: 3500 }],
      [0, 1, Infinity, 'granted', 2500, { remaining: 0, refillMs: 3375 }],
      [0, 1, Infinity, 'granted', 3375, { remaining: 0, refillMs: 4000 }],
      [0, 1, Infinity, 'granted', 4000, { remaining: 0, refillMs: 4500 }],
      [0, 1, Infinity, 'granted', 4500, { remaining: 0, refillMs: 5000 }],
      [0, 1, 0, 'refused', 5000, { remaining: 0 }],
    ],
  ],
  [
    'without patience an ask passes when the one before it has been paid for, to the microsecond',
    twoPerSecond,
    [
      [0, 1, 0, 'granted', 0, { remaining: 0 }],
      [1374.999, 1, 0, 'refused', 0.001, { remaining: 0 }],
      [1375, 1, 0, 'granted', 0, { remaining: 0, refillMs: 1125 }],
      [2499.999, 1, 0, 'refused', 0.001, { remaining: 0 }],
      [2500, 1, 0, 'granted', 0, { remaining: 0, refillMs: 875 }],
    ],
  ],
  [
    'once warm, in any span the rate and one ask',
    twoPerSecond,
    [
      [0, 8, 0, 'granted', 0, { remaining: 0, refillMs: 6000, resetMs: 10_000 }],
      [5999.999, 1, 0, 'refused', 0.001, { remaining: 0 }],
      [6000, 1, 0, 'granted', 0, { remaining: 0, refillMs: 500 }],
      [6499.999, 1, 0, 'refused', 0.001, { remaining: 0 }],
      [6500, 1, 0, 'granted', 0, { remaining: 0, refillMs: 500 }],
      [7000, 4, 0, 'granted', 0, { remaining: 0, refillMs: 2000 }],
      [8999.999, 1, 0, 'refused', 0.001, { remaining: 0 }],
    ],
  ],
  [
    'the first half of its idleness leaves it warm, the second makes it cold',
    twoPerSecond,
    [
      [0, 8, 0, 'granted', 0, { remaining: 0 }],
      [8000, 1, 0, 'granted', 0, { remaining: 0, refillMs: 500, resetMs: 3000 }],
      [11_000, 1, 0, 'granted', 0, { remaining: 0, refillMs: 1375 }],
    ],
  ],
  [
    'who asks more slowly than it cools down never sees it warm',
    twoPerSecond,
    [
      [0, 1, 0, 'granted', 0, { remaining: 0, refillMs: 1375 }],
      [2000, 1, 0, 'granted', 0, { remaining: 0, refillMs: 1375 }],
      [4000, 1, 0, 'granted', 0, { remaining: 0, refillMs: 1375 }],
    ],
  ],
  [
    'a wait beyond maxWait is refused; retryAfter is when the same patience suffices, wait when none is needed',
    twoPerSecond,
    [
      [0, 1, 0, 'granted', 0, { remaining: 0 }],
      [0, 1, 1000, 'refused', 1375, { remaining: 0, retryMs: 375 }],
      [374.999, 1, 1000, 'refused', 1000.001, { remaining: 0, retryMs: 0.001 }],
      [375, 1, 1000, 'granted', 1000, { remaining: 0, refillMs: 2125 }],
    ],
  ],
  [
    'a refusal changes nothing',
    twoPerSecond,
    [
      [0, 1, 0, 'granted', 0, { remaining: 0 }],
      [375, 7, 0, 'refused', 1000, { remaining: 0, balance: -1 }],
      [375, 1, 0, 'refused', 1000, { remaining: 0, balance: -1 }],
      [1375, 1, 0, 'granted', 0, { remaining: 0, refillMs: 1125 }],
    ],
  ],
  [
    'only a debt that leaves 2^53 microseconds is never granted',
    twoPerSecond,
    [
      [0, Number.MAX_SAFE_INTEGER, Infinity, 'refused', Infinity, { remaining: 1, balance: 1 }],
      [0, 1_000_000, 0, 'granted', 0, { remaining: 0, refillMs: 500_002_000 }],
    ],
  ],
  [
    'with a coldFactor of 1 cold is as good as warm',
    { ...twoPerSecond, coldFactor: 1 },
    [
      [0, 1, 0, 'granted', 0, { remaining: 0, refillMs: 500 }],
      [500, 1, 0, 'granted', 0, { remaining: 0, refillMs: 500 }],
      [60_000, 1, 0, 'granted', 0, { remaining: 0, refillMs: 500 }],
    ],
  ],
  [
    'with a higher coldFactor it starts more slowly and takes as long',
    { ...twoPerSecond, coldFactor: 7 },
    [
      [0, 1, 0, 'granted', 0, { remaining: 0, refillMs: 2750 }],
      [2750, 1, 0, 'granted', 0, { remaining: 0, refillMs: 1250 }],
      [4000, 1, 0, 'granted', 0, { remaining: 0, refillMs: 500 }],
    ],
  ],
  [
    'with a warmup of 0 nothing is stored and nothing is dear',
    { ...twoPerSecond, warmup: 0 },
    [
      [0, 1, 0, 'granted', 0, { remaining: 0, refillMs: 500, resetMs: 500 }],
      [499.999, 1, 0, 'refused', 0.001, { remaining: 0 }],
      [60_000, 1, 0, 'granted', 0, { remaining: 0 }],
      [60_000, 1, 0, 'refused', 500, { remaining: 0 }],
    ],
  ],
  [
    'cost 0 is always granted, waits for nobody and changes nothing',
    twoPerSecond,
    [
      [0, 1, 0, 'granted', 0, { remaining: 0 }],
      [0, 0, 0, 'granted', 0, { remaining: 0, refillMs: 1375, resetMs: 1875 }],
    ],
  ],
  [
    'limit 0 refuses everything for good',
    { limit: 0, window: '1m', warmup: '1m' },
    [
      [0, 1, Infinity, 'refused', Infinity, { remaining: 0, refillMs: Infinity, resetMs: 0, balance: 0 }],
      [0, 0, 0, 'granted', 0, { remaining: 0 }],
      [365 * DAY_MS, 1, 0, 'refused', Infinity, { remaining: 0 }],
    ],
  ],
  [
    'time that goes back cools nothing down',
    twoPerSecond,
    [
      [1000, 1, 0, 'granted', 0, { remaining: 0 }],
      [375, 1, 0, 'refused', 2000, { remaining: 0 }],
      [2375, 1, 0, 'granted', 0, { remaining: 0, refillMs: 1125 }],
    ],
  ],
  [
    'one a year is as good as one a second',
    { limit: 1, window: '365d', warmup: '365d' },
    [
      [0, 1, 0, 'granted', 0, { remaining: 0 }],
      [30 * DAY_MS, 1, 0, 'refused', 517.5 * DAY_MS, { remaining: 0 }],
      [547.5 * DAY_MS - 0.001, 1, 0, 'refused', 0.001, { remaining: 0 }],
      [547.5 * DAY_MS, 1, 0, 'granted', 0, { remaining: 0, refillMs: 365 * DAY_MS }],
    ],
  ],
])('%s', (_rule, options, rows) => {
  expectSteps(smoothWarmingUp(options), rows)
})

describe('giving back', () => {
  function booking() {
    const { limiter, at } = fromStart(smoothWarmingUp(twoPerSecond))
    const book = (cost = 1) => limiter.reserve('key', { cost })
    return { limiter, at, book, nextWait: () => limiter.peek('key').waitMs }
  }

  test('cancelled before its instant: all of it, and it is as cold as before; exactly once', () => {
    const { book, nextWait } = booking()
    book()
    const second = book(3)
    expect([second.waitMs, nextWait()]).toEqual([1375, 4000])
    expect([second.cancel(), second.cancel(), second.refund()]).toEqual([3, 0, 0])
    expect([book().waitMs, nextWait()]).toEqual([1375, 2500])
  })

  test('cancelled before its instant: nothing while somebody is behind, whose slot starts where this one ends', () => {
    const { book, nextWait } = booking()
    book()
    const second = book(3)
    const third = book()
    expect([second.cancel(), nextWait()]).toEqual([0, 4500])
    expect([third.cancel(), nextWait()]).toEqual([1, 4000])
    expect([second.cancel(), nextWait()]).toEqual([3, second.waitMs])
  })

  test('cancelled at its instant still works, after it no more', () => {
    const { book, at } = booking()
    book()
    const second = book()
    at(1375.001)
    expect(second.cancel()).toBe(0)
    at(1375)
    expect(second.cancel()).toBe(1)
  })

  test('refunded: what of the time it cost has not passed', () => {
    const { book, at, nextWait } = booking()
    const first = book(8)
    at(1500)
    expect([first.refund(), first.refund(), nextWait()]).toEqual([6, 0, 0])
    const second = book(1)
    at(60_000)
    expect(second.refund()).toBe(0)
  })

  test('refunded: never what those who wait count on', () => {
    const { book, nextWait } = booking()
    const first = book()
    const waiting = book(3)
    expect(waiting.waitMs).toBe(1375)
    expect([first.refund(), nextWait()]).toEqual([0, 4000])
  })

  test('release gives back time and coldness in proportion, and nothing while somebody waits', () => {
    const { book, limiter, nextWait } = booking()
    book(8)
    // A quarter of eight permits that cost 6 s.
    expect([limiter.release('key', 2), nextWait()]).toEqual([2, 4500])
    book()
    expect([limiter.release('key', 2), nextWait()]).toEqual([0, 5000])
    expect(limiter.release('never seen', 1)).toBe(0)
  })

  test('release gives back no more than was taken, however often it is called', () => {
    const { book, limiter } = booking()
    book()
    expect(limiter.release('key', 1) + limiter.release('key', 5)).toBeLessThanOrEqual(1)
  })

  test('drain takes the one permit that is there', () => {
    const { limiter, nextWait } = booking()
    expect([limiter.drain('key'), limiter.drain('key'), nextWait()]).toEqual([1, 0, 1375])
  })
})

describe('update', () => {
  test('it stays as cold as it is', () => {
    const { limiter } = fromStart(smoothWarmingUp(twoPerSecond))
    limiter.tryAcquire('key')
    limiter.update(smoothWarmingUp({ ...twoPerSecond, limit: 4 }))
    // 14 of 16 permits are stored now; the next costs 593.75 ms, which is the mean of 625 and 562.5.
    expect(limiter.reserve('key').waitMs).toBe(1375)
    expect(limiter.peek('key').waitMs).toBe(1968.75)
  })

  test('what is owed stays owed in time, as in Guava', () => {
    const { limiter, at } = fromStart(smoothWarmingUp(twoPerSecond))
    limiter.tryAcquire('key', { cost: 8 })
    at(1000)
    limiter.update(smoothWarmingUp({ ...twoPerSecond, window: '1h' }))
    expect(limiter.peek('key').waitMs).toBe(5000)
  })

  test('until then it has cooled down by the old warmup', () => {
    const { limiter, at } = fromStart(smoothWarmingUp(twoPerSecond))
    limiter.tryAcquire('key', { cost: 8 })
    at(9000)
    // Of 8 permits 6 are stored, which become 12 of 16; the next costs the mean of 1000 and 875 ms.
    limiter.update(smoothWarmingUp({ ...twoPerSecond, warmup: '8s' }))
    limiter.tryAcquire('key')
    expect(limiter.peek('key').waitMs).toBe(937.5)
  })

  test('a limit that is switched off and on again keeps what is owed', () => {
    const { limiter, at } = fromStart(smoothWarmingUp({ ...twoPerSecond, coldFactor: 1 }))
    limiter.tryAcquire('key', { cost: 4 })
    limiter.update(smoothWarmingUp({ ...twoPerSecond, limit: 0 }))
    expect(limiter.peek('key').waitMs).toBe(Infinity)
    at(60_000)
    limiter.update(smoothWarmingUp({ ...twoPerSecond, coldFactor: 1 }))
    expect(limiter.peek('key').waitMs).toBe(2000)
  })
})

describeFaults<SmoothWarmingUpOptions>(
  smoothWarmingUp,
  { ...twoPerSecond, coldFactor: 3 },
  {
    limit: NOT_WHOLE,
    window: NOT_A_SPAN,
    warmup: [...NOT_A_WAIT, [undefined, TypeError], [null, TypeError], [Infinity, RangeError]],
    coldFactor: [
      ['3', TypeError],
      [3n, TypeError],
      [null, TypeError],
      [Number.NaN, RangeError],
      [0.99, RangeError],
      [-3, RangeError],
      [Infinity, RangeError],
    ],
  },
  { max: 'limit', timeWindow: 'window', warmUp: 'warmup', coldfactor: 'coldFactor' },
)
