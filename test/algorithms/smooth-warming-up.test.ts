import { type SmoothWarmingUpOptions, smoothWarmingUp } from '@sluice/core'
import { describe, expect, test } from 'vitest'
import { describeFaults, NOT_A_SPAN, NOT_A_WAIT, NOT_WHOLE } from './faults.js'
import { expectSteps, fromStart, type Table } from './steps.js'

/** An interval of 500 ms when warm and 1500 ms when cold, with 8 stored permits; those above 4 take longer. */
const twoPerSecond = { limit: 2, window: '1s', warmup: '4s' } as const
const DAY_MS = 86_400_000

test.each<Table<SmoothWarmingUpOptions>>([
  [
    'a new key is cold and warms up in use',
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
    'with maxWait 0 a request passes when the debt of the previous one is over, to the microsecond',
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
    'once warm, no span holds more than the rate and one request',
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
    'a key stays warm for the first half of its idle time and cools down in the second',
    twoPerSecond,
    [
      [0, 8, 0, 'granted', 0, { remaining: 0 }],
      [8000, 1, 0, 'granted', 0, { remaining: 0, refillMs: 500, resetMs: 3000 }],
      [11_000, 1, 0, 'granted', 0, { remaining: 0, refillMs: 1375 }],
    ],
  ],
  [
    'a key that is used more slowly than it cools down stays cold',
    twoPerSecond,
    [
      [0, 1, 0, 'granted', 0, { remaining: 0, refillMs: 1375 }],
      [2000, 1, 0, 'granted', 0, { remaining: 0, refillMs: 1375 }],
      [4000, 1, 0, 'granted', 0, { remaining: 0, refillMs: 1375 }],
    ],
  ],
  [
    'a wait longer than maxWait is refused; retryAfterMs ends when the same maxWait is enough',
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
    'only a debt beyond 2^53 microseconds is refused for ever',
    twoPerSecond,
    [
      [0, Number.MAX_SAFE_INTEGER, Infinity, 'refused', Infinity, { remaining: 1, balance: 1 }],
      [0, 1_000_000, 0, 'granted', 0, { remaining: 0, refillMs: 500_002_000 }],
    ],
  ],
  [
    'with coldFactor 1 a cold key is as fast as a warm one',
    { ...twoPerSecond, coldFactor: 1 },
    [
      [0, 1, 0, 'granted', 0, { remaining: 0, refillMs: 500 }],
      [500, 1, 0, 'granted', 0, { remaining: 0, refillMs: 500 }],
      [60_000, 1, 0, 'granted', 0, { remaining: 0, refillMs: 500 }],
    ],
  ],
  [
    'with a higher coldFactor a key starts more slowly and warms up in the same time',
    { ...twoPerSecond, coldFactor: 7 },
    [
      [0, 1, 0, 'granted', 0, { remaining: 0, refillMs: 2750 }],
      [2750, 1, 0, 'granted', 0, { remaining: 0, refillMs: 1250 }],
      [4000, 1, 0, 'granted', 0, { remaining: 0, refillMs: 500 }],
    ],
  ],
  [
    'with warmup 0 no permits are stored and every interval is the same',
    { ...twoPerSecond, warmup: 0 },
    [
      [0, 1, 0, 'granted', 0, { remaining: 0, refillMs: 500, resetMs: 500 }],
      [499.999, 1, 0, 'refused', 0.001, { remaining: 0 }],
      [60_000, 1, 0, 'granted', 0, { remaining: 0 }],
      [60_000, 1, 0, 'refused', 500, { remaining: 0 }],
    ],
  ],
  [
    'cost 0 is always granted at once and changes nothing',
    twoPerSecond,
    [
      [0, 1, 0, 'granted', 0, { remaining: 0 }],
      [0, 0, 0, 'granted', 0, { remaining: 0, refillMs: 1375, resetMs: 1875 }],
    ],
  ],
  [
    'limit 0 refuses everything for ever',
    { limit: 0, window: '1m', warmup: '1m' },
    [
      [0, 1, Infinity, 'refused', Infinity, { remaining: 0, refillMs: Infinity, resetMs: 0, balance: 0 }],
      [0, 0, 0, 'granted', 0, { remaining: 0 }],
      [365 * DAY_MS, 1, 0, 'refused', Infinity, { remaining: 0 }],
    ],
  ],
  [
    'a clock that goes back does not cool a key down',
    twoPerSecond,
    [
      [1000, 1, 0, 'granted', 0, { remaining: 0 }],
      [375, 1, 0, 'refused', 2000, { remaining: 0 }],
      [2375, 1, 0, 'granted', 0, { remaining: 0, refillMs: 1125 }],
    ],
  ],
  [
    'one per year works like one per second',
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

describe('cancel, refund, release and drain', () => {
  function booking() {
    const { limiter, at } = fromStart(smoothWarmingUp(twoPerSecond))
    const book = (cost = 1) => limiter.reserve('key', { cost })
    return { limiter, at, book, nextWait: () => limiter.peek('key').waitMs }
  }

  test('a cancel before the booked time returns all permits, exactly once, and the key is as cold as before', () => {
    const { book, nextWait } = booking()
    book()
    const second = book(3)
    expect([second.waitMs, nextWait()]).toEqual([1375, 4000])
    expect([second.cancel(), second.cancel(), second.refund()]).toEqual([3, 0, 0])
    expect([book().waitMs, nextWait()]).toEqual([1375, 2500])
  })

  test('a cancel returns nothing while a later booking exists, whose slot starts where this one ends', () => {
    const { book, nextWait } = booking()
    book()
    const second = book(3)
    const third = book()
    expect([second.cancel(), nextWait()]).toEqual([0, 4500])
    expect([third.cancel(), nextWait()]).toEqual([1, 4000])
    expect([second.cancel(), nextWait()]).toEqual([3, second.waitMs])
  })

  test('a cancel works up to the booked time and returns nothing after it', () => {
    const { book, at } = booking()
    book()
    const second = book()
    at(1375.001)
    expect(second.cancel()).toBe(0)
    at(1375)
    expect(second.cancel()).toBe(1)
  })

  test('a refund returns the part of its time that has not passed', () => {
    const { book, at, nextWait } = booking()
    const first = book(8)
    at(1500)
    expect([first.refund(), first.refund(), nextWait()]).toEqual([6, 0, 0])
    const second = book(1)
    at(60_000)
    expect(second.refund()).toBe(0)
  })

  test('a refund never returns permits that later bookings need', () => {
    const { book, nextWait } = booking()
    const first = book()
    const waiting = book(3)
    expect(waiting.waitMs).toBe(1375)
    expect([first.refund(), nextWait()]).toEqual([0, 4000])
  })

  test('release returns time and stored permits in proportion, and nothing while a booking waits', () => {
    const { book, limiter, nextWait } = booking()
    book(8)
    // A quarter of eight permits that cost 6 s.
    expect([limiter.release('key', 2), nextWait()]).toEqual([2, 4500])
    book()
    expect([limiter.release('key', 2), nextWait()]).toEqual([0, 5000])
    expect(limiter.release('never seen', 1)).toBe(0)
  })

  test('repeated release calls return no more than was taken', () => {
    const { book, limiter } = booking()
    book()
    expect(limiter.release('key', 1) + limiter.release('key', 5)).toBeLessThanOrEqual(1)
  })

  test('drain takes the one available permit', () => {
    const { limiter, nextWait } = booking()
    expect([limiter.drain('key'), limiter.drain('key'), nextWait()]).toEqual([1, 0, 1375])
  })
})

describe('update', () => {
  test('a key stays as cold as it was', () => {
    const { limiter } = fromStart(smoothWarmingUp(twoPerSecond))
    limiter.tryAcquire('key')
    limiter.update(smoothWarmingUp({ ...twoPerSecond, limit: 4 }))
    // 14 of 16 permits are stored now; the next costs 593.75 ms, which is the mean of 625 and 562.5.
    expect(limiter.reserve('key').waitMs).toBe(1375)
    expect(limiter.peek('key').waitMs).toBe(1968.75)
  })

  test('a debt keeps its time, as in Guava', () => {
    const { limiter, at } = fromStart(smoothWarmingUp(twoPerSecond))
    limiter.tryAcquire('key', { cost: 8 })
    at(1000)
    limiter.update(smoothWarmingUp({ ...twoPerSecond, window: '1h' }))
    expect(limiter.peek('key').waitMs).toBe(5000)
  })

  test('until the update a key cools down by the old warmup', () => {
    const { limiter, at } = fromStart(smoothWarmingUp(twoPerSecond))
    limiter.tryAcquire('key', { cost: 8 })
    at(9000)
    // Of 8 permits 6 are stored, which become 12 of 16; the next costs the mean of 1000 and 875 ms.
    limiter.update(smoothWarmingUp({ ...twoPerSecond, warmup: '8s' }))
    limiter.tryAcquire('key')
    expect(limiter.peek('key').waitMs).toBe(937.5)
  })

  test('a debt survives an update to limit 0 and back', () => {
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
