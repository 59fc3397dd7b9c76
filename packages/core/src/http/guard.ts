import { isPromise, type MaybePromise, proceed } from '../answer.js'
import { keyOf, lineOf } from '../combine.js'
import type { Decision } from '../decision.js'
import { coded, type SluiceError } from '../errors.js'
import { failedDecision, isStoreError } from '../guarded-ledger.js'
import { JointDecision } from '../joint-decision.js'
import { decideJointly, every, type JointAsk, type JointBooked, noteJointly } from '../joint-ledger.js'
import { JointLimiter } from '../joint-limiter.js'
import type { Limiter } from '../limiter.js'
import { RateLimitedError } from '../rate-limited-error.js'
import { type Ask, Asker, isGone, jointAsks } from './asks.js'
import { ClientKeys, type Host, type Message } from './client.js'
import { AgeWatch } from './made-per-request.js'
import { hasMet, meet } from './meetings.js'
import { type Exchange, type HttpOptions, LONGEST_HOLD_MS, type PolicyRule, rulesOf } from './options.js'
import { type Verdict, Verdicts } from './verdicts.js'

/** What tells that a client hangs up: a response of node:http. */
export interface Closing {
  /** Whether it has been answered already. */
  readonly writableEnded?: boolean
  once(event: 'close', listener: () => void): unknown
  off(event: 'close', listener: () => void): unknown
}

/**
 * Decides over requests: at once, or in a promise where the key, the cost, the choice or the store takes its time, or
 * where the request is held.
 */
export interface Guard<Request> {
  (request: Request, response: Closing): MaybePromise<Verdict>
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
 *   trusts: () => 'nobody',
 * })
 * const verdict = await guard(request, response)
 */
