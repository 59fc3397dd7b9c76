import type { Booking } from '../algorithms/algorithm.js'
import type { Decision } from '../algorithms/decision.js'
import { check, take } from '../limiter/internal-verbs.js'
import { keyOf, lineOf } from '../limiter/joint/combine.js'
import {
  decideJointly,
  type JointAsk,
  type JointBooked,
  type JointBooking,
  noteJointly,
} from '../limiter/joint/decide-all.js'
import { isJoint, type JointDecision } from '../limiter/joint/joint-decision.js'
import type { Limiter } from '../limiter/limiter.js'
import type { LedgerLimiter } from '../limiter/limiter-class.js'
import { isRateLimited } from '../limiter/rate-limited-error.js'
import { coded, type SluiceError } from '../shared/errors.js'
import { all, andThen, isPromise, type MaybePromise } from '../shared/maybe-promise.js'
import type { Booked } from '../store/store.js'
import { failedDecision, isStoreError } from '../store/store-error.js'
import { LONGEST_WAIT_MS } from './check-options.js'
import { countRefusal } from './lifecycle/ladder.js'
import { limiterCountWarning, newMiddlewareWarning } from './lifecycle/misuse-warning.js'
import { recordCharge, wasCharged } from './lifecycle/request-record.js'
import { onClose } from './lifecycle/response-end.js'
import { settleAtEnd } from './lifecycle/settle.js'
import type { Exchange, HttpOptions } from './options.js'
import { createClients } from './request/client-key.js'
import { nodeNet } from './request/node-net.js'
import { createResolveAsk, isGone, jointAsks } from './request/resolve-ask.js'
import { resolveOptions } from './resolve-options.js'
import { createVerdicts } from './response/verdict.js'
import type { Ask, Host, Message, PolicyRule, Verdict } from './types.js'

/**
 * Decides about a request. Returns a promise only if a callback or the store returns one, or if the request waits for
 * permits.
 */
export interface Guard<X extends Exchange> {
  (...exchange: X): MaybePromise<Verdict>
  /** The limiters of the route, except those that a function chooses for each request. */
  readonly limiters: readonly Limiter[]
  /** Ends the wait of every waiting request with an error of status 503. Call it when the server closes. */
  close(): void
}

