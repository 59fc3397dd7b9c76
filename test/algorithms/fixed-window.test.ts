import { type FixedWindowOptions, fixedWindow } from '@sluice/core'
import { describe, expect, test } from 'vitest'
import { describeFaults, NOT_A_SPAN, NOT_WHOLE, thrownBy } from './faults.js'
import { expectSteps, fromStart, ledgerFromStart, type Table } from './steps.js'

const threePerSecond = { limit: 3, window: '1s' } as const
const threePerSecondOfTheClock = { ...threePerSecond, align: 'epoch' } as const
const DAY_MS = 86_400_000

test.each<Table<FixedWindowOptions>>([
  [
    'a new key has a whole window, which starts with the first permit; all permits come back at its end',
    threePerSecond,
    [
      [0, 0, 0, 'granted', 0, { remaining: 3, refillMs: 0, resetMs: 0, balance: 3 }],
      [100, 1, 0, 'granted', 0, { remaining: 2, refillMs: 1000, resetMs: 1000, balance: 2 }],
      [500, 2, 0, 'granted', 0, { remaining: 0, refillMs: 600, resetMs: 600, balance: 0 }],
      [500, 1, 0, 'refused', 600, { remaining: 0, refillMs: 600, resetMs: 600 }],
      [1099.999, 1, 0, 'refused', 0.001, { remaining: 0 }],
      [1100, 1, 0, 'granted', 0, { remaining: 2, refillMs: 1000, resetMs: 1000 }],
    ],
  ],
  [
    'around the end of a window at most twice the limit passes',
    threePerSecond,
    [
      [0, 1, 0, 'granted', 0, { remaining: 2 }],
      [999.999, 2, 0, 'granted', 0, { remaining: 0, resetMs: 0.001 }],
      [1000, 3, 0, 'granted', 0, { remaining: 0 }],
      [1000, 1, 0, 'refused', 1000, { remaining: 0 }],
    ],
  ],
  [
    'aligned to the epoch, a window ends at a full second of the clock, and six requests pass within a microsecond',
    threePerSecondOfTheClock,
    [
      [300, 0, 0, 'granted', 0, { remaining: 3, refillMs: 0, resetMs: 0 }],
      [999.999, 3, 0, 'granted', 0, { remaining: 0, refillMs: 0.001, resetMs: 0.001 }],
      [999.999, 1, 0, 'refused', 0.001, { remaining: 0 }],
      [1000, 3, 0, 'granted', 0, { remaining: 0, refillMs: 1000, resetMs: 1000 }],
      [1700, 1, 0, 'refused', 300, { remaining: 0, resetMs: 300 }],
      [3500, 1, 0, 'granted', 0, { remaining: 2, resetMs: 500 }],
    ],
  ],
  [
    'a refusal changes nothing: a request of smaller cost still passes, and no window starts',
    { limit: 10, window: '60s' },
    [
      [0, 11, 0, 'refused', Infinity, { remaining: 10, resetMs: 0 }],
      [1000, 8, 0, 'granted', 0, { remaining: 2, resetMs: 60_000 }],
      [2000, 5, 0, 'refused', 59_000, { remaining: 2, refillMs: 59_000, resetMs: 59_000 }],
      [2000, 2, 0, 'granted', 0, { remaining: 0 }],
      [3000, 1, 0, 'refused', 58_000, { remaining: 0 }],
    ],
  ],
  [
    'a cost above the limit is never granted, whatever maxWait is: permits cannot be booked',
    threePerSecond,
    [
      [0, 4, Infinity, 'refused', Infinity, { remaining: 3, refillMs: 0, resetMs: 0, balance: 3 }],
      [0, 3, 0, 'granted', 0, { remaining: 0 }],
      [100, 1, Infinity, 'refused', 900, { remaining: 0 }],
      [100, 4, 0, 'refused', Infinity, { remaining: 0, resetMs: 900 }],
    ],
  ],
  [
    'cost 0 is always granted, changes nothing and does not start a window',
    threePerSecond,
    [
      [0, 0, 0, 'granted', 0, { remaining: 3, resetMs: 0 }],
      [700, 3, 0, 'granted', 0, { remaining: 0, resetMs: 1000 }],
      [1200, 0, 0, 'granted', 0, { remaining: 0, resetMs: 500 }],
    ],
  ],
  [
    'limit 0 refuses everything for ever',
    { limit: 0, window: '1m' },
    [
      [0, 1, Infinity, 'refused', Infinity, { remaining: 0, resetMs: 0, balance: 0 }],
      [0, 0, 0, 'granted', 0, { remaining: 0 }],
      [365 * DAY_MS, 1, 0, 'refused', Infinity, { remaining: 0 }],
    ],
  ],
  [
    'a clock that goes back opens neither a past window nor a new one',
    threePerSecond,
    [
      [1000, 2, 0, 'granted', 0, { remaining: 1 }],
      [500, 1, 0, 'granted', 0, { remaining: 0, refillMs: 1500, resetMs: 1500 }],
      [0, 1, 0, 'refused', 2000, { remaining: 0 }],
      [1999.999, 1, 0, 'refused', 0.001, { remaining: 0 }],
      [2000, 1, 0, 'granted', 0, { remaining: 2 }],
    ],
  ],
  [
    'a clock that goes back opens no window aligned to the epoch either',
    threePerSecondOfTheClock,
    [
      [1000, 3, 0, 'granted', 0, { remaining: 0 }],
      [999, 1, 0, 'refused', 1001, { remaining: 0 }],
      [2000, 1, 0, 'granted', 0, { remaining: 2 }],
    ],
  ],
  [
    'a window of a year works like one of a second',
    { limit: 5, window: '365d' },
    [
      [0, 5, 0, 'granted', 0, { remaining: 0, resetMs: 365 * DAY_MS }],
      [30 * DAY_MS, 1, 0, 'refused', 335 * DAY_MS, { remaining: 0 }],
      [365 * DAY_MS - 0.001, 1, 0, 'refused', 0.001, { remaining: 0 }],
      [365 * DAY_MS, 5, 0, 'granted', 0, { remaining: 0 }],
    ],
  ],
])('%s', (_rule, options, rows) => {
  expectSteps(fixedWindow(options), rows)
})

