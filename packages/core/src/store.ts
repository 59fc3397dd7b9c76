import type { Algorithm, Booking } from './algorithm.js'
import type { Answer } from './answer.js'
import type { Clock } from './clock.js'
import type { Decision } from './decision.js'

/**
 * Where the state of keys lives. A store runs an algorithm's step on the state of a key as one indivisible act; the
 * in-memory store does it in this process.
 */
export interface Store<Async extends boolean = boolean> {
  /** Whether its answers are promises. */
  readonly async: Async
  /** Opens the keys of one limiter. */
  open(spec: LedgerSpec): Ledger<Async>
}

export type SyncStore = Store<false>
export type AsyncStore = Store<true>

export interface LedgerSpec {
  readonly name: string
  readonly algorithm: Algorithm
  readonly clock: Clock
}

/** The keys of one limiter, and what can be done with one of them. */
export interface Ledger<Async extends boolean> {
  readonly async: Async
  decide(key: string, cost: number, maxWaitUs: number, commit: boolean): Answer<Async, Decision>
  book(key: string, cost: number, maxWaitUs: number): Answer<Async, Booked>
  /** Returns the permits given back, as `Algorithm.cancel` does. */
  cancel(key: string, booking: Booking): Answer<Async, number>
  /** Returns the permits given back, as `Algorithm.refund` does. */
  refund(key: string, booking: Booking): Answer<Async, number>
  reset(key: string): Answer<Async, void>
  update(algorithm: Algorithm): Answer<Async, void>
}

export interface Booked {
  readonly decision: Decision
  /** Absent when nothing was taken. */
  readonly booking?: Booking | undefined
}
