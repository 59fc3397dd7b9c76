import { inspect } from 'node:util'
import {
  createLimiter,
  type LimiterOptions,
  memoryStore,
  type Reservation,
  systemClock,
  type TokenBucketOptions,
  tokenBucket,
  unlimited,
} from '@sluice/core'
import { manualClock } from '@sluice/core/testing'
import fc from 'fast-check'
import { describe, expect, test, vi } from 'vitest'

function setUp(bucket: TokenBucketOptions, options: LimiterOptions = {}) {
  const clock = manualClock()
  const limiter = createLimiter(tokenBucket(bucket), { ...options, clock })
  return { clock, limiter }
}

const DAY_MS = 86_400_000

describe('a limiter', () => {
  test('has a name and a policy', () => {
    const { limiter } = setUp({ limit: 600, window: '1m', burst: 50 }, { name: 'per-user' })
    expect(limiter.name).toBe('per-user')
    expect(limiter.policy).toEqual({ limit: 50, windowMs: 5000, smooth: true })
    expect(setUp({ limit: 1, window: 1 }).limiter.name).toBe('default')
  })

  test('works without options, on the system clock and a store of its own', () => {
    const one = createLimiter(tokenBucket({ limit: 1, window: '1h' }))
    const other = createLimiter(tokenBucket({ limit: 1, window: '1h' }))
    expect([one.tryAcquire('ann').allowed, one.tryAcquire('ann').allowed]).toEqual([true, false])
    expect(other.tryAcquire('ann').allowed).toBe(true)
  })

  test('takes printable ASCII names of up to 64 characters', () => {
    for (const name of ['a', ' ', '~', '"quoted" \\ name', 'n'.repeat(64)])
      expect(setUp({ limit: 1, window: 1 }, { name }).limiter.name).toBe(name)
  })

  test('keeps keys apart', () => {
    const { limiter } = setUp({ limit: 2, window: '1m' })
    limiter.tryAcquire('ann', { cost: 2 })
    limiter.reserve('ann')
    expect(limiter.peek('bob').remaining).toBe(2)
    limiter.tryAcquire('bob')
    limiter.reset('bob')
    expect(limiter.peek('ann').balance).toBe(-1)
  })

  test('without a limit grants everything at once', () => {
    const limiter = createLimiter(unlimited())
    const booking = limiter.reserve('ann', { cost: Number.MAX_SAFE_INTEGER })
    expect(booking.toJSON()).toEqual({
      allowed: true,
      limit: Infinity,
      remaining: Infinity,
      waitMs: 0,
      retryAfterMs: 0,
      refillAfterMs: 0,
      resetAfterMs: 0,
      balance: Infinity,
    })
    expect([booking.cancel(), booking.refund()]).toEqual([0, 0])
  })

  test('of limit 0 refuses everything forever (S50)', () => {
    const { clock, limiter } = setUp({ limit: 0, window: '1m' })
    for (let i = 0; i < 3; i++) {
      expect(limiter.tryAcquire('ann')).toMatchObject({
        allowed: false,
        limit: 0,
        remaining: 0,
        waitMs: Infinity,
        retryAfterMs: Infinity,
        resetAfterMs: 0,
        balance: 0,
      })
      expect(limiter.reserve('ann').allowed).toBe(false)
      expect(limiter.tryAcquire('ann', { cost: 0 }).allowed).toBe(true)
      clock.advance('365d')
    }
  })
})

