import { createLimiter, type Reservation, type TokenBucketOptions, tokenBucket } from '@sluice/core'
import { manualClock } from '@sluice/core/testing'
import { describe, expect, test } from 'vitest'
import { Moment } from '../support/scripts.js'
import { expectSteps, type Table } from './steps.js'

/** 2 permits per second with a burst of 3: one refill every 500 ms. */
const threeAtOnce = { limit: 2, window: '1s', burst: 3 } as const

test.each<Table<TokenBucketOptions>>([
  [
    'a new key has a full bucket; when it is empty, one request passes after each refill',
    threeAtOnce,
    [
      [0, 1, 0, 'granted', 0, { remaining: 2, refillMs: 500, resetMs: 500, balance: 2 }],
      [0, 1, 0, 'granted', 0, { remaining: 1, refillMs: 500, resetMs: 1000 }],
      [0, 1, 0, 'granted', 0, { remaining: 0, refillMs: 500, resetMs: 1500 }],
      [0, 1, 0, 'refused', 500, { remaining: 0, retryMs: 500, refillMs: 500, resetMs: 1500, balance: 0 }],
      [499.999, 1, 0, 'refused', 0.001, { remaining: 0, retryMs: 0.001, balance: 0.999998 }],
      [500, 1, 0, 'granted', 0, { remaining: 0, refillMs: 500, resetMs: 1500 }],
    ],
  ],
  [
    'a full bucket does not refill beyond the burst',
    threeAtOnce,
    [
      [0, 1, 0, 'granted', 0, { remaining: 2 }],
      [60_000, 1, 0, 'granted', 0, { remaining: 2, resetMs: 500 }],
    ],
  ],
  [
    'a client that sends at the refill rate is never refused',
    { limit: 2, window: '1s', burst: 1 },
    [
      [0, 1, 0, 'granted', 0, { remaining: 0 }],
      [500, 1, 0, 'granted', 0, { remaining: 0 }],
      [1000, 1, 0, 'granted', 0, { remaining: 0 }],
      [1499, 1, 0, 'refused', 1, { remaining: 0, retryMs: 1 }],
      [1500, 1, 0, 'granted', 0, { remaining: 0 }],
    ],
  ],
  [
    'the fullest window holds the burst and its refill: 2 * limit - 1 at burst = limit',
    { limit: 3, window: '3s' },
    [
      [0, 3, 0, 'granted', 0, { remaining: 0 }],
      [1000, 1, 0, 'granted', 0, { remaining: 0 }],
      [2000, 1, 0, 'granted', 0, { remaining: 0 }],
      [2999, 1, 0, 'refused', 1, { remaining: 0 }],
    ],
  ],
  [
    'a refusal changes nothing: a request of smaller cost still passes',
    { limit: 10, window: '60s' },
    [
      [0, 8, 0, 'granted', 0, { remaining: 2 }],
      [0, 5, 0, 'refused', 18_000, { remaining: 2, retryMs: 18_000, refillMs: 6000 }],
      [0, 2, 0, 'granted', 0, { remaining: 0 }],
      [0, 1, 0, 'refused', 6000, { remaining: 0, retryMs: 6000 }],
    ],
  ],
  [
    'a cost above the burst is never granted, whatever maxWait is',
    threeAtOnce,
    [
      [
        0,
        4,
        0,
        'refused',
        Infinity,
        { remaining: 3, retryMs: Infinity, refillMs: 0, resetMs: 0, balance: 3 },
      ],
      [0, 4, Infinity, 'refused', Infinity, { remaining: 3, retryMs: Infinity }],
    ],
  ],
  [
    'cost 0 is always granted and changes nothing',
    threeAtOnce,
    [
      [0, 3, 0, 'granted', 0, { remaining: 0 }],
      [0, 0, 0, 'granted', 0, { remaining: 0, resetMs: 1500 }],
    ],
  ],
  [
    'a booking waits for its own permits, and later bookings queue behind it',
    threeAtOnce,
    [
      [0, 3, Infinity, 'granted', 0, { remaining: 0, balance: 0 }],
      [0, 2, Infinity, 'granted', 1000, { remaining: 0, refillMs: 1500, resetMs: 2500, balance: -2 }],
      [0, 1, Infinity, 'granted', 1500, { remaining: 0, refillMs: 2000, balance: -3 }],
      [400, 1, Infinity, 'granted', 1600, { remaining: 0, balance: -3.2 }],
    ],
  ],
  [
    'a wait longer than maxWait is refused; retryAfterMs ends when the same maxWait is enough',
    threeAtOnce,
    [
      [0, 3, 0, 'granted', 0, { remaining: 0 }],
      [0, 3, 1000, 'refused', 1500, { remaining: 0, retryMs: 500 }],
      [499.999, 3, 1000, 'refused', 1000.001, { remaining: 0, retryMs: 0.001 }],
      [500, 3, 1000, 'granted', 1000, { remaining: 0, balance: -2 }],
    ],
  ],
  [
    'intervals with fractions of a microsecond stay exact: 3 per second',
    { limit: 3, window: '1s' },
    [
      [0, 1, 0, 'granted', 0, { remaining: 2, resetMs: 333.334 }],
      [0, 1, 0, 'granted', 0, { remaining: 1, resetMs: 666.667 }],
      [0, 1, 0, 'granted', 0, { remaining: 0, resetMs: 1000, refillMs: 333.334 }],
      [333.333, 1, 0, 'refused', 0.001, { remaining: 0 }],
      [333.334, 1, 0, 'granted', 0, { remaining: 0, resetMs: 1000 }],
      [666.667, 1, 0, 'granted', 0, { remaining: 0 }],
      [1000, 1, 0, 'granted', 0, { remaining: 0, resetMs: 1000 }],
    ],
  ],
  [
    'intervals below a microsecond stay exact: 3,000,000 per second',
    { limit: 3_000_000, window: '1s', burst: 4 },
    [
      [0, 4, 0, 'granted', 0, { remaining: 0, resetMs: 0.002, refillMs: 0.001 }],
      [0.001, 3, 0, 'granted', 0, { remaining: 0 }],
      [0.001, 1, 0, 'refused', 0.001, { remaining: 0 }],
    ],
  ],
  [
    'limit 0 refuses everything for ever',
    { limit: 0, window: '1m', burst: 5 },
    [
      [
        0,
        1,
        Infinity,
        'refused',
        Infinity,
        { remaining: 0, retryMs: Infinity, refillMs: Infinity, resetMs: 0 },
      ],
      [0, 0, 0, 'granted', 0, { remaining: 0 }],
    ],
  ],
  [
    'one per year works like one per second',
    { limit: 1, window: '365d' },
    [
      [0, 1, 0, 'granted', 0, { remaining: 0 }],
      [86_400_000, 1, 0, 'refused', 31_449_600_000, { remaining: 0, retryMs: 31_449_600_000 }],
      [31_536_000_000, 1, 0, 'granted', 0, { remaining: 0 }],
    ],
  ],
])('%s', (_rule, options, rows) => {
  expectSteps(tokenBucket(options), rows)
})

