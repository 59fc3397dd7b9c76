import { isPromise, type MaybePromise, proceed } from '../answer.js'
import { checkCost } from '../cost.js'
import type { Decision } from '../decision.js'
import { coded, invalidPrivately, type SluiceError } from '../errors.js'
import { JointDecision } from '../joint-decision.js'
import type { Limiter } from '../limiter.js'
import { RateLimitedError } from '../rate-limited-error.js'
import { limitField, policyField, reportOf, retryAfterSeconds } from './headers.js'
import { addressKey } from './identity.js'
import { AgeWatch, ChoiceWatch } from './made-per-request.js'
import { meetsAgain } from './meetings.js'
import {
  checkLimiter,
  type Exchange,
  type HttpOptions,
  LONGEST_HOLD_MS,
  type Refusal,
  rulesOf,
} from './options.js'
import { quotaExceeded } from './problem.js'

/** What the room must know of a framework's requests. */
export interface Host<Request> {
  /** The client's address as the framework sees it; undefined when there is none. */
  address(request: Request): string | undefined
  /** Whether the client's connection is closed. */
  gone(request: Request): boolean
}

/** A header field to send. One that `joins` is appended to a value that is there already. */
export interface Field {
  readonly name: string
  readonly value: string
  readonly joins: boolean
}

/** What to do with a request. */
export type Verdict =
  /** Not limited: go on and touch nothing. */
  | { readonly outcome: 'skipped' }
  /** The client has gone: do nothing, not even go on. */
  | { readonly outcome: 'abandoned' }
  | { readonly outcome: 'allowed'; readonly decision: Decision; readonly fields: readonly Field[] }
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
 * Makes the decisions of an adapter: which limiter, which key, what cost, and what the answer says. Throws like
 * `createLimiter` for bad options; the guard throws, or rejects with, what a callback throws and coded errors for what
 * a callback should not have returned, and has charged nothing then.
 *
 * @example
 * const guard = createGuard({ limit: 100, window: '1m' }, {
 *   address: request => request.socket.remoteAddress,
 *   gone: request => request.socket.destroyed,
 * })
 * const verdict = await guard(request, response)
 */
