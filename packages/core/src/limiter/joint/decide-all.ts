import type { Booking } from '../../algorithms/algorithm.js'
import type { Decision } from '../../algorithms/decision.js'
import { coded } from '../../shared/errors.js'
import {
  type Answer,
  all,
  andThen,
  asAnswer,
  isPromise,
  type MaybePromise,
} from '../../shared/maybe-promise.js'
import type { Booked, Ladder, Ledger, Together } from '../../store/store.js'
import { strike } from '../internal-verbs.js'
import type { LedgerLimiter } from '../limiter-class.js'
import { type DecisionPart, JointDecision } from './joint-decision.js'

/*
 * Decides over several ledgers, all or none: every limiter decides first without taking permits; only if all of them grant,
 * permits are taken from each. On asynchronous stores another request may take them in between; then the permits that were
 * taken already are given back.
 */

/** How many permits of which key to take from a limiter. */
export interface JointAsk {
  readonly limiter: LedgerLimiter<boolean>
  readonly key: string
  readonly cost: number
  /** If true, the permits must be available but are not taken. */
  readonly isCheck?: boolean | undefined
}

/** Adds up the costs of asks of the same limiter and key. */
export function addUp<Ask extends JointAsk>(asks: readonly Ask[]): readonly Ask[] {
  const sums: Ask[] = []
  for (const ask of asks) {
    const same = sums.findIndex(sum => sum.limiter === ask.limiter && sum.key === ask.key)
    if (same === -1) sums.push(ask)
    else sums[same] = { ...(sums[same] as Ask), cost: ask.cost + (sums[same] as Ask).cost }
  }
  return sums
}

/** Decides all asks together; with `commit` all of them are charged, or none. With `books` the result has the bookings. */
export function decideJointly(
  asks: readonly JointAsk[],
  commit: boolean,
  books = false,
): MaybePromise<JointBooked> {
  if (asks.length === 1) return decideAlone(asks[0] as JointAsk, commit, books)
  const together = togetherOf(asks)
  if (together !== undefined) return decideTogether(together, asks, commit, books)
  return andThen(look(asks), decisions => {
    const decision = jointDecision(asks, decisions)
    return commit && decision.allowed ? charge(asks) : { decision }
  })
}

/** A single ask need not be checked before it is charged. */
function decideAlone(ask: JointAsk, commit: boolean, books: boolean): MaybePromise<JointBooked> {
  const { limiter, key, cost, isCheck = false } = ask
  const takes = commit && !isCheck
  const decided: MaybePromise<Booked> =
    takes && books
      ? limiter.ledger.book(key, cost, 0)
      : andThen<Decision, Booked>(limiter.ledger.decide(key, cost, 0, takes), decision => ({ decision }))
  return andThen(decided, booked => jointly([ask], [booked]))
}

/** Decides all asks in one call, if they are on one store that can do so. */
function togetherOf(asks: readonly JointAsk[]): Together | undefined {
  const together = asks[0]?.limiter.ledger.together
  if (together === undefined) return undefined
  return asks.every(({ limiter }) => limiter.ledger.together === together) ? together : undefined
}

async function decideTogether(
  together: Together,
  asks: readonly JointAsk[],
  commit: boolean,
  books: boolean,
): Promise<JointBooked> {
  const ofLedgers = asks.map(ask => ({ ...ask, ledger: ask.limiter.ledger }))
  return jointly(asks, await together.decide(ofLedgers, commit, books))
}

/** The decisions over all asks as one. */
function jointly(asks: readonly JointAsk[], booked: readonly Booked[]): JointBooked {
  const decisions = booked.map(({ decision }) => decision)
  return { decision: jointDecision(asks, decisions), booking: jointBooking(asks, booked) }
}

/** The bookings, each with its ask. */
function bookingsOf(asks: readonly JointAsk[], booked: readonly (Booked | undefined)[]) {
  return booked.flatMap((part, index) =>
    part?.booking === undefined ? [] : [{ ask: asks[index] as JointAsk, booking: part.booking }],
  )
}

function jointBooking(asks: readonly JointAsk[], booked: readonly Booked[]): JointBooking | undefined {
  const bookings = bookingsOf(asks, booked)
  const [first] = bookings
  return first && { ...first.booking, bookings }
}

function look(asks: readonly JointAsk[]): MaybePromise<Decision[]> {
  return all(asks, ({ limiter, key, cost }) => limiter.ledger.decide(key, cost, 0, false))
}

/** Counts and publishes a joint decision: a grant at all limiters, a refusal at those that refused. */
export function noteJointly(asks: readonly JointAsk[], decision: JointDecision): JointDecision {
  for (const [index, { limiter, key, cost, isCheck = false }] of asks.entries()) {
    const part = (decision.parts[index] as DecisionPart).decision
    if (decision.allowed ? !isCheck : !part.allowed) limiter.record(key, cost, part)
    if (decision.allowed && decision.waitUs > 0) limiter.countWait()
  }
  return decision
}

export interface JointBooked extends Booked {
  readonly decision: JointDecision
  readonly booking?: JointBooking | undefined
}

export interface JointBooking extends Booking {
  readonly bookings: readonly { readonly ask: JointAsk; readonly booking: Booking }[]
}

