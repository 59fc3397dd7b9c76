import { setImmediate as nextTurn } from 'node:timers/promises'
import { type SmoothBurstyOptions, smoothBursty } from '@sluice/core'
import { afterEach, describe, expect, test } from 'vitest'
import { describeFaults, NOT_A_SPAN, NOT_A_WAIT, NOT_WHOLE } from './faults.js'
import { expectSteps, fromStart, type Table } from './steps.js'

/** One request every 500 ms, and two permits are stored in a second of idle time. */
const twoPerSecond = { limit: 2, window: '1s' } as const
const DAY_MS = 86_400_000

test.each<Table<SmoothBurstyOptions>>([
  [
    'a new limiter has no stored permits: one request passes on credit, then one per interval',
    twoPerSecond,
    [
      [0, 0, 0, 'granted', 0, { remaining: 1, refillMs: 500, resetMs: 1000, balance: 1 }],
      [0, 1, 0, 'granted', 0, { remaining: 0, refillMs: 500, resetMs: 1500, balance: 0 }],
      [0, 1, 0, 'refused', 500, { remaining: 0 }],
      [499.999, 1, 0, 'refused', 0.001, { remaining: 0 }],
      [500, 1, 0, 'granted', 0, { remaining: 0, resetMs: 1500 }],
    ],
  ],
  [
    'after an idle time of maxBurst all permits are stored, and not a microsecond earlier',
    twoPerSecond,
    [
      [499.999, 0, 0, 'granted', 0, { remaining: 1, refillMs: 0.001 }],
      [500, 0, 0, 'granted', 0, { remaining: 2, refillMs: 500 }],
      [999.999, 0, 0, 'granted', 0, { remaining: 2, refillMs: 0.001, resetMs: 0.001 }],
      [1000, 0, 0, 'granted', 0, { remaining: 3, refillMs: 0, resetMs: 0, balance: 3 }],
      [60_000, 0, 0, 'granted', 0, { remaining: 3, refillMs: 0, resetMs: 0, balance: 3 }],
    ],
  ],
  [
    'without a debt, a request of any cost passes at once, and the next request waits for it',
    twoPerSecond,
    [
      [1000, 5, Infinity, 'granted', 0, { remaining: 0, refillMs: 1500, resetMs: 2500, balance: -2 }],
      [1000, 1, Infinity, 'granted', 1500, { remaining: 0, refillMs: 2000, resetMs: 3000, balance: -3 }],
      [1000, 1, 0, 'refused', 2000, { remaining: 0, balance: -3 }],
      [2999.999, 1, 0, 'refused', 0.001, { remaining: 0 }],
      [3000, 1, 0, 'granted', 0, { remaining: 0 }],
    ],
  ],
  [
    'no span holds more than the stored permits, the rate and one request',
    twoPerSecond,
    [
      [1000, 1, 0, 'granted', 0, { remaining: 2 }],
      [1000, 1, 0, 'granted', 0, { remaining: 1 }],
      [1000, 1, 0, 'granted', 0, { remaining: 0 }],
      [1500, 1, 0, 'granted', 0, { remaining: 0 }],
      [2000, 1, 0, 'granted', 0, { remaining: 0 }],
      [2000, 1, 0, 'refused', 500, { remaining: 0 }],
    ],
  ],
  [
    'stored permits come back at the rate',
    twoPerSecond,
    [
      [1000, 3, 0, 'granted', 0, { remaining: 0, refillMs: 500, resetMs: 1500 }],
      [1999.999, 0, 0, 'granted', 0, { remaining: 1, refillMs: 0.001 }],
      [2000, 0, 0, 'granted', 0, { remaining: 2, refillMs: 500 }],
      [2500, 0, 0, 'granted', 0, { remaining: 3, refillMs: 0, resetMs: 0 }],
    ],
  ],
  [
    'a wait longer than maxWait is refused; retryAfterMs ends when the same maxWait is enough',
    twoPerSecond,
    [
      [0, 3, 0, 'granted', 0, { remaining: 0 }],
      [0, 1, 1000, 'refused', 1500, { remaining: 0, retryMs: 500 }],
      [499.999, 1, 1000, 'refused', 1000.001, { remaining: 0, retryMs: 0.001 }],
      [500, 1, 1000, 'granted', 1000, { remaining: 0, balance: -2 }],
    ],
  ],
  [
    'a refusal changes nothing',
    twoPerSecond,
    [
      [0, 1, 0, 'granted', 0, { remaining: 0 }],
      [100, 7, 0, 'refused', 400, { remaining: 0, balance: 0.2 }],
      [100, 1, 0, 'refused', 400, { remaining: 0, balance: 0.2 }],
      [500, 1, 0, 'granted', 0, { remaining: 0 }],
    ],
  ],
  [
    'only a debt beyond 2^53 microseconds is refused for ever',
    twoPerSecond,
    [
      [0, Number.MAX_SAFE_INTEGER, Infinity, 'refused', Infinity, { remaining: 1, balance: 1 }],
      [0, 1_000_000, 0, 'granted', 0, { remaining: 0, refillMs: 500_000_000 }],
    ],
  ],
  [
    'with maxBurst 0 no permits are stored',
    { ...twoPerSecond, maxBurst: 0 },
    [
      [60_000, 1, 0, 'granted', 0, { remaining: 0, refillMs: 500, resetMs: 500 }],
      [60_000, 1, 0, 'refused', 500, { remaining: 0 }],
      [60_500, 0, 0, 'granted', 0, { remaining: 1, refillMs: 0, resetMs: 0 }],
    ],
  ],
  [
    'the interval is truncated to whole microseconds, as in Guava: 3 per second',
    { limit: 3, window: '1s' },
    [
      [0, 1, 0, 'granted', 0, { remaining: 0 }],
      [333.332, 1, 0, 'refused', 0.001, { remaining: 0 }],
      [333.333, 1, 0, 'granted', 0, { remaining: 0, refillMs: 333.333 }],
    ],
  ],
  [
    'cost 0 is always granted at once and changes nothing',
    twoPerSecond,
    [
      [0, 2, 0, 'granted', 0, { remaining: 0 }],
      [0, 0, 0, 'granted', 0, { remaining: 0, refillMs: 1000, balance: -1 }],
    ],
  ],
  [
    'limit 0 refuses everything for ever',
    { limit: 0, window: '1m' },
    [
      [0, 1, Infinity, 'refused', Infinity, { remaining: 0, refillMs: Infinity, resetMs: 0, balance: 0 }],
      [0, 0, 0, 'granted', 0, { remaining: 0 }],
      [365 * DAY_MS, 1, 0, 'refused', Infinity, { remaining: 0 }],
    ],
  ],
  [
    'a clock that goes back stores no permits',
    twoPerSecond,
    [
      [1000, 3, 0, 'granted', 0, { remaining: 0 }],
      [500, 1, 0, 'refused', 1000, { remaining: 0 }],
      [1500, 1, 0, 'granted', 0, { remaining: 0 }],
      [1500, 1, 0, 'refused', 500, { remaining: 0 }],
    ],
  ],
  [
    'a time before the creation of the limiter is read as the time of its creation',
    twoPerSecond,
    [
      [-60_000, 1, 0, 'granted', 0, { remaining: 0 }],
      [-60_000, 1, 0, 'refused', 500, { remaining: 0 }],
    ],
  ],
  [
    'one per year works like one per second',
    { limit: 1, window: '365d', maxBurst: '365d' },
    [
      [0, 1, 0, 'granted', 0, { remaining: 0 }],
      [30 * DAY_MS, 1, 0, 'refused', 335 * DAY_MS, { remaining: 0 }],
      [365 * DAY_MS - 0.001, 1, 0, 'refused', 0.001, { remaining: 0 }],
      [365 * DAY_MS, 1, 0, 'granted', 0, { remaining: 0 }],
      [1095 * DAY_MS, 0, 0, 'granted', 0, { remaining: 2, resetMs: 0 }],
    ],
  ],
])('%s', (_rule, options, rows) => {
  expectSteps(smoothBursty(options), rows)
})

