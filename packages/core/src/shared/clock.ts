/**
 * Where a limiter reads the time, and sets the alarms that end waits.
 *
 * The default is the system's clock. In tests pass `manualClock()` of `@sluice/core/testing`.
 */
export interface Clock {
  /** Microseconds since the Unix epoch, whole and not negative. */
  nowUs(): number
  /**
   * Calls `ring` once the clock shows `atUs`, never before. With `keepsAlive` false the alarm does not keep the process
   * alive. A clock without this method gets timers of the system.
   */
  setAlarm?(atUs: number, ring: () => void, keepsAlive: boolean): Alarm
}

/** A call that is planned, and can be cancelled. */
export interface Alarm {
  cancel(): void
}

/**
 * The process's monotonic clock, set to the wall clock once, at the start of the process. Later jumps of the wall clock
 * (NTP, an operator) do not affect limits.
 */
export const systemClock: Clock = {
  nowUs: () => Math.floor(timer.now() * 1000) + STARTED_AT_US,
}

/** Sets an alarm by a clock. */
export function setAlarm(clock: Clock, atUs: number, ring: () => void, keepsAlive: boolean): Alarm {
  return clock.setAlarm?.(atUs, ring, keepsAlive) ?? new TimerAlarm(clock, atUs, ring, keepsAlive)
}

// Kept in a constant because the global is a getter.
const timer = globalThis.performance
const STARTED_AT_US = Math.round(timer.timeOrigin * 1000)

/** Timers fire up to 2 ms early, and last at most 2^31 - 1 ms. When one fires before its time, it is set again. */
class TimerAlarm implements Alarm {
  readonly #clock: Clock
  readonly #atUs: number
  readonly #ring: () => void
  readonly #keepsAlive: boolean
  #timeout: NodeJS.Timeout | undefined

  constructor(clock: Clock, atUs: number, ring: () => void, keepsAlive: boolean) {
    this.#clock = clock
    this.#atUs = atUs
    this.#ring = ring
    this.#keepsAlive = keepsAlive
    this.#arm()
  }

  cancel(): void {
    clearTimeout(this.#timeout)
  }

  #arm(): void {
    const delayMs = Math.ceil((this.#atUs - this.#clock.nowUs()) / 1000)
    this.#timeout = setTimeout(() => this.#check(), Math.min(Math.max(delayMs, 0), LONGEST_DELAY_MS))
    if (!this.#keepsAlive) this.#timeout.unref?.()
  }

  #check(): void {
    if (this.#clock.nowUs() < this.#atUs) this.#arm()
    else this.#ring()
  }
}

const LONGEST_DELAY_MS = 2 ** 31 - 1
