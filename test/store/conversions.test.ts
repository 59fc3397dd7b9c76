import {
  type Algorithm,
  createLimiter,
  memoryStore,
  type TokenBucketOptions,
  tokenBucket,
  unlimited,
} from '@sluice/core'
import { manualClock } from '@sluice/core/testing'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'

function setUp(bucket: TokenBucketOptions) {
  const clock = manualClock()
  const store = memoryStore()
  const limiter = createLimiter(tokenBucket(bucket), { store, clock })
  return { clock, store, limiter }
}

describe('x/time/rate, commit 2b4e439: SetLimit and SetBurst', () => {
  test('set-limit: a new rate applies from the update on, and reservations keep their times', () => {
    const { clock, limiter } = setUp({ limit: 10, window: '1s', burst: 3 })
    expect(limiter.reserve('k', { cost: 3 }).waitMs).toBe(0)
    const second = limiter.reserve('k', { cost: 2 })
    expect(second.waitMs).toBe(200)

    clock.advance(100)
    limiter.update(tokenBucket({ limit: 20, window: '1s', burst: 3 }))
    expect(limiter.peek('k').balance).toBe(-1)
    expect(limiter.reserve('k').waitMs).toBe(100)

    clock.advance(100)
    limiter.update(tokenBucket({ limit: 5, window: '1s', burst: 3 }))
    expect(limiter.peek('k').balance).toBe(0)
    expect(limiter.reserve('k').waitMs).toBe(200)

    clock.advance(700)
    expect(limiter.peek('k').balance).toBe(2.5)
  })

  test('set-limit-cancel: a booking made before an update gives back the permits it took', () => {
    const { clock, limiter } = setUp({ limit: 10, window: '1s', burst: 3 })
    limiter.reserve('k', { cost: 3 })
    const second = limiter.reserve('k', { cost: 2 })

    clock.advance(100)
    limiter.update(tokenBucket({ limit: 20, window: '1s', burst: 3 }))
    expect(limiter.peek('k').balance).toBe(-1)
    expect(second.cancel()).toBe(2)
    expect(limiter.peek('k').balance).toBe(1)
    expect(limiter.reserve('k', { cost: 2 }).waitMs).toBe(50)
  })

  test('set-burst: a smaller burst drops permits, and a larger one adds none', () => {
    const { clock, limiter } = setUp({ limit: 10, window: '1s', burst: 7 })
    expect(limiter.peek('k').balance).toBe(7)
    limiter.update(tokenBucket({ limit: 10, window: '1s', burst: 2 }))
    expect(limiter.peek('k').balance).toBe(2)
    expect(limiter.tryAcquire('k', { cost: 3 }).allowed).toBe(false)
    expect(limiter.tryAcquire('k', { cost: 2 }).allowed).toBe(true)

    clock.advance(50)
    limiter.update(tokenBucket({ limit: 10, window: '1s', burst: 9 }))
    expect(limiter.peek('k').balance).toBe(0.5)
    expect(limiter.reserve('k', { cost: 9 }).waitMs).toBe(850)

    clock.advance(8950)
    expect(limiter.peek('k').balance).toBe(9)
  })
})

describe('burst', () => {
  test('a larger burst adds no permits to a key in use, and a smaller one caps them', () => {
    const { limiter } = setUp({ limit: 10, window: '1m' })
    limiter.tryAcquire('heavy', { cost: 8 })
    limiter.tryAcquire('light', { cost: 1 })
    limiter.update(tokenBucket({ limit: 10, window: '1m', burst: 40 }))
    expect(limiter.peek('heavy').remaining).toBe(2)
    expect(limiter.peek('light').remaining).toBe(9)
    limiter.update(tokenBucket({ limit: 10, window: '1m', burst: 5 }))
    expect(limiter.peek('heavy').remaining).toBe(2)
    expect(limiter.peek('light').remaining).toBe(5)
  })

  test('a full key is full at the new burst, stored or not', () => {
    const { clock, store, limiter } = setUp({ limit: 2, window: '2s' })
    limiter.tryAcquire('held', { cost: 2 })
    clock.advance('2s')
    expect(store.size).toBe(1)
    limiter.update(tokenBucket({ limit: 2, window: '2s', burst: 7 }))
    expect(limiter.peek('held')).toMatchObject({ remaining: 7, limit: 7, resetAfterMs: 0 })
    expect(limiter.peek('never seen')).toMatchObject({ remaining: 7, limit: 7, resetAfterMs: 0 })
  })

  test('a key one microsecond before it is full is not full at a larger burst', () => {
    const { clock, limiter } = setUp({ limit: 2, window: '2s' })
    limiter.tryAcquire('k', { cost: 2 })
    clock.advance(2000 - 0.001)
    limiter.update(tokenBucket({ limit: 2, window: '2s', burst: 7 }))
    expect(limiter.peek('k').remaining).toBe(1)
  })
})

