import { setImmediate as nextTurn } from 'node:timers/promises'
import { type SlidingLogOptions, slidingLog } from '@sluice/core'
import { describe, expect, test } from 'vitest'
import { describeFaults, NOT_A_SPAN, NOT_WHOLE, thrownBy } from './faults.js'
import { expectSteps, fromStart, ledgerFromStart, type Table } from './steps.js'

const threePerSecond = { limit: 3, window: '1s' } as const
const HOUR_MS = 3_600_000
const DAY_MS = 86_400_000

test.each<Table<SlidingLogOptions>>([
  [
    'a permit comes back exactly one window after it was granted',
    threePerSecond,
    [
      [0, 0, 0, 'granted', 0, { remaining: 3, refillMs: 0, resetMs: 0, balance: 3 }],
      [0, 1, 0, 'granted', 0, { remaining: 2, refillMs: 1000, resetMs: 1000, balance: 2 }],
      [400, 2, 0, 'granted', 0, { remaining: 0, refillMs: 600, resetMs: 1000, balance: 0 }],
      [999, 1, 0, 'refused', 1, { remaining: 0, refillMs: 1, resetMs: 401 }],
      [999.999, 1, 0, 'refused', 0.001, { remaining: 0 }],
      [1000, 1, 0, 'granted', 0, { remaining: 0, refillMs: 400, resetMs: 1000 }],
      [1399.999, 2, 0, 'refused', 0.001, { remaining: 0 }],
      [1400, 2, 0, 'granted', 0, { remaining: 0, refillMs: 600 }],
    ],
  ],
  [
    'no window holds more than the limit, and the whole limit can always be used',
    threePerSecond,
    [
      [0, 1, 0, 'granted', 0, { remaining: 2 }],
      [999.999, 2, 0, 'granted', 0, { remaining: 0 }],
      [1000, 1, 0, 'granted', 0, { remaining: 0 }],
      [1000, 1, 0, 'refused', 999.999, { remaining: 0 }],
      [1999.999, 2, 0, 'granted', 0, { remaining: 0 }],
    ],
  ],
  [
    'a request of higher cost waits until enough of the oldest permits are back',
    threePerSecond,
    [
      [0, 1, 0, 'granted', 0, { remaining: 2 }],
      [400, 1, 0, 'granted', 0, { remaining: 1 }],
      [800, 1, 0, 'granted', 0, { remaining: 0 }],
      [900, 2, 0, 'refused', 500, { remaining: 0, refillMs: 100 }],
      [900, 3, 0, 'refused', 900, { remaining: 0 }],
      [1399.999, 2, 0, 'refused', 0.001, { remaining: 1 }],
      [1400, 2, 0, 'granted', 0, { remaining: 0 }],
    ],
  ],
  [
    'a client that sends at the rate of the limit is never refused',
    { limit: 2, window: '1s' },
    [
      [0, 1, 0, 'granted', 0, { remaining: 1 }],
      [500, 1, 0, 'granted', 0, { remaining: 0 }],
      [1000, 1, 0, 'granted', 0, { remaining: 0 }],
      [1500, 1, 0, 'granted', 0, { remaining: 0 }],
      [1999.999, 1, 0, 'refused', 0.001, { remaining: 0 }],
      [2000, 1, 0, 'granted', 0, { remaining: 0 }],
    ],
  ],
  [
    'a refusal changes nothing: a request of smaller cost still passes',
    { limit: 10, window: '60s' },
    [
      [0, 8, 0, 'granted', 0, { remaining: 2 }],
      [1, 5, 0, 'refused', 59_999, { remaining: 2, refillMs: 59_999, resetMs: 59_999 }],
      [2, 2, 0, 'granted', 0, { remaining: 0 }],
      [3, 1, 0, 'refused', 59_997, { remaining: 0 }],
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
    'cost 0 is always granted and changes nothing',
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
])('%s', (_rule, options, rows) => {
  expectSteps(slidingLog(options), rows)
})

describe('a long log of grants', () => {
  const GRANTS = 200_000

  test('with 200,000 times returns each permit at its microsecond', () => {
    const { limiter, at } = fromStart(slidingLog({ limit: GRANTS, window: '1h' }))
    const grantMs = (number: number) => number / 100
    let granted = 0
    for (let number = 0; number < GRANTS; number++) {
      at(grantMs(number))
      if (limiter.tryAcquire('key').allowed) granted++
    }
    expect(granted).toBe(GRANTS)
    expect(limiter.peek('key', { cost: 1000 }).waitMs).toBeCloseTo(HOUR_MS + grantMs(999 - (GRANTS - 1)), 6)

    let misjudged = 0
    for (let number = 0; number < GRANTS; number++) {
      at(HOUR_MS + grantMs(number))
      const cameBack = limiter.tryAcquire('key').allowed
      const { allowed, waitMs } = limiter.tryAcquire('key')
      if (!cameBack || allowed || waitMs !== 0.01) misjudged++
    }
    // The last request waits for the first grant of the second round.
    expect(misjudged).toBe(1)
  })

  test('frees its memory in a sweep', async () => {
    const { limiter, store, at } = fromStart(slidingLog({ limit: GRANTS, window: '1h' }))
    const before = await bytesOfBuffers()
    for (let number = 0; number < GRANTS; number++) {
      at(number / 100)
      limiter.tryAcquire('key')
    }
    const full = await bytesOfBuffers()
    expect(full - before).toBeGreaterThan(GRANTS * 16)
    expect(full - before).toBeLessThan(GRANTS * 24)
    at(2 * HOUR_MS)
    store.sweep()
    // A page of the store and one of the log are kept.
    expect((await bytesOfBuffers()) - before).toBeLessThan(2 ** 19)
    expect(limiter.peek('key').remaining).toBe(GRANTS)
  })

  test('frees the memory of expired grants at the next grant', async () => {
    const { limiter, at } = fromStart(slidingLog({ limit: GRANTS, window: '1h' }))
    const before = await bytesOfBuffers()
    for (let number = 0; number < GRANTS; number++) {
      at(number / 100)
      limiter.tryAcquire('key')
    }
    at(2 * HOUR_MS)
    limiter.tryAcquire('key')
    expect((await bytesOfBuffers()) - before).toBeLessThan(2 ** 19)
    expect(limiter.peek('key').remaining).toBe(GRANTS - 1)
  })

  test('takes no more memory for many permits at one time than for one permit', () => {
    const { limiter } = fromStart(slidingLog({ limit: 1_000_000, window: '1h', maxBytes: 65_536 }))
    for (let i = 0; i < 100_000; i++) limiter.tryAcquire('key')
    expect(limiter.peek('key')).toMatchObject({ remaining: 900_000, code: undefined })
  })
})

describe('at maxBytes', () => {
  /** A log of the smallest size, filled by `key` with one grant per millisecond. */
  function filled() {
    const { limiter, store, at } = fromStart(slidingLog({ limit: 10_000, window: '1h', maxBytes: 65_536 }))
    const grantTimes: number[] = []
    for (let ms = 0; ; ms++) {
      at(ms)
      const decision = limiter.tryAcquire('key')
      if (!decision.allowed) return { limiter, store, at, grantTimes, fullMs: ms, refusal: decision }
      grantTimes.push(ms)
    }
  }

  test('a full log refuses with code SLUICE_LOG_FULL', () => {
    const { refusal, grantTimes } = filled()
    expect(refusal.code).toBe('SLUICE_LOG_FULL')
    // 21 bytes or so for each.
    expect(65_536 / grantTimes.length).toBeGreaterThan(20)
    expect(65_536 / grantTimes.length).toBeLessThan(22)
  })

  test('grants that still count are not dropped', () => {
    const { limiter, grantTimes } = filled()
    for (let i = 0; i < 100; i++) limiter.tryAcquire('key')
    limiter.update(slidingLog({ limit: grantTimes.length, window: '1h' }))
    expect(limiter.tryAcquire('key')).toMatchObject({ allowed: false, code: undefined })
    limiter.update(slidingLog({ limit: grantTimes.length + 1, window: '1h' }))
    expect(limiter.tryAcquire('key')).toMatchObject({ allowed: false, code: 'SLUICE_LOG_FULL' })
  })

  test('the key is granted again after exactly retryAfterMs, when its oldest block has expired', () => {
    const { limiter, at, fullMs, refusal } = filled()
    const RUNS = 6
    expect(refusal.retryAfterMs).toBe(HOUR_MS + RUNS - 1 - fullMs)
    at(fullMs + refusal.retryAfterMs - 0.001)
    expect(limiter.tryAcquire('key')).toMatchObject({ code: 'SLUICE_LOG_FULL', retryAfterMs: 0.001 })
    at(fullMs + refusal.retryAfterMs)
    expect(limiter.tryAcquire('key')).toMatchObject({ allowed: true, code: undefined })
  })

  test('remaining is 0 for a refused key', () => {
    expect(filled().refusal.remaining).toBe(0)
  })

  test('another key without a grant gets a retryAfterMs of one window and is not stored', () => {
    const { limiter, store } = filled()
    expect(limiter.tryAcquire('another')).toMatchObject({ code: 'SLUICE_LOG_FULL', retryAfterMs: HOUR_MS })
    expect(store.size).toBe(1)
  })

  test('another key is granted once the grants that filled the log have expired', () => {
    const { limiter, at, fullMs } = filled()
    at(fullMs + limiter.tryAcquire('another').retryAfterMs)
    expect(limiter.tryAcquire('another').allowed).toBe(true)
  })

  test('a refusal by the limit itself has no code', () => {
    const { limiter } = filled()
    expect(limiter.tryAcquire('key', { cost: 10_001 })).toMatchObject({ allowed: false, code: undefined })
  })

  test('a cancelled grant makes room', () => {
    const { limiter } = filled()
    limiter.release('key', 10)
    expect(limiter.tryAcquire('key').allowed).toBe(true)
    expect(limiter.tryAcquire('another').allowed).toBe(true)
  })

  test('a reset key makes room for another key', () => {
    const { limiter } = filled()
    limiter.reset('key')
    expect(limiter.tryAcquire('another').allowed).toBe(true)
  })

  test('a sweep of an idle key makes room', () => {
    const { limiter, store, at, fullMs } = filled()
    at(fullMs + HOUR_MS)
    store.sweep()
    expect(limiter.tryAcquire('another').allowed).toBe(true)
  })

  test('two limiters with one algorithm have separate maxBytes', () => {
    const algorithm = slidingLog({ limit: 10_000, window: '1h', maxBytes: 65_536 })
    const first = fromStart(algorithm)
    const second = fromStart(algorithm)
    for (let ms = 0; ms < 5000; ms++) {
      first.at(ms)
      first.limiter.tryAcquire('key')
    }
    expect(first.limiter.peek('key').code).toBe('SLUICE_LOG_FULL')
    expect(second.limiter.tryAcquire('key').allowed).toBe(true)
  })
})

describe('refund, release and drain', () => {
  test('release returns the newest grants first, while they count', () => {
    const { limiter, at } = fromStart(slidingLog(threePerSecond))
    limiter.tryAcquire('key', { cost: 2 })
    at(100)
    limiter.tryAcquire('key')
    at(700)
    expect(limiter.release('key', 2)).toBe(2)
    expect(limiter.peek('key')).toMatchObject({ remaining: 2, refillAfterMs: 300 })
    at(1000)
    expect(limiter.release('key', 1)).toBe(0)
  })

  test('release returns no more than was used; then the key is like a new one', () => {
    const { limiter, at } = fromStart(slidingLog(threePerSecond))
    limiter.tryAcquire('key')
    at(600)
    limiter.tryAcquire('key')
    expect(limiter.release('key', 5)).toBe(2)
    expect(limiter.release('key', 5)).toBe(0)
    expect(limiter.peek('key').toJSON()).toEqual(limiter.peek('never seen').toJSON())
    expect(limiter.release('never seen', 1)).toBe(0)
  })

  test('a released grant does not delay the rest of the key', () => {
    const { limiter, at } = fromStart(slidingLog(threePerSecond))
    limiter.tryAcquire('key', { cost: 2 })
    at(100)
    limiter.tryAcquire('key')
    limiter.release('key', 1)
    expect(limiter.peek('key').resetAfterMs).toBe(900)
  })

  test('a released grant is not returned a second time when it would have expired', () => {
    const { limiter, at } = fromStart(slidingLog(threePerSecond))
    limiter.tryAcquire('key', { cost: 2 })
    limiter.release('key', 2)
    at(500)
    limiter.tryAcquire('key', { cost: 3 })
    at(1000)
    expect(limiter.peek('key')).toMatchObject({ remaining: 0, retryAfterMs: 500 })
  })

  test('a refund removes only grants of its own time, while they count', () => {
    const { ledger, take, at } = ledgerFromStart(slidingLog(threePerSecond))
    const first = take(1)
    at(300)
    const second = take(2)
    at(999.999)
    expect(ledger.refund('key', second)).toBe(2)
    expect(ledger.decide('key', 0, 0, false)).toMatchObject({ remaining: 2, refillAfterMs: 0.001 })
    at(1000)
    expect(ledger.refund('key', first)).toBe(0)
  })

  test('a refund returns nothing when newer grants have reused its block', () => {
    const { ledger, take, at } = ledgerFromStart(slidingLog(threePerSecond))
    const first = take(3)
    at(1000)
    take(3)
    expect(ledger.refund('key', first)).toBe(0)
    expect(ledger.decide('key', 0, 0, false).remaining).toBe(0)
  })

  test('drain uses up the window', () => {
    const { limiter, at } = fromStart(slidingLog(threePerSecond))
    limiter.tryAcquire('key')
    at(400)
    expect([limiter.drain('key'), limiter.drain('key')]).toEqual([2, 0])
    expect(limiter.peek('key')).toMatchObject({ allowed: false, retryAfterMs: 600 })
  })

  test('reserve throws, because permits of the future cannot be booked', () => {
    const { limiter } = fromStart(slidingLog(threePerSecond))
    const error = thrownBy(() => limiter.reserve('key'))
    expect(error).toBeInstanceOf(TypeError)
    expect(error).toMatchObject({ code: 'SLUICE_NOT_BOOKABLE' })
    expect(limiter.peek('key').remaining).toBe(3)
  })
})

describe('update', () => {
  /** A limiter of 3 per second whose key has used 2 at 0 and 1 at 600, updated at 700. */
  function updated(options: SlidingLogOptions) {
    const { limiter, at } = fromStart(slidingLog(threePerSecond))
    limiter.tryAcquire('key', { cost: 2 })
    at(600)
    limiter.tryAcquire('key')
    at(700)
    limiter.update(slidingLog(options))
    return { limiter, at }
  }

  test.each([
    ['a higher limit adds the difference', 5, 2, 300],
    ['a lower limit subtracts the difference, and the balance may be negative', 2, -1, 300],
    ['with a negative balance the next permit is available when enough have come back', 1, -2, 900],
  ])('%s', (_rule, limit, balance, refillAfterMs) => {
    const { limiter, at } = updated({ limit, window: '1s' })
    expect(limiter.peek('key')).toMatchObject({ balance, refillAfterMs, remaining: Math.max(0, balance) })
    at(1600)
    expect(limiter.peek('key')).toMatchObject({ remaining: limit, resetAfterMs: 0 })
  })

  test('in a longer window, grants that count continue to count', () => {
    const { limiter } = updated({ limit: 3, window: '2s' })
    expect(limiter.peek('key')).toMatchObject({ remaining: 0, refillAfterMs: 1300, resetAfterMs: 1900 })
  })

  test('in a longer window, expired grants do not count again', () => {
    const { limiter, at } = fromStart(slidingLog(threePerSecond))
    limiter.tryAcquire('key', { cost: 2 })
    at(600)
    limiter.tryAcquire('key')
    at(1000)
    limiter.update(slidingLog({ limit: 3, window: '1h' }))
    expect(limiter.peek('key').remaining).toBe(2)
  })

  test('in a shorter window, old grants do not count, also after an update back to the longer window', () => {
    const { limiter, at } = updated({ limit: 3, window: '500ms' })
    expect(limiter.peek('key')).toMatchObject({ remaining: 2, refillAfterMs: 400, resetAfterMs: 400 })
    at(800)
    limiter.update(slidingLog(threePerSecond))
    expect(limiter.peek('key')).toMatchObject({ remaining: 2, refillAfterMs: 800 })
  })

  test('an update does not change maxBytes', () => {
    const { limiter, at } = fromStart(slidingLog({ limit: 10_000, window: '1h', maxBytes: 65_536 }))
    limiter.update(slidingLog({ limit: 20_000, window: '1h', maxBytes: 2 ** 20 }))
    for (let ms = 0; ms < 5000; ms++) {
      at(ms)
      limiter.tryAcquire('key')
    }
    expect(limiter.peek('key')).toMatchObject({ limit: 20_000, code: 'SLUICE_LOG_FULL' })
  })
})

describeFaults<SlidingLogOptions>(
  slidingLog,
  threePerSecond,
  {
    limit: NOT_WHOLE,
    window: NOT_A_SPAN,
    maxBytes: [...NOT_WHOLE, [0, RangeError], [65_535, RangeError], [2 ** 34 + 1, RangeError]],
  },
  { max: 'limit', timeWindow: 'window', maxByte: 'maxBytes' },
)

async function bytesOfBuffers(): Promise<number> {
  if (globalThis.gc === undefined) throw new Error('these tests need node --expose-gc')
  for (let turn = 0; turn < 3; turn++) {
    await nextTurn()
    globalThis.gc()
  }
  return process.memoryUsage().arrayBuffers
}
