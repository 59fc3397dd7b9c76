/**
 * Where a limiter reads the time, and what wakes those who wait.
 *
 * The system clock is the default; tests pass `manualClock()` of `@sluice/core/testing`.
 */
export interface Clock {
  /** Microseconds since the Unix epoch, whole and not negative. */
  nowUs(): number
  /**
   * Calls `ring` once the clock shows `atUs`, never before; where it is missing, timers of the system do it. With
   * `keepsAlive` false it does not keep the process alive.
   */
  setAlarm?(atUs: number, ring: () => void, keepsAlive: boolean): Alarm
}

/** A call to come that can be called off. */
export interface Alarm {
  cancel(): void
}

/**
 * The process's monotonic clock, set to the wall clock once: a later jump of the wall clock (NTP, daylight saving, an
 * operator) neither opens nor closes a limit.
 */
export const systemClock: Clock = {
  nowUs: () => Math.floor(timer.now() * 1000) + STARTED_AT_US,
}

/** Sets an alarm by a clock. */
export function setAlarm(clock: Clock, atUs: number, ring: () => void, keepsAlive: boolean): Alarm {
  return clock.setAlarm?.(atUs, ring, keepsAlive) ?? new TimerAlarm(clock, atUs, ring, keepsAlive)
}

// Held here because the global is a getter.
const timer = globalThis.performance
const STARTED_AT_US = Math.round(timer.timeOrigin * 1000)

/** Timers fire up to 2 ms early, and count 31 bits of milliseconds: the clock decides, and the timer is set again. */
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
    this.#timeout = setTimeout(() => this.#look(), Math.min(Math.max(delayMs, 0), LONGEST_DELAY_MS))
    if (!this.#keepsAlive) this.#timeout.unref?.()
  }

  #look(): void {
    if (this.#clock.nowUs() < this.#atUs) this.#arm()
    else this.#ring()
  }
}

const LONGEST_DELAY_MS = 2 ** 31 - 1
