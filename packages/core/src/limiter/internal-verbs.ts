import type { Decision } from '../algorithms/decision.js'
import { type Answer, andThen, type MaybePromise } from '../shared/maybe-promise.js'
import type { Booked, Ladder } from '../store/store.js'
import { checkDecision, type LedgerLimiter } from './limiter-class.js'

/*
 * What HTTP and combinations do with a limiter, beyond the verbs of its interface. Functions and not methods, so that a
 * program without HTTP does not load them.
 */

/** Like `tryAcquire`, and returns the booking, which is needed to give the permits back. */
export function take<Async extends boolean>(
  limiter: LedgerLimiter<Async>,
  key: string,
  cost: number,
): Answer<Async, Booked> {
  return andThen<Async, Booked, Booked>(limiter.ledger.book(key, cost, 0), booked => {
    limiter.record(key, cost, booked?.decision)
    return booked
  })
}

/** Like `peek`, and records a refusal. */
export function check<Async extends boolean>(
  limiter: LedgerLimiter<Async>,
  key: string,
  cost: number,
): Answer<Async, Decision> {
  return andThen<Async, Decision, Decision>(limiter.ledger.decide(key, cost, 0, false), decision => {
    checkDecision(decision)
    return decision.allowed ? decision : limiter.record(key, cost, decision)
  })
}

/**
 * Takes permits for work that is done already. If there are too few, takes them as a debt of at most one window, or all
 * that are available if the algorithm cannot book ahead.
 */
export function charge(limiter: LedgerLimiter<boolean>, key: string, cost: number): MaybePromise<unknown> {
  const { bookable, policy } = limiter.algorithm
  const maxWaitUs = bookable ? (policy.windowMs ?? 0) * 1000 : 0
  return andThen<Decision, unknown>(limiter.ledger.decide(key, cost, maxWaitUs, true), decision =>
    decision.allowed ? limiter.record(key, cost, decision) : limiter.drain(key),
  )
}

/** Counts a refusal on a ladder. Returns how long the key is blocked now, in microseconds. */
export function strike<Async extends boolean>(
  limiter: LedgerLimiter<Async>,
  key: string,
  ladder: Ladder,
): Answer<Async, number> {
  return andThen<Async, number, number>(limiter.ledger.strike(key, ladder), leftUs => {
    if (leftUs > 0) limiter.keyBlocked(key, leftUs)
    return leftUs
  })
}
