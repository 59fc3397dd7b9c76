import type { Decision } from '../algorithms/decision.js'
import type { Limiter } from '../limiter/limiter.js'
import type { Clock } from '../shared/clock.js'
import type { Duration } from '../shared/duration.js'
import type { MaybePromise } from '../shared/maybe-promise.js'
import type { AsyncStore, OnStoreError, SyncStore } from '../store/store.js'
import type { ProxyOptions } from './request/forwarded.js'
import type { Dialect, LegacyReset } from './response/older-fields.js'
import type { Body, Problem } from './response/problem.js'
import type { QuotaUnit } from './response/ratelimit-fields.js'

/** What a framework hands to a handler, the request first: `[Request, Response]` on Express. */
export type Exchange = readonly [request: unknown, ...rest: unknown[]]

/** What the key of a request may be; null for a request that is not limited. */
export type RequestKey = string | number | bigint | null

/** Options of every adapter's `rateLimit`: what limits, and how requests are told apart and answered. */
export type HttpOptions<X extends Exchange> = (LimitDoor | LimiterDoor<X> | PoliciesDoor<X>) &
  RequestOptions<X>

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
  readonly policies?: undefined
}

/** The second door: a limiter you own, or one chosen for each request; null for a request that is not limited. */
export interface LimiterDoor<X extends Exchange> {
  readonly limiter: Limiter | ((request: X[0]) => MaybePromise<Limiter | null>)
  readonly limit?: undefined
  readonly window?: undefined
  readonly name?: undefined
  readonly store?: undefined
  readonly clock?: undefined
  readonly policies?: undefined
}

/** The third door: several policies, decided together. A request passes all of them and is charged to all, or to none. */
export interface PoliciesDoor<X extends Exchange> {
  readonly policies: readonly PolicyOptions<X>[]
  readonly limiter?: undefined
  readonly limit?: undefined
  readonly window?: undefined
  readonly name?: undefined
  readonly store?: undefined
  readonly clock?: undefined
}

/** One of several policies: a limit or a limiter, and what differs from the options beside `policies`. */
export type PolicyOptions<X extends Exchange> = (
  | Omit<LimitDoor, 'policies'>
  | (Omit<LimiterDoor<X>, 'name' | 'policies'> & {
      /** The name in the headers; default the limiter's. */
      readonly name?: string | undefined
    })
) &
  CountingOptions<X>

/** How requests are counted. */
export interface CountingOptions<X extends Exchange> {
  /**
   * Who is limited: a non-empty text or a number per request, null for a request that is not limited. Default the
   * client's address, IPv6 by its /56 network; `client()` is that, to be part of another key.
   */
  readonly key?: ((request: X[0], client: () => string) => MaybePromise<RequestKey>) | undefined
  /** Permits a request costs: a whole number, default 1. */
  readonly cost?: number | ((request: X[0]) => MaybePromise<number>) | undefined
  /**
   * When a request is counted: `'before'` its handler runs, the default, or `'after'`, when it has been answered. A request
   * that is counted after is let in as long as its permits are there, and takes them later, as a debt of at most a window if
   * they are gone by then: what is refunded is never counted, so that any number of good requests may run at once, and as many bad ones as
   * run at once may go beyond the limit. To guess at secrets by, count before and refund.
   */
  readonly count?: 'before' | 'after' | undefined
  /**
   * Whether a request that has been answered, or whose client has gone, is given back what it was charged, or is not counted
   * where it is counted after. At most what has not refilled by itself comes back, once.
   */
  readonly refund?: Refund<X> | undefined
  /** Blocks a client that goes on asking: so many refusals for so long, as many again for the next step of the ladder. */
  readonly block?: BlockOptions | undefined
  /** Counts, and is in no field: for limits that are not the client's own business; default false. */
  readonly hidden?: boolean | undefined
  /** What the quota counts, for the fields; default `'requests'`. */
  readonly unit?: QuotaUnit | undefined
}

/** Which requests are given back what they were charged; a function is called with how the request has ended. */
export type Refund<X extends Exchange> =
  | RefundRule
  | ((...args: [...exchange: X, ending: Ending]) => MaybePromise<boolean>)

/** Which requests are given back what they were charged. */
export interface RefundRule {
  /** Requests answered with a status below 400 (an error of the server is no success); default false. */
  readonly ifSuccessful?: boolean | undefined
  /** Requests answered with a status from 400 on, and those whose client has gone before; default false. */
  readonly ifFailed?: boolean | undefined
}

