import { type CycleOptions, cycle } from '@sluice/core'
import { describe, expect, test } from 'vitest'
import { describeFaults, NOT_A_SPAN, NOT_WHOLE } from './faults.js'
import { expectSteps, fromStart, START_MS, type Table } from './steps.js'

const twoPerSecond = { limit: 2, period: '1s' } as const
const DAY_MS = 86_400_000

test.each<Table<CycleOptions>>([
  [
    'a new key has all permits of the current cycle; they come back when the next cycle starts',
    twoPerSecond,
    [
      [300, 0, 0, 'granted', 0, { remaining: 2, refillMs: 0, resetMs: 0, balance: 2 }],
      [300, 1, 0, 'granted', 0, { remaining: 1, refillMs: 700, resetMs: 700, balance: 1 }],
      [700, 1, 0, 'granted', 0, { remaining: 0, refillMs: 300, resetMs: 300, balance: 0 }],
      [700, 1, 0, 'refused', 300, { remaining: 0 }],
      [999.999, 1, 0, 'refused', 0.001, { remaining: 0 }],
      [1000, 2, 0, 'granted', 0, { remaining: 0, refillMs: 1000, resetMs: 1000 }],
    ],
  ],
  [
    'when the cycle is used up, a request books permits of later cycles',
    twoPerSecond,
    [
      [300, 2, Infinity, 'granted', 0, { remaining: 0, refillMs: 700, resetMs: 700, balance: 0 }],
      [300, 1, Infinity, 'granted', 700, { remaining: 0, refillMs: 700, resetMs: 1700, balance: -1 }],
      [300, 1, Infinity, 'granted', 700, { remaining: 0, refillMs: 1700, resetMs: 1700, balance: -2 }],
      [300, 1, Infinity, 'granted', 1700, { remaining: 0, refillMs: 1700, resetMs: 2700, balance: -3 }],
      [300, 1, 0, 'refused', 1700, { remaining: 0, balance: -3 }],
      [1999.999, 1, 0, 'refused', 0.001, { remaining: 0, balance: -1 }],
      [2000, 1, 0, 'granted', 0, { remaining: 0, resetMs: 1000, balance: 0 }],
    ],
  ],
  [
    'around the end of a cycle at most twice the limit passes',
    twoPerSecond,
    [
      [999.999, 2, 0, 'granted', 0, { remaining: 0 }],
      [1000, 2, 0, 'granted', 0, { remaining: 0 }],
      [1000, 1, 0, 'refused', 1000, { remaining: 0 }],
      [1999.999, 1, 0, 'refused', 0.001, { remaining: 0 }],
    ],
  ],
  [
    'the cycle in which a booking completes may grant up to cost - 1 permits above the limit',
    twoPerSecond,
    [
      [0, 1, 0, 'granted', 0, { remaining: 1 }],
      [0, 2, Infinity, 'granted', 1000, { remaining: 0, balance: -1 }],
      [1000, 1, 0, 'granted', 0, { remaining: 0 }],
      [1000, 1, 0, 'refused', 1000, { remaining: 0 }],
    ],
  ],
  [
    'unused permits of a cycle are not saved',
    twoPerSecond,
    [
      [0, 2, 0, 'granted', 0, { remaining: 0 }],
      [5500, 2, 0, 'granted', 0, { remaining: 0, resetMs: 500 }],
      [5500, 1, 0, 'refused', 500, { remaining: 0 }],
    ],
  ],
  [
    'a wait longer than maxWait is refused; retryAfterMs ends when the same maxWait is enough',
    twoPerSecond,
    [
      [300, 2, 0, 'granted', 0, { remaining: 0 }],
      [300, 1, 500, 'refused', 700, { remaining: 0, retryMs: 200 }],
      [499.999, 1, 500, 'refused', 500.001, { remaining: 0, retryMs: 0.001 }],
      [500, 1, 500, 'granted', 500, { remaining: 0, balance: -1 }],
    ],
  ],
  [
    'a refusal changes nothing: a request of smaller cost still passes',
    { limit: 10, period: '100s' },
    [
      [0, 8, 0, 'granted', 0, { remaining: 2 }],
      [1, 5, 0, 'refused', 99_999, { remaining: 2, balance: 2 }],
      [2, 2, 0, 'granted', 0, { remaining: 0 }],
      [3, 1, 0, 'refused', 99_997, { remaining: 0 }],
    ],
  ],
  [
    'a cost above the limit is never granted at once, but can be booked',
    twoPerSecond,
    [
      [0, 3, 0, 'refused', Infinity, { remaining: 2, refillMs: 0, resetMs: 0, balance: 2 }],
      [0, 3, 0.001, 'refused', Infinity, { remaining: 2, retryMs: 999.999 }],
      [999.998, 3, 0.001, 'refused', Infinity, { remaining: 2, retryMs: 0.001 }],
      [999.999, 3, 0.001, 'granted', 0.001, { remaining: 0, balance: -1 }],
    ],
  ],
  [
    'a cost that needs two more cycles is never granted with a maxWait of one period',
    twoPerSecond,
    [
      [0, 5, 1000, 'refused', Infinity, { remaining: 2 }],
      [0, 5, 1000.001, 'refused', Infinity, { remaining: 2, retryMs: 999.999 }],
      [999.999, 5, 1000.001, 'granted', 1000.001, { remaining: 0, balance: -3 }],
    ],
  ],
  [
    'during a debt, retryAfter of a cost above the limit gets shorter with every cycle',
    twoPerSecond,
    [
      [300, 3, Infinity, 'granted', 700, { remaining: 0, balance: -1 }],
      [300, 3, 1000, 'refused', Infinity, { remaining: 0, retryMs: 700 }],
      [999.999, 3, 1000, 'refused', Infinity, { remaining: 0, retryMs: 0.001 }],
      [1000, 3, 1000, 'granted', 1000, { remaining: 0, balance: -2 }],
    ],
  ],
  [
    'cost 0 is always granted and changes nothing',
    twoPerSecond,
    [
      [0, 4, Infinity, 'granted', 1000, { remaining: 0 }],
      [0, 0, 0, 'granted', 0, { remaining: 0, resetMs: 2000, balance: -2 }],
    ],
  ],
  [
    'limit 0 refuses everything for ever',
    { limit: 0, period: '1m' },
    [
      [0, 1, Infinity, 'refused', Infinity, { remaining: 0, refillMs: Infinity, resetMs: 0, balance: 0 }],
      [0, 0, 0, 'granted', 0, { remaining: 0 }],
      [365 * DAY_MS, 1, 0, 'refused', Infinity, { remaining: 0 }],
    ],
  ],
  [
    'a clock that goes back does not refill a cycle',
    twoPerSecond,
    [
      [1500, 2, 0, 'granted', 0, { remaining: 0 }],
      [500, 1, 0, 'refused', 1500, { remaining: 0, resetMs: 1500 }],
      [2000, 2, 0, 'granted', 0, { remaining: 0 }],
      [1999.999, 1, 0, 'refused', 1000.001, { remaining: 0 }],
    ],
  ],
  [
    'cycles start at the origin and every period before and after it',
    { ...twoPerSecond, origin: START_MS + 60_300 },
    [
      [0, 2, 0, 'granted', 0, { remaining: 0, resetMs: 300 }],
      [299.999, 1, 0, 'refused', 0.001, { remaining: 0 }],
      [300, 1, 0, 'granted', 0, { remaining: 1, resetMs: 1000 }],
    ],
  ],
  [
    'a period of a year works like one of a second',
    { limit: 5, period: '365d', origin: START_MS },
    [
      [0, 5, 0, 'granted', 0, { remaining: 0, resetMs: 365 * DAY_MS }],
      [30 * DAY_MS, 1, 0, 'refused', 335 * DAY_MS, { remaining: 0 }],
      [365 * DAY_MS - 0.001, 1, 0, 'refused', 0.001, { remaining: 0 }],
      [365 * DAY_MS, 5, 0, 'granted', 0, { remaining: 0 }],
    ],
  ],
])('%s', (_rule, options, rows) => {
  expectSteps(cycle(options), rows)
})

