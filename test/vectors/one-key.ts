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

/** Any time but the epoch, which is the time of a new key. */
export const START_MS = 1_700_000_000_000

/** The calls of a replica to a limiter with one key, on any store. */
export interface Key {
  at(ms: number): unknown
  update(algorithm: Algorithm): unknown
  take(cost?: number): MaybePromise<Decision>
  book(cost?: number, maxWait?: number): MaybePromise<Reservation>
  /** Resolves to the time waited, or to undefined after a refusal. */
  acquire(cost?: number, maxWait?: number): Promise<number | undefined>
  drain(): unknown
  readonly now: MaybePromise<Decision>
  readonly ratePerMs: number
}

/** Creates such a limiter. Times are milliseconds since its start. */
export type OpenKey = (algorithm: Algorithm, startMs?: number) => MaybePromise<Key>

type MaybePromise<T> = T | Promise<T>

/** A limiter with one key, and its clock. Times are milliseconds since its start. */
export class OneKey implements Key {
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

  async acquire(cost = 1, maxWait = Infinity): Promise<number | undefined> {
    return waited(this.#limiter.acquire(KEY, { cost, maxWait }))
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
    return ratePerMs(this.#limiter)
  }
}

/** The time that a waiter has waited; undefined after a refusal. */
export async function waited(acquired: Promise<Decision>): Promise<number | undefined> {
  try {
    return (await acquired).waitMs
  } catch (error) {
    if (error instanceof RateLimitedError) return undefined
    throw error
  }
}

export function ratePerMs({ policy: { limit, windowMs = 0 } }: Limiter): number {
  return limit / windowMs
}