describe('update', () => {
  test('advertises the new policy at once', () => {
    const { limiter } = setUp({ limit: 10, window: '1m' })
    limiter.update(tokenBucket({ limit: 5, window: '1s', burst: 20 }))
    expect(limiter.policy).toMatchObject({ limit: 20, windowMs: 4000 })
    expect(limiter.peek('k').limit).toBe(20)
  })

  test('a shorter window applies at once, not after the old window (S52, Tabcorp/redis-rate-limiter#44)', () => {
    const { clock, limiter } = setUp({ limit: 10, window: '1h' })
    limiter.tryAcquire('k', { cost: 10 })
    limiter.update(tokenBucket({ limit: 10, window: '10s' }))
    expect(limiter.tryAcquire('k').retryAfterMs).toBe(1000)
    clock.advance('1s')
    expect(limiter.tryAcquire('k').allowed).toBe(true)
  })

  test('to the same options changes nothing', () => {
    const { clock, limiter } = setUp({ limit: 7, window: '1s' })
    const { limiter: untouched, clock: itsClock } = setUp({ limit: 7, window: '1s' })
    for (let i = 0; i < 600; i++) {
      const cost = (i % 3) + 1
      limiter.update(tokenBucket({ limit: 7, window: '1s' }))
      expect(limiter.reserve('k', { cost }).toJSON()).toEqual(untouched.reserve('k', { cost }).toJSON())
      clock.advance(0.333)
      itsClock.advance(0.333)
    }
  })

  test('to the same options leaves bookings as they are', () => {
    const { limiter } = setUp({ limit: 2, window: '2s' })
    limiter.reserve('k', { cost: 2 })
    const booking = limiter.reserve('k')
    limiter.update(tokenBucket({ limit: 2, window: '2s' }))
    expect(booking.cancel()).toBe(1)
    expect(limiter.peek('k').balance).toBe(0)
  })

  test('to unlimited() and back makes every key full', () => {
    const { store, limiter } = setUp({ limit: 2, window: '1h' })
    limiter.tryAcquire('k', { cost: 2 })
    const booking = limiter.reserve('k')
    limiter.update(unlimited())
    expect(store.size).toBe(0)
    expect(limiter.policy.limit).toBe(Infinity)
    for (let i = 0; i < 100; i++) expect(limiter.tryAcquire('k', { cost: 1000 }).allowed).toBe(true)
    expect(store.size).toBe(0)
    limiter.update(tokenBucket({ limit: 2, window: '1h' }))
    expect(limiter.peek('k').toJSON()).toEqual(limiter.peek('never seen').toJSON())
    limiter.tryAcquire('k', { cost: 2 })
    expect(booking.cancel()).toBe(0)
    expect(booking.refund()).toBe(0)
    expect(limiter.tryAcquire('k').allowed).toBe(false)
  })

  test('to limit 0 refuses every key, and back refills none', () => {
    const { clock, limiter } = setUp({ limit: 4, window: '4s' })
    limiter.tryAcquire('spent', { cost: 4 })
    limiter.tryAcquire('half', { cost: 2 })
    limiter.reserve('booked', { cost: 4 })
    limiter.reserve('booked', { cost: 3 })
    limiter.update(tokenBucket({ limit: 0, window: '4s' }))
    for (const key of ['spent', 'half', 'booked', 'never seen'])
      expect(limiter.tryAcquire(key)).toMatchObject({
        allowed: false,
        remaining: 0,
        limit: 0,
        retryAfterMs: Infinity,
      })

    clock.advance('1h')
    limiter.update(tokenBucket({ limit: 4, window: '4s' }))
    expect(limiter.peek('spent').balance).toBe(0)
    expect(limiter.peek('half').balance).toBe(2)
    expect(limiter.peek('booked').balance).toBe(-3)
    expect(limiter.peek('never seen').balance).toBe(4)
    clock.advance('1s')
    expect(limiter.peek('spent').balance).toBe(1)
  })

  test('to limit 0 and back at once keeps the permits of every key', () => {
    const { clock, limiter } = setUp({ limit: 4, window: '4s' })
    limiter.tryAcquire('spent', { cost: 4 })
    limiter.reserve('booked', { cost: 4 })
    const booking = limiter.reserve('booked', { cost: 3 })
    clock.advance('1s')
    limiter.update(tokenBucket({ limit: 0, window: '4s' }))
    expect(limiter.tryAcquire('spent').allowed).toBe(false)
    limiter.update(tokenBucket({ limit: 4, window: '4s' }))
    expect(limiter.peek('spent').balance).toBe(1)
    expect(limiter.peek('booked').balance).toBe(-2)
    expect(booking.cancel()).toBe(3)
  })

  test.each(['peeked at while it is 0', 'swept over while it is 0', 'not read'] as const)(
    'to limit 0 and back adds no permits: %s',
    how => {
      const { clock, store, limiter } = setUp({ limit: 4, window: '4s' })
      limiter.tryAcquire('k', { cost: 4 })
      clock.advance(1500)
      limiter.update(tokenBucket({ limit: 0, window: '1s' }))
      clock.advance('1h')
      if (how.startsWith('peeked')) limiter.peek('k')
      if (how.startsWith('swept')) store.sweep()
      limiter.update(tokenBucket({ limit: 5, window: '1s', burst: 0 }))
      clock.advance('1h')
      limiter.update(tokenBucket({ limit: 4, window: '4s' }))
      const { balance } = limiter.peek('k')
      expect(balance).toBeLessThanOrEqual(1.5)
      expect(balance).toBeGreaterThanOrEqual(1)
    },
  )

  test('converts each of a thousand keys when it is next used, at any balance', () => {
    const { clock, limiter } = setUp({ limit: 1000, window: '1000s' })
    for (let i = 1; i <= 1000; i++) limiter.tryAcquire(`key ${i}`, { cost: i })
    clock.advance('10s')
    limiter.update(tokenBucket({ limit: 500, window: '1000s' }))
    clock.advance('20s')
    for (let i = 1000; i >= 1; i--) {
      const before = Math.min(1000 - i + 10, 1000)
      expect(limiter.peek(`key ${i}`).balance).toBe(Math.min(Math.min(before, 500) + 10, 500))
    }
  })

  test('a key first used after an update starts with the new version of the options', () => {
    const { clock, limiter } = setUp({ limit: 10, window: '10s' })
    limiter.update(tokenBucket({ limit: 4, window: '2s' }))
    limiter.tryAcquire('k', { cost: 4 })
    clock.advance(500)
    expect(limiter.peek('k').balance).toBe(1)
  })

  test('changes one limiter of a shared store only', () => {
    const clock = manualClock()
    const store = memoryStore()
    const one = createLimiter(tokenBucket({ limit: 2, window: '1m' }), { store, clock, name: 'one' })
    const two = createLimiter(tokenBucket({ limit: 2, window: '1m' }), { store, clock, name: 'two' })
    two.tryAcquire('k')
    one.update(tokenBucket({ limit: 100, window: '1m' }))
    expect(two.peek('k').toJSON()).toMatchObject({ limit: 2, remaining: 1 })
  })
})

