import { tokenBucket } from '../algorithms/token-bucket.js'
import type { MaybePromise } from '../answer.js'
import type { Clock } from '../clock.js'
import { checkCost } from '../cost.js'
import type { Decision } from '../decision.js'
import { type Duration, waitToUs } from '../duration.js'
import { coded, invalid } from '../errors.js'
import { createLimiter, isLimiter, type Limiter } from '../limiter.js'
import { callable, checkOptions } from '../options.js'
import type { AsyncStore, SyncStore } from '../store.js'
import type { Problem } from './problem.js'

/** What a framework hands to a handler, the request first: `[Request, Response]` on Express. */
export type Exchange = readonly [request: unknown, ...rest: unknown[]]

/** What the key of a request may be; null for a request that is not limited. */
export type RequestKey = string | number | bigint | null

/** Options of every adapter's `rateLimit`: what limits, and how requests are told apart and answered. */
export type HttpOptions<X extends Exchange> = (LimitDoor | LimiterDoor<X>) & RequestOptions<X>

/** The easy door: `limit` requests at once, then one every `window / limit`, per client. */
export interface LimitDoor {
  /** Requests per `window`, and how many a client that was quiet may send at once; 0 refuses everything. */
  readonly limit: number
  /** The time in which `limit` requests refill. */
  readonly window: Duration
  /** The name in the headers: 1 to 64 printable ASCII characters, default `'default'`. */
  readonly name?: string | undefined
  /** Where the keys live; default a memory store of its own. */
  readonly store?: SyncStore | AsyncStore | undefined
  /** Where the time comes from; default the system's monotonic clock. */
  readonly clock?: Clock | undefined
  readonly limiter?: undefined
}

/** The second door: a limiter you own, or one chosen for each request; null for a request that is not limited. */
export interface LimiterDoor<X extends Exchange> {
  readonly limiter: Limiter | ((request: X[0]) => MaybePromise<Limiter | null>)
  readonly limit?: undefined
  readonly window?: undefined
  readonly name?: undefined
  readonly store?: undefined
  readonly clock?: undefined
}

/** Options that go with every door. */
export interface RequestOptions<X extends Exchange> {
  /**
   * Who is limited: a non-empty text or a number per request, null for a request that is not limited. Default the
   * client's address, IPv6 by its /56 network.
   */
  readonly key?: ((request: X[0]) => MaybePromise<RequestKey>) | undefined
  /** Permits a request costs: a whole number, default 1. */
  readonly cost?: number | ((request: X[0]) => MaybePromise<number>) | undefined
  /**
   * The longest a request may be held until its permits are there, at most 60 s; default 0, a request is never held (with
   * a leaky bucket: as long as its queue is). A longer wait is a refusal, and nothing is taken. A client that hangs up while it is held gives its permits back.
   */
  readonly maxWait?: Duration | undefined
  /**
   * Called for a refused request, with status and headers set. May answer it (before it returns, or before the promise
   * it returns settles); otherwise the default answer follows.
   */
  readonly onRefused?: ((...args: [...exchange: X, refusal: Refusal]) => unknown) | undefined
  /** The dialect of the RateLimit fields, or false for none; default `'draft-8'`. Retry-After is sent either way. */
  readonly headers?: 'draft-8' | false | undefined
}

/** A refused request, as `onRefused` sees it. */
export interface Refusal {
  /** What the limiter decided. */
  readonly decision: Decision
  /** The status of the answer, 429. */
  readonly status: number
  /** The seconds in Retry-After; undefined when waiting cannot help. */
  readonly retryAfter: number | undefined
  /** The body of the default answer. */
  readonly problem: Problem
}

/** Options, checked and with every default in place. */
export interface Rules<X extends Exchange> {
  readonly limiter: Limiter | ((request: X[0]) => MaybePromise<Limiter | null>)
  readonly key: ((request: X[0]) => MaybePromise<RequestKey>) | undefined
  readonly cost: number | ((request: X[0]) => MaybePromise<number>)
  /** Undefined for what the limiter's algorithm says. */
  readonly maxWaitMs: number | undefined
  readonly headers: boolean
}

/** Checks the options of an adapter once, when it is made. */
export function rulesOf<X extends Exchange>(options: HttpOptions<X>): Rules<X> {
  checkOptions('rateLimit', options, [...LIMIT_DOOR, 'limiter', ...REQUEST_OPTIONS])
  if (options.key !== undefined) callable('key', options.key)
  if (options.onRefused !== undefined) callable('onRefused', options.onRefused)
  const { cost = 1 } = options
  if (options.headers !== undefined && options.headers !== false && options.headers !== 'draft-8')
    throw invalid(TypeError, 'headers', "'draft-8' or false", options.headers)
  return {
    limiter: limiterOf(options),
    key: options.key,
    cost: typeof cost === 'function' ? cost : checkCost(cost),
    maxWaitMs: options.maxWait === undefined ? undefined : holdToMs(options.maxWait),
    headers: options.headers !== false,
  }
}

/** Checks what a `limiter` option, or a function given for it, has come up with. */
export function checkLimiter(value: unknown, expected = 'a limiter made by createLimiter'): Limiter {
  if (isLimiter(value)) return value
  throw invalid(TypeError, 'limiter', expected, value, 'SLUICE_INVALID_LIMITER')
}

/** Proxies and browsers do not wait much longer, and each held request is a connection that is open. */
export const LONGEST_HOLD_MS = 60_000

function holdToMs(duration: Duration): number {
  const ms = waitToUs('maxWait', duration) / 1000
  if (ms > LONGEST_HOLD_MS) throw invalid(RangeError, 'maxWait', 'at most 60 seconds', duration)
  return ms
}

const LIMIT_DOOR = ['limit', 'window', 'name', 'store', 'clock'] as const
const REQUEST_OPTIONS = ['key', 'cost', 'maxWait', 'onRefused', 'headers'] as const

function limiterOf<X extends Exchange>(options: HttpOptions<X>): Rules<X>['limiter'] {
  if (options.limiter === undefined) {
    // Most likely a variable that was not what it should be.
    if (Object.hasOwn(options, 'limiter') && options.limit === undefined) checkLimiter(undefined)
    const { limit, window, name, store, clock } = options
    return createLimiter(tokenBucket({ limit, window }), { name, store, clock })
  }
  const extra = LIMIT_DOOR.find(option => options[option] !== undefined)
  if (extra !== undefined)
    throw coded(
      new TypeError(`${extra}: cannot be combined with 'limiter', which brings its own`),
      'SLUICE_INVALID_OPTION',
      extra,
    )
  return typeof options.limiter === 'function' ? options.limiter : checkLimiter(options.limiter)
}
