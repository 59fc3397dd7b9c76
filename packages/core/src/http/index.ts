// For users: limits without a framework, options, and what callbacks receive.

export { type LimitedMessage, limitRoute, type NodeOptions } from './node.js'
export type {
  Answer,
  BlockOptions,
  Body,
  CountingOptions,
  Dialect,
  Ending,
  Exchange,
  HttpOptions,
  LegacyReset,
  LimitDoor,
  LimiterDoor,
  Outcome,
  PoliciesDoor,
  PolicyOptions,
  Problem,
  ProxyOptions,
  QuotaUnit,
  Refund,
  RefundRule,
  Refusal,
  RequestKey,
  RequestOptions,
} from './options.js'
export { addressKey } from './request/address.js'
export type { RefusedError } from './response/refused-error.js'

// For adapters: the decision about a request, and how to apply it.

export { coded, invalid } from '../shared/errors.js'
export { andThen, type MaybePromise } from '../shared/maybe-promise.js'
export { createGuard, type Guard } from './guard.js'
export { asError, type RouteLimit, routeLimit, runLimited, runMiddleware } from './handler.js'
export { limitOn } from './middleware.js'
export { dropOnRedirect } from './response/redirect.js'
export { isRefusal, refusedError } from './response/refused-error.js'
export { BODY_HEADERS, sendRefusal, writeFields } from './response/write-fields.js'
export type { Field, Host, Message, NodeResponse, ObservedResponse, Verdict } from './types.js'