describe('a booking made before an update', () => {
  test('can be cancelled after it, and moves no booking behind it', () => {
    const { clock, limiter } = setUp({ limit: 10, window: '1s', burst: 2 })
    limiter.reserve('k', { cost: 2 })
    const first = limiter.reserve('k', { cost: 2 })
    limiter.reserve('k')
    clock.advance(50)
    limiter.update(tokenBucket({ limit: 40, window: '1s', burst: 2 }))
    const before = limiter.peek('k').balance
    expect(first.cancel()).toBe(1)
    expect(limiter.peek('k').balance).toBe(before + 1)
    expect(first.cancel()).toBe(0)
  })

  test('can be refunded after it, for the permits that have not refilled', () => {
    const { clock, limiter } = setUp({ limit: 10, window: '1s' })
    const booking = limiter.reserve('k', { cost: 6 })
    clock.advance(200)
    limiter.update(tokenBucket({ limit: 1, window: '1s', burst: 10 }))
    clock.advance('1s')
    expect(booking.refund()).toBe(3)
    expect(limiter.peek('k').balance).toBe(10)
  })

  test('can be cancelled only after the cancel of a booking made after the update', () => {
    const { limiter } = setUp({ limit: 10, window: '1s', burst: 1 })
    limiter.tryAcquire('k')
    const before = limiter.reserve('k', { cost: 1 })
    limiter.update(tokenBucket({ limit: 5, window: '1s', burst: 1 }))
    const after = limiter.reserve('k', { cost: 1 })
    expect(before.cancel()).toBe(0)
    expect(after.cancel()).toBe(1)
    expect(before.cancel()).toBe(1)
    expect(limiter.peek('k').balance).toBe(0)
  })
})

