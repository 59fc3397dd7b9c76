import type { Decision } from '../algorithms/decision.js'
import { type Answer, afterwards, answerOf } from '../shared/maybe-promise.js'
import type { Booked, Ledger } from '../store/store.js'

/**
 * A decision that can be given back.
 *
 * Whoever holds a granted one acts `waitMs` after it was made. Of `cancel` and `refund` the first that has an effect
 * is the last: permits come back once.
 *
 * @example
 * const booking = limiter.reserve('import', { cost: 2, maxWait: '10s' })
 * if (booking.allowed) setTimeout(work, booking.waitMs)
 * booking.cancel() // before its time: changed my mind
 * booking.refund() // at any time: gives back what has not refilled by itself
 */
export interface Reservation<Async extends boolean = boolean> extends Decision {
  /**
   * Before its instant: gives back the permits less those booked after it, so that nobody else's slot moves. Returns
   * the permits given back; 0 once its instant has passed.
   */
  cancel(): Answer<Async, number>
  /** At any time: gives back the permits that have not refilled by themselves yet. Returns the permits given back. */
  refund(): Answer<Async, number>
}

/** A decision with what was booked, if anything; `onReturn` hears of permits that come back. */
export function reservationOf<Async extends boolean>(
  ledger: Ledger<Async>,
  key: string,
  { decision, booking }: Booked,
  onReturn: (permits: number) => void,
): Reservation<Async> {
  let held = booking
  const giveBack = (verb: 'cancel' | 'refund'): Answer<Async, number> => {
    const booking = held
    if (booking === undefined) return answerOf(ledger.async, 0)
    // Taken out before the store is asked, so that two calls at once cannot both give back.
    held = undefined
    return afterwards<Async, number, number>(ledger[verb](key, booking), permits => {
      if (permits === 0) held = booking
      else if (permits > 0) onReturn(permits)
      return permits || 0
    })
  }
  // Whatever kind of decision it is.
  return Object.assign(Object.create(decision) as Decision, {
    cancel: () => giveBack('cancel'),
    refund: () => giveBack('refund'),
  })
}
