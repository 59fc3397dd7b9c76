import type { Algorithm, Booking } from './algorithm.js'
import type { Deadlines } from './deadlines.js'
import { Decision, FixedGauge } from './decision.js'
import { coded } from './errors.js'
import type { Ladder } from './penalties.js'
import type { Booked, Ledger, Together } from './store.js'

/** What an ask is answered while the store fails. */
export type OnStoreError = 'allow' | 'refuse' | 'throw'

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
  private readonly onFailure: (error: Error) => void

  constructor(
    ledger: Ledger<true>,
    deadlines: Deadlines,
    onStoreError: OnStoreError,
    onFailure: (error: Error) => void,
  ) {
    this.ledger = ledger
    this.deadlines = deadlines
    this.onStoreError = onStoreError
    this.onFailure = onFailure
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
  static async together(
    ledgers: readonly GuardedLedger[],
    act: () => Promise<readonly Booked[]>,
  ): Promise<readonly Booked[]> {
    const hastiest = ledgers.reduce((a, b) => (b.deadlines.spanMs < a.deadlines.spanMs ? b : a))
    try {
      const booked = await hastiest.deadlines.keep(Promise.resolve(act()))
      if (booked?.length === ledgers.length && booked.every(({ decision }) => isDecision(decision)))
        return booked
      throw noAnswer()
    } catch (error) {
      const failure = storeError(error)
      for (const { onFailure } of ledgers) onFailure(failure)
      if (ledgers.some(({ onStoreError }) => onStoreError === 'throw')) throw failure
      return ledgers.map(({ onStoreError }) => ({ decision: failedDecision(onStoreError === 'allow') }))
    }
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

  private async call<T>(act: () => Promise<T>, isAnswer: (value: unknown) => boolean): Promise<T> {
    try {
      const answer = await this.deadlines.keep(Promise.resolve(act()))
      if (isAnswer(answer)) return answer
      throw noAnswer()
    } catch (error) {
      const failure = storeError(error)
      this.onFailure(failure)
      throw failure
    }
  }
}

/** Whether an error is the failure of a store. */
export function isStoreError(error: unknown): boolean {
  return (error as { code?: unknown } | null | undefined)?.code === 'SLUICE_STORE_ERROR'
}

/** A store has answered with what cannot be an answer. */
export function noAnswer(): Error {
  return coded(new TypeError('the store has answered with what is no answer'), 'SLUICE_STORE_ERROR', 'store')
}

function storeError(error: unknown): Error {
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
