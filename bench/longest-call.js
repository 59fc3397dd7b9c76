// The longest single call while a store grows to maxKeys and while its keys expire, including garbage collection.
import { createLimiter, memoryStore, slidingLog, tokenBucket } from '@sluice/core'
import { median, table } from './rounds.js'

const RUNS = 5

table([['longest single call', 'growing ms', 'at the bound ms', 'expiring ms', 'goal']])
for (const [maxKeys, goal] of /** @type {const} */ ([
  [100_000, '<= 5'],
  [1_000_000, '<= 30'],
])) {
  const runs = Array.from({ length: RUNS }, () => longestCalls(maxKeys))
  const cells = [0, 1, 2].map(phase => median(runs.map(run => run[phase] ?? 0)).toFixed(1))
  table([[`${maxKeys.toLocaleString('en')} keys, median of ${RUNS}`, ...cells, goal]])
}
const logs = Array.from({ length: RUNS }, () => longestCallsOfLog(200_000))
const [growing = '', expiring = ''] = [0, 1].map(phase => median(logs.map(run => run[phase] ?? 0)).toFixed(1))
table([['slidingLog, 200,000 permits', growing, '', expiring, '']])

/** @param {number} maxKeys */
function longestCalls(maxKeys) {
  let nowUs = 1_700_000_000_000_000
  const store = memoryStore({ maxKeys })
  const limiter = createLimiter(tokenBucket({ limit: 100, window: '1m' }), {
    store,
    clock: { nowUs: () => nowUs },
  })
  let made = 0
  globalThis.gc?.()
  const growing = longest(maxKeys, () => limiter.tryAcquire(`client:${made++}`))
  const atBound = longest(maxKeys / 4, () => limiter.tryAcquire(`client:${made++}`))
  nowUs += 200_000_000
  const expiring = longest(maxKeys * 1.1, () => limiter.tryAcquire('client'))
  if (store.size > 1) throw new Error(`${store.size} keys have not expired`)
  return [growing, atBound, expiring]
}

/** One key whose grants expire all at once, so that the next grant drops them. @param {number} permits */
function longestCallsOfLog(permits) {
  let nowUs = 1_700_000_000_000_000
  const limiter = createLimiter(slidingLog({ limit: permits, window: '1m' }), {
    clock: { nowUs: () => nowUs++ },
  })
  globalThis.gc?.()
  const growing = longest(permits, () => limiter.tryAcquire('client'))
  if (limiter.peek('client').remaining > 0) throw new Error('the log is not full')
  nowUs += 60_000_000
  const expiring = longest(1, () => limiter.tryAcquire('client'))
  if (limiter.peek('client').remaining !== permits - 1) throw new Error('permits have not expired')
  return [growing, expiring]
}

/**
 * @param {number} calls
 * @param {() => unknown} call
 */
function longest(calls, call) {
  let longestMs = 0
  let beforeMs = performance.now()
  for (let number = 0; number < calls; number++) {
    call()
    const afterMs = performance.now()
    longestMs = Math.max(longestMs, afterMs - beforeMs)
    beforeMs = afterMs
  }
  return longestMs
}