/** How a request has ended. */
export interface Ending {
  /** The status it was answered with, or was going to be. */
  readonly status: number
  /** Whether the client has gone before it was answered. */
  readonly aborted: boolean
}

/** When refusals become a block. What a blocked client asks for is refused, and does not lengthen the block. */
export interface BlockOptions {
  /** Refusals until a block, at least 1. */
  readonly after: number
  /**
   * How long a block lasts; with several steps the first block, the second and so on, the last repeating. Forgotten after
   * the longest without a refusal.
   */
  readonly for: Duration | readonly Duration[]
}

/** Options that go with every door. */
export interface RequestOptions<X extends Exchange> extends CountingOptions<X>, ProxyOptions {
  /**
   * The longest a request may be held until its permits are there, at most 60 s; default 0, a request is never held (with
   * a leaky bucket: as long as its queue is). A longer wait is a refusal, and nothing is taken. A client that hangs up
   * while it is held gives its permits back.
   */
  readonly maxWait?: Duration | undefined
  /**
   * Called for a refused request, with status and headers set. May answer it (before it returns, or before the promise
   * it returns settles); otherwise the default answer follows.
   */
  readonly onRefused?: ((...args: [...exchange: X, refusal: Refusal]) => unknown) | undefined
  /**
   * Hands a refusal to the error handling of the framework, as a `RefusedError` with status and headers, instead of
   * answering it; default false. Not to be combined with `onRefused`.
   */
  readonly throws?: boolean | undefined
  /** Called with every decision before it takes effect; may be async. */
  readonly onDecision?: ((request: X[0], outcome: Outcome) => unknown) | undefined
  /** The status of a refusal, 400 to 599; default 429. */
  readonly status?: number | undefined
  /** The body of a refusal: a text, an object to be JSON, or a function that returns either; default a problem+json body. */
  readonly body?:
    | Answer
    | ((request: X[0], refusal: Omit<Refusal, 'body'>) => MaybePromise<Answer>)
    | undefined
  /** Decides and counts, says so in fields and to `onDecision`, and lets every request pass; default false. */
  readonly dryRun?: boolean | undefined
  /** Addresses and networks (`'10.0.0.0/8'`) that are not limited, whatever the key; the longer prefix decides. */
  readonly allow?: readonly string[] | undefined
  /** Addresses and networks that are refused, without Retry-After; where both lists name one, it is refused. */
  readonly deny?: readonly string[] | undefined
  /** CORS preflight requests are not counted and get no fields; default false, because it is an uncounted way in. */
  readonly skipPreflight?: boolean | undefined
  /**
   * What happens to a request while the limiter's store fails: it passes without fields, it is refused with 503, or the
   * error goes to the framework (the default). A limiter may have said so itself.
   */
  readonly onStoreError?: OnStoreError | undefined
  /**
   * The dialect of the RateLimit fields, or false for none; default `'draft-8'`, which 9 to 11 are written like.
   * Retry-After is sent either way.
   */
  readonly headers?: Dialect | false | undefined
  /** X-RateLimit fields as well, their reset as seconds since the `'epoch'` or as a `'delta'`; default false. */
  readonly legacyHeaders?: LegacyReset | false | undefined
  /** Windows announce, as buckets do, for how long what is left should last, not when more is there; default false. */
  readonly paced?: boolean | undefined
  /** Lists our fields in Access-Control-Expose-Headers, so that scripts of other origins may read them; default false. */
  readonly exposeHeaders?: boolean | undefined
  /**
   * A secret; with it the fields carry a partition key, a keyed hash (HMAC-SHA-256, 9 bytes) of the key that is counted by.
   * Off by default: shared caches would replay it to others.
   */
  readonly partitionSecret?: string | undefined
  /** How many bits of an IPv6 address are one client, 32 to 128; default 56, the network of a home. */
  readonly ipv6Prefix?: number | undefined
}

/** The body of an answer. */
export type Answer = string | object

/** A refused request, as `onRefused` sees it. */
export interface Refusal {
  /** What the limiter decided. */
  readonly decision: Decision
  /** The status of the answer, 429 unless stated otherwise, 503 for a store that fails. */
  readonly status: number
  /** The seconds in Retry-After; undefined when waiting cannot help. */
  readonly retryAfter: number | undefined
  /** What the refusal is about, and the default body. */
  readonly problem: Problem
  /** The body of the answer. */
  readonly body: Body
}

/** A decision, as `onDecision` sees it. */
export interface Outcome {
  readonly decision: Decision
  /** Whether the request is refused; never in a dry run, whose `decision` says what would have been. */
  readonly refused: boolean
}