describe('tryAcquire', () => {
  test('takes one permit by default', () => {
    const { limiter } = setUp({ limit: 10, window: '1m' })
    expect(limiter.tryAcquire('ann').remaining).toBe(9)
    expect(limiter.tryAcquire('ann', {}).remaining).toBe(8)
    expect(limiter.tryAcquire('ann', { cost: undefined }).remaining).toBe(7)
    expect(limiter.tryAcquire('ann', { cost: 4 }).remaining).toBe(3)
  })

  test('never waits, whatever the maxWait of the limiter', () => {
    const { limiter } = setUp({ limit: 1, window: '1s' }, { maxWait: '1h' })
    limiter.tryAcquire('ann')
    expect(limiter.tryAcquire('ann')).toMatchObject({ allowed: false, waitMs: 1000, retryAfterMs: 1000 })
  })

  test('a refusal changes nothing (S04, rate-limiter-flexible 11.4.0)', () => {
    const { clock, limiter } = setUp({ limit: 10, window: '60s' })
    expect(limiter.tryAcquire('k', { cost: 8 }).allowed).toBe(true)
    clock.advance(1)
    const before = limiter.peek('k', { cost: 5 }).toJSON()
    expect(limiter.tryAcquire('k', { cost: 5 }).toJSON()).toEqual(before)
    expect(limiter.peek('k', { cost: 5 }).toJSON()).toEqual(before)
    clock.advance(1)
    expect(limiter.tryAcquire('k', { cost: 2 }).allowed).toBe(true)
    clock.advance(1)
    expect(limiter.tryAcquire('k').allowed).toBe(false)
  })

  test('refuses before retryAfterMs and grants at it, to the microsecond', () => {
    const { clock, limiter } = setUp({ limit: 3, window: '1s' })
    limiter.tryAcquire('k', { cost: 3 })
    clock.advance(100)
    const { retryAfterMs, waitMs } = limiter.tryAcquire('k', { cost: 2 })
    // Two thirds of a second from the start, rounded up to a microsecond.
    expect(retryAfterMs).toBe(566.667)
    expect(waitMs).toBe(retryAfterMs)
    clock.advance(566.666)
    expect(limiter.tryAcquire('k', { cost: 2 }).allowed).toBe(false)
    clock.advance(0.001)
    expect(limiter.tryAcquire('k', { cost: 2 }).allowed).toBe(true)
  })

  test('refuses forever a cost above what a full key has', () => {
    const { clock, limiter } = setUp({ limit: 5, window: '1s' })
    const refused = { allowed: false, waitMs: Infinity, retryAfterMs: Infinity, remaining: 5 }
    expect(limiter.tryAcquire('k', { cost: 6 })).toMatchObject(refused)
    clock.advance('1d')
    expect(limiter.tryAcquire('k', { cost: 6 })).toMatchObject(refused)
    expect(limiter.tryAcquire('k', { cost: Number.MAX_SAFE_INTEGER })).toMatchObject(refused)
    expect(limiter.tryAcquire('k', { cost: 5 }).allowed).toBe(true)
  })
})

describe('reserve', () => {
  test('books ahead without limit by default, each behind the last', () => {
    const { limiter } = setUp({ limit: 10, window: '1s', burst: 2 })
    const waits = Array.from({ length: 6 }, () => limiter.reserve('k').waitMs)
    expect(waits).toEqual([0, 0, 100, 200, 300, 400])
    expect(limiter.peek('k').balance).toBe(-4)
    expect(limiter.reserve('k', { cost: 2 })).toMatchObject({
      allowed: true,
      waitMs: 600,
      balance: -6,
      remaining: 0,
    })
    for (let i = 0; i < 100_000; i++) limiter.reserve('long')
    expect(limiter.reserve('long').waitMs).toBe(9_999_900)
  })

  test('uses the maxWait of the limiter', () => {
    const { limiter } = setUp({ limit: 10, window: '1s', burst: 1 }, { maxWait: '200ms' })
    expect([1, 2, 3].map(() => limiter.reserve('k').waitMs)).toEqual([0, 100, 200])
    expect(limiter.reserve('k')).toMatchObject({ allowed: false, waitMs: 300, retryAfterMs: 100 })
    expect(limiter.reserve('k', {})).toMatchObject({ allowed: false, waitMs: 300, retryAfterMs: 100 })
  })

  test('prefers the maxWait of the call to that of the limiter', () => {
    const { limiter } = setUp({ limit: 10, window: '1s', burst: 1 }, { maxWait: 100 })
    limiter.reserve('k')
    expect(limiter.reserve('k', { maxWait: 0 })).toMatchObject({
      allowed: false,
      waitMs: 100,
      retryAfterMs: 100,
    })
    expect(limiter.reserve('k', { maxWait: '99ms' })).toMatchObject({
      allowed: false,
      waitMs: 100,
      retryAfterMs: 1,
    })
    expect(limiter.reserve('k', { maxWait: 99.999 }).retryAfterMs).toBe(0.001)
    expect(limiter.reserve('k', { maxWait: '100ms' })).toMatchObject({
      allowed: true,
      waitMs: 100,
      retryAfterMs: 0,
    })
    expect(limiter.reserve('k', { maxWait: undefined }).allowed).toBe(false)
    expect(limiter.reserve('k', { maxWait: Infinity })).toMatchObject({ allowed: true, waitMs: 200 })
  })

  test('books nothing if refused, and is granted after retryAfterMs and not before', () => {
    const { clock, limiter } = setUp({ limit: 7, window: '1s', burst: 3 }, { maxWait: '150ms' })
    limiter.tryAcquire('k', { cost: 3 })
    const ask = { cost: 2 }
    const before = limiter.peek('k', ask).toJSON()
    const { allowed, waitMs, retryAfterMs } = limiter.reserve('k', ask)
    expect({ allowed, waitMs }).toEqual({ allowed: false, waitMs: 285.715 })
    expect(retryAfterMs).toBeCloseTo(waitMs - 150, 9)
    expect(limiter.peek('k', ask).toJSON()).toEqual(before)
    clock.advance(retryAfterMs - 0.001)
    expect(limiter.reserve('k', ask).allowed).toBe(false)
    clock.advance(0.001)
    expect(limiter.reserve('k', ask)).toMatchObject({ allowed: true, waitMs: 150 })
  })

  test('with maxWait 0 is refused instead of queued, and nothing stays booked (S26, SGrondin/bottleneck#169)', () => {
    const { limiter } = setUp({ limit: 1, window: '800ms' })
    limiter.tryAcquire('k')
    for (const maxWait of [0, 500]) {
      expect(limiter.reserve('k', { maxWait })).toMatchObject({ allowed: false, waitMs: 800 })
      expect(limiter.peek('k').waitMs).toBe(800)
    }
  })

  test('refuses a cost that can never be granted, whatever the maxWait', () => {
    const { limiter } = setUp({ limit: 5, window: '1s' })
    const refused = limiter.reserve('k', { cost: 6, maxWait: Infinity })
    expect(refused).toMatchObject({ allowed: false, waitMs: Infinity, retryAfterMs: Infinity })
    expect([refused.cancel(), refused.refund()]).toEqual([0, 0])
    expect(limiter.peek('k').remaining).toBe(5)
  })

  test('gives nothing back if it was refused or its cost is 0', () => {
    const { limiter } = setUp({ limit: 2, window: '2s' }, { maxWait: 0 })
    const free = limiter.reserve('k', { cost: 0 })
    limiter.reserve('k', { cost: 2 })
    const refused = limiter.reserve('k')
    for (const booking of [free, refused]) expect([booking.cancel(), booking.refund()]).toEqual([0, 0])
    expect(limiter.peek('k').balance).toBe(0)
  })
})

