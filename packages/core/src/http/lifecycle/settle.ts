import type { Booking } from '../../algorithms/algorithm.js'
import { charge } from '../../limiter/internal-verbs.js'
import { andThen, isPromise, type MaybePromise } from '../../shared/maybe-promise.js'
import { warnOnce } from '../../shared/warnings.js'
import type { Ending, Exchange } from '../options.js'
import { jointAsks } from '../request/resolve-ask.js'
import type { Ask, Message, ObservedResponse } from '../types.js'
import { onAnswered, onEnd } from './response-end.js'

/*
 * Settles the permits of a request when it has ended: refunds what it was charged before, or charges it now if its policy
 * counts after the response.
 */

/** An ask that was granted. */
export interface Charge<X extends Exchange> {
  readonly ask: Ask<X>
  /** What was taken; undefined if nothing was, or if it is never refunded. */
  readonly booking: Booking | undefined
}

/** Settles charges once the response has been sent or the client has disconnected. */
export function settleAtEnd<X extends Exchange>(
  charges: readonly Charge<X>[],
  exchange: X,
  response: ObservedResponse,
  message: Message,
): void {
  const toCharge = charges.filter(({ ask }) => ask.rule.countsAfter)
  const toRefund = charges.filter(
    ({ ask: { rule }, booking }) => !rule.countsAfter && rule.refunds && booking,
  )
  const settleAll = (charges: readonly Charge<X>[]) => (ending: Ending) => {
    for (const charge of charges) settle(charge, exchange, ending)
  }
  if (toRefund.length > 0) onEnd(response, message, settleAll(toRefund))
  // Charged as soon as `end` is called, so that the client's next request already finds the permits taken.
  if (toCharge.length > 0) onAnswered(response, message, settleAll(toCharge))
}

function settle<X extends Exchange>({ ask, booking }: Charge<X>, exchange: X, ending: Ending): void {
  quietly(() =>
    andThen(isRefunded(ask, exchange, ending), refunded => {
      if (ask.rule.countsAfter) return refunded ? undefined : chargeAfter(ask)
      return refunded && booking !== undefined ? refund(ask, booking) : undefined
    }),
  )
}

/** Synchronous on a synchronous store: the next request finds the permits returned. */
function refund<X extends Exchange>({ limiter, key }: Ask<X>, booking: Booking): unknown {
  return limiter.giveBack(key, booking)
}

/** Charges each limiter by itself: all-or-nothing is for requests that can still be refused. */
function chargeAfter<X extends Exchange>(ask: Ask<X>): void {
  for (const { limiter, key, cost } of jointAsks(ask)) quietly(() => charge(limiter, key, cost))
}

function isRefunded<X extends Exchange>(
  { rule }: Ask<X>,
  exchange: X,
  ending: Ending,
): MaybePromise<boolean> {
  try {
    const answer = rule.refunds === undefined ? false : andThen(rule.refunds(exchange, ending), checkRefund)
    return isPromise(answer) ? answer.then(undefined, warnOfFailure) : answer
  } catch (error) {
    return warnOfFailure(error)
  }
}

function checkRefund(answer: unknown): boolean {
  if (typeof answer !== 'boolean') throw new TypeError('refund: expected true or false')
  return answer
}

/** A warning, because no response is left to report the error with. The text must not contain data of the request. */
function warnOfFailure(error: unknown): boolean {
  warnOnce(
    'SLUICE_REFUND_FAILED',
    () =>
      `A refund function failed (${error instanceof Error ? error.name : typeof error}), so its request keeps its charge. ` +
      'It must return true or false.',
  )
  return false
}

/** Ignores errors of a store: the limiter has already reported them. */
function quietly(act: () => unknown): void {
  try {
    const done = act()
    if (isPromise(done)) done.then(undefined, () => {})
  } catch {}
}
