import { type CycleOptions, cycle } from '@sluice/core'
import { describe, expect, test } from 'vitest'
import { describeFaults, NOT_A_SPAN, NOT_WHOLE } from './faults.js'
import { expectSteps, fromStart, START_MS, type Table } from './steps.js'

const twoPerSecond = { limit: 2, period: '1s' } as const
const DAY_MS = 86_400_000

test.each<Table<CycleOptions>>([
  [
    'a key never seen has all permits of the cycle it finds; they are back when the next one starts',
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
    'who comes too late books permits of cycles to come',
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
    'around the edge of two cycles twice the limit passes, and no more',
    twoPerSecond,
    [
      [999.999, 2, 0, 'granted', 0, { remaining: 0 }],
      [1000, 2, 0, 'granted', 0, { remaining: 0 }],
      [1000, 1, 0, 'refused', 1000, { remaining: 0 }],
      [1999.999, 1, 0, 'refused', 0.001, { remaining: 0 }],
    ],
  ],
  [
    'a dearer booking adds itself, less one, to the cycle that pays for it',
    twoPerSecond,
    [
      [0, 1, 0, 'granted', 0, { remaining: 1 }],
      [0, 2, Infinity, 'granted', 1000, { remaining: 0, balance: -1 }],
      [1000, 1, 0, 'granted', 0, { remaining: 0 }],
      [1000, 1, 0, 'refused', 1000, { remaining: 0 }],
    ],
  ],
  [
    'permits of cycles that nobody used are not saved up',
    twoPerSecond,
    [
      [0, 2, 0, 'granted', 0, { remaining: 0 }],
      [5500, 2, 0, 'granted', 0, { remaining: 0, resetMs: 500 }],
      [5500, 1, 0, 'refused', 500, { remaining: 0 }],
    ],
  ],
  [
    'a wait beyond maxWait is refused; retryAfter is when the same patience suffices, wait when none is needed',
    twoPerSecond,
    [
      [300, 2, 0, 'granted', 0, { remaining: 0 }],
      [300, 1, 500, 'refused', 700, { remaining: 0, retryMs: 200 }],
      [499.999, 1, 500, 'refused', 500.001, { remaining: 0, retryMs: 0.001 }],
      [500, 1, 500, 'granted', 500, { remaining: 0, balance: -1 }],
    ],
  ],
  [
    'a refusal changes nothing: a smaller ask still passes',
    { limit: 10, period: '100s' },
    [
      [0, 8, 0, 'granted', 0, { remaining: 2 }],
      [1, 5, 0, 'refused', 99_999, { remaining: 2, balance: 2 }],
      [2, 2, 0, 'granted', 0, { remaining: 0 }],
      [3, 1, 0, 'refused', 99_997, { remaining: 0 }],
    ],
  ],
  [
    'an ask above the limit is never granted at once, but can be booked',
    twoPerSecond,
    [
      [0, 3, 0, 'refused', Infinity, { remaining: 2, refillMs: 0, resetMs: 0, balance: 2 }],
      [0, 3, 0.001, 'refused', Infinity, { remaining: 2, retryMs: 999.999 }],
      [999.998, 3, 0.001, 'refused', Infinity, { remaining: 2, retryMs: 0.001 }],
      [999.999, 3, 0.001, 'granted', 0.001, { remaining: 0, balance: -1 }],
    ],
  ],
  [
    'one that needs two cycles more is refused for ever to a patience of one period',
    twoPerSecond,
    [
      [0, 5, 1000, 'refused', Infinity, { remaining: 2 }],
      [0, 5, 1000.001, 'refused', Infinity, { remaining: 2, retryMs: 999.999 }],
      [999.999, 5, 1000.001, 'granted', 1000.001, { remaining: 0, balance: -3 }],
    ],
  ],
  [
    'while a debt is being paid an ask above the limit comes nearer with every cycle',
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
    'limit 0 refuses everything for good',
    { limit: 0, period: '1m' },
    [
      [0, 1, Infinity, 'refused', Infinity, { remaining: 0, refillMs: Infinity, resetMs: 0, balance: 0 }],
      [0, 0, 0, 'granted', 0, { remaining: 0 }],
      [365 * DAY_MS, 1, 0, 'refused', Infinity, { remaining: 0 }],
    ],
  ],
  [
    'time that goes back does not bring back a cycle',
    twoPerSecond,
    [
      [1500, 2, 0, 'granted', 0, { remaining: 0 }],
      [500, 1, 0, 'refused', 1500, { remaining: 0, resetMs: 1500 }],
      [2000, 2, 0, 'granted', 0, { remaining: 0 }],
      [1999.999, 1, 0, 'refused', 1000.001, { remaining: 0 }],
    ],
  ],
  [
    'cycles start at the origin, and every period before and after it',
    { ...twoPerSecond, origin: START_MS + 60_300 },
    [
      [0, 2, 0, 'granted', 0, { remaining: 0, resetMs: 300 }],
      [299.999, 1, 0, 'refused', 0.001, { remaining: 0 }],
      [300, 1, 0, 'granted', 0, { remaining: 1, resetMs: 1000 }],
    ],
  ],
  [
    'a year is as good as a second',
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

test('bookings end where microseconds end, and say never', () => {
  const { limiter } = fromStart(cycle({ limit: 1, period: '200 days' }))
  expect(limiter.reserve('key', { cost: 1000 }).allowed).toBe(false)
  expect(limiter.reserve('key', { cost: 400 }).waitMs).toBeLessThan(Number.MAX_SAFE_INTEGER / 1000)
})

describe('giving back', () => {
  function booking(limit = 2) {
    const { limiter, at } = fromStart(cycle({ ...twoPerSecond, limit }))
    const book = (cost = 1) => limiter.reserve('key', { cost })
    return { limiter, at, book, balance: () => limiter.peek('key').balance }
  }

  test('cancelled before its instant: all of it, when nobody has booked after it; exactly once', () => {
    const { book, at, balance } = booking()
    book(2)
    const second = book(3)
    at(1999.999)
    expect([second.cancel(), second.cancel(), second.refund()]).toEqual([3, 0, 0])
    expect(balance()).toBe(2)
  })

  test('cancelled before its instant: less what was booked after it', () => {
    const { book, balance } = booking(4)
    book(4)
    const second = book(3)
    book()
    expect([second.cancel(), balance()]).toEqual([2, -2])
  })

  test('and only permits of the cycle that the last one waits for', () => {
    const { book, balance } = booking()
    book(2)
    const second = book(3)
    book()
    expect([second.cancel(), balance()]).toEqual([1, -3])
  })

  test('a cancelled early slot does not make room for a second one in a later cycle', () => {
    const { book } = booking(1)
    book()
    const early = book()
    const late = book()
    expect([early.waitMs, late.waitMs]).toEqual([1000, 2000])
    expect(early.cancel()).toBe(0)
    expect([book().waitMs, book().waitMs]).toEqual([3000, 4000])
  })

  test('nor when cycles have begun since', () => {
    const { book, at } = booking(1)
    book(2)
    const early = book()
    const late = book()
    at(1500)
    expect([early.waitMs, late.waitMs]).toEqual([2000, 3000])
    expect(early.cancel()).toBe(0)
    expect(book().waitMs).toBe(2500)
  })

  test('once nobody waits behind it, an early slot can be given back after all', () => {
    const { book, balance } = booking(1)
    book()
    const early = book()
    const late = book()
    expect([early.cancel(), late.cancel(), early.cancel()]).toEqual([0, 1, 1])
    expect(balance()).toBe(0)
  })

  test('cancelled at its instant still works, after it no more', () => {
    const { book, at } = booking()
    book(2)
    const second = book()
    at(1000.001)
    expect(second.cancel()).toBe(0)
    at(1000)
    expect(second.cancel()).toBe(1)
  })

  test('refunded within its cycle, and no more once the next one has brought it back', () => {
    const { book, at, balance } = booking()
    const first = book(2)
    at(999.999)
    expect([first.refund(), first.refund(), balance()]).toEqual([2, 0, 2])
    const second = book(2)
    at(1000)
    expect([second.refund(), balance()]).toEqual([0, 2])
  })

  test('refunded: never what those who wait count on', () => {
    const { book, at, balance } = booking()
    const first = book()
    book()
    book()
    at(500)
    expect([first.refund(), balance()]).toEqual([0, -1])
  })

  test('release gives back no more than was used, and nothing of another cycle', () => {
    const { book, limiter, at, balance } = booking()
    book()
    expect([limiter.release('key', 5), limiter.release('key', 5), balance()]).toEqual([1, 0, 2])
    book(2)
    at(1000)
    expect(limiter.release('key', 5)).toBe(0)
    expect(limiter.release('never seen', 1)).toBe(0)
  })

  test('release leaves to those who wait what they wait for, however often it is called', () => {
    const { book, limiter } = booking()
    limiter.tryAcquire('key', { cost: 2 })
    book()
    expect(limiter.release('key', 2) + limiter.release('key', 2)).toBeLessThanOrEqual(2)
  })

  test('drain takes what is there and leaves debts alone', () => {
    const { book, limiter, balance } = booking()
    book()
    expect([limiter.drain('key'), limiter.drain('key'), balance()]).toEqual([1, 0, 0])
    book()
    expect([limiter.drain('key'), balance()]).toEqual([0, -1])
  })
})

describe('update', () => {
  /** A limiter of 2 per second, told something else at 400. */
  function updated(options: CycleOptions, booked: number) {
    const { limiter, at } = fromStart(cycle(twoPerSecond))
    limiter.reserve('key', { cost: booked })
    at(400)
    limiter.update(cycle(options))
    return { limiter, at }
  }

  test('a higher limit takes hold with the next cycle', () => {
    const { limiter, at } = updated({ ...twoPerSecond, limit: 5 }, 2)
    expect(limiter.peek('key')).toMatchObject({ remaining: 0, refillAfterMs: 600, limit: 5 })
    at(1000)
    expect(limiter.peek('key').remaining).toBe(5)
  })

  test('a lower one too', () => {
    const { limiter, at } = updated({ ...twoPerSecond, limit: 1 }, 1)
    expect(limiter.peek('key').balance).toBe(1)
    at(1000)
    expect(limiter.peek('key')).toMatchObject({ remaining: 1, resetAfterMs: 0 })
  })

  test('a debt is paid at the new limit', () => {
    const { limiter } = updated({ ...twoPerSecond, limit: 5 }, 10)
    expect(limiter.peek('key')).toMatchObject({ balance: -8, waitMs: 1600 })
  })

  test('cycles that nobody has looked at are refilled by the new limit', () => {
    const { limiter, at } = fromStart(cycle(twoPerSecond))
    limiter.reserve('key', { cost: 8 })
    at(2400)
    limiter.update(cycle({ ...twoPerSecond, limit: 5 }))
    // A debt of 6, and two cycles since: by the old limit there would be a debt of 2.
    expect(limiter.peek('key').balance).toBe(4)
  })

  test('with another period the balance stays', () => {
    const { limiter, at } = updated({ limit: 2, period: '10s' }, 3)
    expect(limiter.peek('key')).toMatchObject({ balance: -1, waitMs: 9600 })
    at(10_000)
    expect(limiter.peek('key').balance).toBe(1)
  })

  test('with another period the cycles before it have refilled by the old limit', () => {
    const { limiter, at } = fromStart(cycle(twoPerSecond))
    limiter.reserve('key', { cost: 8 })
    at(2400)
    limiter.update(cycle({ limit: 5, period: '10s' }))
    expect(limiter.peek('key')).toMatchObject({ balance: -2, waitMs: 7600 })
  })

  test('with another origin the balance stays', () => {
    const { limiter } = updated({ ...twoPerSecond, origin: START_MS + 700 }, 2)
    expect(limiter.peek('key')).toMatchObject({ balance: 0, waitMs: 300 })
  })

  test('a limit that is switched off refuses what was left', () => {
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
