import { isPromise, type MaybePromise, proceed } from '../answer.js'
import { keyOf, lineOf } from '../combine.js'
import { checkCost } from '../cost.js'
import type { Decision } from '../decision.js'
import { coded, invalidPrivately, type SluiceError } from '../errors.js'
import { failedDecision, isStoreError } from '../guarded-ledger.js'
import { JointDecision } from '../joint-decision.js'
import { addUp, decideJointly, every, type JointAsk, noteJointly } from '../joint-ledger.js'
import { membersOf } from '../joint-limiter.js'
import { LedgerLimiter } from '../ledger-limiter.js'
import type { Limiter } from '../limiter.js'
import { RateLimitedError } from '../rate-limited-error.js'
import { ClientKeys, type Host, type Message } from './client.js'
import { fieldsOf } from './dialects.js'
import {
  floorUnits,
  isVisible,
  type PolicyReport,
  policyField,
  reportOf,
  retryAfterSeconds,
} from './headers.js'
import { AgeWatch, ChoiceWatch } from './made-per-request.js'
import { distinctName, meetsAgain } from './meetings.js'
import {
  checkLimiter,
  type Exchange,
  type HttpOptions,
  LONGEST_HOLD_MS,
  type PolicyRule,
  type Refusal,
  rulesOf,
} from './options.js'
import { problemBody, refusalProblem, statedBody, temporaryReducedCapacity } from './problem.js'

/** A header field to send. One that `joins` is appended to a value that is there already. */
export interface Field {
  readonly name: string
  readonly value: string
  readonly joins: boolean
  /** Whether members that are there already are not to come twice. */
  readonly unique?: boolean
}

/** What to do with a request. */
export type Verdict =
  /** Not limited: go on and touch nothing. */
  | { readonly outcome: 'skipped' }
  /** The client has gone: do nothing, not even go on. */
  | { readonly outcome: 'abandoned' }
  | {
      readonly outcome: 'allowed'
      readonly decision: Decision
      readonly fields: readonly Field[]
      /** Names of fields that are not to go out with a redirection, which a client might not follow then. */
      readonly dropsOnRedirect: readonly string[]
    }
  | {
      readonly outcome: 'refused'
      readonly decision: Decision
      readonly fields: readonly Field[]
      readonly refusal: Refusal
    }

