import { Decision, FixedGauge } from '../algorithms/decision.js'
import { coded, invalid } from '../shared/errors.js'
import type { OnStoreError } from './store.js'

/** Checks an `onStoreError` option, which may be undefined. */
export function checkOnStoreError(value: unknown): OnStoreError | undefined {
  if (value === undefined || value === 'allow' || value === 'refuse' || value === 'throw') return value
  throw invalid(TypeError, 'onStoreError', "'allow', 'refuse' or 'throw'", value)
}

/** Whether an error is the failure of a store. */
export function isStoreError(error: unknown): boolean {
  return (error as { code?: unknown } | null | undefined)?.code === 'SLUICE_STORE_ERROR'
}

/** The error of a failed call to a store; `cause` is what the call threw or rejected with. */
export function storeError(cause: unknown): Error {
  if (isStoreError(cause)) return cause as Error
  return coded(new Error('a call to the store has failed', { cause }), 'SLUICE_STORE_ERROR', 'store')
}

/** The error of a store whose answer is not one, such as `undefined` for a decision. */
export function noAnswer(): Error {
  return coded(new TypeError('the store has given an invalid answer'), 'SLUICE_STORE_ERROR', 'store')
}

/** The decision while a store fails. No figure is known. */
export function failedDecision(allowed: boolean): Decision {
  const waitUs = allowed ? 0 : Infinity
  const gauge = new FixedGauge({
    code: 'SLUICE_STORE_ERROR',
    limit: Infinity,
    balance: 0,
    refillAfterUs: 0,
    resetAfterUs: 0,
  })
  return new Decision(gauge, waitUs, waitUs, 0, 0)
}
