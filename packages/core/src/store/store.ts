import type { Algorithm, Booking } from '../algorithms/algorithm.js'
import type { Decision } from '../algorithms/decision.js'
import type { Clock } from '../shared/clock.js'
import type { Duration } from '../shared/duration.js'
import type { Answer } from '../shared/maybe-promise.js'
import type { OnStoreError } from './async-guard.js'
import type { Ladder } from './penalties.js'

/**
 * Where the state of keys lives. A store runs an algorithm's step on the state of a key as one indivisible act; the
 * in-memory store does it in this process.
 */
export interface Store<Async extends boolean = boolean> {
  /** Whether its answers are promises. */
  readonly async: Async
  /** What its limiters do while it fails, and how long it may take for a call, unless they say otherwise. */
  readonly onStoreError?: OnStoreError | undefined
  readonly deadline?: Duration | undefined
  /** Opens the keys of one limiter. */
  open(spec: LedgerSpec): Ledger<Async>
}

/** A store whose answers are there at once, such as `memoryStore()`. */
export type SyncStore = Store<false>
/** A store whose answers are promises. */
export type AsyncStore = Store<true>

/** What a limiter tells a store when it opens its keys. */
export interface LedgerSpec {
  readonly name: string
  readonly algorithm: Algorithm
  readonly clock: Clock
  /** Whether the name was stated, and is not the one that all have who state none. */
  readonly isNamed?: boolean | undefined
}

/** The keys of one limiter, and what can be done with one of them. */
export interface Ledger<Async extends boolean> {
  readonly async: Async
  /** Keys held now, where they are counted. */
  readonly keys?: number | undefined
  /** Keys forgotten before they rested, for want of room, where they are counted. */
  readonly forgotten?: number | undefined
  /** Runs the algorithm's step; `maxWaitUs` in microseconds may be Infinity, without `commit` nothing is taken. */
  decide(key: string, cost: number, maxWaitUs: number, commit: boolean): Answer<Async, Decision>
  /** Like `decide` with `commit`, and returns what is needed to give the permits back. */
  book(key: string, cost: number, maxWaitUs: number): Answer<Async, Booked>
  /** Returns the permits given back, as `Algorithm.cancel` does; NaN when nobody knows. */
  cancel(key: string, booking: Booking): Answer<Async, number>
  /** Returns the permits given back, as `Algorithm.refund` does; NaN when nobody knows. */
  refund(key: string, booking: Booking): Answer<Async, number>
  /** Gives back up to `permits`, the newest first, as `Algorithm.refund` without a booking. Returns how many. */
  release(key: string, permits: number): Answer<Async, number>
  /** Takes all single permits that pass now, as one act. Returns how many. */
  drain(key: string): Answer<Async, number>
  /** Refuses the key for so long, whatever the algorithm says; a block that lasts longer stays. */
  block(key: string, forUs: number): Answer<Async, void>
  /** Lifts a block, and forgets what is held against the key. */
  unblock(key: string): Answer<Async, void>
  /** Notes a refusal on a ladder. Returns how long the key is blocked by now, in microseconds; 0 for not at all. */
  strike(key: string, ladder: Ladder): Answer<Async, number>
  /** Makes the key one never seen, not blocked either; its bookings have nothing to give back. */
  reset(key: string): Answer<Async, void>
  /** Changes the algorithm from now on; states are converted by its `adopt`. */
  update(algorithm: Algorithm): Answer<Async, void>
  /** What decides over this and other ledgers as one act: the same object for all that it can take together. */
  readonly together?: Together | undefined
}

/** Decides over several ledgers of one store as one act. */
export interface Together {
  /**
   * Decides over all asks without patience; with `commit` and if all are granted, all are charged that are no checks. What
   * was booked is said where somebody `books`.
   */
  decide(asks: readonly TogetherAsk[], commit: boolean, books: boolean): Promise<readonly Booked[]>
}

/** What is asked of one of several ledgers. */
export interface TogetherAsk {
  readonly ledger: Ledger<boolean>
  readonly key: string
  readonly cost: number
  /** Whether nothing is to be taken: the permits are only to be there. */
  readonly isCheck?: boolean | undefined
}

/** A decision, and the booking that came of it. */
export interface Booked {
  readonly decision: Decision
  /** Absent when nothing was taken. */
  readonly booking?: Booking | undefined
}
