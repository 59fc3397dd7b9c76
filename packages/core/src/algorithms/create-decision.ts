import { invalid } from '../shared/errors.js'
import { Decision, type DecisionCode, FixedGauge } from './decision.js'

/** What a decision is made of. Times are durations in whole microseconds from the decision on; Infinity means never. */
export interface NewDecision {
  /** The most permits that a rested key grants at once, one by one. */
  readonly limit: number
  /** Permits left after this decision; negative while permits of the future are booked. */
  readonly balance: number
  /** 0, the default, is a grant. Above 0 is a refusal: until the same request would be granted. */
  readonly retryAfterUs?: number | undefined
  /** On a grant the wait before the caller acts, on a refusal until the cost is there; default `retryAfterUs`. */
  readonly waitUs?: number | undefined
  /** Until `remaining` grows by one; default 0, which says that it is full. */
  readonly refillAfterUs?: number | undefined
  /** Until the key decides like one never seen; default 0. */
  readonly resetAfterUs?: number | undefined
  /** Why the decision is not the algorithm's usual one. */
  readonly code?: DecisionCode | undefined
}

/**
 * Makes the decision of an algorithm of your own; see `Algorithm` for a complete one.
 *
 * All durations are whole microseconds, 0 by default; `remaining` is the balance, rounded down to 0 or more permits.
 * Throws a TypeError or RangeError for a number that is not valid, and for a grant whose wait never ends.
 *
 * @example
 * createDecision({ limit: 10, balance: 9, refillAfterUs: 1_000_000, resetAfterUs: 1_000_000 }) // granted
 * createDecision({ limit: 10, balance: 0, retryAfterUs: 250_000, refillAfterUs: 250_000 }) // refused
 */
export function createDecision(parts: NewDecision): Decision {
  const { limit, balance, retryAfterUs = 0, waitUs = retryAfterUs } = parts
  const { refillAfterUs = 0, resetAfterUs = 0, code } = parts
  if (typeof limit !== 'number' || !(limit >= 0))
    throw wrong('limit', 'a number of permits, 0 or more', limit)
  if (typeof balance !== 'number' || Number.isNaN(balance))
    throw wrong('balance', 'a number of permits', balance)
  checkDuration('retryAfterUs', retryAfterUs)
  checkDuration('waitUs', waitUs)
  checkDuration('refillAfterUs', refillAfterUs)
  checkDuration('resetAfterUs', resetAfterUs)
  if (retryAfterUs === 0 && waitUs === Infinity) throw wrong('waitUs', 'the finite wait of a grant', waitUs)
  const gauge = new FixedGauge({ limit, balance, refillAfterUs, resetAfterUs, code })
  return new Decision(gauge, waitUs, retryAfterUs, 0, 0)
}

function checkDuration(name: string, us: number): void {
  const isValid = us === Infinity || (Number.isSafeInteger(us) && us >= 0)
  if (!isValid) throw wrong(name, 'whole microseconds, 0 or more, or Infinity', us)
}

function wrong(name: string, expected: string, got: unknown): Error {
  return invalid(typeof got === 'number' ? RangeError : TypeError, name, expected, got)
}
