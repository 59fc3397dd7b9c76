export { coded, invalid } from '../shared/errors.js'
export { andThen, type MaybePromise } from '../shared/maybe-promise.js'
export { createGuard, type Guard } from './guard.js'
export { type RouteLimit, routeLimit, runLimited } from './handler.js'
export type { Closing } from './lifecycle/response-end.js'
export { limitOn } from './middleware.js'
export { type LimitedMessage, limitRoute, type NodeOptions } from './node.js'
export type {
  Answer,
  BlockOptions,
  CountingOptions,
  Ending,
  Exchange,
  HttpOptions,
  LimitDoor,
  LimiterDoor,
  Outcome,
  PoliciesDoor,
  PolicyOptions,
  Refund,
  RefundRule,
  Refusal,
  RequestKey,
  RequestOptions,
} from './options.js'
export { addressKey } from './request/address.js'
export type { Host, Message } from './request/client-key.js'
export type { ProxyOptions } from './request/forwarded.js'
export type { Dialect, LegacyReset } from './response/older-fields.js'
export type { Body, Problem } from './response/problem.js'
export type { QuotaUnit } from './response/ratelimit-fields.js'
export { isRefusal, type RefusedError, refusedError } from './response/refused-error.js'
export type { Field, Verdict } from './response/report.js'
export {
  asError,
  dropOnRedirect,
  FOREIGN,
  finish,
  type NodeResponse,
  sendRefusal,
  writeFields,
} from './response/write-fields.js'