/** What tells that a client hangs up: a response of node:http. */
export interface Closing {
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
 * a callback should not have returned, and has charged nothing then.
 *
 * @example
 * const guard = createGuard({ limit: 100, window: '1m' }, {
 *   address: request => request.socket.remoteAddress,
 *   message: request => request,
 * })
 * const verdict = await guard(request, response)
 */
export function createGuard<X extends Exchange>(options: HttpOptions<X>, host: Host<X[0]>): Guard<X[0]> {
  type Request = X[0]
  const rules = rulesOf(options)
  const [only, ...others] = rules.policies as [PolicyRule<X>, ...PolicyRule<X>[]]
  const clients = new ClientKeys(host, rules.findClient, rules.ipv6Prefix)
  const policyTexts = new PolicyTexts()
  const held = new Set<AbortController>()
  const age = new AgeWatch()
  const choices = new ChoiceWatch()

  // Each step goes on by a call while answers are at hand, and makes a promise only for one that is not.
  const guard = (request: Request, response: Closing): MaybePromise<Verdict> => {
    const message = host.message(request)
    age.see(message)
    if (rules.skipPreflight && isPreflight(message)) return SKIPPED
    if (others.length > 0)
      return proceed(
        every(rules.policies, rule => askOf(rule, request, message)),
        asks => decideAll(request, message, response, asks),
      )
    const ask = askOf(only, request, message)
    return isPromise(ask)
      ? ask.then(ask => decide(request, message, response, ask))
      : decide(request, message, response, ask)
  }
  const close = () => {
    for (const wait of held) wait.abort(coded(new Error('the server is closing'), 'SLUICE_CLOSED', 'maxWait'))
  }
  return Object.assign(guard, { close })

  /** What a policy asks for a request: undefined for nothing. */
  function askOf(rule: PolicyRule<X>, request: Request, message: Message): MaybePromise<Ask<X> | undefined> {
    const { limiter } = rule
    if (typeof limiter !== 'function') return askWith(rule, limiter, request, message)
    return proceed(limiter(request), chosen => {
      const limiter = checkChoice(chosen)
      if (limiter === null) return undefined
      choices.see(limiter)
      return askWith(rule, limiter, request, message)
    })
  }

  function askWith(
    rule: PolicyRule<X>,
    limiter: Limiter,
    request: Request,
    message: Message,
  ): MaybePromise<Ask<X> | undefined> {
    if (rule.key === undefined) {
      if (isGone(message)) return undefined
      return withCost(rule, limiter, request, clients.of(request, message))
    }
    const key = rule.key(request)
    return isPromise(key)
      ? key.then(key => withCost(rule, limiter, request, statedKey(key)))
      : withCost(rule, limiter, request, statedKey(key))
  }

  function withCost(
    rule: PolicyRule<X>,
    limiter: Limiter,
    request: Request,
    key: string | null,
  ): MaybePromise<Ask<X> | undefined> {
    if (key === null) return undefined
    if (typeof rule.cost === 'number') return { rule, limiter, key, cost: rule.cost }
    const cost = rule.cost(request)
    return isPromise(cost)
      ? cost.then(cost => ({ rule, limiter, key, cost: checkCost(cost) }))
      : { rule, limiter, key, cost: checkCost(cost) }
  }

  /** By one limiter. */
  function decide(
    request: Request,
    message: Message,
    response: Closing,
    ask: Ask<X> | undefined,
  ): MaybePromise<Verdict> {
    if (isGone(message)) return ABANDONED
    if (ask === undefined) return SKIPPED
    const { limiter, key, cost } = ask
    if (meetsAgain(request, limiter, key)) return SKIPPED
    const maxWaitMs = rules.maxWaitMs ?? limiter.policy.maxWaitMs ?? 0
    if (maxWaitMs > 0) return hold(request, response, [ask], limiter, key, cost, maxWaitMs)
    const decision = limiter.tryAcquire(key, cost === 1 ? undefined : { cost })
    return isPromise(decision)
      ? decision.then(
          decision => conclude(request, [ask], decision as Decision),
          error => storeFailed(request, error),
        )
      : conclude(request, [ask], decision)
  }

  /** By several limiters, all or none. */
  function decideAll(
    request: Request,
    message: Message,
    response: Closing,
    stated: readonly (Ask<X> | undefined)[],
  ): MaybePromise<Verdict> {
    if (isGone(message)) return ABANDONED
    const asks = stated.filter(ask => ask !== undefined)
    if (asks.length <= 1) return decide(request, message, response, asks[0])
    const joint = addUp(asks.flatMap(jointAsks)).filter(
      ({ limiter, key }) => !meetsAgain(request, limiter, key),
    )
    if (joint.length === 0) return SKIPPED
    if (rules.maxWaitMs !== undefined && rules.maxWaitMs > 0)
      return hold(request, response, joint, lineOf(joint), keyOf(joint), 1, rules.maxWaitMs)
    const decided = proceed(decideJointly(joint, true), ({ decision }) => noteJointly(joint, decision))
    return isPromise(decided)
      ? decided.then(
          decision => conclude(request, joint, decision),
          error => storeFailed(request, error),
        )
      : conclude(request, joint, decided)
  }

  /** Waits for the permits, as long as the client does. */
  async function hold(
    request: Request,
    response: Closing,
    asks: readonly Ask<X>[],
    limiter: Limiter,
    key: string,
    cost: number,
    maxWaitMs: number,
  ): Promise<Verdict> {
    const wait = new AbortController()
    const onClose = () => wait.abort(ABANDONED)
    held.add(wait)
    response.once('close', onClose)
    try {
      const maxWait = Math.min(maxWaitMs, LONGEST_HOLD_MS)
      const decision = await limiter.acquire(key, { cost, maxWait, signal: wait.signal })
      return await conclude(request, asks, decision)
    } catch (error) {
      if (error instanceof RateLimitedError) return await conclude(request, asks, error.decision)
      if (error === ABANDONED) return ABANDONED
      if (isStoreError(error)) return await storeFailed(request, error)
      if ((error as Partial<SluiceError> | null)?.code !== 'SLUICE_CLOSED') throw error
      // What all three frameworks make a 503 of.
      throw Object.assign(error as Error, { status: 503, statusCode: 503 })
    } finally {
      held.delete(wait)
      response.off('close', onClose)
    }
  }

  /** What follows from a decision. */
  function conclude(request: Request, asks: readonly Ask<X>[], decision: Decision): MaybePromise<Verdict> {
    if (rules.onDecision === undefined) return verdictOf(request, asks, decision)
    const refused = !decision.allowed && !rules.dryRun
    return proceed(rules.onDecision(request, { decision, refused }), () => verdictOf(request, asks, decision))
  }

  function verdictOf(request: Request, asks: readonly Ask<X>[], decision: Decision): MaybePromise<Verdict> {
    const isJoint = decision instanceof JointDecision
    const failure = isJoint
      ? decision.parts.find(({ decision }) => decision.code === 'SLUICE_STORE_ERROR' && !decision.allowed)
      : decision.code === 'SLUICE_STORE_ERROR'
    if (failure && !decision.allowed) return unavailable(request, decision)
    const reports = isJoint
      ? jointReports(request, asks, decision)
      : singleReport(request, asks[0] as Ask<X>, decision)
    const fields = fieldsOf(reports, rules, () => nowMs(asks), policyText(asks, reports))
    const limits = fields.filter(({ name }) => name !== 'RateLimit-Policy').map(({ name }) => name)

    if (decision.allowed || rules.dryRun) {
      if (rules.exposeHeaders) expose(fields)
      const isSpent = reports.some(report => isVisible(report) && floorUnits(report.remaining) === 0)
      return { outcome: 'allowed', decision, fields, dropsOnRedirect: isSpent ? limits : NO_NAMES }
    }
    const retryAfter = retryAfterSeconds(reports)
    if (retryAfter !== undefined)
      fields.push({ name: 'Retry-After', value: String(retryAfter), joins: false })
    const problem = refusalProblem(rules.status, reports)
    return refused(request, fields, { decision, status: rules.status, retryAfter, problem })
  }

  function refused(request: Request, fields: Field[], refusal: Omit<Refusal, 'body'>): MaybePromise<Verdict> {
    if (rules.exposeHeaders) expose(fields)
    fields.push({ name: 'Cache-Control', value: 'no-store', joins: false })
    const { decision } = refusal
    if (rules.body === undefined)
      return {
        outcome: 'refused',
        decision,
        fields,
        refusal: { ...refusal, body: problemBody(refusal.problem) },
      }
    return proceed(rules.body(request, refusal), body => ({
      outcome: 'refused',
      decision,
      fields,
      refusal: { ...refusal, body: statedBody(body) },
    }))
  }

  /** A store has failed, and its limiter leaves it to the route what that means. */
  function storeFailed(request: Request, error: unknown): MaybePromise<Verdict> {
    if (!isStoreError(error) || rules.onStoreError === 'throw') throw error
    return rules.onStoreError === 'allow' ? SKIPPED : unavailable(request, failedDecision(false))
  }

  function unavailable(request: Request, decision: Decision): MaybePromise<Verdict> {
    const status = 503
    const problem = temporaryReducedCapacity(status)
    return refused(request, [], { decision, status, retryAfter: undefined, problem })
  }

  function singleReport(
    request: Request,
    { rule, limiter, key }: Ask<X>,
    decision: Decision,
  ): PolicyReport[] {
    if (decision.code === 'SLUICE_STORE_ERROR') return []
    const report = reportOf(rule.name ?? limiter.name, limiter.policy, decision, rules.paced)
    return [completed(request, rule, key, report)]
  }

  function jointReports(request: Request, asks: readonly Ask<X>[], { parts }: JointDecision): PolicyReport[] {
    // A combination is one ask with several parts, policies are one ask for each.
    const isCombination = asks.length < parts.length
    return parts.flatMap(({ limiter, policy, key, decision }, index) => {
      if (decision.code === 'SLUICE_STORE_ERROR') return []
      const { rule } = asks[isCombination ? 0 : index] as Ask<X>
      const report = reportOf(rule.name ?? limiter, policy, decision, rules.paced)
      return [completed(request, rule, key, report)]
    })
  }

  function completed(request: Request, rule: PolicyRule<X>, key: string, report: PolicyReport): PolicyReport {
    if (report.limit === Infinity || rule.hidden) return { ...report, hidden: rule.hidden }
    const name = distinctName(request, report.name)
    if (name === report.name && rule.unit === undefined && rules.partition === undefined) return report
    return { ...report, name, unit: rule.unit, partition: rules.partition?.(key) }
  }

  /** The text of RateLimit-Policy, where it is that of one limiter and no more. */
  function policyText(asks: readonly Ask<X>[], reports: readonly PolicyReport[]): string | undefined {
    const [ask] = asks
    const [report] = reports
    if (reports.length !== 1 || ask === undefined || report === undefined) return undefined
    const isPlain =
      report.name === ask.limiter.name && report.unit === undefined && report.partition === undefined
    return isPlain && report.hidden !== true ? policyTexts.of(ask.limiter) : undefined
  }
}

/** What a request asks of a limiter, and by which policy. */
interface Ask<X extends Exchange> {
  readonly rule: PolicyRule<X>
  readonly limiter: Limiter
  readonly key: string
  readonly cost: number
}

const SKIPPED: Verdict = { outcome: 'skipped' }
const ABANDONED: Verdict = { outcome: 'abandoned' }
const NO_NAMES: readonly string[] = []

function jointAsks<X extends Exchange>({ rule, limiter, key, cost }: Ask<X>): (JointAsk & Ask<X>)[] {
  const members = membersOf(limiter)
  // The members of a combination have names of their own.
  const own = members.length === 1 ? rule : { ...rule, name: undefined }
  return members.map(member => ({ rule: own, limiter: member, key, cost }))
}

/** The value of RateLimit-Policy changes only when a limiter's policy does. */
class PolicyTexts {
  readonly #texts = new WeakMap<Limiter, { policy: Limiter['policy']; text: string | undefined }>()

