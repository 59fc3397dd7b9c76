import type { Decision } from '../algorithms/decision.js'
import type { Limiter } from '../limiter/limiter.js'
import type { Clock } from '../shared/clock.js'
import type { Duration } from '../shared/duration.js'
import type { MaybePromise } from '../shared/maybe-promise.js'
import type { AsyncStore, OnStoreError, SyncStore } from '../store/store.js'

/*
 * What users of an adapter write, and what their callbacks receive.
 */

/** The arguments that a framework passes to a handler, the request first: `[Request, Response]` on Express. */
export type Exchange = readonly [request: unknown, ...rest: unknown[]]

/** What a `key` function returns: a non-empty string, a finite number or a bigint; null for a request without a limit. */
export type RequestKey = string | number | bigint | null

/**
 * Options of every adapter's `rateLimit` and `limitRoute`: one of `{ limit, window }`, `{ limiter }` and `{ policies }`,
 * and any of the other options.
 *
 * Options are checked once, when the middleware is made. An unknown option and a value of the wrong type throw a
 * TypeError, a value out of range throws a RangeError; both errors have a `code` and name the `option`.
 *
 * @example
 * rateLimit({ limit: 100, window: '1m', key: req => req.user.id, maxWait: '250ms' })
 */
export type HttpOptions<X extends Exchange> = (LimitDoor | LimiterDoor<X> | PoliciesDoor<X>) &
  RequestOptions<X>

/** A limit by numbers: each key may take `limit` permits at once, then one every `window / limit` (a token bucket). */
export interface LimitDoor {
  /** Permits per `window`, and the most that a rested key can take at once: a whole number; 0 refuses every request. */
  readonly limit: number
  /** The time in which `limit` permits refill: milliseconds or a string such as `'1m'`, from 1 µs to 200 years. */
  readonly window: Duration
  /** The name in header fields: 1 to 64 printable ASCII characters; default `'default'`. A shared store requires one. */
  readonly name?: string | undefined
  /** Where the keys are stored; default a memory store for this limit alone. */
  readonly store?: SyncStore | AsyncStore | undefined
  /** The clock of the limit; default the system's monotonic clock. Tests pass `manualClock()`. */
  readonly clock?: Clock | undefined
  readonly limiter?: undefined
  readonly policies?: undefined
}

/** A limit by a limiter: one of your own, or a choice of one for each request. */
export interface LimiterDoor<X extends Exchange> {
  /**
   * A limiter of `createLimiter` or `combine`, or a function that returns one for a request, or null for no limit; may be
   * async. Make the limiters once: a new limiter for each request limits nothing. A request for which the function returns
   * anything else fails with an error of code SLUICE_INVALID_LIMITER.
   *
   * @example
   * limiter: req => (req.user.isStaff ? null : plans[req.user.plan])
   */
  readonly limiter: Limiter | ((request: X[0]) => MaybePromise<Limiter | null>)
  readonly limit?: undefined
  readonly window?: undefined
  readonly name?: undefined
  readonly store?: undefined
  readonly clock?: undefined
  readonly policies?: undefined
}

/** Several limits for each request, decided together. */
export interface PoliciesDoor<X extends Exchange> {
  /**
   * At least one policy, each with a name of its own. A request passes if every policy has its permits, and then takes
   * them from all; otherwise it takes none.
   *
   * @example
   * policies: [{ name: 'burst', limit: 20, window: '1s' }, { name: 'daily', limit: 10_000, window: '1d' }]
   */
  readonly policies: readonly PolicyOptions<X>[]
  readonly limiter?: undefined
  readonly limit?: undefined
  readonly window?: undefined
  readonly name?: undefined
  readonly store?: undefined
  readonly clock?: undefined
}

/**
 * One of several policies: `{ limit, window }` or `{ limiter }`, and options of its own for counting. An option that it
 * leaves out is the one beside `policies`.
 */
export type PolicyOptions<X extends Exchange> = (
  | Omit<LimitDoor, 'policies'>
  | (Omit<LimiterDoor<X>, 'name' | 'policies'> & {
      /** The name in header fields: 1 to 64 printable ASCII characters; default the limiter's name. */
      readonly name?: string | undefined
    })
) &
  CountingOptions<X>

