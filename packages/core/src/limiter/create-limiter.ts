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
 * Makes a limiter, which applies an algorithm to keys.
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
  checkOptions('createLimiter', options, ['name', ...LIMITER_OPTIONS])
  const { name = 'default', clock = systemClock, store = memoryStore(), maxWait } = options
  policyName('name', name)
  checkLimiterOptions(options)
  const maxWaitUs = maxWait === undefined ? undefined : waitToUs('maxWait', maxWait)
  // A leaky bucket is a queue: as many calls may wait as it has places.
  const queue = algorithm.policy.maxWaitMs === undefined ? 0 : algorithm.policy.limit
  const { maxQueue = Math.max(1000, queue), maxQueuePerKey = Math.max(10, queue) } = options
  const bounds = { maxQueue, maxQueuePerKey }
  const { onStoreError = store.onStoreError, deadline = store.deadline } = options
  const ledger = openLedger(store, {
    name,
    algorithm,
    clock,
    isNamed: options.name !== undefined,
    onStoreError: checkOnStoreError(onStoreError),
    deadlineMs: deadline === undefined ? undefined : spanToUs('deadline', deadline) / 1000,
    onFailure: error => limiter.failed(error),
  })
  const limiter = new LedgerLimiter({ name, algorithm, ledger, clock, maxWaitUs, bounds })
  return limiter as unknown as Limiter<S extends AsyncStore ? true : false>
}

/** The options that limiters and registries have in common. */
export const LIMITER_OPTIONS = [
  'store',
  'clock',
  'maxWait',
  'maxQueue',
  'maxQueuePerKey',
  'onStoreError',
  'deadline',
]

/** Checks the values of these options. */
export function checkLimiterOptions(
  options: Omit<LimiterOptions<SyncStore | AsyncStore | undefined>, 'name'>,
): void {
  const { store, clock = systemClock, maxWait = 0, maxQueue = 0, maxQueuePerKey = 0, deadline = 1 } = options
  checkClock(clock)
  if (store !== undefined) having('open', 'store', store, 'a store such as memoryStore()')
  waitToUs('maxWait', maxWait)
  wholeNumber('maxQueue', maxQueue)
  wholeNumber('maxQueuePerKey', maxQueuePerKey)
  checkOnStoreError(options.onStoreError)
  spanToUs('deadline', deadline)
}

/** With a clock that shows no time, nothing would be limited. */
function checkClock(clock: Clock): void {
  having('nowUs', 'clock', clock, 'a clock such as systemClock')
  const nowUs = clock.nowUs()
  if (!Number.isSafeInteger(nowUs) || nowUs < 0)
    throw invalid(RangeError, 'clock', 'a clock whose nowUs() is whole microseconds', nowUs)
}
