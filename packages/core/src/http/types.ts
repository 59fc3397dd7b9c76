import type { Decision } from '../algorithms/decision.js'
import type { Limiter } from '../limiter/limiter.js'
import type { LedgerLimiter } from '../limiter/limiter-class.js'
import type { MaybePromise } from '../shared/maybe-promise.js'
import type { Ladder, OnStoreError } from '../store/store.js'
import type {
  CountingOptions,
  Dialect,
  Ending,
  Exchange,
  LegacyReset,
  QuotaUnit,
  Refusal,
  RequestOptions,
} from './options.js'

/*
 * The types that several files of http/ share, in the order in which a request meets them. Only types, and no import but of
 * the options: this is what keeps the folders of http/ free of import cycles.
 */

/** Header fields of a request, as in node:http. */
export interface Headers {
  readonly [name: string]: string | string[] | undefined
}

/** A request, as in node:http. */
export interface Message {
  readonly method?: string | undefined
  readonly headers: Headers
  readonly socket?: Socket | undefined
  /** Whether the client disconnected before the response was complete. */
  readonly aborted?: boolean | undefined
}

/** The connection of a request, as in node:net. */
export interface Socket {
  readonly remoteAddress?: string | undefined
  readonly destroyed?: boolean
  once?(event: 'close', listener: () => void): unknown
  off?(event: 'close', listener: () => void): unknown
}

/** A response whose end can be observed, as in node:http. */
export interface ObservedResponse {
  readonly statusCode: number
  /** Whether `end` has been called. */
  readonly writableEnded: boolean
  /** Whether the whole response has been sent. */
  readonly writableFinished: boolean
  end(...args: never[]): unknown
  once(event: 'close' | 'finish', listener: () => void): unknown
  off(event: 'close' | 'finish', listener: () => void): unknown
}

/** A response that header fields and a body can be written to, as in node:http. */
export interface NodeResponse {
  statusCode: number
  readonly headersSent: boolean
  getHeader(name: string): number | string | readonly string[] | undefined
  setHeader(name: string, value: string | number): unknown
  removeHeader(name: string): unknown
  end(body: string): unknown
}

/** How to read the requests and responses of a framework. */
export interface Host<X extends Exchange> {
  /** The client's address as the framework determines it; undefined if there is none. */
  address(request: X[0]): string | undefined
  /** The node:http request of the framework's request. */
  message(request: X[0]): Message
  /** The node:http response of the framework's response. */
  response(...exchange: X): ObservedResponse
  /** Whose forwarded headers the framework believes. */
  trusts(request: X[0]): 'nobody' | 'some' | 'anybody'
}

/** The options of a route, checked and with every default filled in. */
export interface Rules<X extends Exchange> extends HeaderStyle {
  readonly policies: readonly PolicyRule<X>[]
  /** Undefined for the default of the limiter's algorithm. */
  readonly maxWaitMs: number | undefined
  readonly status: number
  readonly body: ((request: X[0], refusal: Omit<Refusal, 'body'>) => MaybePromise<unknown>) | undefined
  readonly onDecision: RequestOptions<X>['onDecision']
  readonly onStoreError: OnStoreError
  readonly throws: boolean
  readonly access: Access | undefined
  readonly dryRun: boolean
  readonly skipPreflight: boolean
  readonly paced: boolean
  readonly exposeHeaders: boolean
  readonly partition: Partition | undefined
  readonly findClient: FindClient | undefined
  readonly ipv6Prefix: number
}

/** The options of one policy of a route, checked and with every default filled in. */
export interface PolicyRule<X extends Exchange> {
  /** The index among the policies of the route. */
  readonly place: number
  readonly limiter: LedgerLimiter<boolean> | ((request: X[0]) => MaybePromise<Limiter | null>)
  /** The name in header fields; undefined for the limiter's name. */
  readonly name: string | undefined
  readonly key: CountingOptions<X>['key']
  readonly cost: number | ((request: X[0]) => MaybePromise<number>)
  readonly countsAfter: boolean
  /** Whether a request gets its permits back, or with `countsAfter` takes none; undefined for never. */
  readonly refunds: Refunds<X> | undefined
  /** Whether the charge may change when the request ends, because of `countsAfter` or `refunds`. */
  readonly settlesAtEnd: boolean
  readonly ladder: Ladder | undefined
  /** Whether the limiter was made for this policy, so that no other code uses it. */
  readonly isOwn: boolean
  readonly hidden: boolean
  readonly unit: QuotaUnit | undefined
}

/** The `refund` option as a function. */
export type Refunds<X extends Exchange> = (exchange: X, ending: Ending) => MaybePromise<boolean>

/** The entry of the `allow` and `deny` lists that decides about an address; undefined if neither list contains it. */
export type Access = (address: string | undefined) => 'allow' | 'deny' | undefined

/** Finds the client's address from the connection's address and the header fields; undefined if there is none. */
export type FindClient = (peer: string | undefined, headers: Headers) => string | undefined

/** Hashes a key into a partition key, in base64. */
export type Partition = (key: string) => string

/** How header fields are written. */
export interface HeaderStyle {
  readonly dialect: Dialect | undefined
  readonly legacy: LegacyReset | undefined
}

/** The permits that a request needs by one policy. */
export interface Ask<X extends Exchange> {
  readonly rule: PolicyRule<X>
  readonly limiter: LedgerLimiter<boolean>
  readonly key: string
  readonly cost: number
}

/** What the header fields say about one policy. Times in milliseconds; undefined and infinite ones are left out. */
export interface PolicyReport {
  readonly name: string
  /** The quota; a policy of Infinity appears in no field. */
  readonly limit: number
  readonly windowMs?: number | undefined
  readonly remaining: number
  /** Until more of the quota is available. */
  readonly resetMs?: number | undefined
  /** Whether this policy refused the request. */
  readonly violated: boolean
  /** If violated: until this request would pass; Infinity for never. */
  readonly waitMs?: number | undefined
  readonly unit?: QuotaUnit | undefined
  /** The partition key, in base64. */
  readonly partition?: string | undefined
  /** Whether the policy appears in no field. */
  readonly hidden?: boolean | undefined
  /** The index among the policies of the route. */
  readonly place?: number | undefined
  /** Whether the policy does not apply to this request: it appears in RateLimit-Policy only. */
  readonly isUnused?: boolean | undefined
  /** Whether the refusal is due to a block. */
  readonly penalty?: boolean | undefined
}

/** A header field of a response. */
export interface Field {
  readonly name: string
  readonly value: string
  /** Whether to append the value to one that the response already has. */
  readonly joins: boolean
  /** Whether to append only members that the response does not have yet. */
  readonly unique?: boolean
}

/** What an adapter does with a request. */
export type Verdict =
  /** The request has no limit: continue, and change nothing. */
  | { readonly outcome: 'skipped' }
  /** The client has disconnected: do nothing, and do not continue. */
  | { readonly outcome: 'abandoned' }
  | {
      readonly outcome: 'allowed'
      readonly decision: Decision
      readonly fields: readonly Field[]
      /** Names of fields to remove if the response is a redirect. */
      readonly dropsOnRedirect: readonly string[]
    }
  | {
      readonly outcome: 'refused'
      readonly decision: Decision
      readonly fields: readonly Field[]
      readonly dropsOnRedirect: readonly string[]
      readonly refusal: Refusal
    }