test('a booking beyond the largest time in microseconds is refused for ever', () => {
  const { limiter } = fromStart(cycle({ limit: 1, period: '200 days' }))
  expect(limiter.reserve('key', { cost: 1000 }).allowed).toBe(false)
  expect(limiter.reserve('key', { cost: 400 }).waitMs).toBeLessThan(Number.MAX_SAFE_INTEGER / 1000)
})

describe('cancel, refund, release and drain', () => {
  function booking(limit = 2) {
    const { limiter, at } = fromStart(cycle({ ...twoPerSecond, limit }))
    const book = (cost = 1) => limiter.reserve('key', { cost })
    return { limiter, at, book, balance: () => limiter.peek('key').balance }
  }

  test('a cancel before the booked time returns all permits if no later booking exists, exactly once', () => {
    const { book, at, balance } = booking()
    book(2)
    const second = book(3)
    at(1999.999)
    expect([second.cancel(), second.cancel(), second.refund()]).toEqual([3, 0, 0])
    expect(balance()).toBe(2)
  })

  test('a cancel before the booked time returns the cost less what was booked later', () => {
    const { book, balance } = booking(4)
    book(4)
    const second = book(3)
    book()
    expect([second.cancel(), balance()]).toEqual([2, -2])
  })

  test('a cancel returns only permits of the cycle that the last booking waits for', () => {
    const { book, balance } = booking()
    book(2)
    const second = book(3)
    book()
    expect([second.cancel(), balance()]).toEqual([1, -3])
  })

  test('a cancelled early booking does not allow a second booking in a later cycle', () => {
    const { book } = booking(1)
    book()
    const early = book()
    const late = book()
    expect([early.waitMs, late.waitMs]).toEqual([1000, 2000])
    expect(early.cancel()).toBe(0)
    expect([book().waitMs, book().waitMs]).toEqual([3000, 4000])
  })

  test('a cancelled early booking does not allow a second booking after cycles have passed either', () => {
    const { book, at } = booking(1)
    book(2)
    const early = book()
    const late = book()
    at(1500)
    expect([early.waitMs, late.waitMs]).toEqual([2000, 3000])
    expect(early.cancel()).toBe(0)
    expect(book().waitMs).toBe(2500)
  })

  test('an early booking can be cancelled once the later bookings are cancelled', () => {
    const { book, balance } = booking(1)
    book()
    const early = book()
    const late = book()
    expect([early.cancel(), late.cancel(), early.cancel()]).toEqual([0, 1, 1])
    expect(balance()).toBe(0)
  })

  test('a cancel works up to the booked time and returns nothing after it', () => {
    const { book, at } = booking()
    book(2)
    const second = book()
    at(1000.001)
    expect(second.cancel()).toBe(0)
    at(1000)
    expect(second.cancel()).toBe(1)
  })

  test('a refund returns permits within their cycle and nothing after the next cycle has started', () => {
    const { book, at, balance } = booking()
    const first = book(2)
    at(999.999)
    expect([first.refund(), first.refund(), balance()]).toEqual([2, 0, 2])
    const second = book(2)
    at(1000)
    expect([second.refund(), balance()]).toEqual([0, 2])
  })

  test('a refund never returns permits that later bookings need', () => {
    const { book, at, balance } = booking()
    const first = book()
    book()
    book()
    at(500)
    expect([first.refund(), balance()]).toEqual([0, -1])
  })

  test('release returns no more than was used, and nothing of another cycle', () => {
    const { book, limiter, at, balance } = booking()
    book()
    expect([limiter.release('key', 5), limiter.release('key', 5), balance()]).toEqual([1, 0, 2])
    book(2)
    at(1000)
    expect(limiter.release('key', 5)).toBe(0)
    expect(limiter.release('never seen', 1)).toBe(0)
  })

  test('repeated release calls never take permits from waiters', () => {
    const { book, limiter } = booking()
    limiter.tryAcquire('key', { cost: 2 })
    book()
    expect(limiter.release('key', 2) + limiter.release('key', 2)).toBeLessThanOrEqual(2)
  })

  test('drain takes the available permits and does not change a debt', () => {
    const { book, limiter, balance } = booking()
    book()
    expect([limiter.drain('key'), limiter.drain('key'), balance()]).toEqual([1, 0, 0])
    book()
    expect([limiter.drain('key'), balance()]).toEqual([0, -1])
  })
})