describe('cancel', () => {
  type Step =
    | { at: number; reserve: string; cost: number; waitMs: number }
    | { at: number; cancel: string; returns: number; balance: number }
    | { at: number; balance: number }

  const traces: Record<string, { burst: number; steps: readonly Step[] }> = {
    'cancel-last: the newest gives all its permits back': {
      burst: 3,
      steps: [
        { at: 0, reserve: 'r1', cost: 3, waitMs: 0 },
        { at: 0, reserve: 'r2', cost: 2, waitMs: 200 },
        { at: 100, cancel: 'r2', returns: 2, balance: 1 },
        { at: 100, reserve: 'r3', cost: 2, waitMs: 100 },
        { at: 100, balance: -1 },
      ],
    },
    'cancel-older: permits booked after it are not given back': {
      burst: 3,
      steps: [
        { at: 0, reserve: 'r1', cost: 3, waitMs: 0 },
        { at: 0, reserve: 'r2', cost: 1, waitMs: 100 },
        { at: 0, reserve: 'r3', cost: 1, waitMs: 200 },
        { at: 0, cancel: 'r2', returns: 0, balance: -2 },
        { at: 0, reserve: 'r4', cost: 1, waitMs: 300 },
        { at: 0, balance: -3 },
      ],
    },
    'cancel-partial: gives back the cost less what was booked after it': {
      burst: 5,
      steps: [
        { at: 0, reserve: 'r1', cost: 5, waitMs: 0 },
        { at: 0, reserve: 'r2', cost: 4, waitMs: 400 },
        { at: 0, reserve: 'r3', cost: 1, waitMs: 500 },
        { at: 0, reserve: 'r4', cost: 1, waitMs: 600 },
        { at: 100, cancel: 'r4', returns: 1, balance: -4 },
        { at: 100, cancel: 'r2', returns: 3, balance: -1 },
        { at: 100, reserve: 'r5', cost: 2, waitMs: 300 },
        { at: 200, balance: -2 },
      ],
    },
    'cancel-late: works at its instant and not after it': {
      burst: 3,
      steps: [
        { at: 0, reserve: 'r1', cost: 3, waitMs: 0 },
        { at: 0, reserve: 'r2', cost: 1, waitMs: 100 },
        { at: 200, cancel: 'r2', returns: 0, balance: 1 },
        { at: 200, reserve: 'r3', cost: 2, waitMs: 100 },
        { at: 300, cancel: 'r3', returns: 2, balance: 2 },
        { at: 300, balance: 2 },
        { at: 3000, reserve: 'r4', cost: 3, waitMs: 0 },
        { at: 3000, cancel: 'r4', returns: 3, balance: 3 },
        { at: 3000, balance: 3 },
        { at: 3001, cancel: 'r4', returns: 0, balance: 3 },
        { at: 3001, balance: 3 },
      ],
    },
    'unlike cancel-twice: the second changes nothing': {
      burst: 3,
      steps: [
        { at: 0, reserve: 'r1', cost: 3, waitMs: 0 },
        { at: 0, reserve: 'r2', cost: 2, waitMs: 200 },
        { at: 0, cancel: 'r2', returns: 2, balance: 0 },
        { at: 0, cancel: 'r2', returns: 0, balance: 0 },
      ],
    },
    'unlike cancel-over-refund: never more than was booked': {
      burst: 4,
      steps: [
        { at: 0, reserve: 'r1', cost: 4, waitMs: 0 },
        { at: 0, reserve: 'r2', cost: 4, waitMs: 400 },
        { at: 0, reserve: 'r3', cost: 1, waitMs: 500 },
        { at: 0, cancel: 'r2', returns: 3, balance: -2 },
        { at: 0, reserve: 'r4', cost: 1, waitMs: 300 },
        { at: 0, cancel: 'r3', returns: 1, balance: -2 },
      ],
    },
  }

  test.each(Object.entries(traces))('x/time/rate, commit 2b4e439, %s', (_, { burst, steps }) => {
    const { clock, limiter } = setUp({ limit: 10, window: '1s', burst })
    const startMs = clock.nowMs
    const bookings = new Map<string, Reservation<false>>()
    for (const step of steps) {
      clock.set(startMs + step.at)
      if ('reserve' in step) {
        const booking = limiter.reserve('k', { cost: step.cost })
        bookings.set(step.reserve, booking)
        expect(booking, step.reserve).toMatchObject({ allowed: true, waitMs: step.waitMs })
      } else {
        if ('cancel' in step) expect(bookings.get(step.cancel)?.cancel(), step.cancel).toBe(step.returns)
        expect(limiter.peek('k').balance).toBe(step.balance)
      }
    }
  })

  test('gives permits back until the time of the grant, to the microsecond', () => {
    for (const [after, given] of [
      [99.999, 1],
      [100, 1],
      [100.001, 0],
    ] as const) {
      const { clock, limiter } = setUp({ limit: 10, window: '1s', burst: 1 })
      limiter.reserve('k')
      const booking = limiter.reserve('k')
      clock.advance(after)
      expect(booking.cancel()).toBe(given)
    }
  })

  test('moves no other booking: bookings behind it keep their time, and the next one is not earlier', () => {
    const { limiter } = setUp({ limit: 10, window: '1s', burst: 1 })
    limiter.reserve('k')
    const first = limiter.reserve('k')
    expect(limiter.reserve('k').waitMs).toBe(200)
    expect(first.cancel()).toBe(0)
    expect(limiter.reserve('k').waitMs).toBe(300)
  })

  test('of an older booking works after the bookings behind it are cancelled', () => {
    const { limiter } = setUp({ limit: 10, window: '1s', burst: 1 })
    limiter.reserve('k')
    const first = limiter.reserve('k')
    const second = limiter.reserve('k')
    expect(first.cancel()).toBe(0)
    expect(second.cancel()).toBe(1)
    expect(first.cancel()).toBe(1)
    expect(limiter.peek('k').balance).toBe(0)
  })

  test('gives nothing back after a reset', () => {
    const { limiter } = setUp({ limit: 2, window: '2s' })
    limiter.reserve('k', { cost: 2 })
    const booking = limiter.reserve('k')
    limiter.reset('k')
    expect(booking.cancel()).toBe(0)
    expect(booking.refund()).toBe(0)
    expect(limiter.peek('k').remaining).toBe(2)
  })

  test('after a reset frees no permits booked since by others', () => {
    const { limiter } = setUp({ limit: 2, window: '2s' })
    limiter.reserve('k', { cost: 2 })
    const lost = limiter.reserve('k', { cost: 2 })
    limiter.reset('k')
    limiter.reserve('k', { cost: 2 })
    const theirs = limiter.reserve('k', { cost: 2 })
    expect([lost.cancel(), lost.refund()]).toEqual([0, 0])
    expect(limiter.peek('k').balance).toBe(-2)
    expect(theirs.cancel()).toBe(2)
  })

  test('frees nothing of a key that was forgotten and used again', () => {
    const clock = manualClock()
    const store = memoryStore({ maxKeys: 1 })
    const limiter = createLimiter(tokenBucket({ limit: 2, window: '1h' }), { clock, store })
    const lost = limiter.reserve('k')
    limiter.tryAcquire('other')
    limiter.tryAcquire('k', { cost: 2 })
    expect([lost.cancel(), lost.refund()]).toEqual([0, 0])
    expect(limiter.peek('k').remaining).toBe(0)
  })

  test('never frees more than was taken, for any bookings and cancellations', () => {
    const act = fc.oneof(
      fc.record({ book: fc.integer({ min: 1, max: 4 }) }),
      fc.record({ giveBack: fc.nat(30), how: fc.constantFrom('cancel' as const, 'refund' as const) }),
      fc.record({ advance: fc.integer({ min: 0, max: 400_000 }) }),
    )
    fc.assert(
      fc.property(fc.array(act, { maxLength: 40 }), acts => {
        const { clock, limiter } = setUp({ limit: 7, window: '1s', burst: 4 })
        const taken: { booking: Reservation<false>; cost: number; given: number }[] = []
        for (const step of acts) {
          if ('advance' in step) clock.advance(step.advance / 1000)
          else if ('book' in step)
            taken.push({ booking: limiter.reserve('k', { cost: step.book }), cost: step.book, given: 0 })
          else if (taken.length > 0) {
            const entry = taken[step.giveBack % taken.length]
            if (entry === undefined) continue
            const before = limiter.peek('k').balance
            const given = entry.booking[step.how]()
            const grown = limiter.peek('k').balance - before
            expect(given).toBeGreaterThanOrEqual(0)
            expect(Math.abs(grown - given)).toBeLessThan(1e-9)
            if (entry.given > 0) expect(given).toBe(0)
            entry.given += given
            expect(entry.given).toBeLessThanOrEqual(entry.cost)
          }
        }
      }),
      { numRuns: 300 },
    )
  })
})

