import {
  type Algorithm,
  createLimiter,
  type Decision,
  type Limiter,
  RateLimitedError,
  type Reservation,
} from '@sluice/core'
import { type ManualClock, manualClock } from '@sluice/core/testing'

const KEY = 'key'

/** Any time will do but the epoch, which is the time of a key never seen. */
export const START_MS = 1_700_000_000_000

/** A limiter with one key, and its clock. Times are milliseconds since its start. */
export class OneKey {
  readonly #startMs: number
  readonly #clock: ManualClock
  readonly #limiter: Limiter<false>

  constructor(algorithm: Algorithm, startMs = START_MS) {
    this.#startMs = startMs
    this.#clock = manualClock({ startMs })
    this.#limiter = createLimiter(algorithm, { clock: this.#clock, maxQueuePerKey: 1000 })
  }

  at(ms: number): this {
    this.#clock.set(this.#startMs + ms)
    return this
  }

  update(algorithm: Algorithm): this {
    this.#limiter.update(algorithm)
    return this
  }

  take(cost = 1): Decision {
    return this.#limiter.tryAcquire(KEY, { cost })
  }

  book(cost = 1, maxWait = Infinity): Reservation<false> {
    return this.#limiter.reserve(KEY, { cost, maxWait })
  }

  /** Resolves to the time waited, or to undefined for a refusal. */
  async acquire(cost = 1, maxWait = Infinity): Promise<number | undefined> {
    try {
      return (await this.#limiter.acquire(KEY, { cost, maxWait })).waitMs
    } catch (error) {
      if (error instanceof RateLimitedError) return undefined
      throw error
    }
  }

  release(permits: number): number {
    return this.#limiter.release(KEY, permits)
  }

  drain(): number {
    return this.#limiter.drain(KEY)
  }

  get now(): Decision {
    return this.#limiter.peek(KEY)
  }

  get ratePerMs(): number {
    const { limit, windowMs } = this.#limiter.policy
    return limit / (windowMs ?? 0)
  }
}
