/**
 * The property that marks a limiter. It is the same in every copy of this package, so that a process with two copies can
 * pass limiters from one to the other; `instanceof` would fail there.
 */
export const LIMITER = Symbol.for('@sluice/core/limiter')

/** The value of the mark. It changes whenever the internal members of limiters change. */
export const LIMITER_VERSION = 1
