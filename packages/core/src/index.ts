export type { Algorithm, AlgorithmWarning, Booking, Policy } from './algorithms/algorithm.js'
export { createDecision, type NewDecision } from './algorithms/create-decision.js'
export { type CycleOptions, cycle } from './algorithms/cycle.js'
export type { Decision, DecisionCode, DecisionFigures } from './algorithms/decision.js'
export { type FixedWindowOptions, fixedWindow } from './algorithms/fixed-window.js'
export { type LeakyBucketOptions, leakyBucket } from './algorithms/leaky-bucket.js'
export { type SlidingLogOptions, slidingLog } from './algorithms/sliding-log.js'
export { type SlidingWindowOptions, slidingWindow } from './algorithms/sliding-window.js'
export { type SmoothBurstyOptions, smoothBursty } from './algorithms/smooth-bursty.js'
export { type SmoothWarmingUpOptions, smoothWarmingUp } from './algorithms/smooth-warming-up.js'
export { type TokenBucketOptions, tokenBucket } from './algorithms/token-bucket.js'
export { unlimited } from './algorithms/unlimited.js'
export { createLimiter } from './limiter/create-limiter.js'
export type { SluiceEvents } from './limiter/events.js'
export { acquireAll, combine, type LimiterAsk, tryAcquireAll } from './limiter/joint/combine.js'
export type { DecisionPart, JointDecision } from './limiter/joint/joint-decision.js'
export { type LimitedOptions, type LimitedResult, type Limiting, limited } from './limiter/limited.js'
export type {
  AcquireOptions,
  Limiter,
  LimiterOptions,
  ReserveOptions,
  WaitOptions,
} from './limiter/limiter.js'
export { RateLimitedError } from './limiter/rate-limited-error.js'
export {
  createRegistry,
  type Registry,
  type RegistryEvent,
  type RegistryOptions,
} from './limiter/registry.js'
export type { Reservation } from './limiter/reservation.js'
export type { LimiterStats } from './limiter/stats.js'
export { type Alarm, type Clock, systemClock } from './shared/clock.js'
export { type Duration, parseDuration } from './shared/duration.js'
export type { SluiceError, SluiceErrorCode } from './shared/errors.js'
export type { Answer } from './shared/maybe-promise.js'
export { type MemoryStore, type MemoryStoreOptions, memoryStore } from './store/memory/memory-store.js'
export type { AsyncStore, Booked, Ledger, LedgerSpec, OnStoreError, Store, SyncStore } from './store/store.js'
