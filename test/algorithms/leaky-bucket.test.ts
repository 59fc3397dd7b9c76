import { createLimiter, type LeakyBucketOptions, leakyBucket } from '@sluice/core'
import { manualClock } from '@sluice/core/testing'
import { describe, expect, test } from 'vitest'
import { describeFaults, NOT_A_SPAN, NOT_WHOLE } from './faults.js'
import { expectSteps, fromStart, type Table } from './steps.js'

/** One request every 500 ms, and two may wait. */
const twoPerSecond = { limit: 2, window: '1s', capacity: 2 } as const
const DAY_MS = 86_400_000

test.each<Table<LeakyBucketOptions>>([
  [
    'the first request passes at once, as many as the capacity wait for their turn, and one more is refused',
    twoPerSecond,
    [
      [0, 0, 0, 'granted', 0, { remaining: 1, refillMs: 0, resetMs: 0, balance: 1 }],
      [0, 1, Infinity, 'granted', 0, { remaining: 0, refillMs: 500, resetMs: 500, balance: 0 }],
      [0, 1, Infinity, 'granted', 500, { remaining: 0, refillMs: 1000, resetMs: 1000, balance: -1 }],
      [0, 1, Infinity, 'granted', 1000, { remaining: 0, refillMs: 1500, resetMs: 1500, balance: -2 }],
      [0, 1, Infinity, 'refused', 1500, { remaining: 0, retryMs: 500, resetMs: 1500, balance: -2 }],
      [499.999, 1, Infinity, 'refused', 1000.001, { remaining: 0, retryMs: 0.001 }],
      [600, 1, Infinity, 'granted', 900, { remaining: 0, resetMs: 1400 }],
      [600, 1, Infinity, 'refused', 1400, { remaining: 0, retryMs: 400 }],
    ],
  ],
  [
    'with maxWait 0 one request passes per interval, and idle time is not saved',
    twoPerSecond,
    [
      [0, 1, 0, 'granted', 0, { remaining: 0 }],
      [0, 1, 0, 'refused', 500, { remaining: 0 }],
      [499.999, 1, 0, 'refused', 0.001, { remaining: 0 }],
      [500, 1, 0, 'granted', 0, { remaining: 0, refillMs: 500, resetMs: 500 }],
      [60_000, 1, 0, 'granted', 0, { remaining: 0 }],
      [60_000, 1, 0, 'refused', 500, { remaining: 0 }],
    ],
  ],
  [
    'a wait longer than maxWait is refused; retryAfterMs ends when the same maxWait is enough',
    twoPerSecond,
    [
      [0, 1, 0, 'granted', 0, { remaining: 0 }],
      [0, 1, 400, 'refused', 500, { remaining: 0, retryMs: 100 }],
      [99.999, 1, 400, 'refused', 400.001, { remaining: 0, retryMs: 0.001 }],
      [100, 1, 400, 'granted', 400, { remaining: 0, balance: -0.8 }],
    ],
  ],
  [
    'a request of higher cost takes as many places in the bucket and delays the next request by as many intervals',
    twoPerSecond,
    [
      [0, 2, Infinity, 'granted', 0, { remaining: 0, refillMs: 1000, resetMs: 1000, balance: -1 }],
      [0, 2, Infinity, 'refused', 1000, { remaining: 0, retryMs: 500 }],
      [0, 3, Infinity, 'refused', 1000, { remaining: 0, retryMs: 1000 }],
      [499.999, 2, Infinity, 'refused', 500.001, { remaining: 0, retryMs: 0.001 }],
      [500, 2, Infinity, 'granted', 500, { remaining: 0, resetMs: 1500 }],
      [1999.999, 3, Infinity, 'refused', 0.001, { remaining: 0 }],
      [2000, 3, Infinity, 'granted', 0, { remaining: 0, resetMs: 1500 }],
    ],
  ],
  [
    'a refusal changes nothing: a request of smaller cost still passes',
    twoPerSecond,
    [
      [0, 1, 0, 'granted', 0, { remaining: 0 }],
      [0, 3, Infinity, 'refused', 500, { remaining: 0, balance: 0 }],
      [0, 1, Infinity, 'granted', 500, { remaining: 0, balance: -1 }],
    ],
  ],
  [
    'a cost above capacity + 1 is never granted, whatever maxWait is',
    twoPerSecond,
    [
      [0, 4, 0, 'refused', Infinity, { remaining: 1, refillMs: 0, resetMs: 0, balance: 1 }],
      [0, 4, Infinity, 'refused', Infinity, { remaining: 1 }],
      [0, 3, 0, 'granted', 0, { remaining: 0 }],
    ],
  ],
  [
    'capacity 0 refuses every request that would have to wait',
    { ...twoPerSecond, capacity: 0 },
    [
      [0, 1, Infinity, 'granted', 0, { remaining: 0 }],
      [0, 1, Infinity, 'refused', 500, { remaining: 0 }],
      [499.999, 1, Infinity, 'refused', 0.001, { remaining: 0 }],
      [500, 1, Infinity, 'granted', 0, { remaining: 0 }],
      [60_000, 2, Infinity, 'refused', Infinity, { remaining: 1 }],
    ],
  ],
  [
    'intervals with fractions of a microsecond stay exact: 3 per second',
    { limit: 3, window: '1s', capacity: 5 },
    [
      [0, 1, Infinity, 'granted', 0, { remaining: 0, refillMs: 333.334 }],
      [0, 1, Infinity, 'granted', 333.334, { remaining: 0 }],
      [0, 1, Infinity, 'granted', 666.667, { remaining: 0 }],
      [0, 1, Infinity, 'granted', 1000, { remaining: 0 }],
      [1333.333, 1, 0, 'refused', 0.001, { remaining: 0 }],
      [1333.334, 1, 0, 'granted', 0, { remaining: 0 }],
    ],
  ],
  [
    'cost 0 is always granted at once and changes nothing',
    twoPerSecond,
    [
      [0, 1, 0, 'granted', 0, { remaining: 0 }],
      [0, 0, 0, 'granted', 0, { remaining: 0, resetMs: 500, balance: 0 }],
    ],
  ],
  [
    'limit 0 refuses everything for ever',
    { limit: 0, window: '1m', capacity: 5 },
    [
      [0, 1, Infinity, 'refused', Infinity, { remaining: 0, refillMs: Infinity, resetMs: 0, balance: 0 }],
      [0, 0, 0, 'granted', 0, { remaining: 0 }],
      [365 * DAY_MS, 1, 0, 'refused', Infinity, { remaining: 0 }],
    ],
  ],
  [
    'a clock that goes back refills nothing',
    twoPerSecond,
    [
      [1000, 1, 0, 'granted', 0, { remaining: 0 }],
      [500, 1, 0, 'refused', 1000, { remaining: 0, resetMs: 1000 }],
      [500, 1, Infinity, 'granted', 1000, { remaining: 0, resetMs: 1500 }],
      [2000, 1, 0, 'granted', 0, { remaining: 0 }],
    ],
  ],
  [
    'one per year works like one per second',
    { limit: 1, window: '365d', capacity: 1 },
    [
      [0, 1, 0, 'granted', 0, { remaining: 0 }],
      [30 * DAY_MS, 1, 0, 'refused', 335 * DAY_MS, { remaining: 0 }],
      [30 * DAY_MS, 1, Infinity, 'granted', 335 * DAY_MS, { remaining: 0 }],
      [365 * DAY_MS - 0.001, 1, Infinity, 'refused', 365 * DAY_MS + 0.001, { remaining: 0, retryMs: 0.001 }],
      [365 * DAY_MS, 1, Infinity, 'granted', 365 * DAY_MS, { remaining: 0 }],
    ],
  ],
])('%s', (_rule, options, rows) => {
  expectSteps(leakyBucket(options), rows)
})

