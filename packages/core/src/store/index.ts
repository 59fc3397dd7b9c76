/*
 * What stores in other packages are made of: the guard of an asynchronous store, the errors and checks of options, and
 * the parts that make their decisions equal to those in memory.
 */

export { sameArgs } from '../algorithms/algorithm.js'
export { cycleConstants } from '../algorithms/cycle.js'
export { leakyBucketConstants } from '../algorithms/leaky-bucket.js'
export { slidingWindowConstants } from '../algorithms/sliding-window.js'
export { smoothBurstyConstants } from '../algorithms/smooth-bursty.js'
export { smoothWarmingUpConstants } from '../algorithms/smooth-warming-up.js'
export { tokenBucketConstants } from '../algorithms/token-bucket.js'
export { systemClock } from '../shared/clock.js'
export { spanToUs } from '../shared/duration.js'
export { coded, invalid } from '../shared/errors.js'
export { checkOptions } from '../shared/validate.js'
export { guarded } from './async-guard.js'
export { blockedElsewhere } from './blocked.js'
export { convertSince, type OptionsVersion } from './conversions.js'
export { type CounterState, type CounterStoreOptions, counterStore } from './counter-store.js'
export { Deadlines } from './deadlines.js'
export type { Ladder, Together, TogetherAsk } from './store.js'
export { checkOnStoreError, storeError } from './store-error.js'
