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
  /** The name that headers and errors give it: 1 to 64 printable ASCII characters, default `'default'`. */
  readonly name?: string | undefined
  /** Where the keys live; default a `memoryStore()` of its own. */
  readonly store?: S
  /** Where the time comes from; default the system's monotonic clock. */
  readonly clock?: Clock | undefined
  /** The longest wait `reserve` and `acquire` accept unless told otherwise; default the algorithm's, else Infinity. */
  readonly maxWait?: Duration | undefined
  /** How many may wait in `acquire` at once, over all keys; default 1,000, or a leaky bucket's capacity if that is more. */
  readonly maxQueue?: number | undefined
  /** How many may wait in `acquire` for one key; default 10, or a leaky bucket's capacity if that is more. */
  readonly maxQueuePerKey?: number | undefined
  /**
   * What an ask is answered while an asynchronous store fails: `'allow'`, `'refuse'` (both as decisions of code
   * SLUICE_STORE_ERROR), or `'throw'`, an error of that code; default the store's, or `'throw'`.
   */
  readonly onStoreError?: OnStoreError | undefined
  /** How long an asynchronous store may take for a call before it counts as failed; default the store's, or `'100ms'`. */
  readonly deadline?: Duration | undefined
}

/** What may be said to a verb of a limiter. */
export interface AcquireOptions {
  /** Permits asked for: a whole number, default 1. Cost 0 is always granted and changes nothing. */
  readonly cost?: number | undefined
}

/** What may be said to `reserve`. */
export interface ReserveOptions extends AcquireOptions {
  /**
   * The longest wait accepted, 0 for none; default the limiter's `maxWait`, which is Infinity unless set (a leaky bucket
   * has its own).
   */
  readonly maxWait?: Duration | undefined
}

/** What may be said to `acquire`. */
export interface WaitOptions extends ReserveOptions {
  /** Ends the wait when it is aborted; the permits are given back. */
  readonly signal?: AbortSignal | undefined
  /** With true the wait does not keep the process alive; default false. */
  readonly unref?: boolean | undefined
}

/**
 * Decides over keys by one algorithm. On a synchronous store every answer comes at once; on an asynchronous one every
 * answer is a promise.
 *
 * Every verb throws a TypeError for a key that is not a non-empty string and a TypeError or RangeError for a cost
 * that is not a whole number of permits (and for a `maxWait` that is none), at once also on an asynchronous store; only
 * `acquire`, always a promise, rejects with them. Nothing is charged then.
 *
 * @example
 * limiter.tryAcquire('ann', { cost: 5 }).allowed
 * limiter.peek('ann').remaining
 * limiter.reset('ann')
 * limiter.update(tokenBucket({ limit: 50, window: '1s' }))
 */
export interface Limiter<Async extends boolean = boolean> {
  /** The name of its policy in headers and errors. */
  readonly name: string
  /** What it advertises; changes with `update`. */
  readonly policy: Policy
  /** Takes `cost` permits now, or refuses and changes nothing. */
  tryAcquire(key: string, options?: AcquireOptions): Answer<Async, Decision>
  /**
   * Takes `cost` permits for the earliest instant at which they are there, at most `maxWait` from now, or refuses and
   * changes nothing. On a grant wait `waitMs` before acting; `cancel()` and `refund()` give the permits back. Throws a
   * TypeError of code SLUICE_NOT_BOOKABLE where the algorithm cannot promise a permit of the future, unless `maxWait` is 0.
   */
  reserve(key: string, options?: ReserveOptions): Answer<Async, Reservation<Async>>
  /**
   * Takes `cost` permits and waits until they are there, at most `maxWait`. First come, first served within this
   * process. Resolves to a decision whose `waitMs` is the time waited. Rejects with a RateLimitedError when the wait
   * would be longer or too many wait already (`maxQueue`, `maxQueuePerKey`; nothing is taken then), with the signal's
   * reason when it is aborted (the permits are given back, and who waits behind moves up), with an error of code
   * SLUICE_CLOSED after `close()`.
   *
   * @example
   * await limiter.acquire('github', { maxWait: '30s', signal: AbortSignal.timeout(60_000) })
   */
  acquire(key: string, options?: WaitOptions): Promise<Decision>
  /** What `tryAcquire` would answer, without taking anything; the figures are those of now. */
  peek(key: string, options?: AcquireOptions): Answer<Async, Decision>
  /**
   * Gives back up to `permits` that were taken, the newest first, as far as they have not come back by themselves; nothing
   * while somebody waits for a booking of the key. Returns how many; throws like a cost that is not a whole number.
   */
  release(key: string, permits: number): Answer<Async, number>
  /** Takes every permit that is there, such as when a server said that its limit is used up. Returns how many. */
  drain(key: string): Answer<Async, number>
  /**
   * Refuses the key for so long, whatever the algorithm says; a block that lasts longer stays. Who waits for the key is
   * refused too. Throws like a window that is none.
   *
   * @example
   * limiter.block('203.0.113.7', '1h')
   */
  block(key: string, duration: Duration): Answer<Async, void>
  /** Lifts a block, and forgets what is held against the key. */
  unblock(key: string): Answer<Async, void>
  /** Forgets the key: it is as if never seen, not blocked either, and its reservations have nothing to give back. */
  reset(key: string): Answer<Async, void>
  /**
   * Changes the algorithm from now on. With another `limit`, `window` or `burst` of the same algorithm keys keep what
   * they have (a token bucket its balance, a window what was used); with another algorithm every key starts afresh. Who
   * waits in `acquire` is booked anew at once. Throws a TypeError for what is no algorithm.
   */
  update(algorithm: Algorithm): Answer<Async, void>
  /** What it has done since it was made: counts, without keys. */
  stats(): LimiterStats
  /** Ends every wait, and rejects every `acquire` from now on; the other verbs go on. */
  close(): void
}