describe('a new key', () => {
  test('stores permits from the creation of the limiter, not of the algorithm', () => {
    const algorithm = smoothBursty(twoPerSecond)
    const { limiter, at } = fromStart(algorithm)
    expect(limiter.peek('early').remaining).toBe(1)
    at(1000)
    expect(limiter.peek('late').remaining).toBe(3)
    expect(fromStart(algorithm).limiter.peek('key').remaining).toBe(1)
  })

  test('is like an idle key that was swept', () => {
    const { limiter, store, at } = fromStart(smoothBursty(twoPerSecond))
    limiter.tryAcquire('key')
    at(1499.999)
    store.sweep()
    expect(store.size).toBe(1)
    at(1500)
    const rested = limiter.peek('key').toJSON()
    store.sweep()
    expect(store.size).toBe(0)
    expect(limiter.peek('key').toJSON()).toEqual(rested)
  })
})

describe('cancel, refund, release and drain', () => {
  /** Books from a limiter after an idle second: two permits are stored at 1000. */
  function booking() {
    const { limiter, at } = fromStart(smoothBursty(twoPerSecond))
    at(1000)
    const book = (cost = 1) => limiter.reserve('key', { cost })
    const nextWait = () => limiter.peek('key').waitMs
    return { limiter, at, book, nextWait, balance: () => limiter.peek('key').balance }
  }

  test('a cancel before the booked time returns all permits if no later booking exists, exactly once', () => {
    const { book, at, nextWait } = booking()
    book(5)
    const second = book(2)
    expect([second.waitMs, nextWait()]).toEqual([1500, 2500])
    at(2000)
    expect([second.cancel(), second.cancel(), second.refund()]).toEqual([2, 0, 0])
    expect(nextWait()).toBe(500)
  })

  test('a cancel returns nothing while a later booking exists, whose slot starts where this one ends', () => {
    const { book, nextWait } = booking()
    book(5)
    const second = book(3)
    const third = book()
    expect([second.cancel(), nextWait()]).toEqual([0, 3500])
    expect([third.cancel(), nextWait()]).toEqual([1, 3000])
    expect([second.cancel(), nextWait()]).toEqual([3, second.waitMs])
  })

  test('a cancel works up to the booked time and returns nothing after it', () => {
    const { book, at } = booking()
    book(5)
    const second = book()
    at(2500.001)
    expect(second.cancel()).toBe(0)
    at(2500)
    expect(second.cancel()).toBe(1)
  })

  test('a refund reduces the debt first, then returns stored permits', () => {
    const { book, balance } = booking()
    const first = book(5)
    expect([first.refund(), first.refund(), balance()]).toEqual([5, 0, 3])
  })

  test('a refund returns what has not refilled yet', () => {
    const { book, at, balance } = booking()
    const first = book()
    expect(balance()).toBe(2)
    at(1250)
    expect([first.refund(), balance()]).toEqual([0.5, 3])
    const second = book()
    at(1750)
    expect(second.refund()).toBe(0)
  })

  test('a refund never returns permits that later bookings need', () => {
    const { book, nextWait } = booking()
    const first = book(3)
    const waiting = book(3)
    expect(waiting.waitMs).toBe(500)
    expect([first.refund(), nextWait()]).toEqual([0, 2000])
  })

  test('release returns no more than the debt and the missing stored permits, and nothing while a booking waits', () => {
    const { book, limiter, balance } = booking()
    book(4)
    expect([limiter.release('key', 3), balance()]).toEqual([3, 2])
    expect([limiter.release('key', 5), balance()]).toEqual([1, 3])
    expect(limiter.release('key', 5)).toBe(0)
    book(3)
    book()
    expect([limiter.release('key', 5), balance()]).toEqual([0, -1])
    expect(limiter.release('never seen', 1)).toBe(0)
  })

  test('drain takes all available permits, including the one on credit', () => {
    const { limiter, nextWait } = booking()
    expect([limiter.drain('key'), limiter.drain('key'), nextWait()]).toEqual([3, 0, 500])
  })
})

