import { type FixedWindowOptions, fixedWindow } from '@sluice/core'
import { describe, expect, test } from 'vitest'
import { describeFaults, NOT_A_SPAN, NOT_WHOLE, thrownBy } from './faults.js'
import { expectSteps, fromStart, ledgerFromStart, type Table } from './steps.js'

const threePerSecond = { limit: 3, window: '1s' } as const
const threePerSecondOfTheClock = { ...threePerSecond, align: 'epoch' } as const
const DAY_MS = 86_400_000

test.each<Table<FixedWindowOptions>>([
  [
    'a key never seen has a whole window, which starts with its first permit and ends for all at once',
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
    'around the edge of two windows twice the limit passes, and no more',
    threePerSecond,
    [
      [0, 1, 0, 'granted', 0, { remaining: 2 }],
      [999.999, 2, 0, 'granted', 0, { remaining: 0, resetMs: 0.001 }],
      [1000, 3, 0, 'granted', 0, { remaining: 0 }],
      [1000, 1, 0, 'refused', 1000, { remaining: 0 }],
    ],
  ],
  [
    'aligned to the epoch it ends with the second of the clock, and six pass within a microsecond',
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
    'a refusal changes nothing: a smaller ask still passes, and no window starts',
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
    'an ask above the limit is never granted, and patience does not help: no permit is promised',
    threePerSecond,
    [
      [0, 4, Infinity, 'refused', Infinity, { remaining: 3, refillMs: 0, resetMs: 0, balance: 3 }],
      [0, 3, 0, 'granted', 0, { remaining: 0 }],
      [100, 1, Infinity, 'refused', 900, { remaining: 0 }],
      [100, 4, 0, 'refused', Infinity, { remaining: 0, resetMs: 900 }],
    ],
  ],
  [
    'cost 0 is always granted, changes nothing and starts no window',
    threePerSecond,
    [
      [0, 0, 0, 'granted', 0, { remaining: 3, resetMs: 0 }],
      [700, 3, 0, 'granted', 0, { remaining: 0, resetMs: 1000 }],
      [1200, 0, 0, 'granted', 0, { remaining: 0, resetMs: 500 }],
    ],
  ],
  [
    'limit 0 refuses everything for good',
    { limit: 0, window: '1m' },
    [
      [0, 1, Infinity, 'refused', Infinity, { remaining: 0, resetMs: 0, balance: 0 }],
      [0, 0, 0, 'granted', 0, { remaining: 0 }],
      [365 * DAY_MS, 1, 0, 'refused', Infinity, { remaining: 0 }],
    ],
  ],
  [
    'time that goes back opens no window, neither one of the past nor a new one',
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
    'nor does it where windows are those of the clock',
    threePerSecondOfTheClock,
    [
      [1000, 3, 0, 'granted', 0, { remaining: 0 }],
      [999, 1, 0, 'refused', 1001, { remaining: 0 }],
      [2000, 1, 0, 'granted', 0, { remaining: 2 }],
    ],
  ],
  [
    'a year is as good as a second',
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

test('a day of the clock ends at midnight UTC', () => {
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

describe('giving back', () => {
  test('release gives back what was used, while the window lasts', () => {
    const { limiter, at } = fromStart(fixedWindow(threePerSecond))
    limiter.tryAcquire('key', { cost: 3 })
    at(500)
    expect(limiter.release('key', 2)).toBe(2)
    expect(limiter.peek('key')).toMatchObject({ remaining: 2, resetAfterMs: 500 })
    at(1000)
    expect(limiter.release('key', 1)).toBe(0)
  })

  test('release gives back no more than was used; then the key is as if never seen', () => {
    const { limiter, at } = fromStart(fixedWindow(threePerSecond))
    limiter.tryAcquire('key', { cost: 2 })
    at(500)
    expect(limiter.release('key', 5)).toBe(2)
    expect(limiter.release('key', 5)).toBe(0)
    expect(limiter.peek('key').toJSON()).toEqual(limiter.peek('never seen').toJSON())
    expect(limiter.release('never seen', 1)).toBe(0)
  })

  test('an early permit that is given back after its window takes nothing off the next', () => {
    const { ledger, take, at } = ledgerFromStart(fixedWindow(threePerSecond))
    const early = take(2)
    at(1000)
    take(3)
    expect(ledger.refund('key', early)).toBe(0)
    expect(ledger.decide('key', 1, 0, false).balance).toBe(0)
  })

  test('within its window it comes back, and no permit of another window with it', () => {
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

  test('a permit of the next window cannot be promised', () => {
    const { limiter } = fromStart(fixedWindow(threePerSecond))
    const error = thrownBy(() => limiter.reserve('key'))
    expect(error).toBeInstanceOf(TypeError)
    expect(error).toMatchObject({ code: 'SLUICE_NOT_BOOKABLE' })
    expect(limiter.peek('key').remaining).toBe(3)
  })
})

describe('update', () => {
  /** A limiter of 3 per second whose key has used 2 at 0, told something else at 400. */
  function updated(options: FixedWindowOptions) {
    const { limiter, at } = fromStart(fixedWindow(threePerSecond))
    limiter.tryAcquire('key', { cost: 2 })
    at(400)
    limiter.update(fixedWindow(options))
    return { limiter, at }
  }

  test.each([
    ['a higher limit adds what it is higher by', 5, 3, 600],
    ['a lower one takes it away', 2, 0, 600],
    ['and what was used beyond it stays used', 1, -1, 600],
  ])('%s', (_rule, limit, balance, refillAfterMs) => {
    const { limiter, at } = updated({ limit, window: '1s' })
    expect(limiter.peek('key')).toMatchObject({ balance, refillAfterMs, remaining: Math.max(0, balance) })
    at(1000)
    expect(limiter.peek('key')).toMatchObject({ remaining: limit, resetAfterMs: 0 })
  })

  test('a longer window lasts from the same start', () => {
    const { limiter } = updated({ limit: 3, window: '2s' })
    expect(limiter.peek('key')).toMatchObject({ remaining: 1, resetAfterMs: 1600 })
  })

  test('a shorter window may be over', () => {
    expect(updated({ limit: 3, window: '400ms' }).limiter.peek('key').remaining).toBe(3)
    expect(updated({ limit: 3, window: 400.001 }).limiter.peek('key').remaining).toBe(1)
  })

  test('a window that was over stays over, however long it would be now', () => {
    const { limiter, at } = fromStart(fixedWindow(threePerSecond))
    limiter.tryAcquire('key', { cost: 2 })
    at(1000)
    limiter.update(fixedWindow({ limit: 3, window: '1h' }))
    expect(limiter.peek('key')).toMatchObject({ remaining: 3, resetAfterMs: 0 })
  })

  test('aligned to the epoch, what was used counts in the window of the clock that it finds', () => {
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
