import {
  type Algorithm,
  createLimiter,
  type Decision,
  type Limiter,
  type Reservation,
  type SyncStore,
} from '@sluice/core'
import { type ManualClock, manualClock } from '@sluice/core/testing'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { ALGORITHMS, type LawfulAlgorithm } from '../support/algorithms.js'
import { checkWhere } from '../support/premise.js'
import { asks, cost, gapUs, maxWaitUs } from '../support/scripts.js'
import { STORES } from '../support/stores.js'

const MATRIX = STORES.flatMap(store =>
  ALGORITHMS.map(lawful => ({ ...lawful, store, label: `${lawful.name} on ${store.name}` })),
)

describe.each(MATRIX)('$label obeys the laws of a limiter', ({ algorithm: arbitrary, store, ...lawful }) => {
  /** A new limiter and clock for every run. */
  function open(algorithm: Algorithm) {
    const clock = manualClock()
    const limiter = createLimiter(algorithm, { clock, store: store.open() })
    return { clock, limiter, ...deskOf(algorithm, limiter, clock, store.open()) }
  }

  test('no window grants more than its bound, whatever is booked and cancelled', () => {
    check(fc.tuple(arbitrary, actions()), ([algorithm, script]) => {
      const { clock, reserve } = open(algorithm)
      const booked = perform(script, clock, reserve)
      const held = booked.filter(({ verb }) => verb === 'none')
      expectWithinBound(lawful, algorithm, held, largestOf(booked))
    })
  })

  test('no window grants more than its bound when many wait and some cancel', () => {
    check(fc.tuple(arbitrary, crowd()), ([algorithm, script]) => {
      const { clock, reserve } = open(algorithm)
      const booked = perform(script, clock, reserve)
      const held = booked.filter(({ verb }) => verb === 'none')
      expectWithinBound(lawful, algorithm, held, largestOf(booked))
    })
  })

  test('no window grants more than its bound, with refunds subtracted', () => {
    check(fc.tuple(arbitrary, actions(true)), ([algorithm, script]) => {
      const { clock, reserve } = open(algorithm)
      const booked = perform(script, clock, reserve)
      const held = booked.filter(({ verb }) => verb !== 'cancel')
      const refunds = booked.filter(({ verb }) => verb === 'refund')
      const returns = refunds.map(({ givenUs, given }) => ({
        actUs: givenUs,
        cost: -given - (lawful.counts ? 0 : truncatedBy(algorithm)),
      }))
      expectWithinBound(lawful, algorithm, [...held, ...returns], largestOf(booked))
    })
  })

  test('no window grants more than its bound, to the microsecond, without waiting', () => {
    check(fc.tuple(arbitrary, asks()), ([algorithm, script]) => {
      const { clock, limiter } = open(algorithm)
      const grants: Grant[] = []
      for (const { gapUs, cost } of script) {
        clock.advance(gapUs / 1000)
        if (limiter.tryAcquire('key', { cost }).allowed) grants.push({ actUs: clock.nowUs(), cost })
      }
      expectWithinBound(lawful, algorithm, grants)
    })
  })

  test('a clock that goes back refills nothing', () => {
    const jumps = fc.array(fc.record({ gapUs: fc.integer({ min: -20_000, max: 20_000 }), cost: cost() }), {
      maxLength: 40,
    })
    check(fc.tuple(arbitrary, jumps), ([algorithm, script]) => {
      const { clock, limiter } = open(algorithm)
      const grants: Grant[] = []
      let latestUs = 0
      for (const { gapUs, cost } of script) {
        clock.set(clock.nowMs + gapUs / 1000)
        if (!limiter.tryAcquire('key', { cost }).allowed || cost === 0) continue
        latestUs = Math.max(latestUs, clock.nowUs())
        grants.push({ actUs: latestUs, cost })
      }
      expectWithinBound(lawful, algorithm, grants)
    })
  })

  test('a cancel or refund returns at most what the booking took, and only once', () => {
    checkWhere(
      fc.tuple(arbitrary, actions(true)),
      ([algorithm, script]) => {
        const { clock, reserve } = open(algorithm)
        const booked = perform(script, clock, reserve)
        for (const { cost, reservation, given } of booked) {
          expect(given).toBeGreaterThanOrEqual(0)
          expect(given).toBeLessThanOrEqual(cost)
          if (given > 0) expect([reservation.cancel(), reservation.refund()]).toEqual([0, 0])
        }
        return booked.some(({ given }) => given > 0)
      },
      { runs: 200, least: lawful.unreachable?.includes('give-back') ? 0 : 0.2 },
    )
  })

  test('cancel, refund and release return the amount by which the balance grows', () => {
    const scenarios = fc.tuple(arbitrary, asks(20), cost(), maxWaitUs(), asks(3), fc.boolean())
    const least = lawful.unreachable?.includes('give-back') ? 0 : 0.1
    checkWhere(
      scenarios,
      scenario => {
        const [algorithm, before, cost, maxWaitUs, after, refunds] = scenario
        const { clock, reserve, peek } = open(algorithm)
        replay(before, clock, reserve)
        const booking = reserve(cost, maxWaitUs)
        replay(after, clock, reserve)
        const { balance } = peek()
        const given = refunds ? booking.refund() : booking.cancel()
        const growth = peek().balance - balance
        if (balance === Infinity) return false
        if (lawful.counts) expect(growth).toBeCloseTo(given, 6)
        else expect(growth > 0).toBe(given > 0)
        return given > 0
      },
      { runs: 200, least },
    )
  })

  test('a key does not change the permits of another key', () => {
    const script = fc.array(
      fc.record({ key: fc.constantFrom('a', 'b', '__proto__'), gapUs: gapUs(), cost: cost() }),
    )
    check(fc.tuple(arbitrary, script), ([algorithm, script]) => {
      const clock = manualClock()
      const shared = createLimiter(algorithm, { clock, store: store.open() })
      const alone = new Map<string, Limiter<false>>()
      for (const { key } of script) alone.set(key, createLimiter(algorithm, { clock, store: store.open() }))
      for (const { key, gapUs, cost } of script) {
        clock.advance(gapUs / 1000)
        const own = alone.get(key) as Limiter<false>
        expect(shared.tryAcquire(key, { cost }).toJSON()).toEqual(own.tryAcquire(key, { cost }).toJSON())
      }
    })
  })

  test('a reset key is like a new key', () => {
    check(fc.tuple(arbitrary, asks(20), asks(10)), ([algorithm, before, after]) => {
      const { clock, limiter } = open(algorithm)
      const fresh = createLimiter(algorithm, { clock })
      for (const { gapUs, cost } of before) {
        clock.advance(gapUs / 1000)
        limiter.tryAcquire('key', { cost })
      }
      limiter.reset('key')
      for (const { gapUs, cost } of after) {
        clock.advance(gapUs / 1000)
        expect(limiter.tryAcquire('key', { cost }).toJSON()).toEqual(
          fresh.tryAcquire('key', { cost }).toJSON(),
        )
      }
    })
  })

  test('an update of the limit creates no permits', () => {
    const changes = fc.array(fc.tuple(arbitrary, asks(10)), { minLength: 1, maxLength: 4 })
    check(fc.tuple(arbitrary, asks(20), changes), ([algorithm, before, changes]) => {
      const { clock, ledger, reserve, peek } = open(algorithm)
      replay(before, clock, reserve)
      reserve(1, Infinity)
      let previous = algorithm
      for (const [next, script] of changes) {
        const { balance, resetAfterMs } = peek()
        ledger.update(next)
        const unspent = createLimiter(next).peek('key').limit + (lawful.counts ? 0 : 1)
        const kept = lawful.kept(previous, next, balance)
        expect(peek().balance).toBeLessThanOrEqual((resetAfterMs > 0 ? kept : Math.max(kept, unspent)) + 1e-6)
        replay(script, clock, reserve)
        previous = next
      }
    })
  })

  test('after an update, no window grants more than the new bound', () => {
    check(fc.tuple(arbitrary, asks(20), arbitrary, asks()), ([algorithm, before, next, after]) => {
      const { clock, limiter } = open(algorithm)
      const granted = (script: readonly { gapUs: number; cost: number }[]) =>
        script.flatMap(({ gapUs, cost }) => {
          clock.advance(gapUs / 1000)
          return limiter.tryAcquire('key', { cost }).allowed ? [{ actUs: clock.nowUs(), cost }] : []
        })
      granted(before)
      limiter.update(next)
      const outlives = lawful.outlives ? Math.max(0, algorithm.policy.limit - next.policy.limit) : 0
      const promise: LawfulAlgorithm['promise'] = (...ask) => {
        const { permits, per } = lawful.promise(...ask)
        return { permits: permits + BigInt(outlives) * per, per }
      }
      expectWithinBound({ promise }, next, granted(after))
    })
  })

  test('drain takes the available permits and no more', () => {
    check(fc.tuple(arbitrary, asks(20)), ([algorithm, before]) => {
      const { clock, limiter } = open(algorithm)
      for (const { gapUs, cost } of before) {
        clock.advance(gapUs / 1000)
        limiter.tryAcquire('key', { cost })
      }
      const { remaining } = limiter.peek('key')
      if (remaining === Infinity) return
      expect(limiter.drain('key')).toBe(remaining)
      if (lawful.counts) expect(limiter.drain('key')).toBe(0)
    })
  })

  test('release returns what was used, and no more than was requested', () => {
    check(fc.tuple(arbitrary, asks(20), cost()), ([algorithm, before, permits]) => {
      const { clock, limiter } = open(algorithm)
      for (const { gapUs, cost } of before) {
        clock.advance(gapUs / 1000)
        limiter.tryAcquire('key', { cost })
      }
      const { balance, limit } = limiter.peek('key')
      const given = limiter.release('key', permits)
      const after = limiter.peek('key').balance
      expect(given).toBeLessThanOrEqual(permits)
      if (balance === Infinity) expect(given).toBe(0)
      else if (lawful.counts) {
        expect(given).toBeCloseTo(Math.min(permits, limit - balance), 6)
        expect(after - balance).toBeCloseTo(given, 6)
      } else expect(after).toBeLessThanOrEqual(limit + 1)
    })
  })

  test('no window grants more than its bound, with releases subtracted', () => {
    check(fc.tuple(arbitrary, actions(), cost()), ([algorithm, script, permits]) => {
      const { clock, reserve, release } = open(algorithm)
      const grants: Grant[] = []
      for (const action of script) {
        const [booked] = perform([{ ...action, verb: 'none' }], clock, reserve)
        if (booked !== undefined) grants.push(booked)
        if (action.verb === 'none') continue
        // Smooth limiters truncate the time of a request to whole microseconds, and so the permits that come back.
        const truncated = lawful.counts
          ? 0
          : (4 * (algorithm.args[0] as number)) / (algorithm.args[1] as number)
        const given = release(permits) + truncated
        if (given > truncated) grants.push({ actUs: clock.nowUs(), cost: -given })
      }
      expectWithinBound(lawful, algorithm, grants, largestOf(grants))
    })
  })
})