describe('cancel, refund, release and drain', () => {
  /** Books at times in milliseconds, with 10 permits per second and a burst of 3. */
  function booking() {
    const clock = manualClock({ startMs: 0 })
    const limiter = createLimiter(tokenBucket({ limit: 10, window: '1s', burst: 3 }), { clock })
    return {
      book: (atMs: number, cost: number): Reservation<false> => {
        clock.set(atMs)
        return limiter.reserve('key', { cost })
      },
      at: (atMs: number) => clock.set(atMs),
      balance: () => limiter.peek('key').balance,
    }
  }

  test('a cancel before the booked time returns all permits if no later booking exists', () => {
    const { book, at, balance } = booking()
    book(0, 3)
    const second = book(0, 2)
    at(100)
    expect([second.cancel(), balance()]).toEqual([2, 1])
  })

  test('a cancel before the booked time returns the cost less what was booked later', () => {
    const { book, balance } = booking()
    book(0, 3)
    const second = book(0, 3)
    book(0, 1)
    expect([second.cancel(), balance()]).toEqual([2, -2])
  })

  test('a cancel works up to the booked time and returns nothing after it', () => {
    const { book, at } = booking()
    book(0, 3)
    const second = book(0, 1)
    at(100.001)
    expect(second.cancel()).toBe(0)
    at(100)
    expect(second.cancel()).toBe(1)
  })

  test('a refund returns all permits at first, later those that have not refilled', () => {
    const { book, at, balance } = booking()
    const first = book(0, 3)
    expect([first.refund(), balance()]).toEqual([3, 3])
    const second = book(0, 3)
    at(150)
    expect([second.refund(), balance()]).toEqual([1.5, 3])
    const third = book(1000, 1)
    at(1100)
    expect(third.refund()).toBe(0)
  })

  test('a refund never returns permits that later bookings need', () => {
    const { book, at } = booking()
    const first = book(0, 2)
    const waiting = book(0, 3)
    expect(waiting.waitMs).toBe(200)
    at(100)
    // A third permit would overfill the bucket, so the waiting booking would pass twice.
    expect(first.refund()).toBe(0)
  })

  test('a refund does not depend on the requests in between', () => {
    const { book, balance } = booking()
    const first = book(0, 1)
    book(0, 1)
    expect([first.refund(), balance()]).toEqual([1, 2])
  })
})

describe('options at the bounds', () => {
  test.each([
    { limit: 1, window: '365d' },
    { limit: 200_000, window: '1d' },
    { limit: 1_000_000, window: '30d' },
    { limit: 1_000_000, window: '1s' },
    { limit: 300_000, window: '1s' },
    { limit: 999_983, window: '30d' },
  ] as const)('$limit per $window is exact', options => {
    const { limit } = options
    const moment = new Moment(tokenBucket(options))
    expect(moment.ask({ gapUs: 0, cost: limit, maxWaitUs: 0 })).toMatchObject({ allowed: true, remaining: 0 })
    const { retryAfterMs } = moment.wouldAnswer(limit)
    expect(moment.wouldAnswer(limit, 0, retryAfterMs * 1000 - 1)).toMatchObject({
      allowed: false,
      remaining: limit - 1,
    })
    expect(moment.wouldAnswer(limit, 0, retryAfterMs * 1000).allowed).toBe(true)
  })

  test('options that cannot be exact throw when the algorithm is created', () => {
    expect(() => tokenBucket({ limit: Number.MAX_SAFE_INTEGER, window: '1s' })).toThrow(RangeError)
    expect(() => tokenBucket({ limit: 1, window: '365d', burst: 1000 })).toThrow(/burst: .* 200 years/)
  })

  test('a booking beyond the largest time in microseconds is refused for ever', () => {
    const moment = new Moment(tokenBucket({ limit: 1, window: '50w' }))
    let bookings = 0
    while (moment.ask({ gapUs: 0, cost: 1, maxWaitUs: Infinity }).allowed) bookings++
    expect(bookings).toBe(Math.floor((Number.MAX_SAFE_INTEGER - moment.nowUs) / (50 * 604_800_000_000)))
    expect(moment.wouldAnswer(1, Infinity)).toMatchObject({ waitMs: Infinity, retryAfterMs: Infinity })
  })
})