describe('refund', () => {
  test('gives everything back at the time of the grant', () => {
    const { limiter } = setUp({ limit: 10, window: '1s' })
    const booking = limiter.reserve('k', { cost: 4 })
    expect(booking.refund()).toBe(4)
    expect(limiter.peek('k').toJSON()).toEqual(limiter.peek('never seen').toJSON())
  })

  test('gives back the part that has not refilled yet', () => {
    const { clock, limiter } = setUp({ limit: 10, window: '1s' })
    const booking = limiter.reserve('k', { cost: 4 })
    clock.advance(200)
    expect(limiter.peek('k').balance).toBe(8)
    expect(booking.refund()).toBe(2)
    expect(limiter.peek('k').balance).toBe(10)
  })

  test('gives back fractions of a permit', () => {
    const { clock, limiter } = setUp({ limit: 10, window: '1s' })
    const booking = limiter.reserve('k', { cost: 4 })
    clock.advance(250)
    expect(booking.refund()).toBe(1.5)
    expect(limiter.peek('k').balance).toBe(10)
  })

  test('gives nothing back after everything has refilled, even if others have taken permits since', () => {
    const { clock, limiter } = setUp({ limit: 10, window: '1s' })
    const booking = limiter.reserve('k', { cost: 4 })
    clock.advance(400)
    limiter.tryAcquire('k', { cost: 6 })
    expect(booking.refund()).toBe(0)
    expect(limiter.peek('k').balance).toBe(4)
  })

  test('gives back once', () => {
    const { limiter } = setUp({ limit: 10, window: '1s' })
    limiter.tryAcquire('k', { cost: 5 })
    const booking = limiter.reserve('k', { cost: 3 })
    expect([booking.refund(), booking.refund(), booking.cancel()]).toEqual([3, 0, 0])
    expect(limiter.peek('k').balance).toBe(5)
  })

  test('gives nothing back after a successful cancel', () => {
    const { limiter } = setUp({ limit: 10, window: '1s' })
    limiter.tryAcquire('k', { cost: 10 })
    const booking = limiter.reserve('k', { cost: 3 })
    expect([booking.cancel(), booking.refund(), booking.cancel()]).toEqual([3, 0, 0])
    expect(limiter.peek('k').balance).toBe(0)
  })

  test('gives permits back after a cancel that came too late', () => {
    const { clock, limiter } = setUp({ limit: 10, window: '1s' })
    limiter.tryAcquire('k', { cost: 10 })
    const booking = limiter.reserve('k', { cost: 3 })
    clock.advance(301)
    expect(booking.cancel()).toBe(0)
    expect(booking.refund()).toBe(3)
    expect(limiter.peek('k').balance).toBeCloseTo(3.01, 9)
  })

  test('before the time of the grant works like cancel', () => {
    const { clock, limiter } = setUp({ limit: 10, window: '1s' })
    limiter.tryAcquire('k', { cost: 10 })
    const booking = limiter.reserve('k', { cost: 3 })
    limiter.reserve('k', { cost: 1 })
    clock.advance(100)
    expect(booking.refund()).toBe(2)
    expect(limiter.peek('k').balance).toBe(-1)
  })

  test('of two bookings gives each its own permits back', () => {
    const { limiter } = setUp({ limit: 10, window: '1s' })
    const mine = limiter.reserve('k', { cost: 4 })
    const theirs = limiter.reserve('k', { cost: 4 })
    expect(mine.refund()).toBe(4)
    expect(limiter.peek('k').balance).toBe(6)
    expect(theirs.refund()).toBe(4)
    expect(limiter.peek('k').balance).toBe(10)
  })
})

