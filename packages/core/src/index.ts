export type { Algorithm, Booking, Policy } from './algorithm.js'
export { type CycleOptions, cycle } from './algorithms/cycle.js'
export { type FixedWindowOptions, fixedWindow } from './algorithms/fixed-window.js'
export { type LeakyBucketOptions, leakyBucket } from './algorithms/leaky-bucket.js'
export { type SlidingLogOptions, slidingLog } from './algorithms/sliding-log.js'
export { type SlidingWindowOptions, slidingWindow } from './algorithms/sliding-window.js'
export { type SmoothBurstyOptions, smoothBursty } from './algorithms/smooth-bursty.js'
export { type SmoothWarmingUpOptions, smoothWarmingUp } from './algorithms/smooth-warming-up.js'
export { type TokenBucketOptions, tokenBucket } from './algorithms/token-bucket.js'
export { unlimited } from './algorithms/unlimited.js'
export type { Answer } from './answer.js'
export { type Alarm, type Clock, systemClock } from './clock.js'
export { acquireAll, combine, type LimiterAsk, tryAcquireAll } from './combine.js'
export type { Decision, DecisionCode, DecisionFigures } from './decision.js'
export { type LimitedOptions, type LimitedResult, type Limiting, limited } from './decorate.js'
export { type Duration, parseDuration } from './duration.js'
export type { SluiceError, SluiceErrorCode } from './errors.js'
export type { SluiceEvents } from './events.js'
export type { OnStoreError } from './guarded-ledger.js'
export type { DecisionPart, JointDecision } from './joint-decision.js'
export {
  type AcquireOptions,
  createLimiter,
  type Limiter,
  type LimiterOptions,
  type ReserveOptions,
  type WaitOptions,
} from './limiter.js'
export { type MemoryStore, type MemoryStoreOptions, memoryStore } from './memory-store.js'
export { RateLimitedError } from './rate-limited-error.js'
export {
  createRegistry,
  type Registry,
  type RegistryEvent,
  type RegistryOptions,
} from './registry.js'
export type { Reservation } from './reservation.js'
export type { LimiterStats } from './stats.js'
export type { AsyncStore, Booked, Ledger, LedgerSpec, Store, SyncStore } from './store.js'
