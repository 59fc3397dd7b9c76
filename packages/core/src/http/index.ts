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
export type { Host, Message } from './client.js'
export type { Dialect, LegacyReset } from './dialects.js'
export { type Closing, createGuard, type Guard } from './guard.js'
export type { QuotaUnit } from './headers.js'
export { addressKey } from './identity.js'
export type {
  Answer,
  CountingOptions,
  Exchange,
  HttpOptions,
  LimitDoor,
  LimiterDoor,
  Outcome,
  PoliciesDoor,
  PolicyOptions,
  Refusal,
  RequestKey,
  RequestOptions,
} from './options.js'
export type { Body, Problem } from './problem.js'
export type { ProxyOptions } from './proxies.js'
export type { Field, Verdict } from './verdicts.js'