describe('cost 0', () => {
  test('is always granted, and changes nothing', () => {
    const { clock, limiter } = setUp({ limit: 3, window: '3s' })
    limiter.tryAcquire('k', { cost: 3 })
    limiter.reserve('k')
    clock.advance(500)
    const before = limiter.peek('k').toJSON()
    expect(before.balance).toBe(-0.5)
    for (let i = 0; i < 100; i++) {
      expect(limiter.tryAcquire('k', { cost: 0 })).toMatchObject({ allowed: true, waitMs: 0, balance: -0.5 })
      expect(limiter.reserve('k', { cost: 0, maxWait: 0 })).toMatchObject({ allowed: true, waitMs: 0 })
      expect(limiter.peek('k', { cost: 0 }).allowed).toBe(true)
    }
    expect(limiter.peek('k').toJSON()).toEqual(before)
  })
})

describe('peek', () => {
  test('takes nothing (S23, fast-ratelimit#7)', () => {
    const { limiter } = setUp({ limit: 5, window: '5s' })
    for (let i = 0; i < 100; i++) expect(limiter.peek('k')).toMatchObject({ allowed: true, remaining: 5 })
    expect(limiter.tryAcquire('k').remaining).toBe(4)
    limiter.tryAcquire('k', { cost: 4 })
    for (let i = 0; i < 100; i++) expect(limiter.peek('k')).toMatchObject({ allowed: false, waitMs: 1000 })
    expect(limiter.tryAcquire('k').waitMs).toBe(1000)
  })

  test('answers for a cost', () => {
    const { limiter } = setUp({ limit: 5, window: '5s' })
    limiter.tryAcquire('k', { cost: 3 })
    expect(limiter.peek('k', { cost: 2 })).toMatchObject({ allowed: true, waitMs: 0 })
    expect(limiter.peek('k', { cost: 3 })).toMatchObject({ allowed: false, waitMs: 1000 })
    expect(limiter.peek('k', { cost: 6 })).toMatchObject({ allowed: false, waitMs: Infinity })
  })

  test('has the current figures', () => {
    const { clock, limiter } = setUp({ limit: 4, window: '2s' })
    limiter.tryAcquire('k', { cost: 3 })
    clock.advance(200)
    expect(limiter.peek('k').toJSON()).toEqual({
      allowed: true,
      limit: 4,
      remaining: 1,
      waitMs: 0,
      retryAfterMs: 0,
      refillAfterMs: 300,
      resetAfterMs: 1300,
      balance: 1.4,
    })
    clock.advance(300)
    expect(limiter.peek('k')).toMatchObject({
      remaining: 2,
      refillAfterMs: 500,
      resetAfterMs: 1000,
      balance: 2,
    })
    clock.advance(1000)
    expect(limiter.peek('k')).toMatchObject({ remaining: 4, refillAfterMs: 0, resetAfterMs: 0, balance: 4 })
  })

  test('returns the decision of tryAcquire, and the remaining permits can be taken', () => {
    const ask = fc.record({
      cost: fc.integer({ min: 0, max: 7 }),
      afterUs: fc.integer({ min: 0, max: 700_000 }),
    })
    fc.assert(
      fc.property(fc.array(ask, { maxLength: 30 }), asks => {
        const { clock, limiter } = setUp({ limit: 7, window: '1s', burst: 6 })
        for (const { cost, afterUs } of asks) {
          clock.advance(afterUs / 1000)
          const { allowed, waitMs, retryAfterMs } = limiter.peek('k', { cost })
          expect(limiter.tryAcquire('k', { cost })).toMatchObject({ allowed, waitMs, retryAfterMs })
        }
        const { remaining } = limiter.peek('k')
        for (let i = 0; i < remaining; i++) expect(limiter.tryAcquire('k').allowed).toBe(true)
        expect(limiter.tryAcquire('k').allowed).toBe(false)
      }),
    )
  })
})