/**
 * Makes the decision function of an adapter. Throws for invalid options, as `rateLimit` does.
 *
 * The decision function throws, or its promise rejects, with the error of a callback, or with an error with a `code` if a
 * callback returned an invalid value. `key`, `cost` and `limiter` are called before anything is charged.
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
  const rules = resolveOptions(options)
  const [only, ...others] = rules.policies as [PolicyRule<X>, ...PolicyRule<X>[]]
  // The default key needs node:net: throw now, not at the first request.
  if (rules.policies.some(({ key }) => key === undefined)) nodeNet('key')
  const clients = createClients(host, rules.findClient, rules.ipv6Prefix)
  const resolveAsk = createResolveAsk<X>(clients, limiterCountWarning())
  const verdicts = createVerdicts(rules)
  const waiting = new Set<AbortController>()
  const warnIfNew = newMiddlewareWarning()
  const hasLadder = rules.policies.some(({ ladder }) => ladder !== undefined)

  // No step makes a promise unless it has to wait for one.
  const guard = (...exchange: X): MaybePromise<Verdict> => {
    const [request] = exchange
    const message = host.message(request)
    warnIfNew(message)
    if (rules.skipPreflight && isPreflight(message)) return SKIPPED
    if (rules.access !== undefined) {
      if (isGone(message)) return ABANDONED
      const access = rules.access(clients.addressOf(request, message))
      if (access === 'allow') return SKIPPED
      if (access === 'deny') return verdicts.denied(request)
    }
    if (others.length > 0)
      return andThen(
        all(rules.policies, rule => resolveAsk(rule, request, message)),
        asks => decideAll(exchange, message, asks),
      )
    const ask = resolveAsk(only, request, message)
    return isPromise(ask)
      ? ask.then(ask => decide(exchange, message, ask, NO_POLICIES))
      : decide(exchange, message, ask, NO_POLICIES)
  }
  const close = () => {
    for (const controller of waiting)
      controller.abort(coded(new Error('the server is closing'), 'SLUICE_CLOSED', 'maxWait'))
  }
  const limiters = rules.policies.flatMap(({ limiter }) => (typeof limiter === 'function' ? [] : [limiter]))
  return Object.assign(guard, { limiters, close })

  /** Decides with a single limiter. `unused` lists the route's policies that do not apply to this request. */
  function decide(
    exchange: X,
    message: Message,
    ask: Ask<X> | undefined,
    unused: readonly PolicyRule<X>[],
  ): MaybePromise<Verdict> {
    const [request] = exchange
    if (isGone(message)) return ABANDONED
    if (ask === undefined) return SKIPPED
    const { rule, limiter, key, cost } = ask
    const { members } = limiter
    if (members.some(member => wasCharged(request, member, key)))
      return decideJoint(exchange, message, [ask], unused)
    if (wasCharged(request, limiter, key)) return SKIPPED
    const conclude = (decision: Decision, booking?: Booking): MaybePromise<Verdict> => {
      if (isCharged(decision)) {
        recordCharge(request, limiter, key)
        for (const member of members) recordCharge(request, member, key)
        if (rule.settlesAtEnd) settleAtEnd([{ ask, booking }], exchange, host.response(...exchange), message)
      }
      return hasLadder && !decision.allowed
        ? andThen(countRefusal([ask], decision, rules.dryRun), decision =>
            verdicts.of(request, [ask], decision, unused),
          )
        : verdicts.of(request, [ask], decision, unused)
    }
    const maxWaitMs =
      rules.dryRun || rule.countsAfter ? 0 : (rules.maxWaitMs ?? limiter.policy.maxWaitMs ?? 0)
    if (maxWaitMs > 0) return wait(exchange, message, limiter, key, cost, maxWaitMs, conclude)
    if (rule.settlesAtEnd) return charge(ask, conclude)
    const decision = limiter.tryAcquire(key, cost === 1 ? undefined : { cost })
    return isPromise(decision)
      ? Promise.resolve(decision as PromiseLike<Decision>).then(conclude, error =>
          storeFailed(error, conclude),
        )
      : conclude(decision)
  }

  /** Takes permits that may be refunded, or with `countsAfter` only checks that they are available. */
  function charge({ rule, limiter, key, cost }: Ask<X>, conclude: Conclude): MaybePromise<Verdict> {
    const taken: MaybePromise<Booked> = rule.countsAfter
      ? andThen<Decision, Booked>(check(limiter, key, cost), decision => ({ decision }))
      : take(limiter, key, cost)
    return isPromise(taken)
      ? Promise.resolve(taken as PromiseLike<Booked>).then(
          ({ decision, booking }) => conclude(decision, booking),
          error => storeFailed(error, conclude),
        )
      : conclude(taken.decision, taken.booking)
  }

  /** Decides with several policies. `resolved` has undefined for a policy that does not apply to this request. */
  function decideAll(
    exchange: X,
    message: Message,
    resolved: readonly (Ask<X> | undefined)[],
  ): MaybePromise<Verdict> {
    const asks = resolved.filter(ask => ask !== undefined)
    const unused = rules.policies.filter((_, index) => resolved[index] === undefined)
    if (asks.length <= 1 || isGone(message)) return decide(exchange, message, asks[0], unused)
    return decideJoint(exchange, message, asks, unused)
  }

  /** Decides with several limiters, all or none. A limiter counts a request with the same key once. */
  function decideJoint(
    exchange: X,
    message: Message,
    asks: readonly Ask<X>[],
    unused: readonly PolicyRule<X>[],
  ): MaybePromise<Verdict> {
    const [request] = exchange
    const joint = distinct(asks.flatMap(jointAsks)).filter(
      ({ limiter, key }) => !wasCharged(request, limiter, key),
    )
    if (joint.length === 0) return SKIPPED
    const settlesAtEnd = joint.some(({ rule }) => rule.settlesAtEnd)
    const conclude = (decision: Decision, booking?: Booking): MaybePromise<Verdict> => {
      if (decision.allowed && isJoint(decision)) {
        const charged = joint.filter((_, index) => isCharged(decision.parts[index]?.decision))
        for (const { limiter, key } of charged) recordCharge(request, limiter, key)
        const charges = charged.map(ask => ({ ask, booking: bookingOf(ask, booking) }))
        if (settlesAtEnd) settleAtEnd(charges, exchange, host.response(...exchange), message)
      }
      return hasLadder
        ? andThen(countRefusal(joint, decision, rules.dryRun), decision =>
            verdicts.of(request, joint, decision, unused),
          )
        : verdicts.of(request, joint, decision, unused)
    }
    const waitUpTo = (maxWaitMs: number) =>
      wait(exchange, message, lineOf(joint), keyOf(joint), 1, maxWaitMs, conclude)
    const { maxWaitMs, dryRun } = rules
    if (maxWaitMs !== undefined && maxWaitMs > 0 && !dryRun) return waitUpTo(maxWaitMs)
    const decided = decideJointly(joint, true, settlesAtEnd)
    const goOn = ({ decision, booking }: JointBooked) => {
      const mayWait = maxWaitMs === undefined && !dryRun && !joint.some(({ rule }) => rule.countsAfter)
      const queueMs = mayWait ? queueOf(joint, decision) : 0
      return queueMs > 0 ? waitUpTo(queueMs) : conclude(noteJointly(joint, decision), booking)
    }
    return isPromise(decided)
      ? Promise.resolve(decided).then(goOn, error => storeFailed(error, conclude))
      : goOn(decided)
  }

  /** Waits for permits until the client disconnects. */
  async function wait(
    exchange: X,
    message: Message,
    limiter: LedgerLimiter<boolean>,
    key: string,
    cost: number,
    maxWaitMs: number,
    conclude: Conclude,
  ): Promise<Verdict> {
    const response = host.response(...exchange)
    // Other code sent a response while a callback was awaited.
    if (response.writableEnded) return ABANDONED
    const controller = new AbortController()
    waiting.add(controller)
    const stopListening = onClose(response, message, () => controller.abort(ABANDONED))
    let outcome: Booked
    try {
      const maxWait = Math.min(maxWaitMs, LONGEST_WAIT_MS)
      outcome = await limiter.hold(key, { cost, maxWait, signal: controller.signal })
    } catch (error) {
      if (error === ABANDONED) return ABANDONED
      if (isStoreError(error)) return await storeFailed(error, conclude)
      // Express, Koa and Fastify answer such an error with status 503.
      if ((error as Partial<SluiceError> | null)?.code === 'SLUICE_CLOSED')
        throw Object.assign(error as Error, { status: 503, statusCode: 503 })
      if (!isRateLimited(error)) throw error
      outcome = error
    } finally {
      waiting.delete(controller)
      stopListening()
    }
    return conclude(outcome.decision, outcome.booking)
  }

  /** Applies the route's `onStoreError` to an error of the store. Throws any other error. */
  function storeFailed(error: unknown, conclude: Conclude): MaybePromise<Verdict> {
    if (!isStoreError(error) || (rules.onStoreError === 'throw' && !rules.dryRun)) throw error
    return conclude(failedDecision(rules.dryRun || rules.onStoreError === 'allow'))
  }
}

