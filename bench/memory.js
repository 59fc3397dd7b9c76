// Bytes per key at 1,000,000 keys: heapUsed + arrayBuffers, without the key strings.
import { createLimiter, memoryStore } from '@sluice/core'
import { ALGORITHMS } from './algorithms.js'
import { Floor } from './floor.js'
import { table } from './rounds.js'

const COUNT = 1_000_000
const GOALS = new Map([
  ['tokenBucket', '<= 0.8'],
  ['slidingWindow', '<= 2.7'],
])
// Short enough that the store does not copy the keys, so that both use the same strings.
const keys = Array.from({ length: COUNT }, (_, index) => `user:${index}`)

const floor = bytesPerKey(() => {
  const limiter = new Floor(100, 3_600_000)
  for (const key of keys) limiter.allows(key)
  return limiter
})
table([['memory per key at 1,000,000 keys', 'floor B', 'sluice B', 'ratio', 'goal']])
for (const [name, algorithm] of Object.entries(ALGORITHMS)) {
  const sluice = bytesPerKey(() => {
    const limiter = createLimiter(algorithm({ limit: 100, window: '1h' }), {
      store: memoryStore({ maxKeys: COUNT }),
    })
    for (const key of keys) limiter.tryAcquire(key)
    return limiter
  })
  table([[name, floor.toFixed(0), sluice.toFixed(0), (sluice / floor).toFixed(2), GOALS.get(name) ?? '']])
}

/** @param {() => object} fill */
function bytesPerKey(fill) {
  const before = used()
  const holder = fill()
  const bytes = (used() - before) / COUNT
  // Prevents garbage collection of the holder until here.
  if (Object.keys(holder).length < 0) throw new Error('unreachable')
  return bytes
}

function used() {
  globalThis.gc?.()
  globalThis.gc?.()
  const { heapUsed, arrayBuffers } = process.memoryUsage()
  return heapUsed + arrayBuffers
}