describe('reset', () => {
  test('makes a key like a new one (S53)', () => {
    const { limiter } = setUp({ limit: 3, window: '1h' })
    limiter.tryAcquire('k', { cost: 3 })
    limiter.reserve('k', { cost: 3 })
    expect(limiter.reset('k')).toBeUndefined()
    expect(limiter.peek('k').toJSON()).toEqual(limiter.peek('never seen').toJSON())
    expect([1, 2, 3, 4].map(() => limiter.tryAcquire('k').allowed)).toEqual([true, true, true, false])
  })

  test('of an unknown key does nothing', () => {
    const { limiter } = setUp({ limit: 3, window: '1h' })
    limiter.reset('k')
    expect(limiter.peek('k').remaining).toBe(3)
  })
})

describe('a decision', () => {
  const grant = {
    allowed: true,
    limit: 4,
    remaining: 1,
    waitMs: 0,
    retryAfterMs: 0,
    refillAfterMs: 500,
    resetAfterMs: 1500,
    balance: 1,
  }

  test('shows plain figures in JSON, console.log and toJSON', () => {
    const { limiter } = setUp({ limit: 4, window: '2s' })
    for (const decision of [limiter.tryAcquire('a', { cost: 3 }), limiter.reserve('b', { cost: 3 })]) {
      expect(decision.toJSON()).toEqual(grant)
      expect(JSON.parse(JSON.stringify(decision))).toEqual(grant)
      expect(inspect(decision)).toBe(inspect(grant))
    }
  })

  test('does not change later', () => {
    const { clock, limiter } = setUp({ limit: 4, window: '2s' })
    const decision = limiter.tryAcquire('k', { cost: 3 })
    limiter.tryAcquire('k')
    clock.advance('1s')
    limiter.reset('k')
    limiter.update(tokenBucket({ limit: 9, window: '9s' }))
    expect(decision.toJSON()).toEqual(grant)
  })

  test('has durations and no points in time', () => {
    const answersAt = (startMs: number) => {
      const clock = manualClock({ startMs })
      const limiter = createLimiter(tokenBucket({ limit: 3, window: '1s' }), { clock })
      return [1, 2, 5].map(cost => limiter.reserve('k', { cost }).toJSON())
    }
    expect(answersAt(0)).toEqual(answersAt(Date.UTC(2049, 0, 1)))
  })

  test('is synchronous: no method returns a promise', () => {
    const { limiter } = setUp({ limit: 4, window: '2s' })
    const booking = limiter.reserve('k')
    const answers: unknown[] = [
      limiter.tryAcquire('k'),
      booking,
      limiter.peek('k'),
      booking.cancel(),
      booking.refund(),
      limiter.reset('k'),
      limiter.update(tokenBucket({ limit: 9, window: '9s' })),
    ]
    for (const answer of answers) expect((answer as { then?: unknown } | undefined)?.then).toBeUndefined()
  })
})