export function createGuard<X extends Exchange>(options: HttpOptions<X>, host: Host<X[0]>): Guard<X[0]> {
  type Request = X[0]
  const rules = rulesOf(options)
  const [only, ...others] = rules.policies as [PolicyRule<X>, ...PolicyRule<X>[]]
  const asker = new Asker<X>(new ClientKeys(host, rules.findClient, rules.ipv6Prefix))
  const verdicts = new Verdicts(rules)
  const held = new Set<AbortController>()
  const age = new AgeWatch()

  // Each step goes on by a call while answers are at hand, and makes a promise only for one that is not.
  const guard = (request: Request, response: Closing): MaybePromise<Verdict> => {
    const message = host.message(request)
    age.see(message)
    if (rules.skipPreflight && isPreflight(message)) return SKIPPED
    if (others.length > 0)
      return proceed(
        every(rules.policies, rule => asker.ask(rule, request, message)),
        asks => decideAll(request, message, response, asks),
      )
    const ask = asker.ask(only, request, message)
    return isPromise(ask)
      ? ask.then(ask => decide(request, message, response, ask, NO_POLICIES))
      : decide(request, message, response, ask, NO_POLICIES)
  }
  const close = () => {
    for (const wait of held) wait.abort(coded(new Error('the server is closing'), 'SLUICE_CLOSED', 'maxWait'))
  }
  return Object.assign(guard, { close })

  /** By one limiter; `idle` are policies of the route that ask nothing. */
  function decide(
    request: Request,
    message: Message,
    response: Closing,
    ask: Ask<X> | undefined,
    idle: readonly PolicyRule<X>[],
  ): MaybePromise<Verdict> {
    if (isGone(message)) return ABANDONED
    if (ask === undefined) return SKIPPED
    const { limiter, key, cost } = ask
    const members = limiter instanceof JointLimiter ? limiter.members : NO_MEMBERS
    if (members.some(member => hasMet(request, member, key)))
      return decideJoint(request, message, response, [ask], idle)
    if (hasMet(request, limiter, key)) return SKIPPED
    const conclude = (decision: Decision) => {
      if (isCharged(decision)) {
        meet(request, limiter, key)
        for (const member of members) meet(request, member, key)
      }
      return verdicts.of(request, [ask], decision, idle)
    }
    const maxWaitMs = rules.dryRun ? 0 : (rules.maxWaitMs ?? limiter.policy.maxWaitMs ?? 0)
    if (maxWaitMs > 0) return hold(message, response, limiter, key, cost, maxWaitMs, conclude)
    const decision = limiter.tryAcquire(key, cost === 1 ? undefined : { cost })
    return isPromise(decision)
      ? Promise.resolve(decision as PromiseLike<Decision>).then(conclude, error =>
          storeFailed(error, conclude),
        )
      : conclude(decision)
  }

  /** By several policies. */
  function decideAll(
    request: Request,
    message: Message,
    response: Closing,
    stated: readonly (Ask<X> | undefined)[],
  ): MaybePromise<Verdict> {
    const asks = stated.filter(ask => ask !== undefined)
    const idle = rules.policies.filter((_, index) => stated[index] === undefined)
    if (asks.length <= 1 || isGone(message)) return decide(request, message, response, asks[0], idle)
    return decideJoint(request, message, response, asks, idle)
  }

  /** By several limiters, all or none; one that comes twice, or was met before, counts once. */
  function decideJoint(
    request: Request,
    message: Message,
    response: Closing,
    asks: readonly Ask<X>[],
    idle: readonly PolicyRule<X>[],
  ): MaybePromise<Verdict> {
    const joint = distinct(asks.flatMap(jointAsks)).filter(
      ({ limiter, key }) => !hasMet(request, limiter, key),
    )
    if (joint.length === 0) return SKIPPED
    const conclude = (decision: Decision) => {
      if (decision.allowed && decision instanceof JointDecision)
        for (const [index, { limiter, key }] of joint.entries())
          if (isCharged(decision.parts[index]?.decision)) meet(request, limiter, key)
      return verdicts.of(request, joint, decision, idle)
    }
    const wait = (maxWaitMs: number) =>
      hold(message, response, lineOf(joint), keyOf(joint), 1, maxWaitMs, conclude)
    const { maxWaitMs, dryRun } = rules
    if (maxWaitMs !== undefined && maxWaitMs > 0 && !dryRun) return wait(maxWaitMs)
    const decided = decideJointly(joint, true)
    const goOn = ({ decision }: JointBooked) => {
      const queueMs = maxWaitMs === undefined && !dryRun ? queueOf(joint, decision) : 0
      return queueMs > 0 ? wait(queueMs) : conclude(noteJointly(joint, decision))
    }
    return isPromise(decided)
      ? Promise.resolve(decided).then(goOn, error => storeFailed(error, conclude))
      : goOn(decided)
  }

  /** Waits for the permits, as long as the client does. */
  async function hold(
    { socket }: Message,
    response: Closing,
    limiter: Limiter,
    key: string,
    cost: number,
    maxWaitMs: number,
    conclude: (decision: Decision) => MaybePromise<Verdict>,
  ): Promise<Verdict> {
    // Answered already, while its key was looked for.
    if (response.writableEnded) return ABANDONED
    const wait = new AbortController()
    const onClose = () => wait.abort(ABANDONED)
    held.add(wait)
    response.once('close', onClose)
    // A request behind others on its connection has a response that never hears of the end.
    socket?.once?.('close', onClose)
    let decision: Decision
    try {
      const maxWait = Math.min(maxWaitMs, LONGEST_HOLD_MS)
      decision = await limiter.acquire(key, { cost, maxWait, signal: wait.signal })
    } catch (error) {
      if (error === ABANDONED) return ABANDONED
      if (isStoreError(error)) return await storeFailed(error, conclude)
      // What all three frameworks make a 503 of.
      if ((error as Partial<SluiceError> | null)?.code === 'SLUICE_CLOSED')
        throw Object.assign(error as Error, { status: 503, statusCode: 503 })
      if (!(error instanceof RateLimitedError)) throw error
      decision = error.decision
    } finally {
      held.delete(wait)
      response.off('close', onClose)
      socket?.off?.('close', onClose)
    }
    return conclude(decision)
  }

  /** A store has failed, and its limiter leaves it to the route what that means. */
  function storeFailed(
    error: unknown,
    conclude: (decision: Decision) => MaybePromise<Verdict>,
  ): MaybePromise<Verdict> {
    if (!isStoreError(error) || (rules.onStoreError === 'throw' && !rules.dryRun)) throw error
    return conclude(failedDecision(rules.dryRun || rules.onStoreError === 'allow'))
  }
}

/** Whether permits were taken for a request; what is no decision is for others to complain of. */
function isCharged(decision: Decision | undefined): boolean {
  return decision?.allowed === true && decision.code !== 'SLUICE_STORE_ERROR'
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
