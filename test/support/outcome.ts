import type { ManualClock } from '@sluice/core/testing'

/** How and when a promise settled. */
export interface Outcome {
  readonly settledAfterMs: number
  readonly value?: unknown
  readonly error?: unknown
}

export function outcome(promise: Promise<unknown>, clock: ManualClock): Promise<Outcome> {
  const sinceMs = clock.nowMs
  return promise.then(
    value => ({ settledAfterMs: clock.nowMs - sinceMs, value }),
    error => ({ settledAfterMs: clock.nowMs - sinceMs, error }),
  )
}

export function nextTick(): Promise<void> {
  return new Promise(resolve => setImmediate(resolve))
}
