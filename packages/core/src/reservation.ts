import type { Booking } from './algorithm.js'
import { type Answer, afterwards, answerOf } from './answer.js'
import { Decision } from './decision.js'
import type { Booked, Ledger } from './store.js'

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

/** Books on a ledger and wraps what was booked; `onReturn` hears of permits that come back. */
export function reservationOf<Async extends boolean>(
  ledger: Ledger<Async>,
  key: string,
  cost: number,
  maxWaitUs: number,
  onReturn: (permits: number) => void,
): Answer<Async, Reservation<Async>> {
  return afterwards<Async, Booked, Reservation<Async>>(
    ledger.book(key, cost, maxWaitUs),
    ({ decision, booking }) => new LedgerReservation(decision, ledger, key, booking, onReturn),
  )
}

class LedgerReservation<Async extends boolean> extends Decision implements Reservation<Async> {
  readonly #ledger: Ledger<Async>
  readonly #key: string
  readonly #onReturn: (permits: number) => void
  #booking: Booking | undefined

  constructor(
    decision: Decision,
    ledger: Ledger<Async>,
    key: string,
    booking: Booking | undefined,
    onReturn: (permits: number) => void,
  ) {
    super(decision.gauge, decision.waitUs, decision.retryAfterUs, decision.first, decision.second)
    this.#ledger = ledger
    this.#key = key
    this.#booking = booking
    this.#onReturn = onReturn
  }

  cancel(): Answer<Async, number> {
    return this.#giveBack(booking => this.#ledger.cancel(this.#key, booking))
  }

  refund(): Answer<Async, number> {
    return this.#giveBack(booking => this.#ledger.refund(this.#key, booking))
  }

  #giveBack(act: (booking: Booking) => Answer<Async, number>): Answer<Async, number> {
    const booking = this.#booking
    if (booking === undefined) return answerOf(this.#ledger.async, 0)
    // Taken out before the store is asked, so that two calls at once cannot both give back.
    this.#booking = undefined
    return afterwards<Async, number, number>(act(booking), permits => {
      if (permits === 0) this.#booking = booking
      else if (permits > 0) this.#onReturn(permits)
      return permits || 0
    })
  }
}
