/**
 * Where a limiter reads the time.
 *
 * The system clock is the default; tests pass `manualClock()` of `@sluice/core/testing`.
 */
export interface Clock {
  /** Whole microseconds since the Unix epoch. */
  nowUs(): number
}

/**
 * The process's monotonic clock, set to the wall clock once: a later jump of the wall clock (NTP, daylight saving, an
 * operator) neither opens nor closes a limit.
 */
export const systemClock: Clock = {
  nowUs: () => Math.floor(timer.now() * 1000) + STARTED_AT_US,
}

// Held here because the global is a getter.
const timer = globalThis.performance
const STARTED_AT_US = Math.round(timer.timeOrigin * 1000)
