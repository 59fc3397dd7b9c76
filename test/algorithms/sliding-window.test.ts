import { type SlidingWindowOptions, slidingWindow } from '@sluice/core'
import { describe, expect, test } from 'vitest'
import { describeFaults, NOT_A_SPAN, NOT_WHOLE, thrownBy } from './faults.js'
import { expectSteps, fromStart, ledgerFromStart, type Table } from './steps.js'

/** Slices of 250 ms. */
const threePerSecond = { limit: 3, window: '1s', slices: 4 } as const
const DAY_MS = 86_400_000

test.each<Table<SlidingWindowOptions>>([
  [
    'all grants of a slice count until one window after the newest of them',
    threePerSecond,
    [
      [0, 0, 0, 'granted', 0, { remaining: 3, refillMs: 0, resetMs: 0, balance: 3 }],
      [100, 1, 0, 'granted', 0, { remaining: 2, refillMs: 1000, resetMs: 1000, balance: 2 }],
      [200, 1, 0, 'granted', 0, { remaining: 1, refillMs: 1000, resetMs: 1000 }],
      [600, 1, 0, 'granted', 0, { remaining: 0, refillMs: 600, resetMs: 1000, balance: 0 }],
      [600, 1, 0, 'refused', 600, { remaining: 0, refillMs: 600, resetMs: 1000 }],
      [1100, 1, 0, 'refused', 100, { remaining: 0 }],
      [1199.999, 1, 0, 'refused', 0.001, { remaining: 0 }],
      [1200, 1, 0, 'granted', 0, { remaining: 1, refillMs: 400, resetMs: 1000 }],
      [1599.999, 2, 0, 'refused', 0.001, { remaining: 1 }],
      [1600, 2, 0, 'granted', 0, { remaining: 0, refillMs: 600, resetMs: 1000 }],
    ],
  ],
  [
    'permits granted together come back together, exactly one window later',
    threePerSecond,
    [
      [0, 3, 0, 'granted', 0, { remaining: 0, refillMs: 1000, resetMs: 1000 }],
      [999.999, 1, 0, 'refused', 0.001, { remaining: 0 }],
      [1000, 3, 0, 'granted', 0, { remaining: 0 }],
    ],
  ],
  [
    'permits granted more than a slice apart come back one by one, each exactly one window later',
    threePerSecond,
    [
      [0, 1, 0, 'granted', 0, { remaining: 2 }],
      [300, 1, 0, 'granted', 0, { remaining: 1 }],
      [600, 1, 0, 'granted', 0, { remaining: 0, refillMs: 400 }],
      [600, 2, 0, 'refused', 700, { remaining: 0 }],
      [999.999, 1, 0, 'refused', 0.001, { remaining: 0 }],
      [1000, 1, 0, 'granted', 0, { remaining: 0 }],
      [1299.999, 1, 0, 'refused', 0.001, { remaining: 0 }],
      [1300, 1, 0, 'granted', 0, { remaining: 0 }],
    ],
  ],
  [
    'a permit comes back less than one slice late',
    threePerSecond,
    [
      [0, 2, 0, 'granted', 0, { remaining: 1 }],
      [249.999, 1, 0, 'granted', 0, { remaining: 0 }],
      [1000, 1, 0, 'refused', 249.999, { remaining: 0, refillMs: 249.999 }],
      [1249.999, 3, 0, 'granted', 0, { remaining: 0 }],
    ],
  ],
  [
    'no window holds more than the limit',
    threePerSecond,
    [
      [999.999, 3, 0, 'granted', 0, { remaining: 0 }],
      [1000, 1, 0, 'refused', 999.999, { remaining: 0 }],
      [1999.998, 1, 0, 'refused', 0.001, { remaining: 0 }],
      [1999.999, 3, 0, 'granted', 0, { remaining: 0 }],
    ],
  ],
  [
    'with one slice, too, no window holds more than the limit',
    { limit: 2, window: '1s', slices: 1 },
    [
      [0, 1, 0, 'granted', 0, { remaining: 1 }],
      [999.999, 1, 0, 'granted', 0, { remaining: 0 }],
      [1000, 1, 0, 'refused', 999.999, { remaining: 0 }],
      [1999.999, 2, 0, 'granted', 0, { remaining: 0 }],
    ],
  ],
  [
    'a refusal changes nothing: a request of smaller cost still passes',
    { limit: 10, window: '60s' },
    [
      [0, 8, 0, 'granted', 0, { remaining: 2 }],
      [1, 5, 0, 'refused', 59_999, { remaining: 2, refillMs: 59_999, resetMs: 59_999 }],
      [2, 2, 0, 'granted', 0, { remaining: 0 }],
      [3, 1, 0, 'refused', 59_999, { remaining: 0 }],
    ],
  ],
  [
    'a cost above the limit is never granted, whatever maxWait is: permits cannot be booked',
    threePerSecond,
    [
      [0, 4, Infinity, 'refused', Infinity, { remaining: 3, refillMs: 0, resetMs: 0, balance: 3 }],
      [0, 3, 0, 'granted', 0, { remaining: 0 }],
      [100, 1, Infinity, 'refused', 900, { remaining: 0 }],
    ],
  ],
  [
    'cost 0 is always granted and does not extend a segment',
    threePerSecond,
    [
      [0, 3, 0, 'granted', 0, { remaining: 0 }],
      [200, 0, 0, 'granted', 0, { remaining: 0, refillMs: 800, resetMs: 800 }],
      [1000, 3, 0, 'granted', 0, { remaining: 0 }],
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
    'a clock that goes back is read as the time of the newest grant',
    threePerSecond,
    [
      [1000, 2, 0, 'granted', 0, { remaining: 1 }],
      [500, 1, 0, 'granted', 0, { remaining: 0, refillMs: 1500, resetMs: 1500 }],
      [0, 1, 0, 'refused', 2000, { remaining: 0 }],
      [1999.999, 1, 0, 'refused', 0.001, { remaining: 0 }],
      [2000, 3, 0, 'granted', 0, { remaining: 0 }],
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
  [
    'a window of fewer microseconds than slices works like a log',
    { limit: 2, window: 0.003, slices: 10 },
    [
      [0, 1, 0, 'granted', 0, { remaining: 1 }],
      [0.001, 1, 0, 'granted', 0, { remaining: 0, refillMs: 0.002, resetMs: 0.003 }],
      [0.002, 1, 0, 'refused', 0.001, { remaining: 0 }],
      [0.003, 1, 0, 'granted', 0, { remaining: 0, refillMs: 0.001 }],
    ],
  ],
])('%s', (_rule, options, rows) => {
  expectSteps(slidingWindow(options), rows)
})

test('a client that sends at the rate of the limit loses about one permit in slices + 1', () => {
  const { limiter, at } = fromStart(slidingWindow({ limit: 100, window: '1s', slices: 4 }))
  let granted = 0
  for (let ask = 0; ask < 10_000; ask++) {
    at(ask * 10)
    if (limiter.tryAcquire('key').allowed) granted++
  }
  expect(granted / 10_000).toBeCloseTo(4 / 5, 1)
})

describe('refund, release and drain', () => {
  test('release returns the newest grants first, while they count', () => {
    const { limiter, at } = fromStart(slidingWindow(threePerSecond))
    limiter.tryAcquire('key', { cost: 2 })
    at(600)
    limiter.tryAcquire('key')
    at(700)
    expect(limiter.release('key', 2)).toBe(2)
    expect(limiter.peek('key')).toMatchObject({ remaining: 2, refillAfterMs: 300, resetAfterMs: 300 })
    at(1000)
    expect(limiter.release('key', 1)).toBe(0)
  })

  test('release returns no more than was used; then the key is like a new one', () => {
    const { limiter, at } = fromStart(slidingWindow(threePerSecond))
    limiter.tryAcquire('key')
    at(600)
    limiter.tryAcquire('key')
    expect(limiter.release('key', 5)).toBe(2)
    expect(limiter.release('key', 5)).toBe(0)
    expect(limiter.peek('key').toJSON()).toEqual(limiter.peek('never seen').toJSON())
    expect(limiter.release('never seen', 1)).toBe(0)
  })

  test('a refund removes only grants of its own segment, while they count', () => {
    const { ledger, take, at } = ledgerFromStart(slidingWindow(threePerSecond))
    const first = take(1)
    at(300)
    const second = take(2)
    at(999.999)
    expect(ledger.refund('key', second)).toBe(2)
    expect(ledger.decide('key', 0, 0, false)).toMatchObject({ remaining: 2, resetAfterMs: 0.001 })
    at(1000)
    expect(ledger.refund('key', first)).toBe(0)
  })

  test('a refund returns nothing after its segment was replaced', () => {
    const { ledger, take, at } = ledgerFromStart(slidingWindow(threePerSecond))
    const first = take(1)
    // Five segments of 250 ms later.
    at(1250)
    take(3)
    expect(ledger.refund('key', first)).toBe(0)
    expect(ledger.decide('key', 0, 0, false).remaining).toBe(0)
  })

  test('drain uses up the window', () => {
    const { limiter, at } = fromStart(slidingWindow(threePerSecond))
    limiter.tryAcquire('key')
    at(400)
    expect([limiter.drain('key'), limiter.drain('key')]).toEqual([2, 0])
    expect(limiter.peek('key')).toMatchObject({ allowed: false, retryAfterMs: 600 })
  })

  test('reserve throws, because permits of the future cannot be booked', () => {
    const { limiter } = fromStart(slidingWindow(threePerSecond))
    const error = thrownBy(() => limiter.reserve('key'))
    expect(error).toBeInstanceOf(TypeError)
    expect(error).toMatchObject({ code: 'SLUICE_NOT_BOOKABLE' })
    expect(limiter.peek('key').remaining).toBe(3)
  })
})

describe('update', () => {
  /** A limiter of 3 per second whose key has used 2 at 0 and 1 at 600, updated at 700. */
  function updated(options: SlidingWindowOptions) {
    const { limiter, at } = fromStart(slidingWindow(threePerSecond))
    limiter.tryAcquire('key', { cost: 2 })
    at(600)
    limiter.tryAcquire('key')
    at(700)
    limiter.update(slidingWindow(options))
    return { limiter, at }
  }

  test.each([
    ['a higher limit adds the difference', 5, 2, 300],
    ['a lower limit subtracts the difference, and the balance may be negative', 2, -1, 300],
    ['with a negative balance the next permit is available when enough have come back', 1, -2, 900],
  ])('%s', (_rule, limit, balance, refillAfterMs) => {
    const { limiter, at } = updated({ ...threePerSecond, limit })
    expect(limiter.peek('key')).toMatchObject({ balance, refillAfterMs, remaining: Math.max(0, balance) })
    at(1600)
    expect(limiter.peek('key')).toMatchObject({ remaining: limit, resetAfterMs: 0 })
  })

  test('in a longer window, grants that count continue to count', () => {
    const { limiter } = updated({ ...threePerSecond, window: '2s' })
    expect(limiter.peek('key')).toMatchObject({ remaining: 0, refillAfterMs: 1300, resetAfterMs: 1900 })
  })

  test('in a longer window, expired grants do not count again', () => {
    const { limiter, at } = fromStart(slidingWindow(threePerSecond))
    limiter.tryAcquire('key', { cost: 2 })
    at(600)
    limiter.tryAcquire('key')
    at(1000)
    limiter.update(slidingWindow({ ...threePerSecond, window: '1h' }))
    expect(limiter.peek('key').remaining).toBe(2)
  })

  test('in a shorter window, old grants do not count', () => {
    const { limiter } = updated({ ...threePerSecond, window: '500ms' })
    expect(limiter.peek('key')).toMatchObject({ remaining: 2, refillAfterMs: 400, resetAfterMs: 400 })
  })

  test('an update to another number of slices resets every key', () => {
    const { limiter } = updated({ ...threePerSecond, slices: 5 })
    expect(limiter.peek('key').remaining).toBe(3)
  })
})

describeFaults<SlidingWindowOptions>(
  slidingWindow,
  threePerSecond,
  { limit: NOT_WHOLE, window: NOT_A_SPAN, slices: [...NOT_WHOLE, [0, RangeError], [1001, RangeError]] },
  { max: 'limit', timeWindow: 'window', slice: 'slices' },
)
