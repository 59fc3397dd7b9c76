import { type Algorithm, createLimiter, type Limiter, type Reservation } from '@sluice/core'
import { type ManualClock, manualClock } from '@sluice/core/testing'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { ALGORITHMS, type LawfulAlgorithm } from '../support/algorithms.js'
import { asks, cost, gapUs, maxWaitUs } from '../support/scripts.js'
import { STORES } from '../support/stores.js'

const MATRIX = STORES.flatMap(store =>
  ALGORITHMS.map(lawful => ({ ...lawful, store, label: `${lawful.name} on ${store.name}` })),
)

describe.each(MATRIX)('the laws of a limiter: $label', ({ algorithm: arbitrary, promise, store }) => {
  /** A limiter and its clock, made anew for every run. */
  function open(algorithm: Algorithm) {
    const clock = manualClock()
    return { clock, limiter: createLimiter(algorithm, { clock, store: store.open() }) }
  }

  test('never more than is promised in any window, whatever is booked and cancelled', () => {
    check(fc.tuple(arbitrary, actions()), ([algorithm, script]) => {
      const { clock, limiter } = open(algorithm)
      const held = perform(script, clock, limiter).filter(({ verb }) => verb === 'none')
      expectWithinPromise(promise, algorithm, held, 1)
    })
  })

  test('a cancelled booking moves nobody who waits: the promise holds in a crowd', () => {
    check(fc.tuple(arbitrary, crowd()), ([algorithm, script]) => {
      const { clock, limiter } = open(algorithm)
      const held = perform(script, clock, limiter).filter(({ verb }) => verb === 'none')
      expectWithinPromise(promise, algorithm, held, 1)
    })
  })

  test('never more than is promised in any window, less what is refunded in it', () => {
    check(fc.tuple(arbitrary, actions(true)), ([algorithm, script]) => {
      const { clock, limiter } = open(algorithm)
      const booked = perform(script, clock, limiter)
      const held = booked.filter(({ verb }) => verb !== 'cancel')
      const refunds = booked.filter(({ verb }) => verb === 'refund')
      const returns = refunds.map(({ givenUs, given }) => ({ actUs: givenUs, cost: -given }))
      expectWithinPromise(promise, algorithm, [...held, ...returns], 1)
    })
  })

  test('never more than is promised in any window, to the microsecond, for those who do not wait', () => {
    check(fc.tuple(arbitrary, asks()), ([algorithm, script]) => {
      const { clock, limiter } = open(algorithm)
      const grants: Grant[] = []
      for (const { gapUs, cost } of script) {
        clock.advance(gapUs / 1000)
        if (limiter.tryAcquire('key', { cost }).allowed) grants.push({ actUs: clock.nowUs(), cost })
      }
      expectWithinPromise(promise, algorithm, grants, 0)
    })
  })

  test('time that goes back earns nothing', () => {
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
      expectWithinPromise(promise, algorithm, grants, 0)
    })
  })

  test('a cancelled or refunded booking frees at most what it took, and once', () => {
    check(fc.tuple(arbitrary, actions(true)), ([algorithm, script]) => {
      const { clock, limiter } = open(algorithm)
      for (const { cost, reservation, given } of perform(script, clock, limiter)) {
        expect(given).toBeGreaterThanOrEqual(0)
        expect(given).toBeLessThanOrEqual(cost)
        if (given > 0) expect([reservation.cancel(), reservation.refund()]).toEqual([0, 0])
      }
    })
  })

  test('what is given back is what the balance grows by', () => {
    check(fc.tuple(arbitrary, asks(20), cost(), maxWaitUs(), asks(3), fc.boolean()), scenario => {
      const [algorithm, before, cost, maxWaitUs, after, refunds] = scenario
      const { clock, limiter } = open(algorithm)
      replay(before, clock, limiter)
      const booking = limiter.reserve('key', { cost, maxWait: maxWaitUs / 1000 })
      replay(after, clock, limiter)
      const balance = limiter.peek('key').balance
      const given = refunds ? booking.refund() : booking.cancel()
      if (balance !== Infinity) expect(limiter.peek('key').balance - balance).toBeCloseTo(given, 6)
    })
  })

  test('keys do not touch each other', () => {
    const script = fc.array(
      fc.record({ key: fc.constantFrom('a', 'b', '__proto__'), gapUs: gapUs(), cost: cost() }),
    )
    check(fc.tuple(arbitrary, script), ([algorithm, script]) => {
      const clock = manualClock()
      const shared = createLimiter(algorithm, { clock, store: store.open() })
      const alone = new Map<string, Limiter<false>>()
      for (const { key, gapUs, cost } of script) {
        clock.advance(gapUs / 1000)
        const own = alone.get(key) ?? createLimiter(algorithm, { clock, store: store.open() })
        alone.set(key, own)
        expect(shared.tryAcquire(key, { cost }).toJSON()).toEqual(own.tryAcquire(key, { cost }).toJSON())
      }
    })
  })

  test('a key that was reset is one never seen', () => {
    check(fc.tuple(arbitrary, asks(20), asks(10)), ([algorithm, before, after]) => {
      const { clock, limiter } = open(algorithm)
      replay(before, clock, limiter)
      limiter.reset('key')
      const fresh = createLimiter(algorithm, { clock })
      for (const { gapUs, cost, maxWaitUs } of after) {
        clock.advance(gapUs / 1000)
        const options = { cost, maxWait: maxWaitUs / 1000 }
        expect(limiter.reserve('key', options).toJSON()).toEqual(fresh.reserve('key', options).toJSON())
      }
    })
  })

  test('update converts and never mints', () => {
    const changes = fc.array(fc.tuple(arbitrary, asks(10)), { minLength: 1, maxLength: 4 })
    check(fc.tuple(arbitrary, asks(20), changes), ([algorithm, before, changes]) => {
      const { clock, limiter } = open(algorithm)
      replay(before, clock, limiter)
      for (const [next, script] of changes) {
        const { balance, resetAfterMs } = limiter.peek('key')
        limiter.update(next)
        const updated = limiter.peek('key')
        if (resetAfterMs > 0) expect(updated.balance).toBeLessThanOrEqual(balance + 1e-6)
        else expect(updated.balance).toBe(next.policy.limit)
        replay(script, clock, limiter)
      }
    })
  })
})

