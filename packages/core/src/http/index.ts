export { type MaybePromise, proceed } from '../answer.js'
export { coded, invalid } from '../errors.js'
export { finish, type NodeResponse, sendProblem, writeFields } from './answering.js'
export {
  type Closing,
  createGuard,
  type Field,
  type Guard,
  type Host,
  type Verdict,
} from './guard.js'
export { addressKey } from './identity.js'
export type {
  Exchange,
  HttpOptions,
  LimitDoor,
  LimiterDoor,
  Refusal,
  RequestKey,
  RequestOptions,
} from './options.js'
export { PROBLEM_JSON, type Problem } from './problem.js'
