import { type Algorithm, createLimiter, memoryStore } from '@sluice/core'
import { manualClock } from '@sluice/core/testing'
import { expect } from 'vitest'
import { Moment } from '../support/scripts.js'

/** A rule, the options it is shown with, and the asks that show it. */
export type Table<Options> = readonly [rule: string, options: Options, rows: readonly Row[]]

/** One line of a table: an ask at a time, and what is answered. Times in milliseconds from the start. */
export type Row = readonly [
  atMs: number,
  cost: number,
  maxWaitMs: number,
  answer: 'granted' | 'refused',
  waitMs: number,
  after: After,
]

/** Figures of the decision; a `retryMs` that is left out is the wait of a refusal. */
export interface After {
  readonly remaining: number
  readonly retryMs?: number
  readonly refillMs?: number
  readonly resetMs?: number
  readonly balance?: number
}

/** Where time starts unless told otherwise: at the start of a whole second, in the middle of an hour (22:13:20 UTC). */
export const START_MS = 1_700_000_000_000

/** Asks row by row, of one key never seen by a limiter made at the start. */
export function expectSteps(made: Algorithm, rows: readonly Row[], startMs = START_MS): void {
  const startUs = startMs * 1000
  const moment = new Moment(made.begin?.(startUs) ?? made)
  moment.nowUs = startUs
  for (const [atMs, cost, maxWaitMs, answer, waitMs, after] of rows) {
    const gapUs = startUs + Math.round(atMs * 1000) - moment.nowUs
    const decision = moment.ask({ gapUs, cost, maxWaitUs: maxWaitMs * 1000 })
    const row = `at ${atMs} ms, cost ${cost}, maxWait ${maxWaitMs} ms`
    const { retryMs = answer === 'granted' ? 0 : waitMs, refillMs, resetMs, balance } = after
    expect(decision.toJSON(), row).toMatchObject({
      allowed: answer === 'granted',
      waitMs,
      remaining: after.remaining,
      retryAfterMs: retryMs,
      ...(refillMs !== undefined && { refillAfterMs: refillMs }),
      ...(resetMs !== undefined && { resetAfterMs: resetMs }),
    })
    if (balance !== undefined) expect(decision.balance, row).toBeCloseTo(balance, 9)
  }
}

/** A limiter made at the start, and its time in milliseconds from there. */
export function fromStart(algorithm: Algorithm, startMs = START_MS) {
  const clock = manualClock({ startMs })
  const store = memoryStore()
  const limiter = createLimiter(algorithm, { clock, store })
  return { limiter, store, at: (ms: number) => clock.set(startMs + ms) }
}

/** The keys of a limiter without a limiter, for grants that are given back by what was booked. */
export function ledgerFromStart(algorithm: Algorithm) {
  const clock = manualClock({ startMs: START_MS })
  const ledger = memoryStore().open({ name: 'default', algorithm, clock })
  return {
    ledger,
    at: (ms: number) => clock.set(START_MS + ms),
    take(cost: number) {
      const { booking } = ledger.book('key', cost, 0)
      if (booking === undefined) throw new Error(`cost ${cost} was refused`)
      return booking
    },
  }
}