test('a window of a day, aligned to the epoch, ends at midnight UTC', () => {
  const sixOClock = Date.UTC(2025, 0, 1, 6)
  expectSteps(
    fixedWindow({ limit: 1, window: '1d', align: 'epoch' }),
    [
      [0, 1, 0, 'granted', 0, { remaining: 0, resetMs: DAY_MS * 0.75 }],
      [DAY_MS * 0.75 - 0.001, 1, 0, 'refused', 0.001, { remaining: 0 }],
      [DAY_MS * 0.75, 1, 0, 'granted', 0, { remaining: 0, resetMs: DAY_MS }],
    ],
    sixOClock,
  )
})

describe('refund, release and drain', () => {
  test('release returns what was used until the window ends', () => {
    const { limiter, at } = fromStart(fixedWindow(threePerSecond))
    limiter.tryAcquire('key', { cost: 3 })
    at(500)
    expect(limiter.release('key', 2)).toBe(2)
    expect(limiter.peek('key')).toMatchObject({ remaining: 2, resetAfterMs: 500 })
    at(1000)
    expect(limiter.release('key', 1)).toBe(0)
  })

  test('release returns no more than was used; then the key is like a new one', () => {
    const { limiter, at } = fromStart(fixedWindow(threePerSecond))
    limiter.tryAcquire('key', { cost: 2 })
    at(500)
    expect(limiter.release('key', 5)).toBe(2)
    expect(limiter.release('key', 5)).toBe(0)
    expect(limiter.peek('key').toJSON()).toEqual(limiter.peek('never seen').toJSON())
    expect(limiter.release('never seen', 1)).toBe(0)
  })

  test('a refund after the window has ended does not change the next window', () => {
    const { ledger, take, at } = ledgerFromStart(fixedWindow(threePerSecond))
    const early = take(2)
    at(1000)
    take(3)
    expect(ledger.refund('key', early)).toBe(0)
    expect(ledger.decide('key', 1, 0, false).balance).toBe(0)
  })

  test('a refund within its window returns the permit, and none of another window', () => {
    const { ledger, take, at } = ledgerFromStart(fixedWindow(threePerSecond))
    const first = take(1)
    take(2)
    at(999.999)
    expect(ledger.refund('key', first)).toBe(1)
    expect(ledger.decide('key', 1, 0, false).balance).toBe(1)
  })

  test('drain uses up the window', () => {
    const { limiter, at } = fromStart(fixedWindow(threePerSecond))
    limiter.tryAcquire('key')
    at(400)
    expect([limiter.drain('key'), limiter.drain('key')]).toEqual([2, 0])
    expect(limiter.peek('key')).toMatchObject({ allowed: false, retryAfterMs: 600 })
  })

  test('reserve throws, because permits of the next window cannot be booked', () => {
    const { limiter } = fromStart(fixedWindow(threePerSecond))
    const error = thrownBy(() => limiter.reserve('key'))
    expect(error).toBeInstanceOf(TypeError)
    expect(error).toMatchObject({ code: 'SLUICE_NOT_BOOKABLE' })
    expect(limiter.peek('key').remaining).toBe(3)
  })
})

