import type { Booking } from '../algorithms/algorithm.js'
import type { Decision } from '../algorithms/decision.js'
import { keyOf, lineOf } from '../limiter/joint/combine.js'
import {
  decideJointly,
  type JointAsk,
  type JointBooked,
  type JointBooking,
  noteJointly,
} from '../limiter/joint/decide-all.js'
import { JointDecision } from '../limiter/joint/joint-decision.js'
import { JointLimiter, ours } from '../limiter/joint/joint-limiter.js'
import type { Limiter, WaitOptions } from '../limiter/limiter.js'
import { LedgerLimiter } from '../limiter/limiter-class.js'
import { RateLimitedError } from '../limiter/rate-limited-error.js'
import { coded, type SluiceError } from '../shared/errors.js'
import { all, andThen, isPromise, type MaybePromise } from '../shared/maybe-promise.js'
import type { Booked } from '../store/store.js'
import { failedDecision, isStoreError } from '../store/store-error.js'
import { penalized } from './lifecycle/ladder.js'
import { AgeWatch } from './lifecycle/misuse-warning.js'
import { hasMet, meet } from './lifecycle/request-record.js'
import { onClose } from './lifecycle/response-end.js'
import { settleAtEnd } from './lifecycle/settle.js'
import type { Exchange, HttpOptions } from './options.js'
import { ClientKeys, type Host, type Message } from './request/client-key.js'
import { type Ask, Asker, isGone, jointAsks } from './request/resolve-ask.js'
import { isSettled, LONGEST_HOLD_MS, type PolicyRule, rulesOf } from './resolve-options.js'
import { type Verdict, Verdicts } from './response/report.js'

/**
 * Decides over requests: at once, or in a promise where the key, the cost, the choice or the store takes its time, or
 * where the request is held.
 */
export interface Guard<X extends Exchange> {
  (...exchange: X): MaybePromise<Verdict>
  /** The limiters that are not chosen for each request. */
  readonly limiters: readonly Limiter[]
  /** For a server that closes: ends the waits of held requests with an error of status 503. */
  close(): void
}

/**
 * Makes the decision function of an adapter. Throws for bad options as `rateLimit` does.
 *
 * The function throws, or its promise rejects, with what a callback has thrown or with an error of a stable code for what
 * a callback should not have returned; `key`, `cost` and `limiter` come before anything is charged.
 *
 * @example
 * const guard = createGuard({ limit: 100, window: '1m' }, {
 *   address: request => request.socket.remoteAddress,
 *   message: request => request,
 *   response: (request, response) => response,
 *   trusts: () => 'nobody',
 * })
 * const verdict = await guard(request, response)
 */