/** Permits granted at an instant. A negative cost is permits returned then. */
interface Grant {
  readonly actUs: number
  readonly cost: number
}

/** A booking and what happened to it: kept, cancelled before its instant, or refunded afterwards. */
interface Booked extends Grant {
  readonly reservation: GivesBack
  given: number
  givenUs: number
  verb: 'none' | 'cancel' | 'refund'
}

interface Action {
  readonly gapUs: number
  readonly cost: number
  readonly maxWaitUs: number
  /** Which of the bookings so far is returned after this request. */
  readonly victim: number
  readonly verb: 'none' | 'cancel' | 'refund'
}

function actions(withRefunds = false): fc.Arbitrary<Action[]> {
  const verb = withRefunds
    ? fc.constantFrom('none', 'cancel', 'refund' as const)
    : fc.constantFrom('none', 'cancel' as const)
  const action = fc.record({ gapUs: gapUs(), cost: cost(), maxWaitUs: maxWaitUs(), victim: fc.nat(), verb })
  return fc.array(action as fc.Arbitrary<Action>, { maxLength: 40 })
}

/** Many requests close together with long waits, some of which are cancelled. */
function crowd(): fc.Arbitrary<Action[]> {
  const action = fc.record({
    gapUs: fc.oneof(fc.constant(0), fc.integer({ min: 0, max: 100 })),
    cost: fc.integer({ min: 1, max: 10 }),
    maxWaitUs: fc.constant(Infinity),
    victim: fc.nat(),
    verb: fc.constantFrom('none', 'none', 'cancel' as const),
  })
  return fc.array(action as fc.Arbitrary<Action>, { maxLength: 12 })
}

