// The cost of one decision against the floor. Each case runs in a process of its own, so that none inherits what the
// compiler has learnt from another.
import { spawnSync } from 'node:child_process'
import { createLimiter, memoryStore, tokenBucket } from '@sluice/core'
import { Floor } from './floor.js'
import { medians, table } from './rounds.js'

const CASES = {
  'one hot key': () => existingKeys(1),
  '10,000 keys': () => existingKeys(10_000),
  '1,000,000 keys': () => existingKeys(1_000_000),
  'new keys at maxKeys 100,000': () => newKeys(100_000),
}
const GOALS = {
  'one hot key': 1.4,
  '10,000 keys': 1.2,
  '1,000,000 keys': 1.0,
  'new keys at maxKeys 100,000': 1.5,
}
const LIMIT = 100
const ROUNDS = 9

const chosen = /** @type {keyof typeof CASES | undefined} */ (process.argv[2])
if (chosen === undefined) {
  table([['one decision', 'floor ns', 'tokenBucket ns', 'ratio', 'goal']])
  for (const name of Object.keys(CASES)) {
    const flags = ['--conditions=built', '--expose-gc']
    const { status } = spawnSync(process.execPath, [...flags, import.meta.filename, name], {
      stdio: 'inherit',
    })
    if (status !== 0) process.exit(status ?? 1)
  }
} else {
  const { floor, sluice } = await CASES[chosen]()
  const ratio = (sluice / floor).toFixed(2)
  table([[chosen, floor.toFixed(0), sluice.toFixed(0), ratio, `<= ${GOALS[chosen].toFixed(1)}`]])
}

/** Random keys out of `count` that are all known, 1 million decisions a round. @param {number} count */
function existingKeys(count) {
  const keys = Array.from({ length: count }, (_, index) => `user:${index}`)
  const order = Uint32Array.from({ length: 1 << 20 }, () => Math.random() * count)
  const floor = new Floor(LIMIT, 60_000)
  const store = memoryStore({ maxKeys: 2 ** 21 })
  const limiter = createLimiter(tokenBucket({ limit: LIMIT, window: '1m' }), { store })
  for (const key of keys) {
    floor.allows(key)
    limiter.tryAcquire(key)
  }
  return medians(
    {
      floor: () => {
        const startMs = performance.now()
        for (const index of order) floor.allows(/** @type {string} */ (keys[index]))
        return ((performance.now() - startMs) * 1e6) / order.length
      },
      sluice: () => {
        const startMs = performance.now()
        for (const index of order) limiter.tryAcquire(/** @type {string} */ (keys[index])).allowed
        return ((performance.now() - startMs) * 1e6) / order.length
      },
    },
    ROUNDS,
  )
}

/** Keys never seen before, at a store that is full. @param {number} maxKeys */
function newKeys(maxKeys) {
  const floor = new Floor(LIMIT, 60_000, maxKeys)
  const limiter = createLimiter(tokenBucket({ limit: LIMIT, window: '1m' }), {
    store: memoryStore({ maxKeys }),
  })
  let made = 0
  const fresh = () => Array.from({ length: 200_000 }, () => `user:${made++}`)
  for (const key of fresh()) {
    floor.allows(key)
    limiter.tryAcquire(key)
  }
  return medians(
    {
      floor: () => {
        const keys = fresh()
        const startMs = performance.now()
        for (const key of keys) floor.allows(key)
        return ((performance.now() - startMs) * 1e6) / keys.length
      },
      sluice: () => {
        const keys = fresh()
        const startMs = performance.now()
        for (const key of keys) limiter.tryAcquire(key).allowed
        return ((performance.now() - startMs) * 1e6) / keys.length
      },
    },
    ROUNDS,
  )
}