/** How a policy counts requests. */
export interface CountingOptions<X extends Exchange> {
  /**
   * Returns the key whose permits a request takes, or null for a request without a limit; may be async. Its second
   * argument returns the default key: the client's address, an IPv6 address as its network (see `ipv6Prefix`). A request
   * for which it returns no valid key fails with an error of code SLUICE_INVALID_KEY.
   *
   * @example
   * key: (req, client) => req.user?.id ?? client()
   */
  readonly key?: ((request: X[0], client: () => string) => MaybePromise<RequestKey>) | undefined
  /**
   * Permits that a request takes: a whole number, or a function that returns one and may be async; default 1. A request
   * of cost 0 always passes. A request for which the function returns no valid cost fails with an error of code
   * SLUICE_INVALID_COST.
   *
   * @example
   * cost: req => (req.method === 'POST' ? 5 : 1)
   */
  readonly cost?: number | ((request: X[0]) => MaybePromise<number>) | undefined
  /**
   * When a request takes its permits: `'before'` its handler runs, the default, or `'after'` its response has ended.
   *
   * With `'after'`, a request passes if its permits are available when it arrives. If they are gone when it ends, they
   * become a debt of at most one window. A request that `refund` exempts takes nothing. Requests that run at the same
   * time do not see each other: all of them can pass, even beyond the limit. To limit guesses at passwords, use `'before'`
   * with `refund`. Cannot be combined with a `maxWait` above 0.
   */
  readonly count?: 'before' | 'after' | undefined
  /**
   * Which requests get their permits back once they have ended, or take none where `count` is `'after'`: a rule, or a
   * function that returns true for such a request and may be async; default none. Permits that have refilled in the
   * meantime are not returned. If the function throws or does not return a boolean, the request keeps its charge and a
   * process warning says so once (SLUICE_REFUND_FAILED).
   *
   * @example
   * refund: { ifSuccessful: true } // only failures count
   */
  readonly refund?: Refund<X> | undefined
  /**
   * Blocks a key after a number of refusals; default no blocks.
   *
   * @example
   * block: { after: 20, for: ['10m', '1h', '1d'] }
   */
  readonly block?: BlockOptions | undefined
  /**
   * Keeps the policy out of all header fields and of the response body; default false. Use it for a limit that many
   * clients share, so that a client cannot read how much the others use.
   */
  readonly hidden?: boolean | undefined
  /** What the limit counts, as the header fields announce it; default `'requests'`. */
  readonly unit?: QuotaUnit | undefined
}

/** Which requests get their permits back: a rule, or a function of the exchange and of how the request ended. */
export type Refund<X extends Exchange> =
  | RefundRule
  | ((...args: [...exchange: X, ending: Ending]) => MaybePromise<boolean>)

/** Which requests get their permits back. */
export interface RefundRule {
  /** Requests answered with a status below 400; default false. */
  readonly ifSuccessful?: boolean | undefined
  /**
   * Requests answered with status 400 or higher, and requests whose client disconnects before the response is complete;
   * default false. Do not use it where the handler does expensive work early: a client can disconnect and get its
   * permits back.
   */
  readonly ifFailed?: boolean | undefined
}

/** How a request ended. */
export interface Ending {
  /** The status of the response, as it was set when the request ended. */
  readonly status: number
  /** Whether the client disconnected before the response was complete. */
  readonly aborted: boolean
}

/** When refusals become a block. A blocked key is refused every request; such refusals do not make the block longer. */
export interface BlockOptions {
  /** Refusals before a block: a whole number, at least 1. */
  readonly after: number
  /**
   * How long a block lasts. In a list, the first duration is that of the first block, the second that of the second, and
   * the last repeats. A key without a refusal for the longest of them starts at the first again.
   */
  readonly for: Duration | readonly Duration[]
}

/** Which proxies to believe about a client's address. Without these options the framework's own setting applies. */
export interface ProxyOptions {
  /**
   * Addresses and networks of your proxies. The client is the first address that is not a proxy, read from the
   * connection's address through the header field from right to left.
   *
   * @example
   * trustedProxies: ['10.0.0.0/8', '2001:db8:ff::/48']
   */
  readonly trustedProxies?: readonly string[] | undefined
  /**
   * The number of proxies in front of the server, in place of `trustedProxies`: the client is that many entries from the
   * right of the header field. Safe only if nobody can reach the server without passing all of them.
   */
  readonly hops?: number | undefined
  /**
   * The header field to read, with `trustedProxies` or `hops`: `'x-forwarded-for'`, the default, `'forwarded'` (RFC 7239),
   * or a field with a single address such as `'cf-connecting-ip'`.
   */
  readonly forwardedHeader?: string | undefined
}