describe('maxWait of leakyBucket', () => {
  test('is capacity * window / limit by default', () => {
    expect(leakyBucket(twoPerSecond).policy.maxWaitMs).toBe(1000)
    expect(leakyBucket({ ...twoPerSecond, capacity: 0 }).policy.maxWaitMs).toBe(0)
    expect(leakyBucket({ limit: 3, window: '1s', capacity: 1 }).policy.maxWaitMs).toBe(333.334)
  })

  test('is long enough for every place in the bucket', () => {
    const { limiter } = fromStart(leakyBucket({ limit: 3, window: '1s', capacity: 4 }))
    const waits = [1, 2, 3, 4, 5].map(() => limiter.reserve('key').waitMs)
    expect(waits).toEqual([0, 333.334, 666.667, 1000, 1333.334])
    expect(limiter.reserve('key').allowed).toBe(false)
  })

  test('is replaced by the maxWait of the limiter', () => {
    const clock = manualClock()
    const limiter = createLimiter(leakyBucket(twoPerSecond), { clock, maxWait: 600 })
    expect([1, 2, 3].map(() => limiter.reserve('key').allowed)).toEqual([true, true, false])
    expect(limiter.reserve('key', { maxWait: '1s' }).waitMs).toBe(1000)
  })
})

describe('cancel, refund, release and drain', () => {
  /** Books at times in milliseconds. */
  function booking(capacity = 10) {
    const { limiter, at } = fromStart(leakyBucket({ ...twoPerSecond, capacity }))
    const book = (cost = 1) => limiter.reserve('key', { cost })
    return { limiter, at, book, nextWait: () => limiter.peek('key').waitMs }
  }

  test('a cancel before the booked time returns all permits if no later booking exists, exactly once', () => {
    const { book, at, nextWait } = booking()
    book()
    const second = book(2)
    expect(nextWait()).toBe(1500)
    at(499.999)
    expect([second.cancel(), second.cancel(), second.refund()]).toEqual([2, 0, 0])
    expect(nextWait()).toBe(0.001)
  })

  test('a cancel returns nothing while a later booking exists, whose slot starts where this one ends', () => {
    const { book, nextWait } = booking()
    book()
    const second = book(3)
    const third = book()
    expect([second.cancel(), nextWait()]).toEqual([0, 2500])
    expect([third.cancel(), nextWait()]).toEqual([1, 2000])
    expect([second.cancel(), nextWait()]).toEqual([3, second.waitMs])
  })

  test('a cancel works up to the booked time and returns nothing after it', () => {
    const { book, at } = booking()
    book()
    const second = book()
    at(500.001)
    expect(second.cancel()).toBe(0)
    at(500)
    expect(second.cancel()).toBe(1)
  })

  test('a refund returns the part whose time has not passed', () => {
    const { book, at, nextWait } = booking()
    const first = book(2)
    at(250)
    expect([first.refund(), nextWait()]).toEqual([1.5, 0])
    const second = book()
    at(750)
    expect(second.refund()).toBe(0)
  })

  test('a refund never returns permits that later bookings need', () => {
    const { book, at, nextWait } = booking()
    const first = book()
    book()
    at(100)
    expect([first.refund(), nextWait()]).toEqual([0, 900])
  })

  test('release returns no more than was used, and nothing while a booking waits', () => {
    const { book, limiter, nextWait } = booking()
    book()
    expect([limiter.release('key', 5), limiter.release('key', 5), nextWait()]).toEqual([1, 0, 0])
    book()
    book()
    expect([limiter.release('key', 5), nextWait()]).toEqual([0, 1000])
    expect(limiter.release('never seen', 1)).toBe(0)
  })

  test('drain takes the one available permit', () => {
    const { limiter, nextWait } = booking()
    expect([limiter.drain('key'), limiter.drain('key'), nextWait()]).toEqual([1, 0, 500])
  })
})

