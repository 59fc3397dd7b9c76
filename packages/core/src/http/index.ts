export { type MaybePromise, proceed } from '../answer.js'
export { coded, invalid } from '../errors.js'
export {
  asError,
  dropOnRedirect,
  FOREIGN,
  finish,
  type NodeResponse,
  sendRefusal,
  writeFields,
} from './answering.js'
export { limitOn } from './apply.js'
export type { Host, Message } from './client.js'
export type { Dialect, LegacyReset } from './dialects.js'
export type { Closing } from './endings.js'
export { createGuard, type Guard } from './guard.js'
export type { QuotaUnit } from './headers.js'
export { addressKey } from './identity.js'
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
export type { Body, Problem } from './problem.js'
export type { ProxyOptions } from './proxies.js'
export { isRefusal, type RefusedError, refusedError } from './refused-error.js'
export { type RouteLimit, routeLimit, runLimited } from './routes.js'
export type { Field, Verdict } from './verdicts.js'