/** The options of update number `i`. Consecutive options differ, and none refuses everything. */
function options(i: number): TokenBucketOptions {
  return { limit: (i % 7) + 3, window: ((i % 3) + 1) * 1000, burst: (i % 11) + 5 }
}

describe('many updates', () => {
  test('between two reads of a key have the same result as with a read after each update', () => {
    const change = fc.record({
      limit: fc.integer({ min: 0, max: 20 }),
      windowMs: fc.integer({ min: 1, max: 5000 }),
      burst: fc.integer({ min: 0, max: 20 }),
      afterMs: fc.integer({ min: 0, max: 800 }),
    })
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 10 }),
        fc.integer({ min: 0, max: 30 }),
        fc.array(change, { maxLength: 20 }),
        (cost, booked, changes) => {
          const blind = setUp({ limit: 10, window: '1s' })
          const seeing = setUp({ limit: 10, window: '1s' })
          for (const { limiter } of [blind, seeing]) {
            limiter.tryAcquire('k', { cost })
            for (let i = 0; i < booked; i++) limiter.reserve('k')
          }
          for (const { limit, windowMs, burst, afterMs } of changes) {
            for (const { clock, limiter } of [blind, seeing]) {
              clock.advance(afterMs)
              limiter.update(tokenBucket({ limit, window: windowMs, burst }))
            }
            seeing.limiter.peek('k')
          }
          expect(blind.limiter.peek('k').toJSON()).toEqual(seeing.limiter.peek('k').toJSON())
        },
      ),
    )
  })

  test.each([255, 256, 257, 258, 600, 1100])('keep the balance of every key after %i updates', count => {
    const blind = setUp(options(0))
    const seeing = setUp(options(0))
    const keys: string[] = []
    for (let i = 1; i <= count; i++) {
      if (i % 5 === 0) keys.push(`key ${i}`)
      for (const { clock, limiter } of [blind, seeing]) {
        if (i % 5 === 0) for (let n = 0; n < (i % 40) + 1; n++) limiter.reserve(`key ${i}`, { cost: 5 })
        clock.advance(i % 13)
        limiter.update(tokenBucket(options(i)))
      }
      for (const key of keys) seeing.limiter.peek(key)
    }
    const figures = keys.map(key => blind.limiter.peek(key).toJSON())
    expect(figures).toEqual(keys.map(key => seeing.limiter.peek(key).toJSON()))
    expect(figures.filter(({ balance }) => balance < 0).length).toBeGreaterThan(keys.length / 2)
  })

  test('keep a booking cancellable after more updates than there are version numbers', () => {
    const { clock, limiter } = setUp({ limit: 10, window: '1m', burst: 5 })
    limiter.reserve('k', { cost: 5 })
    const booking = limiter.reserve('k', { cost: 5 })
    const lost = limiter.reserve('other', { cost: 5 })
    limiter.reset('other')
    for (let i = 1; i <= 700; i++) {
      clock.advance(1)
      limiter.update(tokenBucket({ limit: 10 + (i % 2), window: '1m', burst: 5 }))
    }
    limiter.tryAcquire('other', { cost: 5 })
    const before = limiter.peek('k').balance
    expect(booking.cancel()).toBe(5)
    expect(limiter.peek('k').balance).toBeCloseTo(before + 5, 9)
    expect(lost.cancel()).toBe(0)
    expect(lost.refund()).toBe(0)
    expect(limiter.peek('other').remaining).toBe(0)
  })

  test('convert a key with the newest version of the options after the version numbers wrap around', () => {
    const { clock, limiter } = setUp(options(0))
    for (let i = 1; i <= 256; i++) limiter.update(tokenBucket(options(i)))
    limiter.tryAcquire('k', { cost: 5 })
    for (let i = 257; i <= 511; i++) limiter.update(tokenBucket(options(i)))
    limiter.update(tokenBucket({ limit: 5, window: '5s', burst: 5 }))
    const { balance } = limiter.peek('k')
    clock.advance('1s')
    expect(limiter.peek('k').balance).toBeCloseTo(Math.min(balance + 1, 5), 9)
    expect(balance).toBeLessThan(5)
  })
})

