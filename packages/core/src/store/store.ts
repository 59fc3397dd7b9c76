import type { Algorithm, Booking } from '../algorithms/algorithm.js'
import type { Decision } from '../algorithms/decision.js'
import type { Clock } from '../shared/clock.js'
import type { Duration } from '../shared/duration.js'
import type { Answer } from '../shared/maybe-promise.js'

/**
 * Where limiters keep the state of their keys. A store runs the algorithm's step on the state of a key as one atomic
 * operation: `memoryStore()` in this process, a Redis store on the server.
 *
 * A synchronous store returns its answers at once. An asynchronous store returns promises, and its `open` returns
 * `guarded(ledger, spec)` from `@sluice/core/store`, which applies the deadline and `onStoreError`.
 *
 * @example
 * import { guarded } from '@sluice/core/store'
 * const store: AsyncStore = { async: true, open: spec => guarded(new MyLedger(spec), spec) }
 */
export interface Store<Async extends boolean = boolean> {
  /** Whether its answers are promises. */
  readonly async: Async
  /** What its limiters do while it fails, unless they set their own `onStoreError`; default `'throw'`. */
  readonly onStoreError?: OnStoreError | undefined
  /** How long a call may take before it counts as failed, unless a limiter sets its own; default `'100ms'`. */
  readonly deadline?: Duration | undefined
  /** Opens the keys of one limiter. Must return the ledger itself, not a promise of it. */
  open(spec: LedgerSpec): Ledger<Async>
}

/** A store that returns its answers at once, such as `memoryStore()`. */
export type SyncStore = Store<false>
/** A store that returns promises. */
export type AsyncStore = Store<true>

/**
 * What happens while the store fails: calls are granted (`'allow'`), refused (`'refuse'`), or throw an error of code
 * SLUICE_STORE_ERROR (`'throw'`).
 */
export type OnStoreError = 'allow' | 'refuse' | 'throw'

/** What a limiter passes to a store when it opens its keys. */
export interface LedgerSpec {
  readonly name: string
  readonly algorithm: Algorithm
  readonly clock: Clock
  /** False if the limiter has no name of its own, only the default one. */
  readonly isNamed?: boolean | undefined
  /** The store that is opened. Its limiters share one timer for each deadline. */
  readonly store?: object | undefined
  /** What the limiter does while the store fails; default `'throw'`. */
  readonly onStoreError?: OnStoreError | undefined
  /** How long a call may take before it counts as failed; default 100. */
  readonly deadlineMs?: number | undefined
  /** Called for each call that fails. */
  readonly onFailure?: ((error: Error) => void) | undefined
}

/** The keys of one limiter, and the operations on them. */
export interface Ledger<Async extends boolean> {
  readonly async: Async
  /** How many keys it holds now; undefined if the store does not count them. */
  readonly keys?: number | undefined
  /** How many keys it has forgotten for want of room before they rested; undefined if the store does not count them. */
  readonly forgotten?: number | undefined
  /** Runs the algorithm's step. `maxWaitUs` is in microseconds and may be Infinity. Takes permits only with `commit`. */
  decide(key: string, cost: number, maxWaitUs: number, commit: boolean): Answer<Async, Decision>
  /** Like `decide` with `commit`, and also returns the booking with which the permits can be given back. */
  book(key: string, cost: number, maxWaitUs: number): Answer<Async, Booked>
  /** Gives a booking back, as `Algorithm.cancel` does. Returns the permits given back, or NaN if that is unknown. */
  cancel(key: string, booking: Booking): Answer<Async, number>
  /** Gives a booking back, as `Algorithm.refund` does. Returns the permits given back, or NaN if that is unknown. */
  refund(key: string, booking: Booking): Answer<Async, number>
  /** Gives back up to `permits`, the newest first, as `Algorithm.refund` does without a booking. Returns how many. */
  release(key: string, permits: number): Answer<Async, number>
  /** Takes all permits that pass now, as one atomic operation. Returns how many. */
  drain(key: string): Answer<Async, number>
  /** Blocks a key: it is refused for `forUs` microseconds, whatever its algorithm says. A block that ends later stays. */
  block(key: string, forUs: number): Answer<Async, void>
  /** Ends a block, and forgets the key's refusals on a ladder. */
  unblock(key: string): Answer<Async, void>
  /** Counts a refusal on a ladder. Returns for how many microseconds the key is blocked now; 0 if it is not. */
  strike(key: string, ladder: Ladder): Answer<Async, number>
  /** Forgets a key: it is as if never seen, it is not blocked, and its bookings give nothing back. */
  reset(key: string): Answer<Async, void>
  /** Changes the algorithm from now on. `Algorithm.adopt` converts the states. */
  update(algorithm: Algorithm): Answer<Async, void>
  /**
   * Decides over this ledger and others as one atomic operation. Ledgers that can be decided together have the same
   * object here.
   */
  readonly together?: Together | undefined
}

/** How many refusals block a key, and for how long the first time, the second time and so on. */
export interface Ladder {
  readonly after: number
  /** Whole microseconds, at least one step. The last one repeats. */
  readonly stepsUs: readonly number[]
}

/** Decides over several ledgers of one store as one atomic operation. */
export interface Together {
  /**
   * Decides over all asks with a longest wait of 0. With `commit`, and only if all are granted, each ask that is no check
   * is charged. Bookings are returned with `books`.
   */
  decide(asks: readonly TogetherAsk[], commit: boolean, books: boolean): Promise<readonly Booked[]>
}

/** What is asked of one of several ledgers. */
export interface TogetherAsk {
  readonly ledger: Ledger<boolean>
  readonly key: string
  readonly cost: number
  /** With true the permits must be there, but are not taken. */
  readonly isCheck?: boolean | undefined
}

/** A decision, and the booking that it made. */
export interface Booked {
  readonly decision: Decision
  /** Undefined if nothing was taken. */
  readonly booking?: Booking | undefined
}

/** Marks the ledgers that `guarded` returns. */
export const GUARDED = Symbol.for('@sluice/core/guarded')
