import type { Algorithm, Booking } from '../algorithms/algorithm.js'
import { Decision } from '../algorithms/decision.js'
import { Deadlines } from './deadlines.js'
import {
  type Booked,
  GUARDED,
  type Ladder,
  type Ledger,
  type LedgerSpec,
  type OnStoreError,
  type Together,
  type TogetherAsk,
} from './store.js'
import { failedDecision, storeError } from './store-error.js'

/**
 * Guards the ledger of an asynchronous store, which may fail. Every call settles within the deadline, an invalid answer is
 * an error, and an error becomes what `onStoreError` says. A failed call is not made again. It counts as charged, because
 * the store may have done it.
 *
 * The `open` of every asynchronous store returns this.
 *
 * @example
 * const store: AsyncStore = { async: true, open: spec => guarded(new MyLedger(spec), spec) }
 */
export function guarded(ledger: Ledger<true>, spec: LedgerSpec): Ledger<true> {
  return new GuardedLedger(ledger, spec)
}

class GuardedLedger implements Ledger<true> {
  readonly [GUARDED] = true
  readonly async = true
  readonly ledger: Ledger<true>
  readonly deadlines: Deadlines
  readonly onStoreError: OnStoreError
  readonly together: Together | undefined
  readonly #onFailure: LedgerSpec['onFailure']

  constructor(ledger: Ledger<true>, spec: LedgerSpec) {
    const { store = ledger, onStoreError = 'throw', deadlineMs = 100, onFailure } = spec
    this.ledger = ledger
    this.deadlines = deadlinesOf(store, deadlineMs)
    this.onStoreError = onStoreError
    this.#onFailure = onFailure
    this.together = ledger.together && guardedTogether(ledger.together)
  }

  get keys(): number | undefined {
    return this.ledger.keys
  }

  get forgotten(): number | undefined {
    return this.ledger.forgotten
  }

  decide(key: string, cost: number, maxWaitUs: number, commit: boolean): Promise<Decision> {
    return this.#answer(() => this.ledger.decide(key, cost, maxWaitUs, commit), isDecision, failedDecision)
  }

  book(key: string, cost: number, maxWaitUs: number): Promise<Booked> {
    return this.#answer(() => this.ledger.book(key, cost, maxWaitUs), isBooked, failedBooking)
  }

  cancel(key: string, booking: Booking): Promise<number> {
    return this.#answer(() => this.ledger.cancel(key, booking), isCount, unknownCount)
  }

  refund(key: string, booking: Booking): Promise<number> {
    return this.#answer(() => this.ledger.refund(key, booking), isCount, unknownCount)
  }

  release(key: string, permits: number): Promise<number> {
    return this.#answer(() => this.ledger.release(key, permits), isCount, zero)
  }

  drain(key: string): Promise<number> {
    return this.#answer(() => this.ledger.drain(key), isCount, zero)
  }

  strike(key: string, ladder: Ladder): Promise<number> {
    return this.#answer(() => this.ledger.strike(key, ladder), isCount, zero)
  }

  block(key: string, forUs: number): Promise<void> {
    return this.#call(() => this.ledger.block(key, forUs), isAnything)
  }

  unblock(key: string): Promise<void> {
    return this.#call(() => this.ledger.unblock(key), isAnything)
  }

  reset(key: string): Promise<void> {
    return this.#call(() => this.ledger.reset(key), isAnything)
  }

  update(algorithm: Algorithm): Promise<void> {
    return this.#call(() => this.ledger.update(algorithm), isAnything)
  }

  /** The error of a failed call, which it reports to the limiter. */
  failed(error: unknown): Error {
    const failure = storeError(error)
    this.#onFailure?.(failure)
    return failure
  }

