import type { Clock } from '../clock.js'
import { type Duration, parseDuration } from '../duration.js'
import { invalid } from '../errors.js'
import { checkOptions } from '../options.js'

/** A clock that moves only when told to. */
export interface ManualClock extends Clock {
  /** Moves the clock forward; a number is milliseconds and may have decimals (0.001 is one microsecond). */
  advance(duration: Duration): void
  /** Sets the clock to a time in milliseconds since the epoch, earlier or later. */
  set(timeMs: number): void
  /** The time it shows, in milliseconds since the epoch. */
  readonly nowMs: number
}

/**
 * A clock for tests: limits are tested without sleeping.
 *
 * Starts at `startMs` (milliseconds since the epoch, default 2025-01-01T00:00:00Z). Throws a TypeError or RangeError
 * for a time that is not a number of milliseconds at or after the epoch.
 *
 * @example
 * const clock = manualClock()
 * const limiter = createLimiter(tokenBucket({ limit: 1, window: '1m' }), { clock })
 * limiter.tryAcquire('ann').allowed // true
 * limiter.tryAcquire('ann').allowed // false
 * clock.advance('1m')
 * limiter.tryAcquire('ann').allowed // true
 */
export function manualClock(options: { startMs?: number } = {}): ManualClock {
  checkOptions('manualClock', options, ['startMs'])
  const { startMs = Date.UTC(2025, 0, 1) } = options
  let nowUs = timeToUs('startMs', startMs)
  return {
    nowUs: () => nowUs,
    get nowMs() {
      return nowUs / 1000
    },
    advance(duration) {
      const us = nowUs + Math.round(parseDuration(duration, 'advance') * 1000)
      if (!Number.isSafeInteger(us)) throw invalid(RangeError, 'advance', 'a time before 2^53 us', duration)
      nowUs = us
    },
    set(timeMs) {
      nowUs = timeToUs('set', timeMs)
    },
  }
}

function timeToUs(option: string, ms: unknown): number {
  if (typeof ms !== 'number') throw invalid(TypeError, option, 'milliseconds since the epoch', ms)
  const us = Math.round(ms * 1000)
  if (!Number.isSafeInteger(us) || us < 0)
    throw invalid(RangeError, option, 'milliseconds since the epoch', ms)
  return us
}
