import type { Alarm, Clock } from '../shared/clock.js'
import { type Duration, parseDuration } from '../shared/duration.js'
import { invalid } from '../shared/errors.js'
import { checkOptions } from '../shared/validate.js'

/** A clock that moves only by calls of `advance` and `set`. */
export interface ManualClock extends Clock {
  /**
   * Moves the clock forward. A number is milliseconds and may have decimals (0.001 is one microsecond). Each wait that
   * ends on the way ends at its own instant, the earliest first. Throws a TypeError or RangeError if `duration` is not a
   * duration.
   */
  advance(duration: Duration): void
  /** Sets the clock to a time in milliseconds since the epoch, earlier or later. Waits that end by then end. */
  set(timeMs: number): void
  /** The current time, in milliseconds since the epoch. */
  readonly nowMs: number
  /** How many alarms are set: waits that have not ended. */
  readonly alarms: number
}

/**
 * A clock for tests, so that they need not sleep.
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
export function manualClock(options: { readonly startMs?: number | undefined } = {}): ManualClock {
  checkOptions('manualClock', options, ['startMs'])
  const { startMs = Date.UTC(2025, 0, 1) } = options
  let nowUs = timeToUs('startMs', startMs)
  const alarms = new Set<{ readonly atUs: number; readonly ring: () => void }>()

  /** Stops at every alarm on the way, the earliest first, so that each rings at its own time. */
  function moveTo(targetUs: number): void {
    for (;;) {
      const due = [...alarms].filter(({ atUs }) => atUs <= targetUs).sort((a, b) => a.atUs - b.atUs)[0]
      if (due === undefined) break
      alarms.delete(due)
      nowUs = Math.max(nowUs, due.atUs)
      due.ring()
    }
    nowUs = targetUs
  }

  return {
    nowUs: () => nowUs,
    get nowMs() {
      return nowUs / 1000
    },
    get alarms() {
      return alarms.size
    },
    advance(duration) {
      const targetUs = nowUs + Math.round(parseDuration(duration, 'advance') * 1000)
      if (!Number.isSafeInteger(targetUs))
        throw invalid(RangeError, 'advance', 'a time before 2^53 us', duration)
      moveTo(targetUs)
    },
    set(timeMs) {
      moveTo(timeToUs('set', timeMs))
    },
    setAlarm(atUs, ring): Alarm {
      const alarm = { atUs, ring }
      alarms.add(alarm)
      return { cancel: () => alarms.delete(alarm) }
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