export function createGuard<X extends Exchange>(options: HttpOptions<X>, host: Host<X[0]>): Guard<X[0]> {
  const rules = rulesOf(options)
  const policyTexts = new PolicyTexts()
  const held = new Set<AbortController>()
  const age = new AgeWatch()
  const choices = new ChoiceWatch()

  // Each step goes on by a call while answers are at hand, and makes a promise only for one that is not.
  const guard = (request: X[0], response: Closing): MaybePromise<Verdict> => {
    age.see()
    return typeof rules.limiter === 'function'
      ? proceed(rules.limiter(request), limiter => withLimiter(request, response, checkChoice(limiter)))
      : withLimiter(request, response, rules.limiter)
  }
  const close = () => {
    for (const wait of held) wait.abort(coded(new Error('the server is closing'), 'SLUICE_CLOSED', 'maxWait'))
  }
  return Object.assign(guard, { close })

  function withLimiter(request: X[0], response: Closing, limiter: Limiter | null): MaybePromise<Verdict> {
    if (limiter === null) return SKIPPED
    if (typeof rules.limiter === 'function') choices.see(limiter)
    if (rules.key === undefined) return withKey(request, response, limiter, clientKey(request, host))
    const key = rules.key(request)
    return isPromise(key)
      ? key.then(key => withKey(request, response, limiter, statedKey(key)))
      : withKey(request, response, limiter, statedKey(key))
  }

  function withKey(
    request: X[0],
    response: Closing,
    limiter: Limiter,
    key: string | Verdict,
  ): MaybePromise<Verdict> {
    if (typeof key !== 'string') return key
    if (typeof rules.cost === 'number') return decide(request, response, limiter, key, rules.cost)
    const cost = rules.cost(request)
    return isPromise(cost)
      ? cost.then(cost => decide(request, response, limiter, key, checkCost(cost)))
      : decide(request, response, limiter, key, checkCost(cost))
  }

  function decide(
    request: X[0],
    response: Closing,
    limiter: Limiter,
    key: string,
    cost: number,
  ): MaybePromise<Verdict> {
    if (host.gone(request)) return ABANDONED
    if (meetsAgain(request, limiter, key)) return SKIPPED
    const maxWaitMs = rules.maxWaitMs ?? limiter.policy.maxWaitMs ?? 0
    if (maxWaitMs > 0) return hold(response, limiter, key, cost, Math.min(maxWaitMs, LONGEST_HOLD_MS))
    const decision = limiter.tryAcquire(key, cost === 1 ? undefined : { cost })
    return isPromise(decision)
      ? decision.then(decision => verdictOf(limiter, decision as Decision))
      : verdictOf(limiter, decision)
  }

  /** Waits for the permits, as long as the client does. */
  async function hold(
    response: Closing,
    limiter: Limiter,
    key: string,
    cost: number,
    maxWait: number,
  ): Promise<Verdict> {
    const wait = new AbortController()
    const onClose = () => wait.abort(ABANDONED)
    held.add(wait)
    response.once('close', onClose)
    try {
      const decision = await limiter.acquire(key, { cost, maxWait, signal: wait.signal })
      return verdictOf(limiter, decision)
    } catch (error) {
      if (error instanceof RateLimitedError) return verdictOf(limiter, error.decision)
      if (error === ABANDONED) return ABANDONED
      if ((error as Partial<SluiceError> | null)?.code !== 'SLUICE_CLOSED') throw error
      // What all three frameworks make a 503 of.
      throw Object.assign(error as Error, { status: 503, statusCode: 503 })
    } finally {
      held.delete(wait)
      response.off('close', onClose)
    }
  }

  function verdictOf(limiter: Limiter, decision: Decision): Verdict {
    const reports =
      decision instanceof JointDecision
        ? decision.parts.map(part => reportOf(part.limiter, part.policy, part.decision))
        : [reportOf(limiter.name, limiter.policy, decision)]
    const fields: Field[] = []
    if (rules.headers) {
      const policy = reports.length === 1 ? policyTexts.of(limiter) : policyField(reports)
      const limit = limitField(reports)
      if (policy !== undefined) fields.push({ name: 'RateLimit-Policy', value: policy, joins: true })
      if (limit !== undefined) fields.push({ name: 'RateLimit', value: limit, joins: true })
    }
    if (decision.allowed) return { outcome: 'allowed', decision, fields }

    const retryAfter = retryAfterSeconds(reports)
    if (retryAfter !== undefined)
      fields.push({ name: 'Retry-After', value: String(retryAfter), joins: false })
    fields.push({ name: 'Cache-Control', value: 'no-store', joins: false })
    const status = 429
    const problem = quotaExceeded(
      status,
      reports.filter(({ violated }) => violated).map(({ name }) => name),
    )
    return { outcome: 'refused', decision, fields, refusal: { decision, status, retryAfter, problem } }
  }
}

const SKIPPED: Verdict = { outcome: 'skipped' }
const ABANDONED: Verdict = { outcome: 'abandoned' }

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

function checkChoice(limiter: Limiter | null): Limiter | null {
  return limiter === null ? null : checkLimiter(limiter, 'a limiter, or null for no limit')
}

function clientKey<Request>(request: Request, host: Host<Request>): string | Verdict {
  const address = host.address(request)
  const key = address === undefined ? undefined : addressKey(address)
  if (key !== undefined) return key
  if (host.gone(request)) return ABANDONED
  const trouble =
    address === undefined
      ? 'the request has no client address to be limited by'
      : "the framework's client address is not an IP address (check how it trusts proxies)"
  throw coded(
    new Error(`key: ${trouble}; set the key option, such as key: req => req.user.id`),
    'SLUICE_NO_CLIENT_ADDRESS',
    'key',
  )
}

function statedKey(key: unknown): string | Verdict {
  if (typeof key === 'string' && key !== '') return key
  if (key === null) return SKIPPED
  if ((typeof key === 'number' && Number.isFinite(key)) || typeof key === 'bigint') return String(key)
  throw invalidPrivately(
    TypeError,
    'key',
    'a non-empty string, a number, or null for no limit',
    key,
    'SLUICE_INVALID_KEY',
  )
}
