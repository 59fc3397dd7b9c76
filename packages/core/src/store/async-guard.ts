import type { Algorithm, Booking } from '../algorithms/algorithm.js'
import { Decision, FixedGauge } from '../algorithms/decision.js'
import { coded, invalid } from '../shared/errors.js'
import type { Deadlines } from './deadlines.js'
import type { Ladder } from './penalties.js'
import type { Booked, Ledger, Together } from './store.js'

/** What an ask is answered while the store fails. */
export type OnStoreError = 'allow' | 'refuse' | 'throw'

/** Throws for what is none of them. */
export function checkOnStoreError(value: unknown): OnStoreError {
  if (value === 'allow' || value === 'refuse' || value === 'throw') return value
  throw invalid(TypeError, 'onStoreError', "'allow', 'refuse' or 'throw'", value)
}

/**
 * The keys of a limiter on an asynchronous store that may fail: every call ends within the deadline, an answer that is none
 * is an error, and an error is what `onStoreError` says. A call that fails is not made again, and counts as charged,
 * because nobody knows.
 */
export class GuardedLedger implements Ledger<true> {
  readonly async = true
  readonly ledger: Ledger<true>
  private readonly deadlines: Deadlines
  private readonly onStoreError: OnStoreError
  private readonly failed: (error: unknown) => Error

  constructor(
    ledger: Ledger<true>,
    deadlines: Deadlines,
    onStoreError: OnStoreError,
    onFailure: (error: Error) => void,
  ) {
    this.ledger = ledger
    this.deadlines = deadlines
    this.onStoreError = onStoreError
    this.failed = error => {
      const failure = storeError(error)
      onFailure(failure)
      return failure
    }
  }

  get keys(): number | undefined {
    return this.ledger.keys
  }

  get together(): Together | undefined {
    return this.ledger.together
  }

  get forgotten(): number | undefined {
    return this.ledger.forgotten
  }

  decide(key: string, cost: number, maxWaitUs: number, commit: boolean): Promise<Decision> {
    return this.ask(() => this.ledger.decide(key, cost, maxWaitUs, commit), isDecision, failedDecision)
  }

  book(key: string, cost: number, maxWaitUs: number): Promise<Booked> {
    return this.ask(
      () => this.ledger.book(key, cost, maxWaitUs),
      booked => isDecision((booked as Booked | undefined)?.decision),
      allowed => ({ decision: failedDecision(allowed) }),
    )
  }

  cancel(key: string, booking: Booking): Promise<number> {
    return this.ask(() => this.ledger.cancel(key, booking), isCount, unknown)
  }

  refund(key: string, booking: Booking): Promise<number> {
    return this.ask(() => this.ledger.refund(key, booking), isCount, unknown)
  }

  release(key: string, permits: number): Promise<number> {
    return this.ask(() => this.ledger.release(key, permits), isCount, none)
  }

  drain(key: string): Promise<number> {
    return this.ask(() => this.ledger.drain(key), isCount, none)
  }

  block(key: string, forUs: number): Promise<void> {
    return this.call(() => this.ledger.block(key, forUs), isAnything)
  }

  unblock(key: string): Promise<void> {
    return this.call(() => this.ledger.unblock(key), isAnything)
  }

  strike(key: string, ladder: Ladder): Promise<number> {
    return this.ask(() => this.ledger.strike(key, ladder), isCount, none)
  }

  reset(key: string): Promise<void> {
    return this.call(() => this.ledger.reset(key), isAnything)
  }

  update(algorithm: Algorithm): Promise<void> {
    return this.call(() => this.ledger.update(algorithm), isAnything)
  }

  /** Calls what decides over these and other ledgers; a failure is the failure of each of them. */
  static together(
    ledgers: readonly GuardedLedger[],
    act: () => Promise<readonly Booked[]>,
  ): Promise<readonly Booked[]> {
    const hastiest = ledgers.reduce((a, b) => (b.deadlines.spanMs < a.deadlines.spanMs ? b : a))
    const isAnswer = (booked: unknown) =>
      Array.isArray(booked) &&
      booked.length === ledgers.length &&
      booked.every((part: Booked | undefined) => isDecision(part?.decision))
    const failed = (error: unknown) => {
      const failure = storeError(error)
      for (const ledger of ledgers) ledger.failed(failure)
      return failure
    }
    const answer = kept(hastiest.deadlines, act, isAnswer, failed)
    if (ledgers.some(({ onStoreError }) => onStoreError === 'throw')) return answer
    return answer.catch(() =>
      ledgers.map(({ onStoreError }) => ({ decision: failedDecision(onStoreError === 'allow') })),
    )
  }

  /** A call whose failure has an answer. */
  private ask<T>(
    act: () => Promise<T>,
    isAnswer: (value: unknown) => boolean,
    failed: (allowed: boolean) => T,
  ): Promise<T> {
    const answer = this.call(act, isAnswer)
    return this.onStoreError === 'throw' ? answer : answer.catch(() => failed(this.onStoreError === 'allow'))
  }

  private call<T>(act: () => Promise<T>, isAnswer: (value: unknown) => boolean): Promise<T> {
    return kept(this.deadlines, act, isAnswer, this.failed)
  }
}

/** Makes a call that ends in time; what it throws is a failure like what it rejects with. */
function kept<T>(
  deadlines: Deadlines,
  act: () => Promise<T>,
  isAnswer: (value: unknown) => boolean,
  failed: (error: unknown) => unknown,
): Promise<T> {
  let answer: Promise<T>
  try {
    const made: unknown = act()
    // What is no promise, or only looks like one, is not to be trusted with callbacks.
    answer = made instanceof Promise ? made : Promise.resolve(made as T)
  } catch (error) {
    // An algorithm that the store does not know is not the store's fault.
    if ((error as { code?: unknown } | null | undefined)?.code === 'SLUICE_INVALID_OPTION') throw error
    answer = Promise.reject(error)
  }
  return deadlines.keep(answer, isAnswer, failed)
}

/** Whether an error is the failure of a store. */
export function isStoreError(error: unknown): boolean {
  return (error as { code?: unknown } | null | undefined)?.code === 'SLUICE_STORE_ERROR'
}

/** The error of a call to a store that has failed, whatever it has failed with. */
export function storeError(error: unknown): Error {
  if (isStoreError(error)) return error as Error
  return coded(new Error('a call to the store has failed', { cause: error }), 'SLUICE_STORE_ERROR', 'store')
}

/** A decision because the store has failed: nobody knows any figure. */
export function failedDecision(allowed: boolean): Decision {
  const waitUs = allowed ? 0 : Infinity
  return new Decision(UNKNOWN, waitUs, waitUs, 0, 0)
}

const UNKNOWN = new FixedGauge({
  code: 'SLUICE_STORE_ERROR',
  limit: Infinity,
  balance: 0,
  refillAfterUs: 0,
  resetAfterUs: 0,
})

function isDecision(value: unknown): boolean {
  return value instanceof Decision
}

function isCount(value: unknown): boolean {
  return typeof value === 'number' && value >= 0
}

function isAnything(): boolean {
  return true
}

/** Whether a booking was given back: nobody knows, and it is not to be tried again. */
function unknown(): number {
  return Number.NaN
}

function none(): number {
  return 0
}