describe('update', () => {
  /** An updated limiter of 2 per second whose key had a debt of 2 permits. */
  function updated(options: LeakyBucketOptions) {
    const { limiter, at } = fromStart(leakyBucket(twoPerSecond))
    for (let i = 0; i < 3; i++) limiter.reserve('key')
    at(500)
    limiter.update(leakyBucket(options))
    return { limiter, at }
  }

  test.each([
    ['a higher limit', { ...twoPerSecond, limit: 4 }, 500],
    ['a lower limit', { ...twoPerSecond, limit: 1 }, 2000],
    ['a longer window', { ...twoPerSecond, window: '10s' }, 10_000],
    ['a shorter window', { ...twoPerSecond, window: '100ms' }, 100],
    ['another capacity', { ...twoPerSecond, capacity: 1 }, 1000],
  ] as const)('%s: a debt keeps its number of permits', (_change, options, waitMs) => {
    const { limiter } = updated(options)
    expect(limiter.peek('key')).toMatchObject({ balance: -1, waitMs })
  })

  test('a smaller capacity refuses requests until a place is free', () => {
    const { limiter } = updated({ ...twoPerSecond, capacity: 1 })
    expect(limiter.reserve('key')).toMatchObject({ allowed: false, waitMs: 1000, retryAfterMs: 500 })
  })

  test('an idle key stays idle', () => {
    const { limiter, at } = fromStart(leakyBucket(twoPerSecond))
    limiter.tryAcquire('key')
    at(500)
    limiter.update(leakyBucket({ ...twoPerSecond, window: '1h' }))
    expect(limiter.peek('key')).toMatchObject({ allowed: true, resetAfterMs: 0 })
  })

  test('a debt survives an update to limit 0 and back', () => {
    const { limiter, at } = updated({ ...twoPerSecond, limit: 0 })
    expect(limiter.peek('key').waitMs).toBe(Infinity)
    at(60_000)
    limiter.update(leakyBucket(twoPerSecond))
    expect(limiter.peek('key')).toMatchObject({ balance: -1, waitMs: 1000 })
  })
})

describeFaults<LeakyBucketOptions>(
  leakyBucket,
  twoPerSecond,
  { limit: NOT_WHOLE, window: NOT_A_SPAN, capacity: [...NOT_WHOLE, [undefined, TypeError]] },
  { max: 'limit', timeWindow: 'window', capcity: 'capacity' },
)

test('options that cannot be exact throw when the algorithm is created', () => {
  expect(() => leakyBucket({ limit: Number.MAX_SAFE_INTEGER, window: '1s', capacity: 1 })).toThrow(RangeError)
})