type Reserve = (cost: number, maxWaitUs: number) => GivesBack & Pick<Decision, 'allowed' | 'waitMs'>
type GivesBack = Pick<Reservation<false>, 'cancel' | 'refund'>

/**
 * Books with the limiter if its algorithm can book, and otherwise with its ledger, as `acquire` does. Updates and peeks
 * go to the same place.
 */
function deskOf(algorithm: Algorithm, limiter: Limiter<false>, clock: ManualClock, store: SyncStore) {
  if (algorithm.bookable) {
    return {
      ledger: limiter,
      reserve: ((cost, maxWaitUs) => limiter.reserve('key', { cost, maxWait: maxWaitUs / 1000 })) as Reserve,
      release: (permits: number) => limiter.release('key', permits),
      peek: () => limiter.peek('key'),
    }
  }
  const ledger = store.open({ name: 'ledger', algorithm, clock })
  const reserve: Reserve = cost => {
    const { decision, booking } = ledger.book('key', cost, 0)
    let left = booking
    const giveBack = (verb: 'cancel' | 'refund') => () => {
      const given = left === undefined ? 0 : ledger[verb]('key', left)
      if (given > 0) left = undefined
      return given
    }
    const { allowed, waitMs } = decision
    return { allowed, waitMs, cancel: giveBack('cancel'), refund: giveBack('refund') }
  }
  const release = (permits: number) => ledger.release('key', permits)
  return { ledger, reserve, release, peek: () => ledger.decide('key', 0, 0, false) }
}