  of(limiter: Limiter): string | undefined {
    const known = this.#texts.get(limiter)
    if (known !== undefined && known.policy === limiter.policy) return known.text
    const { name, policy } = limiter
    const text = policyField([
      { name, limit: policy.limit, windowMs: policy.windowMs, remaining: 0, violated: false },
    ])
    this.#texts.set(limiter, { policy, text })
    return text
  }
}

/** Scripts of other origins may read the fields that are sent. */
function expose(fields: Field[]): void {
  if (fields.length > 0)
    fields.push({
      name: 'Access-Control-Expose-Headers',
      value: fields.map(({ name }) => name).join(', '),
      joins: true,
      unique: true,
    })
}

/** The time by the clock of a limiter of ours, for fields that are times of day. */
function nowMs<X extends Exchange>(asks: readonly Ask<X>[]): number {
  const limiter = asks[0]?.limiter
  return limiter instanceof LedgerLimiter ? limiter.clock.nowUs() / 1000 : Date.now()
}

function isPreflight({ method, headers }: Message): boolean {
  return (
    method === 'OPTIONS' &&
    headers.origin !== undefined &&
    headers['access-control-request-method'] !== undefined
  )
}

function isGone({ socket }: Message): boolean {
  return socket?.destroyed === true
}

function checkChoice(limiter: Limiter | null): Limiter | null {
  return limiter === null ? null : checkLimiter(limiter, 'a limiter, or null for no limit')
}

function statedKey(key: unknown): string | null {
  if (typeof key === 'string' && key !== '') return key
  if (key === null) return null
  if ((typeof key === 'number' && Number.isFinite(key)) || typeof key === 'bigint') return String(key)
  throw invalidPrivately(
    TypeError,
    'key',
    'a non-empty string, a number, or null for no limit',
    key,
    'SLUICE_INVALID_KEY',
  )
}