describe('time', () => {
  test('of the system clock is monotonic: jumps of the wall clock neither open nor close a limit', () => {
    const limiter = createLimiter(tokenBucket({ limit: 1, window: '1h' }))
    limiter.tryAcquire('spent')
    const startUs = systemClock.nowUs()
    const now = Date.now()
    const wall = vi.spyOn(Date, 'now')
    try {
      for (const jump of [DAY_MS, -DAY_MS, -now, 365 * DAY_MS]) {
        wall.mockReturnValue(now + jump)
        const refused = limiter.tryAcquire('spent')
        expect(refused.allowed).toBe(false)
        expect(refused.retryAfterMs).toBeGreaterThan(0)
        expect(refused.retryAfterMs).toBeLessThanOrEqual(3_600_000)
        expect(limiter.tryAcquire(`fresh ${jump}`).allowed).toBe(true)
      }
      expect(systemClock.nowUs()).toBeGreaterThanOrEqual(startUs)
      expect(systemClock.nowUs()).toBeLessThan(startUs + 3_600_000_000)
    } finally {
      wall.mockRestore()
    }
  })

  test('of the system clock is in whole microseconds and near the wall clock', () => {
    for (let i = 0; i < 1000; i++) expect(Number.isSafeInteger(systemClock.nowUs())).toBe(true)
    expect(Math.abs(systemClock.nowUs() / 1000 - Date.now())).toBeLessThan(DAY_MS)
  })

  test('that goes back grants nothing extra, and delays callers by no more than the jump', () => {
    const { clock, limiter } = setUp({ limit: 4, window: '2s' })
    limiter.tryAcquire('k', { cost: 4 })
    clock.set(clock.nowMs - 10_000)
    expect(limiter.tryAcquire('k')).toMatchObject({ allowed: false, waitMs: 10_500 })
    expect(limiter.tryAcquire('fresh').allowed).toBe(true)
    clock.advance(10_500)
    expect(limiter.tryAcquire('k').allowed).toBe(true)
    expect(limiter.tryAcquire('k').allowed).toBe(false)
  })
})