export function createGuard<X extends Exchange>(options: HttpOptions<X>, host: Host<X>): Guard<X> {
  const rules = rulesOf(options)
  const [only, ...others] = rules.policies as [PolicyRule<X>, ...PolicyRule<X>[]]
  const clients = new ClientKeys(host, rules.findClient, rules.ipv6Prefix)
  const asker = new Asker<X>(clients)
  const verdicts = new Verdicts(rules)
  const held = new Set<AbortController>()
  const age = new AgeWatch()
  const hasLadder = rules.policies.some(({ ladder }) => ladder !== undefined)

  // Each step goes on by a call while answers are at hand, and makes a promise only for one that is not.
  const guard = (...exchange: X): MaybePromise<Verdict> => {
    const [request] = exchange
    const message = host.message(request)
    age.see(message)
    if (rules.skipPreflight && isPreflight(message)) return SKIPPED
    if (rules.access !== undefined) {
      if (isGone(message)) return ABANDONED
      const word = rules.access(clients.addressOf(request, message))
      if (word === 'allow') return SKIPPED
      if (word === 'deny') return verdicts.denied(request)
    }
    if (others.length > 0)
      return andThen(
        all(rules.policies, rule => asker.ask(rule, request, message)),
        asks => decideAll(exchange, message, asks),
      )
    const ask = asker.ask(only, request, message)
    return isPromise(ask)
      ? ask.then(ask => decide(exchange, message, ask, NO_POLICIES))
      : decide(exchange, message, ask, NO_POLICIES)
  }
  const close = () => {
    for (const wait of held) wait.abort(coded(new Error('the server is closing'), 'SLUICE_CLOSED', 'maxWait'))
  }
  const limiters = rules.policies.flatMap(({ limiter }) => (typeof limiter === 'function' ? [] : [limiter]))
  return Object.assign(guard, { limiters, close })

  /** By one limiter; `idle` are policies of the route that ask nothing. */
  function decide(
    exchange: X,
    message: Message,
    ask: Ask<X> | undefined,
    idle: readonly PolicyRule<X>[],
  ): MaybePromise<Verdict> {
    const [request] = exchange
    if (isGone(message)) return ABANDONED
    if (ask === undefined) return SKIPPED
    const { rule, limiter, key, cost } = ask
    const members = limiter instanceof JointLimiter ? limiter.members : NO_MEMBERS
    if (members.some(member => hasMet(request, member, key)))
      return decideJoint(exchange, message, [ask], idle)
    if (hasMet(request, limiter, key)) return SKIPPED
    const conclude = (decision: Decision, booking?: Booking): MaybePromise<Verdict> => {
      if (isCharged(decision)) {
        meet(request, limiter, key)
        for (const member of members) meet(request, member, key)
        if (isSettled(rule)) settleAtEnd([{ ask, booking }], exchange, host.response(...exchange), message)
      }
      return hasLadder && !decision.allowed
        ? andThen(penalized([ask], decision, rules.dryRun), decision =>
            verdicts.of(request, [ask], decision, idle),
          )
        : verdicts.of(request, [ask], decision, idle)
    }
    const maxWaitMs =
      rules.dryRun || rule.countsAfter ? 0 : (rules.maxWaitMs ?? limiter.policy.maxWaitMs ?? 0)
    if (maxWaitMs > 0) return hold(exchange, message, limiter, key, cost, maxWaitMs, conclude)
    if (isSettled(rule)) return charge(ask, conclude)
    const decision = limiter.tryAcquire(key, cost === 1 ? undefined : { cost })
    return isPromise(decision)
      ? Promise.resolve(decision as PromiseLike<Decision>).then(conclude, error =>
          storeFailed(error, conclude),
        )
      : conclude(decision)
  }

  /** Takes what may be given back, or only looks whether it is there. */
  function charge({ rule, limiter, key, cost }: Ask<X>, conclude: Conclude): MaybePromise<Verdict> {
    const own = ours(limiter)
    const taken: MaybePromise<Booked> = rule.countsAfter
      ? andThen<Decision, Booked>(own.check(key, cost), decision => ({ decision }))
      : own.take(key, cost)
    return isPromise(taken)
      ? Promise.resolve(taken as PromiseLike<Booked>).then(
          ({ decision, booking }) => conclude(decision, booking),
          error => storeFailed(error, conclude),
        )
      : conclude(taken.decision, taken.booking)
  }

  /** By several policies. */
  function decideAll(
    exchange: X,
    message: Message,
    stated: readonly (Ask<X> | undefined)[],
  ): MaybePromise<Verdict> {
    const asks = stated.filter(ask => ask !== undefined)
    const idle = rules.policies.filter((_, index) => stated[index] === undefined)
    if (asks.length <= 1 || isGone(message)) return decide(exchange, message, asks[0], idle)
    return decideJoint(exchange, message, asks, idle)
  }

  /** By several limiters, all or none; one that comes twice, or was met before, counts once. */
  function decideJoint(
    exchange: X,
    message: Message,
    asks: readonly Ask<X>[],
    idle: readonly PolicyRule<X>[],
  ): MaybePromise<Verdict> {
    const [request] = exchange
    const joint = distinct(asks.flatMap(jointAsks)).filter(
      ({ limiter, key }) => !hasMet(request, limiter, key),
    )
    if (joint.length === 0) return SKIPPED
    const isOpen = joint.some(({ rule }) => isSettled(rule))
    const conclude = (decision: Decision, booking?: Booking): MaybePromise<Verdict> => {
      if (decision.allowed && decision instanceof JointDecision) {
        const charged = joint.filter((_, index) => isCharged(decision.parts[index]?.decision))
        for (const { limiter, key } of charged) meet(request, limiter, key)
        const charges = charged.map(ask => ({ ask, booking: bookingOf(ask, booking) }))
        if (isOpen) settleAtEnd(charges, exchange, host.response(...exchange), message)
      }
      return hasLadder
        ? andThen(penalized(joint, decision, rules.dryRun), decision =>
            verdicts.of(request, joint, decision, idle),
          )
        : verdicts.of(request, joint, decision, idle)
    }
    const wait = (maxWaitMs: number) =>
      hold(exchange, message, lineOf(joint), keyOf(joint), 1, maxWaitMs, conclude)
    const { maxWaitMs, dryRun } = rules
    if (maxWaitMs !== undefined && maxWaitMs > 0 && !dryRun) return wait(maxWaitMs)
    const decided = decideJointly(joint, true, isOpen)
    const goOn = ({ decision, booking }: JointBooked) => {
      const isHeld = maxWaitMs === undefined && !dryRun && !joint.some(({ rule }) => rule.countsAfter)
      const queueMs = isHeld ? queueOf(joint, decision) : 0
      return queueMs > 0 ? wait(queueMs) : conclude(noteJointly(joint, decision), booking)
    }
    return isPromise(decided)
      ? Promise.resolve(decided).then(goOn, error => storeFailed(error, conclude))
      : goOn(decided)
  }

  /** Waits for the permits, as long as the client does. */
  async function hold(
    exchange: X,
    message: Message,
    limiter: Limiter,
    key: string,
    cost: number,
    maxWaitMs: number,
    conclude: Conclude,
  ): Promise<Verdict> {
    const response = host.response(...exchange)
    // Answered already, while its key was looked for.
    if (response.writableEnded) return ABANDONED
    const wait = new AbortController()
    held.add(wait)
    const stopListening = onClose(response, message, () => wait.abort(ABANDONED))
    let outcome: Booked
    try {
      const maxWait = Math.min(maxWaitMs, LONGEST_HOLD_MS)
      outcome = await holdBy(limiter, key, { cost, maxWait, signal: wait.signal })
    } catch (error) {
      if (error === ABANDONED) return ABANDONED
      if (isStoreError(error)) return await storeFailed(error, conclude)
      // What all three frameworks make a 503 of.
      if ((error as Partial<SluiceError> | null)?.code === 'SLUICE_CLOSED')
        throw Object.assign(error as Error, { status: 503, statusCode: 503 })
      if (!(error instanceof RateLimitedError)) throw error
      outcome = error
    } finally {
      held.delete(wait)
      stopListening()
    }
    return conclude(outcome.decision, outcome.booking)
  }

  /** A store has failed, and its limiter leaves it to the route what that means. */
  function storeFailed(error: unknown, conclude: Conclude): MaybePromise<Verdict> {
    if (!isStoreError(error) || (rules.onStoreError === 'throw' && !rules.dryRun)) throw error
    return conclude(failedDecision(rules.dryRun || rules.onStoreError === 'allow'))
  }
}