function perform(script: readonly Action[], clock: ManualClock, reserve: Reserve): Booked[] {
  const booked: Booked[] = []
  for (const { gapUs, cost, maxWaitUs, victim, verb } of script) {
    clock.advance(gapUs / 1000)
    const reservation = reserve(cost, maxWaitUs)
    if (reservation.allowed && cost > 0) {
      const actUs = clock.nowUs() + Math.round(reservation.waitMs * 1000)
      booked.push({ actUs, cost, reservation, given: 0, givenUs: 0, verb: 'none' })
    }
    const chosen = booked[victim % Math.max(1, booked.length)]
    if (chosen === undefined || verb === 'none') continue
    const given = chosen.reservation[verb]()
    if (given === 0) continue
    chosen.given = given
    chosen.givenUs = clock.nowUs()
    chosen.verb = clock.nowUs() < chosen.actUs ? 'cancel' : 'refund'
  }
  return booked
}

function replay(
  script: readonly { gapUs: number; cost: number; maxWaitUs: number }[],
  clock: ManualClock,
  reserve: Reserve,
) {
  for (const { gapUs, cost, maxWaitUs } of script) {
    clock.advance(gapUs / 1000)
    reserve(cost, maxWaitUs)
  }
}

/**
 * Checks that every window from one grant to another holds at most the bound of its span. The instant of a booking is
 * rounded up to a microsecond, so a window over bookings is a microsecond longer. The bound may depend on the largest
 * booking, even if that was cancelled or refunded.
 */
function expectWithinBound(
  { promise }: Pick<LawfulAlgorithm, 'promise'>,
  algorithm: Algorithm,
  grants: readonly Grant[],
  largestBooked?: number,
): void {
  const booked = largestBooked !== undefined
  const demand = { asks: grants.length, largest: largestBooked ?? largestOf(grants), booked }
  const inOrder = grants.toSorted((a, b) => a.actUs - b.actUs || b.cost - a.cost)
  for (const [first, { actUs: fromUs }] of inOrder.entries()) {
    let granted = 0
    for (const [index, { actUs, cost }] of inOrder.entries()) {
      if (index < first && actUs < fromUs) continue
      granted += cost
      if (inOrder[index + 1]?.actUs === actUs) continue
      const { permits, per } = promise(algorithm, actUs - fromUs + (booked ? 1 : 0), demand)
      const whole = BigInt(Math.floor(granted))
      const excess = Number(whole * per - permits) / Number(per) + (granted - Number(whole))
      expect(excess).toBeLessThanOrEqual(1e-9)
    }
  }
}

/** Smooth limiters truncate the time of a request to whole microseconds, and so the permits that come back. */
function truncatedBy({ args: [limit = 0, windowUs = 0] }: Algorithm): number {
  return (2 * limit) / windowUs
}

function largestOf(grants: readonly Grant[]): number {
  return Math.max(1, ...grants.map(({ cost }) => cost))
}

function check<T>(arbitrary: fc.Arbitrary<T>, law: (value: T) => void): void {
  fc.assert(fc.property(arbitrary, law), { numRuns: 200 })
}
