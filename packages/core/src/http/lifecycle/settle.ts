import type { Booking } from '../../algorithms/algorithm.js'
import { andThen, isPromise, type MaybePromise } from '../../shared/maybe-promise.js'
import { warnOnce } from '../../shared/warnings.js'
import type { Ending, Exchange } from '../options.js'
import type { Message } from '../request/client-key.js'
import { type Ask, jointAsks } from '../request/resolve-ask.js'
import { type Closing, onAnswered, onEnd } from './response-end.js'

/*
 * What becomes of the permits of a request when it has ended. One that was charged may be given them back; one that is
 * counted after is charged now, unless it is spared.
 */

/** An ask that was granted. */
export interface Charge<X extends Exchange> {
  readonly ask: Ask<X>
  /** What was taken; undefined when nothing was, or nobody will ask for it. */
  readonly booking: Booking | undefined
}

/** Settles the charges of a request once its response is out or its client has gone. */
export function settleAtEnd<X extends Exchange>(
  charges: readonly Charge<X>[],
  exchange: X,
  response: Closing,
  message: Message,
): void {
  const late = charges.filter(({ ask }) => ask.rule.countsAfter)
  const early = charges.filter(({ ask: { rule }, booking }) => !rule.countsAfter && rule.refunds && booking)
  const settleAll = (charges: readonly Charge<X>[]) => (ending: Ending) => {
    for (const charge of charges) settle(charge, exchange, ending)
  }
  if (early.length > 0) onEnd(response, message, settleAll(early))
  // What is counted after counts before the next request, also where that is answered first.
  if (late.length > 0) onAnswered(response, message, settleAll(late))
}

function settle<X extends Exchange>({ ask, booking }: Charge<X>, exchange: X, ending: Ending): void {
  quietly(() =>
    andThen(isSpared(ask, exchange, ending), spared => {
      if (ask.rule.countsAfter) return spared ? undefined : chargeLate(ask)
      return spared && booking !== undefined ? giveBack(ask, booking) : undefined
    }),
  )
}

/** In the tick in which the response ends, where the store can: the next request finds it done. */
function giveBack<X extends Exchange>({ limiter, key }: Ask<X>, booking: Booking): unknown {
  return limiter.giveBack(key, booking)
}

/** Each limiter by itself: the request has been served. */
function chargeLate<X extends Exchange>(ask: Ask<X>): void {
  for (const { limiter, key, cost } of jointAsks(ask)) quietly(() => limiter.charge(key, cost))
}

function isSpared<X extends Exchange>({ rule }: Ask<X>, exchange: X, ending: Ending): MaybePromise<boolean> {
  try {
    const answer = rule.refunds === undefined ? false : andThen(rule.refunds(exchange, ending), stated)
    return isPromise(answer) ? answer.then(undefined, failed) : answer
  } catch (error) {
    return failed(error)
  }
}

/** What is no answer is none to give permits for. */
function stated(answer: unknown): boolean {
  if (typeof answer !== 'boolean') throw new TypeError('refund: expected true or false')
  return answer
}

/** The request has been answered, and nobody is there to be told. */
function failed(error: unknown): boolean {
  warnOnce(
    'SLUICE_REFUND_FAILED',
    () =>
      'A refund function has failed, and its request keeps what it was charged: ' +
      `${error instanceof Error ? error.name : typeof error}. It is to return true or false.`,
  )
  return false
}

/** A store that fails has its own ways to say so. */
function quietly(act: () => unknown): void {
  try {
    const done = act()
    if (isPromise(done)) done.then(undefined, () => {})
  } catch {}
}