/** What follows from a decision. */
type Conclude = (decision: Decision, booking?: Booking) => MaybePromise<Verdict>

/** A limiter that is not ours has nothing to give back. */
async function holdBy(limiter: Limiter, key: string, options: WaitOptions): Promise<Booked> {
  if (limiter instanceof LedgerLimiter) return limiter.hold(key, options)
  return { decision: await limiter.acquire(key, options) }
}

/** Whether permits were taken for a request; what is no decision is for others to complain of. */
function isCharged(decision: Decision | undefined): boolean {
  return decision?.allowed === true && decision.code !== 'SLUICE_STORE_ERROR'
}

/** What one of several asks has taken. */
function bookingOf({ limiter, key }: JointAsk, joint: Booking | undefined): Booking | undefined {
  const bookings = (joint as JointBooking | undefined)?.bookings
  return bookings?.find(({ ask }) => ask.limiter === limiter && ask.key === key)?.booking
}

/** How long a request is to wait unless told otherwise: as long as a queue is, if none but queues refuse it. */
function queueOf(asks: readonly JointAsk[], { allowed, parts }: JointDecision): number {
  if (allowed) return 0
  const refusing = asks.filter((_, index) => parts[index]?.decision.allowed === false)
  return Math.min(...refusing.map(({ limiter }) => limiter.policy.maxWaitMs ?? 0))
}

/** The first of those that ask the same limiter for the same key. */
function distinct<A extends JointAsk>(asks: readonly A[]): readonly A[] {
  return asks.filter(
    (ask, index) =>
      asks.findIndex(({ limiter, key }) => limiter === ask.limiter && key === ask.key) === index,
  )
}

const NO_POLICIES: readonly never[] = []
const NO_MEMBERS: readonly never[] = []
const SKIPPED: Verdict = { outcome: 'skipped' }
const ABANDONED: Verdict = { outcome: 'abandoned' }

function isPreflight({ method, headers }: Message): boolean {
  return (
    method === 'OPTIONS' &&
    headers.origin !== undefined &&
    headers['access-control-request-method'] !== undefined
  )
}
