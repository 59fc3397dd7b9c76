import type { Algorithm, Policy } from '../algorithms/algorithm.js'
import type { Decision } from '../algorithms/decision.js'
import type { Clock } from '../shared/clock.js'
import type { Duration } from '../shared/duration.js'
import type { Answer } from '../shared/maybe-promise.js'
import type { AsyncStore, OnStoreError, SyncStore } from '../store/store.js'
import type { Reservation } from './reservation.js'
import type { LimiterStats } from './stats.js'

/** Options of `createLimiter`. */
export interface LimiterOptions<S extends SyncStore | AsyncStore | undefined = undefined> {
  /** The limiter's name in headers, errors and events: 1 to 64 printable ASCII characters, default `'default'`. */
  readonly name?: string | undefined
  /** Where the state of keys is stored; default a new `memoryStore()`. */
  readonly store?: S
  /** Where the time is read; default the system's monotonic clock. */
  readonly clock?: Clock | undefined
  /** The longest wait of `reserve` and `acquire`, unless the call has its own; default the algorithm's, else Infinity. */
  readonly maxWait?: Duration | undefined
  /** How many calls of `acquire` may wait, over all keys; default 1,000, or a leaky bucket's capacity if that is more. */
  readonly maxQueue?: number | undefined
  /** How many calls of `acquire` may wait for one key; default 10, or a leaky bucket's capacity if that is more. */
  readonly maxQueuePerKey?: number | undefined
  /**
   * What happens while an asynchronous store fails: `'allow'` and `'refuse'` make decisions of code SLUICE_STORE_ERROR,
   * `'throw'` rejects with an error of that code. Default the store's, or `'throw'`.
   */
  readonly onStoreError?: OnStoreError | undefined
  /** How long a call to an asynchronous store may take before it counts as failed; default the store's, or `'100ms'`. */
  readonly deadline?: Duration | undefined
}

/** Options of `tryAcquire` and `peek`. */
export interface AcquireOptions {
  /** How many permits: a whole number, default 1. Cost 0 is always granted and changes nothing. */
  readonly cost?: number | undefined
}

/** Options of `reserve`. */
export interface ReserveOptions extends AcquireOptions {
  /** The longest wait; 0 for none. Default the limiter's `maxWait`. */
  readonly maxWait?: Duration | undefined
}

/** Options of `acquire`. */
export interface WaitOptions extends ReserveOptions {
  /** Aborting it ends the wait and gives the permits back. */
  readonly signal?: AbortSignal | undefined
  /** If true, the wait does not keep the process alive; default false. */
  readonly unref?: boolean | undefined
}

/**
 * Applies one algorithm to many keys. On a synchronous store the methods return their results at once; on an asynchronous
 * store they return promises.
 *
 * Each method throws a TypeError for a key that is not a non-empty string, a TypeError or RangeError for a cost that is not
 * a whole number, and for a bad `maxWait`. It throws at once, also on an asynchronous store; only `acquire` rejects
 * instead. Nothing is charged then.
 *
 * @example
 * limiter.tryAcquire('ann', { cost: 5 }).allowed
 * limiter.peek('ann').remaining
 * limiter.reset('ann')
 * limiter.update(tokenBucket({ limit: 50, window: '1s' }))
 */
export interface Limiter<Async extends boolean = boolean> {
  /** The name in headers, errors and events. */
  readonly name: string
  /** The limit and window for headers; `update` changes it. */
  readonly policy: Policy
  /** Takes `cost` permits now, or refuses and changes nothing. */
  tryAcquire(key: string, options?: AcquireOptions): Answer<Async, Decision>
  /**
   * Takes `cost` permits of the earliest instant at which they are available, at most `maxWait` from now, or refuses and
   * changes nothing. If it is granted, wait `waitMs` before acting; `cancel()` and `refund()` give the permits back.
   * Throws a TypeError of code SLUICE_NOT_BOOKABLE if the algorithm cannot book permits ahead and `maxWait` is not 0.
   *
   * @example
   * const booking = limiter.reserve('import', { cost: 2, maxWait: '10s' })
   * if (booking.allowed) setTimeout(work, booking.waitMs)
   */
  reserve(key: string, options?: ReserveOptions): Answer<Async, Reservation<Async>>
  /**
   * Takes `cost` permits and waits until they are available, at most `maxWait`. Calls for the same key in this process are
   * served in their order. Resolves to a decision whose `waitMs` is the time waited. Rejects with
   * - a RateLimitedError if the wait would be too long, or too many calls are waiting (`maxQueue`, `maxQueuePerKey`);
   *   nothing is taken then
   * - the signal's reason if the signal is aborted; the permits are given back, and the calls behind move up
   * - an error of code SLUICE_CLOSED after `close()`.
   *
   * @example
   * await limiter.acquire('github', { maxWait: '30s', signal: AbortSignal.timeout(60_000) })
   */
  acquire(key: string, options?: WaitOptions): Promise<Decision>
  /** Decides like `tryAcquire` without taking permits; the decision's figures are the current ones. */
  peek(key: string, options?: AcquireOptions): Answer<Async, Decision>
  /**
   * Gives back up to `permits` permits, the newest first, as far as they have not refilled by themselves; none while a call
   * waits for a booking of the key. Returns how many were given back. Throws a TypeError or RangeError if `permits` is not
   * a whole number.
   */
  release(key: string, permits: number): Answer<Async, number>
  /** Takes all permits that are available, for example when a server answers that its limit is used up. Returns how many. */
  drain(key: string): Answer<Async, number>
  /**
   * Refuses the key for a duration, and the calls that are waiting for it. A block that lasts longer stays. Throws a
   * TypeError or RangeError if the duration is not positive.
   *
   * @example
   * limiter.block('203.0.113.7', '1h')
   */
  block(key: string, duration: Duration): Answer<Async, void>
  /** Lifts a block, and clears the refusals that were counted towards the next one. */
  unblock(key: string): Answer<Async, void>
  /** Forgets the key: its permits are all available, it is not blocked, and its reservations have nothing to give back. */
  reset(key: string): Answer<Async, void>
  /**
   * Changes the algorithm. With the same algorithm and other options, each key keeps its state (a token bucket its balance,
   * a window its count); with another algorithm, all keys start afresh. Waiting calls of `acquire` are booked again at
   * once. Throws a TypeError if `algorithm` is not an algorithm.
   */
  update(algorithm: Algorithm): Answer<Async, void>
  /** Counts since the limiter was made. They contain no keys. */
  stats(): LimiterStats
  /** Ends every wait; from now on `acquire` rejects. The other methods go on working. */
  close(): void
}
