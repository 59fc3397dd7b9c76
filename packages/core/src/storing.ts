/*
 * What stores in other packages are made with: a decision that was made elsewhere is put together here, and what was
 * written under other options is converted as in memory.
 */

export { sameArgs } from './algorithm.js'
export { blockedElsewhere } from './blocked.js'
export { systemClock } from './clock.js'
export { Deadlines } from './deadlines.js'
export { spanToUs } from './duration.js'
export { convertSince, type Era } from './eras.js'
export { coded, invalid } from './errors.js'
export { checkOnStoreError, storeError } from './guarded-ledger.js'
export { checkOptions } from './options.js'
export type { Ladder } from './penalties.js'
export type { Together, TogetherAsk } from './store.js'