describe('any rate is exact', () => {
  test('1 per 365 days', () => {
    const { clock, limiter } = setUp({ limit: 1, window: '365d' })
    expect(limiter.tryAcquire('k').allowed).toBe(true)
    expect(limiter.tryAcquire('k').retryAfterMs).toBe(365 * DAY_MS)
    clock.advance(365 * DAY_MS - 0.001)
    expect(limiter.tryAcquire('k').retryAfterMs).toBe(0.001)
    clock.advance(0.001)
    expect(limiter.tryAcquire('k').allowed).toBe(true)
  })

  test('5 per 365 days (S47, express-rate-limit#546)', () => {
    const { clock, limiter } = setUp({ limit: 5, window: '365d' })
    limiter.tryAcquire('k', { cost: 5 })
    expect(limiter.tryAcquire('k').retryAfterMs).toBe(73 * DAY_MS)
    clock.advance('30d')
    expect(limiter.tryAcquire('k').retryAfterMs).toBe(43 * DAY_MS)
  })

  const rates = [
    { limit: 200_000, window: '1d' },
    { limit: 1_000_000, window: '30d' },
    { limit: 1_000_000, window: '1s' },
    { limit: 300_000, window: '1s' },
    { limit: 999_983, window: '1s' },
    { limit: 86_399, window: '1d' },
    { limit: 3, window: '365d' },
  ] as const

  test.each(rates)(
    '$limit per $window: a used-up key gets each permit at the exact microsecond',
    ({ limit, window }) => {
      const { clock, limiter } = setUp({ limit, window })
      const startMs = clock.nowMs
      const windowUs = BigInt(
        { '1d': 86_400_000_000, '30d': 2_592_000_000_000, '1s': 1_000_000, '365d': 31_536_000_000_000 }[
          window
        ],
      )
      /** The instant of a permit, in whole microseconds from the start, rounded up. */
      const instantOf = (permit: number) =>
        Number((BigInt(permit) * windowUs + BigInt(limit) - 1n) / BigInt(limit))
      expect(limiter.tryAcquire('k', { cost: limit }).remaining).toBe(0)
      // Fifty permits one by one, then all but fifty of the rest of a window at once.
      for (let permit = 1; permit <= Math.min(50, limit); permit++) {
        const instant = instantOf(permit)
        if (instantOf(permit - 1) < instant) {
          clock.set(startMs + (instant - 1) / 1000)
          expect(limiter.tryAcquire('k')).toMatchObject({ allowed: false, retryAfterMs: 0.001 })
        }
        clock.set(startMs + instant / 1000)
        expect(limiter.tryAcquire('k').allowed).toBe(true)
      }
      if (limit <= 50) return
      expect(limiter.reserve('k', { cost: limit - 100 }).waitMs).toBe(
        (instantOf(limit - 50) - instantOf(50)) / 1000,
      )
      clock.set(startMs + instantOf(limit) / 1000)
      expect(limiter.tryAcquire('k', { cost: 51 }).allowed).toBe(false)
      expect(limiter.tryAcquire('k', { cost: 50 }).allowed).toBe(true)
    },
  )

  test('a client at exactly the rate is never refused and gains nothing', () => {
    const { clock, limiter } = setUp({ limit: 300_000, window: '1s' })
    limiter.tryAcquire('k', { cost: 300_000 })
    // Three permits every ten microseconds.
    for (let i = 0; i < 30_000; i++) {
      clock.advance(0.01)
      expect(limiter.tryAcquire('k', { cost: 3 }).allowed).toBe(true)
    }
    expect(limiter.peek('k').balance).toBe(0)
  })

  test('every rate decides like whole-number arithmetic', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 1_000_000 }),
        fc.integer({ min: 1, max: 1_000_000_000 }),
        fc.array(fc.record({ cost: fc.integer({ min: 1, max: 40 }), afterUs: fc.nat(5_000_000) }), {
          maxLength: 30,
        }),
        (limit, windowUs, asks) => {
          const burst = 40
          const { clock, limiter } = setUp({ limit, window: windowUs / 1000, burst })
          // Time and permits in units of 1 / limit microseconds.
          const interval = BigInt(windowUs)
          let now = 0n
          let full = 0n
          for (const { cost, afterUs } of asks) {
            clock.advance(afterUs / 1000)
            now += BigInt(afterUs) * BigInt(limit)
            if (full < now) full = now
            full += BigInt(cost) * interval
            const late = full - BigInt(burst) * interval - now
            const waitUs = late <= 0n ? 0 : Number((late + BigInt(limit) - 1n) / BigInt(limit))
            expect(limiter.reserve('k', { cost }).waitMs).toBe(waitUs / 1000)
          }
        },
      ),
    )
  })

  test.each([
    { limit: Number.MAX_SAFE_INTEGER, window: '1s', option: 'limit' },
    { limit: 1, window: '365d', burst: 1_000_000, option: 'burst' },
  ] as const)('what leaves 2^53 is refused at construction: $limit per $window', ({ option, ...bucket }) => {
    expect(() => tokenBucket(bucket)).toThrow(expect.objectContaining({ name: 'RangeError', option }))
  })
})
