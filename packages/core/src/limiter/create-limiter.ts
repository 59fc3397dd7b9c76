import type { Algorithm } from '../algorithms/algorithm.js'
import { type Clock, systemClock } from '../shared/clock.js'
import { spanToUs, waitToUs } from '../shared/duration.js'
import { invalid } from '../shared/errors.js'
import { checkOptions, having, policyName, wholeNumber } from '../shared/validate.js'
import { memoryStore } from '../store/memory/memory-store.js'
import { openLedger } from '../store/open-ledger.js'
import type { AsyncStore, SyncStore } from '../store/store.js'
import { checkOnStoreError } from '../store/store-error.js'
import type { Limiter, LimiterOptions } from './limiter.js'
import { checkAlgorithm, LedgerLimiter } from './limiter-class.js'

/**
 * Makes a limiter: an algorithm, applied to keys.
 *
 * Throws a TypeError or RangeError (with `code` and `option`) for an option that is unknown, of a wrong type or out of
 * range.
 *
 * @example
 * const perUser = createLimiter(tokenBucket({ limit: 600, window: '1m', burst: 50 }), { name: 'per-user' })
 * const decision = perUser.tryAcquire('ann', { cost: 5 })
 * if (!decision.allowed) console.log(`try again in ${decision.retryAfterMs} ms`)
 */
export function createLimiter<S extends SyncStore | AsyncStore | undefined = undefined>(
  algorithm: Algorithm,
  options: LimiterOptions<S> = {},
): Limiter<S extends AsyncStore ? true : false> {
  checkAlgorithm(algorithm)
  checkOptions('createLimiter', options, OPTIONS)
  const name = options.name === undefined ? 'default' : policyName('name', options.name)
  const { clock = systemClock, store = memoryStore() } = options
  checkClock(clock)
  having('open', 'store', store, 'a store such as memoryStore()')
  const maxWaitUs = options.maxWait === undefined ? undefined : waitToUs('maxWait', options.maxWait)
  // What is a queue itself says how many may wait.
  const queue = algorithm.policy.maxWaitMs === undefined ? 0 : algorithm.policy.limit
  const { maxQueue = Math.max(1000, queue), maxQueuePerKey = Math.max(10, queue) } = options
  const bounds = {
    maxQueue: wholeNumber('maxQueue', maxQueue),
    maxQueuePerKey: wholeNumber('maxQueuePerKey', maxQueuePerKey),
  }
  const { onStoreError = store.onStoreError, deadline = store.deadline } = options
  const ledger = openLedger(store, {
    name,
    algorithm,
    clock,
    isNamed: options.name !== undefined,
    onStoreError: onStoreError === undefined ? undefined : checkOnStoreError(onStoreError),
    deadlineMs: deadline === undefined ? undefined : spanToUs('deadline', deadline) / 1000,
    onFailure: error => limiter.failed(error),
  })
  const limiter = new LedgerLimiter({ name, terms: algorithm, ledger, clock, maxWaitUs, bounds })
  return limiter as unknown as Limiter<S extends AsyncStore ? true : false>
}

const OPTIONS = [
  'name',
  'store',
  'clock',
  'maxWait',
  'maxQueue',
  'maxQueuePerKey',
  'onStoreError',
  'deadline',
]

/** Whether a value is a limiter of `createLimiter`, or does what one does. */
export function isLimiter(value: unknown): value is Limiter {
  const limiter = value as Limiter | null | undefined
  return typeof limiter?.tryAcquire === 'function' && typeof limiter.name === 'string'
}

/** A clock that is wrong would be a limit that is none. */
function checkClock(clock: Clock): void {
  having('nowUs', 'clock', clock, 'a clock such as systemClock')
  const nowUs = clock.nowUs()
  if (!Number.isSafeInteger(nowUs) || nowUs < 0)
    throw invalid(RangeError, 'clock', 'a clock whose nowUs() is whole microseconds since the epoch', nowUs)
}