/** Permits that pass at an instant; a negative cost is what came back then. */
interface Grant {
  readonly actUs: number
  readonly cost: number
}

/** A booking, and what became of it: held, given up before its instant, or refunded afterwards. */
interface Booked extends Grant {
  readonly reservation: Reservation<false>
  given: number
  givenUs: number
  verb: 'none' | 'cancel' | 'refund'
}

interface Action {
  readonly gapUs: number
  readonly cost: number
  readonly maxWaitUs: number
  /** Which of the bookings made so far is given back after this ask. */
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

/** Many who wait long, close together, and some of them give up. */
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

function perform(script: readonly Action[], clock: ManualClock, limiter: Limiter<false>): Booked[] {
  const booked: Booked[] = []
  for (const { gapUs, cost, maxWaitUs, victim, verb } of script) {
    clock.advance(gapUs / 1000)
    const reservation = limiter.reserve('key', { cost, maxWait: maxWaitUs / 1000 })
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
  limiter: Limiter<false>,
) {
  for (const { gapUs, cost, maxWaitUs } of script) {
    clock.advance(gapUs / 1000)
    limiter.reserve('key', { cost, maxWait: maxWaitUs / 1000 })
  }
}

/**
 * Every window that starts with one grant and ends with another holds at most what is promised for its span. The instant
 * of a booking is rounded up to a microsecond; `roundedUs` allows for it.
 */
function expectWithinPromise(
  promise: LawfulAlgorithm['promise'],
  algorithm: Algorithm,
  grants: readonly Grant[],
  roundedUs: number,
): void {
  const inOrder = grants.toSorted((a, b) => a.actUs - b.actUs || b.cost - a.cost)
  for (const [first, { actUs: fromUs }] of inOrder.entries()) {
    let granted = 0
    for (const [index, { actUs, cost }] of inOrder.entries()) {
      if (index < first && actUs < fromUs) continue
      granted += cost
      if (inOrder[index + 1]?.actUs === actUs) continue
      const { permits, per } = promise(algorithm, actUs - fromUs + roundedUs)
      const whole = BigInt(Math.floor(granted))
      const excess = Number(whole * per - permits) / Number(per) + (granted - Number(whole))
      expect(excess).toBeLessThanOrEqual(1e-9)
    }
  }
}

function check<T>(arbitrary: fc.Arbitrary<T>, law: (value: T) => void): void {
  fc.assert(fc.property(arbitrary, law), { numRuns: 200 })
}