describe('update', () => {
  test('scales the stored permits to the new maximum', () => {
    const { limiter, at } = fromStart(smoothBursty(twoPerSecond))
    at(1000)
    limiter.tryAcquire('key')
    expect(limiter.peek('key').balance).toBe(2)
    limiter.update(smoothBursty({ limit: 4, window: '1s' }))
    expect(limiter.peek('key')).toMatchObject({ limit: 5, balance: 3, resetAfterMs: 500 })
    limiter.update(smoothBursty({ limit: 1, window: '1s' }))
    expect(limiter.peek('key')).toMatchObject({ limit: 2, balance: 1.5, resetAfterMs: 500 })
  })

  test('permits until the update are stored at the old rate', () => {
    const { limiter, at } = fromStart(smoothBursty(twoPerSecond))
    at(1000)
    limiter.tryAcquire('key', { cost: 3 })
    at(2000)
    // One of two permits is stored, which is half.
    limiter.update(smoothBursty({ limit: 10, window: '1s' }))
    at(2100)
    expect(limiter.peek('key').balance).toBe(7)
  })

  test('a debt keeps its time, as in Guava: only the next request uses the new rate', () => {
    const { limiter, at } = fromStart(smoothBursty(twoPerSecond))
    limiter.tryAcquire('key', { cost: 3 })
    at(500)
    limiter.update(smoothBursty({ limit: 4, window: '1s' }))
    expect(limiter.peek('key').waitMs).toBe(1000)
    expect(limiter.reserve('key').waitMs).toBe(1000)
    expect(limiter.peek('key').waitMs).toBe(1250)
  })

  test('a new key still stores permits from the creation of the limiter', () => {
    const { limiter, at } = fromStart(smoothBursty(twoPerSecond))
    at(500)
    limiter.update(smoothBursty({ limit: 4, window: '1s' }))
    expect(limiter.peek('never seen').remaining).toBe(3)
    at(1000)
    expect(limiter.peek('never seen').remaining).toBe(5)
  })

  test('stored permits and a debt survive an update to limit 0 and back', () => {
    const { limiter, at } = fromStart(smoothBursty(twoPerSecond))
    limiter.tryAcquire('owes', { cost: 5 })
    at(1000)
    limiter.tryAcquire('saves')
    limiter.update(smoothBursty({ limit: 0, window: '1s' }))
    expect(limiter.peek('saves').waitMs).toBe(Infinity)
    at(60_000)
    limiter.update(smoothBursty(twoPerSecond))
    expect(limiter.peek('saves').balance).toBe(2)
    // Three permits of 500 ms each, of which two are still a debt.
    expect(limiter.peek('owes').waitMs).toBe(1500)
  })
})

