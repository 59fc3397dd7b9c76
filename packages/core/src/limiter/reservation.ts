import type { Booking } from '../algorithms/algorithm.js'
import type { Decision } from '../algorithms/decision.js'
import { type Answer, andThen, asAnswer } from '../shared/maybe-promise.js'
import type { Booked } from '../store/store.js'

/**
 * A decision whose permits can be given back.
 *
 * If it is granted, wait `waitMs` before acting. Call `cancel` or `refund` to give the permits back; after one of them has
 * returned permits, both return 0.
 *
 * @example
 * const booking = limiter.reserve('import', { cost: 2, maxWait: '10s' })
 * if (booking.allowed) setTimeout(work, booking.waitMs)
 * booking.cancel() // before its instant: the work is not needed any more
 * booking.refund() // at any time: gives back what has not refilled by itself
 */
export interface Reservation<Async extends boolean = boolean> extends Decision {
  /**
   * Before the reserved instant: gives back the permits less those booked after it, so that no other reservation moves.
   * Returns the permits given back; 0 once the instant has passed.
   */
  cancel(): Answer<Async, number>
  /** At any time: gives back the permits that have not refilled by themselves. Returns the permits given back. */
  refund(): Answer<Async, number>
}

/** The part of a limiter that takes permits back. */
interface TakesBack<Async extends boolean> {
  readonly ledger: { readonly async: Async }
  giveBack(key: string, booking: Booking, verb: 'cancel' | 'refund'): Answer<Async, number>
}

/** Adds `cancel` and `refund` to a decision. */
export function reservationOf<Async extends boolean>(
  limiter: TakesBack<Async>,
  key: string,
  { decision, booking }: Booked,
): Reservation<Async> {
  let left = booking
  const giveBack = (verb: 'cancel' | 'refund'): Answer<Async, number> => {
    const booking = left
    if (booking === undefined) return asAnswer(limiter.ledger.async, 0)
    // Cleared before the store answers, so that two calls at once cannot both give back.
    left = undefined
    return andThen<Async, number, number>(limiter.giveBack(key, booking, verb), permits => {
      if (permits === 0) left = booking
      // NaN: the store has failed, and the permits count as given back.
      return permits || 0
    })
  }
  // A copy of the same class, because a store may return one decision several times.
  const copy: Decision = Object.create(Object.getPrototypeOf(decision))
  return Object.assign(copy, decision, {
    cancel: () => giveBack('cancel'),
    refund: () => giveBack('refund'),
  })
}
