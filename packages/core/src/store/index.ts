/*
 * What stores in other packages are made with: a decision that was made elsewhere is put together here, and what was
 * written under other options is converted as in memory.
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
export { checkOnStoreError, storeError } from './async-guard.js'
export { blockedElsewhere } from './blocked.js'
export { convertSince, type Era } from './conversions.js'
export { Deadlines } from './deadlines.js'
export type { Ladder } from './penalties.js'
export type { Together, TogetherAsk } from './store.js'
