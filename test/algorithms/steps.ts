import { type Algorithm, createLimiter, memoryStore } from '@sluice/core'
import { manualClock } from '@sluice/core/testing'
import { expect } from 'vitest'
import { Moment } from '../support/scripts.js'

/** A rule, the options of the algorithm, and the requests that show the rule. */
export type Table<Options> = readonly [rule: string, options: Options, rows: readonly Row[]]

/** A row of a table: a request at a time, and the expected answer. Times are milliseconds from the start. */
export type Row = readonly [
  atMs: number,
  cost: number,
  maxWaitMs: number,
  answer: 'granted' | 'refused',
  waitMs: number,
  after: After,
]

/** Figures of the decision. Without a `retryMs`, retryAfterMs of a refusal is its wait. */
export interface After {
  readonly remaining: number
  readonly retryMs?: number
  readonly refillMs?: number
  readonly resetMs?: number
  readonly balance?: number
}

/** The default start: a whole second in the middle of an hour (22:13:20 UTC). */
export const START_MS = 1_700_000_000_000

/** Sends the requests row by row for one new key, to a limiter created at the start. */
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

/** A limiter created at the start. `at` sets its clock in milliseconds from there. */
export function fromStart(algorithm: Algorithm, startMs = START_MS) {
  const clock = manualClock({ startMs })
  const store = memoryStore()
  const limiter = createLimiter(algorithm, { clock, store })
  return { limiter, store, at: (ms: number) => clock.set(startMs + ms) }
}

/** A ledger without a limiter, for tests that return a grant by its booking. */
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