/** Applies a decision. */
type Conclude = (decision: Decision, booking?: Booking) => MaybePromise<Verdict>

/** Whether a request was charged. */
function isCharged(decision: Decision | undefined): boolean {
  return decision?.allowed === true && decision.code !== 'SLUICE_STORE_ERROR'
}

/** The part of a joint booking that belongs to one ask. */
function bookingOf({ limiter, key }: JointAsk, joint: Booking | undefined): Booking | undefined {
  const bookings = (joint as JointBooking | undefined)?.bookings
  return bookings?.find(({ ask }) => ask.limiter === limiter && ask.key === key)?.booking
}

/** How long a request waits by default: the length of the queue, if every limiter that refused it has one. */
function queueOf(asks: readonly JointAsk[], { allowed, parts }: JointDecision): number {
  if (allowed) return 0
  const refusing = asks.filter((_, index) => parts[index]?.decision.allowed === false)
  return Math.min(...refusing.map(({ limiter }) => limiter.policy.maxWaitMs ?? 0))
}

/** Leaves out asks that repeat the limiter and key of an earlier one. */
function distinct<A extends JointAsk>(asks: readonly A[]): readonly A[] {
  return asks.filter(
    (ask, index) =>
      asks.findIndex(({ limiter, key }) => limiter === ask.limiter && key === ask.key) === index,
  )
}

const NO_POLICIES: readonly never[] = []
const SKIPPED: Verdict = { outcome: 'skipped' }
const ABANDONED: Verdict = { outcome: 'abandoned' }

function isPreflight({ method, headers }: Message): boolean {
  return (
    method === 'OPTIONS' &&
    headers.origin !== undefined &&
    headers['access-control-request-method'] !== undefined
  )
}