  /** Makes a call that has an answer even if it fails, unless `onStoreError` is 'throw'. */
  #answer<T>(
    call: () => Promise<T>,
    isAnswer: (value: unknown) => boolean,
    ifFailed: (allowed: boolean) => T,
  ): Promise<T> {
    const answer = this.#call(call, isAnswer)
    return this.onStoreError === 'throw'
      ? answer
      : answer.catch(() => ifFailed(this.onStoreError === 'allow'))
  }

  #call<T>(call: () => Promise<T>, isAnswer: (value: unknown) => boolean): Promise<T> {
    return inTime(this.deadlines, call, isAnswer, error => this.failed(error))
  }
}

/** Calls with deadlines of one length to one store share a timer. */
function deadlinesOf(store: object, spanMs: number): Deadlines {
  const ofStore = deadlines.get(store) ?? new Map<number, Deadlines>()
  deadlines.set(store, ofStore)
  const ofSpan = ofStore.get(spanMs) ?? new Deadlines(spanMs)
  ofStore.set(spanMs, ofSpan)
  return ofSpan
}

const deadlines = new WeakMap<object, Map<number, Deadlines>>()

/** The same guard for all ledgers that can be decided together. */
function guardedTogether(together: Together): Together {
  const guard = guards.get(together) ?? {
    decide: (asks, commit, books) => decideTogether(together, asks, commit, books),
  }
  guards.set(together, guard)
  return guard
}

const guards = new WeakMap<Together, Together>()

/** Decides within the shortest deadline. A failure is a failure of each ledger. */
function decideTogether(
  together: Together,
  asks: readonly TogetherAsk[],
  commit: boolean,
  books: boolean,
): Promise<readonly Booked[]> {
  const ledgers = asks.map(({ ledger }) => ledger as GuardedLedger)
  const inner = asks.map((ask, index) => ({ ...ask, ledger: (ledgers[index] as GuardedLedger).ledger }))
  const [shortest] = ledgers.map(({ deadlines }) => deadlines).toSorted((a, b) => a.spanMs - b.spanMs)
  const isAnswer = (booked: unknown) =>
    Array.isArray(booked) && booked.length === asks.length && booked.every(isBooked)
  const failed = (error: unknown) => {
    const failure = storeError(error)
    for (const ledger of ledgers) ledger.failed(failure)
    return failure
  }
  const call = () => together.decide(inner, commit, books)
  const answer = inTime(shortest as Deadlines, call, isAnswer, failed)
  if (ledgers.some(({ onStoreError }) => onStoreError === 'throw')) return answer
  return answer.catch(() => ledgers.map(({ onStoreError }) => failedBooking(onStoreError === 'allow')))
}

/** Makes a call that settles within the deadline. What it throws is a failure like what it rejects with. */
function inTime<T>(
  deadlines: Deadlines,
  call: () => Promise<T>,
  isAnswer: (value: unknown) => boolean,
  failed: (error: unknown) => unknown,
): Promise<T> {
  let answer: Promise<T>
  try {
    const made: unknown = call()
    // Another kind of thenable may call its callbacks twice, or throw.
    answer = made instanceof Promise ? made : Promise.resolve(made as T)
  } catch (error) {
    // An algorithm that the store does not support is no failure of the store.
    if ((error as { code?: unknown } | null | undefined)?.code === 'SLUICE_INVALID_OPTION') throw error
    answer = Promise.reject(error)
  }
  return deadlines.keep(answer, isAnswer, failed)
}

function isDecision(value: unknown): boolean {
  return value instanceof Decision
}

function isBooked(value: unknown): boolean {
  return isDecision((value as Booked | undefined)?.decision)
}

function isCount(value: unknown): boolean {
  return typeof value === 'number' && value >= 0
}

function isAnything(): boolean {
  return true
}

function failedBooking(allowed: boolean): Booked {
  return { decision: failedDecision(allowed) }
}

/** Whether a booking was given back is unknown, and it must not be given back a second time. */
function unknownCount(): number {
  return Number.NaN
}

function zero(): number {
  return 0
}
