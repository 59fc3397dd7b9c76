// Compares the cost of one decision with the floor. Each case runs in its own process, so that the optimizations of one
// case do not affect another.
import { spawnSync } from 'node:child_process'
import { createLimiter, memoryStore, slidingLog } from '@sluice/core'
import { ALGORITHMS } from './algorithms.js'
import { Floor } from './floor.js'
import { medians, table } from './rounds.js'

/** @typedef {keyof typeof ALGORITHMS} Name */

const CASES = {
  'one hot key': existingKeys(1),
  '10,000 keys': existingKeys(10_000),
  '1,000,000 keys': existingKeys(1_000_000),
  'new keys at maxKeys 100,000': newKeys(100_000),
  'slidingLog, each grant expires one': steadyLog,
}
const GOALS = {
  'one hot key': 1.4,
  '10,000 keys': 1.2,
  '1,000,000 keys': 1.0,
  'new keys at maxKeys 100,000': 1.5,
}
const KEY_COUNTS = /** @type {const} */ (['one hot key', '10,000 keys', '1,000,000 keys'])
const LIMIT = 100
const ROUNDS = 9
/** For the table of all algorithms, which has many cases. */
const FEWER_ROUNDS = 5

const [, , chosen, name, rounds] = process.argv
if (chosen === undefined) printTables()
else {
  const measure = CASES[/** @type {keyof typeof CASES} */ (chosen)]
  console.log(JSON.stringify(await measure(/** @type {Name} */ (name), Number(rounds))))
}

function printTables() {
  table([['one decision', 'floor ns', 'tokenBucket ns', 'ratio', 'goal']])
  for (const [chosen, goal] of Object.entries(GOALS)) {
    const { floor, sluice } = measured(chosen, 'tokenBucket', ROUNDS)
    table([
      [chosen, floor.toFixed(0), sluice.toFixed(0), (sluice / floor).toFixed(2), `<= ${goal.toFixed(1)}`],
    ])
  }

  console.log()
  table([['one decision, ns (ratio to floor)', ...KEY_COUNTS]])
  for (const name of Object.keys(ALGORITHMS)) {
    const cells = KEY_COUNTS.map(chosen => {
      const { floor, sluice } = measured(chosen, name, FEWER_ROUNDS)
      return `${sluice.toFixed(0)} (${(sluice / floor).toFixed(2)})`
    })
    table([[name, ...cells]])
  }

  console.log()
  const chosen = 'slidingLog, each grant expires one'
  const { few, many } = measured(chosen, 'slidingLog', ROUNDS)
  table([
    ['one decision, ns', 'limit 100', 'limit 200,000', 'ratio'],
    [chosen, few.toFixed(0), many.toFixed(0), (many / few).toFixed(2)],
  ])
}

/**
 * Measures one case in its own process.
 *
 * @param {string} chosen
 * @param {string} name
 * @param {number} rounds
 */
function measured(chosen, name, rounds) {
  const flags = ['--conditions=built', '--expose-gc']
  const { status, stdout } = spawnSync(
    process.execPath,
    [...flags, import.meta.filename, chosen, name, String(rounds)],
    { stdio: ['ignore', 'pipe', 'inherit'], encoding: 'utf8' },
  )
  if (status !== 0) process.exit(status ?? 1)
  return JSON.parse(stdout)
}

/** Random keys out of `count` stored keys, 1 million decisions per round. @param {number} count */
function existingKeys(count) {
  return (/** @type {Name} */ name, /** @type {number} */ rounds) => {
    const keys = Array.from({ length: count }, (_, index) => `user:${index}`)
    const order = Uint32Array.from({ length: 1 << 20 }, () => Math.random() * count)
    const floor = new Floor(LIMIT, 60_000)
    const store = memoryStore({ maxKeys: 2 ** 21 })
    const limiter = createLimiter(ALGORITHMS[name]({ limit: LIMIT, window: '1m' }), { store })
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
      rounds,
    )
  }
}

/** New keys on a full store. @param {number} maxKeys */
function newKeys(maxKeys) {
  return (/** @type {Name} */ name, /** @type {number} */ rounds) => {
    const floor = new Floor(LIMIT, 60_000, maxKeys)
    const limiter = createLimiter(ALGORITHMS[name]({ limit: LIMIT, window: '1m' }), {
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
      rounds,
    )
  }
}

/** One key with a full log, requested whenever its oldest grant expires. @param {Name} _name @param {number} rounds */
function steadyLog(_name, rounds) {
  return medians({ few: fullLog(100), many: fullLog(200_000) }, rounds)
}

/** @param {number} limit */
function fullLog(limit) {
  const intervalUs = 60_000_000 / limit
  let nowUs = 1_700_000_000_000_000
  const clock = { nowUs: () => nowUs }
  const limiter = createLimiter(slidingLog({ limit, window: '1m' }), { clock })
  /** @param {number} count */
  const decide = count => {
    for (let number = 0; number < count; number++) {
      nowUs += intervalUs
      if (!limiter.tryAcquire('key').allowed) throw new Error('refused')
    }
  }
  decide(limit)
  if (limiter.peek('key').remaining > 1) throw new Error('the log is not full')
  return () => {
    const startMs = performance.now()
    decide(1 << 20)
    return ((performance.now() - startMs) * 1e6) / (1 << 20)
  }
}