describe('update never adds permits', () => {
  const rate = fc.record({
    limit: fc.integer({ min: 1, max: 1000 }),
    window: fc.integer({ min: 1, max: 100_000 }),
    burst: fc.integer({ min: 1, max: 50 }),
  })
  const act = fc.oneof(
    fc.record({ ask: fc.integer({ min: 0, max: 50 }), book: fc.boolean() }),
    fc.record({ advance: fc.integer({ min: 0, max: 3_000_000 }) }),
    fc.record({ update: rate, closed: fc.boolean() }),
  )

  test('a key has no more permits after an update than before, unless it was full', () => {
    fc.assert(
      fc.property(rate, fc.array(act, { maxLength: 40 }), (start, acts) => {
        const { clock, limiter } = setUp(start)
        for (const step of acts) {
          if ('ask' in step) {
            if (step.book) limiter.reserve('k', { cost: step.ask })
            else limiter.tryAcquire('k', { cost: step.ask })
          } else if ('advance' in step) {
            clock.advance(step.advance / 1000)
          } else {
            const before = limiter.peek('k')
            if (step.closed) limiter.update(tokenBucket({ limit: 0, window: '1s' }))
            limiter.update(tokenBucket(step.update))
            const after = limiter.peek('k')
            if (before.resetAfterMs === 0) {
              expect(after.toJSON()).toEqual(limiter.peek('never seen').toJSON())
            } else {
              expect(after.remaining).toBeLessThanOrEqual(before.remaining)
              expect(after.balance).toBeLessThanOrEqual(
                before.balance + 1e-9 * Math.max(1, Math.abs(before.balance)),
              )
            }
          }
        }
      }),
      { numRuns: 500 },
    )
  })

  test('update keeps the balance below the new burst, to the rounding of a microsecond', () => {
    fc.assert(
      fc.property(
        rate,
        rate,
        fc.array(fc.integer({ min: 1, max: 50 }), { maxLength: 5 }),
        (from, to, costs) => {
          const { limiter } = setUp(from)
          for (const cost of costs) limiter.reserve('k', { cost })
          const before = limiter.peek('k')
          limiter.update(tokenBucket(to))
          const after = limiter.peek('k')
          const expected = before.resetAfterMs === 0 ? to.burst : Math.min(before.balance, to.burst)
          const perMicrosecond = to.limit / (to.window * 1000)
          expect(Math.abs(after.balance - expected)).toBeLessThanOrEqual(perMicrosecond + 1e-9)
        },
      ),
    )
  })
})

test('an update to another kind of algorithm makes every key full', () => {
  const { store, limiter } = setUp({ limit: 2, window: '1h' })
  limiter.tryAcquire('k', { cost: 2 })
  const bucket = tokenBucket({ limit: 2, window: '1h' })
  const other: Algorithm = {
    name: 'token-bucket-of-another-kind',
    args: bucket.args,
    policy: bucket.policy,
    lanes: bucket.lanes,
    bookable: true,
    step: (...args) => bucket.step(...args),
    cancel: (...args) => bucket.cancel(...args),
    refund: (...args) => bucket.refund(...args),
    adopt: () => {
      throw new Error('a state of another kind cannot be adopted')
    },
    restsAt: (...args) => bucket.restsAt(...args),
    load: (...args) => bucket.load(...args),
  }
  limiter.update(other)
  expect(store.size).toBe(0)
  expect(limiter.tryAcquire('k', { cost: 2 }).allowed).toBe(true)
})