describe('update', () => {
  /** A limiter of 2 per second, updated at 400. */
  function updated(options: CycleOptions, booked: number) {
    const { limiter, at } = fromStart(cycle(twoPerSecond))
    limiter.reserve('key', { cost: booked })
    at(400)
    limiter.update(cycle(options))
    return { limiter, at }
  }

  test('a higher limit applies from the next cycle', () => {
    const { limiter, at } = updated({ ...twoPerSecond, limit: 5 }, 2)
    expect(limiter.peek('key')).toMatchObject({ remaining: 0, refillAfterMs: 600, limit: 5 })
    at(1000)
    expect(limiter.peek('key').remaining).toBe(5)
  })

  test('a lower limit applies from the next cycle', () => {
    const { limiter, at } = updated({ ...twoPerSecond, limit: 1 }, 1)
    expect(limiter.peek('key').balance).toBe(1)
    at(1000)
    expect(limiter.peek('key')).toMatchObject({ remaining: 1, resetAfterMs: 0 })
  })

  test('a debt is refilled at the new limit', () => {
    const { limiter } = updated({ ...twoPerSecond, limit: 5 }, 10)
    expect(limiter.peek('key')).toMatchObject({ balance: -8, waitMs: 1600 })
  })

  test('cycles since the last use of a key are refilled at the new limit', () => {
    const { limiter, at } = fromStart(cycle(twoPerSecond))
    limiter.reserve('key', { cost: 8 })
    at(2400)
    limiter.update(cycle({ ...twoPerSecond, limit: 5 }))
    // A debt of 6, and two cycles since: at the old limit a debt of 2 would be left.
    expect(limiter.peek('key').balance).toBe(4)
  })

  test('the balance stays the same with another period', () => {
    const { limiter, at } = updated({ limit: 2, period: '10s' }, 3)
    expect(limiter.peek('key')).toMatchObject({ balance: -1, waitMs: 9600 })
    at(10_000)
    expect(limiter.peek('key').balance).toBe(1)
  })

  test('with another period, the cycles before the update are refilled at the old limit', () => {
    const { limiter, at } = fromStart(cycle(twoPerSecond))
    limiter.reserve('key', { cost: 8 })
    at(2400)
    limiter.update(cycle({ limit: 5, period: '10s' }))
    expect(limiter.peek('key')).toMatchObject({ balance: -2, waitMs: 7600 })
  })

  test('the balance stays the same with another origin', () => {
    const { limiter } = updated({ ...twoPerSecond, origin: START_MS + 700 }, 2)
    expect(limiter.peek('key')).toMatchObject({ balance: 0, waitMs: 300 })
  })

  test('after an update to limit 0 the permits that were left are refused', () => {
    const { limiter } = updated({ ...twoPerSecond, limit: 0 }, 1)
    expect(limiter.peek('key')).toMatchObject({ allowed: false, remaining: 0, waitMs: Infinity })
  })
})

describeFaults<CycleOptions>(
  cycle,
  { ...twoPerSecond, origin: 0 },
  {
    limit: NOT_WHOLE,
    period: NOT_A_SPAN,
    origin: [
      ['0', TypeError],
      [0n, TypeError],
      [new Date(0), TypeError],
      [Number.NaN, RangeError],
      [Infinity, RangeError],
      [-1, RangeError],
    ],
  },
  { max: 'limit', perod: 'period', orgin: 'origin' },
)
