// The cost of waiting: 1 to 100,000 waiters in one queue, from acquire to grant, and of aborting one in the middle.
import { createLimiter, tokenBucket } from '@sluice/core'
import { manualClock } from '@sluice/core/testing'
import { median, table } from './rounds.js'

const RUNS = 5

table([['waiters in one queue', 'acquire us each', 'grant us each', 'abort one ms']])
for (const count of [1, 10, 100, 1000, 10_000, 100_000]) {
  /** @type {number[][]} */
  const runs = []
  for (let run = 0; run < RUNS; run++) runs.push(await once(count))
  const cells = [0, 1, 2].map(column => median(runs.map(run => run[column] ?? 0)).toFixed(2))
  table([[count.toLocaleString('en'), ...cells]])
}

/** @param {number} count */
async function once(count) {
  const clock = manualClock()
  const bounds = { maxQueue: count + 1, maxQueuePerKey: count + 1 }
  const limiter = createLimiter(tokenBucket({ limit: 1000, window: '1s', burst: 1 }), { clock, ...bounds })
  limiter.tryAcquire('key')
  const hangUp = new AbortController()
  const middle = count >> 1

  let startMs = performance.now()
  const waits = Array.from({ length: count }, (_, index) =>
    limiter.acquire('key', index === middle ? { signal: hangUp.signal } : {}),
  )
  await undefined
  const joinMs = performance.now() - startMs

  startMs = performance.now()
  hangUp.abort('gone')
  await waits[middle]?.catch(() => {})
  await undefined
  const leaveMs = performance.now() - startMs

  startMs = performance.now()
  clock.advance(count)
  await Promise.allSettled(waits)
  const grantMs = performance.now() - startMs
  return [(joinMs * 1000) / count, (grantMs * 1000) / count, leaveMs]
}