describe('above a million per second', () => {
  const warnings: Error[] = []
  const noteWarning = (warning: Error) => warnings.push(warning)

  afterEach(() => {
    process.off('warning', noteWarning)
  })

  test('the rate has no bound, and one warning SLUICE_NO_BOUND is emitted', async () => {
    process.on('warning', noteWarning)
    smoothBursty({ limit: 1_000_000, window: '1s' })
    await nextTurn()
    expect(warnings).toEqual([])

    const { limiter } = fromStart(smoothBursty({ limit: 1_000_001, window: '1s' }))
    smoothBursty({ limit: 2_000_000, window: '1s' })
    await nextTurn()
    expect(warnings).toMatchObject([{ name: 'SluiceWarning', code: 'SLUICE_NO_BOUND' }])
    expect(warnings[0]?.message).toContain('tokenBucket')
    for (let i = 0; i < 1000; i++) expect(limiter.tryAcquire('key').allowed).toBe(true)
  })
})

describeFaults<SmoothBurstyOptions>(
  smoothBursty,
  { ...twoPerSecond, maxBurst: '1s' },
  { limit: NOT_WHOLE, window: NOT_A_SPAN, maxBurst: [...NOT_A_WAIT, [Infinity, RangeError]] },
  { max: 'limit', timeWindow: 'window', maxBurts: 'maxBurst' },
)