describe('update', () => {
  /** A limiter of 3 per second whose key has used 2 at 0, updated at 400. */
  function updated(options: FixedWindowOptions) {
    const { limiter, at } = fromStart(fixedWindow(threePerSecond))
    limiter.tryAcquire('key', { cost: 2 })
    at(400)
    limiter.update(fixedWindow(options))
    return { limiter, at }
  }

  test.each([
    ['a higher limit adds the difference', 5, 3, 600],
    ['a lower limit subtracts the difference', 2, 0, 600],
    ['a limit below what was used leaves a negative balance', 1, -1, 600],
  ])('%s', (_rule, limit, balance, refillAfterMs) => {
    const { limiter, at } = updated({ limit, window: '1s' })
    expect(limiter.peek('key')).toMatchObject({ balance, refillAfterMs, remaining: Math.max(0, balance) })
    at(1000)
    expect(limiter.peek('key')).toMatchObject({ remaining: limit, resetAfterMs: 0 })
  })

  test('a longer window keeps its start', () => {
    const { limiter } = updated({ limit: 3, window: '2s' })
    expect(limiter.peek('key')).toMatchObject({ remaining: 1, resetAfterMs: 1600 })
  })

  test('a shorter window may already have ended', () => {
    expect(updated({ limit: 3, window: '400ms' }).limiter.peek('key').remaining).toBe(3)
    expect(updated({ limit: 3, window: 400.001 }).limiter.peek('key').remaining).toBe(1)
  })

  test('a window that has ended stays ended after an update to a longer window', () => {
    const { limiter, at } = fromStart(fixedWindow(threePerSecond))
    limiter.tryAcquire('key', { cost: 2 })
    at(1000)
    limiter.update(fixedWindow({ limit: 3, window: '1h' }))
    expect(limiter.peek('key')).toMatchObject({ remaining: 3, resetAfterMs: 0 })
  })

  test('after an update to align: epoch, used permits count in the current aligned window', () => {
    const { limiter, at } = fromStart(fixedWindow(threePerSecond))
    at(700)
    limiter.tryAcquire('key', { cost: 2 })
    at(1200)
    limiter.update(fixedWindow(threePerSecondOfTheClock))
    expect(limiter.peek('key')).toMatchObject({ remaining: 1, resetAfterMs: 800 })
  })
})

describeFaults<FixedWindowOptions>(
  fixedWindow,
  threePerSecond,
  {
    limit: NOT_WHOLE,
    window: NOT_A_SPAN,
    align: [
      ['midnight', RangeError],
      ['', RangeError],
      [0, TypeError],
      [null, TypeError],
    ],
  },
  { max: 'limit', timeWindow: 'window', aling: 'align' },
)