function charge(asks: readonly JointAsk[]): MaybePromise<JointBooked> {
  const asked = all(asks, ask => settled(() => take(ask)))
  return andThen(asked, outcomes => {
    const failure = outcomes.find(({ value }) => value === undefined)
    const booked = outcomes.flatMap(({ value }) => (value === undefined ? [] : [value]))
    if (failure === undefined && booked.every(({ decision }) => decision.allowed))
      return jointly(asks, booked)
    // Another request was faster, a store is full, or a store has failed.
    const taken = bookingsOf(
      asks,
      outcomes.map(({ value }) => value),
    )
    const given = all(taken, ({ ask, booking }) => settled(() => ask.limiter.ledger.refund(ask.key, booking)))
    return andThen(given, () => {
      if (failure !== undefined) throw failure.error
      return andThen(look(asks), now => ({
        decision: jointDecision(
          asks,
          booked.map(({ decision }, index) => (decision.allowed ? (now[index] as Decision) : decision)),
        ),
      }))
    })
  })
}

function take({ limiter: { ledger }, key, cost, isCheck }: JointAsk): MaybePromise<Booked> {
  if (!isCheck) return ledger.book(key, cost, 0)
  return andThen(ledger.decide(key, cost, 0, false), decision => ({ decision }))
}

function jointDecision(asks: readonly JointAsk[], decisions: readonly Decision[]): JointDecision {
  return new JointDecision(
    asks.map(({ limiter: { name, policy }, key, cost }, index) => {
      return { limiter: name, policy, key, cost, decision: decisions[index] as Decision }
    }),
  )
}

/** A ledger over several limiters, which asks each of them for a key. */
export class JointLedger<Async extends boolean> implements Ledger<Async> {
  readonly async: Async
  readonly #asksOf: (key: string, cost: number) => readonly JointAsk[]

  constructor(async: Async, asksOf: (key: string, cost: number) => readonly JointAsk[]) {
    this.async = async
    this.#asksOf = asksOf
  }

  decide(key: string, cost: number, _maxWaitUs: number, commit: boolean): Answer<Async, Decision> {
    return asAnswer(
      this.async,
      andThen(decideJointly(this.#asksOf(key, cost), commit), ({ decision }) => decision),
    )
  }

  book(key: string, cost: number): Answer<Async, Booked> {
    return asAnswer(this.async, decideJointly(this.#asksOf(key, cost), true, true))
  }

  cancel(_key: string, booking: Booking): Answer<Async, number> {
    return this.#giveBack(booking as JointBooking, 'cancel')
  }

  refund(_key: string, booking: Booking): Answer<Async, number> {
    return this.#giveBack(booking as JointBooking, 'refund')
  }

  /** Skips members without a limit, which have nothing to give back. */
  release(key: string, permits: number): Answer<Async, number> {
    const limited = this.#asksOf(key, 1).filter(({ limiter }) => limiter.policy.limit < Infinity)
    const given = all(limited, ask => ask.limiter.release(ask.key, permits))
    return asAnswer(
      this.async,
      andThen(given, given => (given.length === 0 ? 0 : Math.min(...given))),
    )
  }

  /** Takes from each member as many permits as all of them have. */
  drain(key: string): Answer<Async, number> {
    const drained = andThen(decideJointly(this.#asksOf(key, 0), false), ({ decision: { remaining } }) => {
      if (remaining === 0 || remaining === Infinity) return 0
      const taken = decideJointly(this.#asksOf(key, remaining), true)
      return andThen(taken, ({ decision }) => (decision.allowed ? remaining : 0))
    })
    return asAnswer(this.async, drained)
  }

  block(key: string, forUs: number): Answer<Async, void> {
    return this.#each(key, ask => ask.limiter.block(ask.key, forUs / 1000))
  }

  unblock(key: string): Answer<Async, void> {
    return this.#each(key, ask => ask.limiter.unblock(ask.key))
  }

  /** Counts a refusal at every member. */
  strike(key: string, ladder: Ladder): Answer<Async, number> {
    const left = all(this.#asksOf(key, 1), ask => strike(ask.limiter, ask.key, ladder))
    return asAnswer(
      this.async,
      andThen(left, left => Math.max(...left)),
    )
  }

  reset(key: string): Answer<Async, void> {
    return this.#each(key, ask => ask.limiter.reset(ask.key))
  }

  update(): Answer<Async, void> {
    throw coded(
      new TypeError('update: a combination has no options of its own; update its limiters'),
      'SLUICE_INVALID_LIMITER',
      'update',
    )
  }

  #each(key: string, act: (ask: JointAsk) => MaybePromise<void>): Answer<Async, void> {
    return asAnswer(
      this.async,
      andThen(all(this.#asksOf(key, 1), act), () => {}),
    )
  }

  #giveBack({ bookings }: JointBooking, verb: 'cancel' | 'refund'): Answer<Async, number> {
    const given = all(bookings, ({ ask, booking }) => ask.limiter.giveBack(ask.key, booking, verb))
    return asAnswer(
      this.async,
      andThen(given, given => Math.max(...given)),
    )
  }
}

interface Outcome<T> {
  readonly value?: T
  readonly error?: unknown
}

function settled<T>(act: () => MaybePromise<T>): MaybePromise<Outcome<T>> {
  const failed = (error: unknown) => ({ error: error ?? new Error('a store has failed') })
  try {
    const answer = act()
    if (!isPromise(answer)) return { value: answer }
    return (answer as PromiseLike<T>).then(value => ({ value }), failed)
  } catch (error) {
    return failed(error)
  }
}