/** Options beside the limit itself. */
export interface RequestOptions<X extends Exchange> extends CountingOptions<X>, ProxyOptions {
  /**
   * The longest time that a request may wait for its permits, at most 60 s; default 0, or with a leaky bucket the length
   * of its queue. A request whose wait would be longer is refused at once and takes nothing. A client that disconnects
   * while it waits gets its permits back.
   */
  readonly maxWait?: Duration | undefined
  /**
   * Called for a refused request, with its status and header fields already set; may be async. It may send a response of
   * its own; if it has not when it returns or its promise settles, the default response is sent. Cannot be combined with
   * `throws`.
   *
   * @example
   * onRefused: (req, res, { retryAfter }) => res.render('slow-down', { retryAfter })
   */
  readonly onRefused?: ((...args: [...exchange: X, refusal: Refusal]) => unknown) | undefined
  /**
   * Passes a refusal to the framework's error handling, as a `RefusedError` with status and header fields, and sends no
   * response; default false. Cannot be combined with `onRefused`.
   */
  readonly throws?: boolean | undefined
  /**
   * Called with every decision before it takes effect; may be async, and then the request waits for it. An error goes to
   * the framework's error handling.
   */
  readonly onDecision?: ((request: X[0], outcome: Outcome) => unknown) | undefined
  /** The status of a refusal, 400 to 599; default 429. */
  readonly status?: number | undefined
  /**
   * The body of a refusal: a string (text/plain), an object (application/json), or a function that returns either and may
   * be async; default a problem (application/problem+json). A request for which the function returns anything else fails
   * with an error of code SLUICE_INVALID_BODY.
   */
  readonly body?:
    | Answer
    | ((request: X[0], refusal: Omit<Refusal, 'body'>) => MaybePromise<Answer>)
    | undefined
  /**
   * Decides, counts, sets header fields and calls `onDecision` as usual, but lets every request pass; default false. Shows
   * what a limit would refuse before it is in force.
   */
  readonly dryRun?: boolean | undefined
  /**
   * Client addresses and networks (`'10.0.0.0/8'`) that have no limit, whatever their key. Where networks in `allow` and
   * `deny` contain the same address, the longest prefix decides.
   */
  readonly allow?: readonly string[] | undefined
  /** Client addresses and networks that are always refused, without Retry-After. Wins over an equal entry in `allow`. */
  readonly deny?: readonly string[] | undefined
  /**
   * Lets CORS preflight requests pass uncounted and without header fields; default false, because anybody can send any
   * number of them.
   */
  readonly skipPreflight?: boolean | undefined
  /**
   * What happens to a request when the limiter's store fails: `'throw'`, the default, passes the error to the framework;
   * `'allow'` lets the request pass without header fields; `'refuse'` answers with status 503. A limiter or store that has
   * `onStoreError: 'allow'` or `'refuse'` itself does not fail.
   */
  readonly onStoreError?: OnStoreError | undefined
  /**
   * The draft by which the RateLimit header fields are written, or false for no such fields; default `'draft-8'`, whose
   * syntax drafts 9 to 11 share. Retry-After is sent either way. If several limits handle a request, all of them use the
   * draft of the first.
   */
  readonly headers?: Dialect | false | undefined
  /**
   * Sends X-RateLimit header fields as well, with the reset in seconds since the Unix epoch (`'epoch'`) or in seconds from
   * now (`'delta'`); default false.
   */
  readonly legacyHeaders?: LegacyReset | false | undefined
  /**
   * Makes window algorithms announce, as buckets always do, the time over which a client should spread its remaining
   * permits; default false, they announce when the next permits become available.
   */
  readonly paced?: boolean | undefined
  /** Lists the sent fields in Access-Control-Expose-Headers, so that scripts of other origins can read them; default false. */
  readonly exposeHeaders?: boolean | undefined
  /**
   * A secret of at least 16 characters. With it, the header fields carry a partition key: the first 9 bytes of an
   * HMAC-SHA-256 of the request's key. Default none: a shared cache could send the partition key of one client to others.
   */
  readonly partitionSecret?: string | undefined
  /** The bits of an IPv6 address that identify a client, 32 to 128; default 56, the size of a home's network. */
  readonly ipv6Prefix?: number | undefined
}

/** The body of a refusal, as the `body` option takes it. */
export type Answer = string | object

/** A refused request, as `onRefused` receives it. */
export interface Refusal {
  /** The decision of the limiter. */
  readonly decision: Decision
  /** The status of the response: that of the `status` option, or 503 when a store has failed. */
  readonly status: number
  /** The seconds in Retry-After; undefined if waiting does not help. */
  readonly retryAfter: number | undefined
  /** Why the request is refused; the default body. */
  readonly problem: Problem
  /** The body of the response. */
  readonly body: Body
}

/** A decision, as `onDecision` receives it. */
export interface Outcome {
  readonly decision: Decision
  /** Whether the request is refused; always false in a dry run, where `decision` shows what would have happened. */
  readonly refused: boolean
}

/** Problem details (RFC 9457) of a type that the RateLimit drafts register. */
export interface Problem {
  /** A URI that identifies the kind of problem. */
  readonly type: string
  /** A name of the kind of problem, the same for every occurrence. */
  readonly title: string
  /** The status of the response. */
  readonly status: number
  /** The names of the policies that refused; absent if all of them are hidden. */
  readonly 'violated-policies'?: readonly string[]
}

/** A body, ready to be sent. */
export interface Body {
  /** The media type, for Content-Type. */
  readonly type: string
  readonly text: string
}

/** The drafts of the RateLimit header fields; 9 to 11 are written like 8. */
export type Dialect = 'draft-6' | 'draft-7' | 'draft-8' | 'draft-9' | 'draft-10' | 'draft-11'

/** What X-RateLimit-Reset holds: seconds since the Unix epoch, or seconds from now. */
export type LegacyReset = 'epoch' | 'delta'

/** What a limit counts. Header fields leave out `'requests'`, which is their default. */
export type QuotaUnit = 'requests' | 'content-bytes' | 'concurrent-requests'
