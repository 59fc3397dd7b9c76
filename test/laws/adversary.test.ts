import {
  type Algorithm,
  cycle,
  fixedWindow,
  leakyBucket,
  slidingLog,
  slidingWindow,
  smoothBursty,
  smoothWarmingUp,
  tokenBucket,
} from '@sluice/core'
import { expect, test } from 'vitest'
import { seeded } from '../support/random.js'

/*
 * Searches for the window with the most permits: changes scripts of requests at random and keeps a change that gets
 * more permits into one window. It comes close to every bound, so it would find a window above a bound.
 */

const LIMIT = 5
const WINDOW_US = 1000
const window = WINDOW_US / 1000

test.each<[name: string, algorithm: Algorithm, largest: number, bound: number, reached: number]>([
  ['slidingLog', slidingLog({ limit: LIMIT, window }), LIMIT, LIMIT, LIMIT],
  ['slidingWindow', slidingWindow({ limit: LIMIT, window }), LIMIT, LIMIT, LIMIT],
  ['slidingWindow of one slice', slidingWindow({ limit: LIMIT, window, slices: 1 }), LIMIT, LIMIT, LIMIT],
  ['slidingWindow of uneven slices', slidingWindow({ limit: LIMIT, window, slices: 7 }), LIMIT, LIMIT, LIMIT],
  ['fixedWindow', fixedWindow({ limit: LIMIT, window }), LIMIT, 2 * LIMIT, 2 * LIMIT - 1],
  [
    'fixedWindow, aligned',
    fixedWindow({ limit: LIMIT, window, align: 'epoch' }),
    LIMIT,
    2 * LIMIT,
    2 * LIMIT,
  ],
  ['cycle', cycle({ limit: LIMIT, period: window }), LIMIT, 2 * LIMIT, 2 * LIMIT],
  ['tokenBucket', tokenBucket({ limit: LIMIT, window }), LIMIT, 2 * LIMIT - 1, 2 * LIMIT - 1],
  ['leakyBucket, single permits', leakyBucket({ limit: LIMIT, window, capacity: 3 }), 1, LIMIT, LIMIT],
  ['leakyBucket', leakyBucket({ limit: LIMIT, window, capacity: 3 }), 3, LIMIT + 2, LIMIT + 2],
  [
    'smoothBursty, singles',
    smoothBursty({ limit: LIMIT, window, maxBurst: 1 }),
    1,
    2 * LIMIT + 1,
    2 * LIMIT + 1,
  ],
  ['smoothBursty', smoothBursty({ limit: LIMIT, window, maxBurst: 1 }), 3, 2 * LIMIT + 3, 2 * LIMIT + 2],
  ['smoothWarmingUp', smoothWarmingUp({ limit: LIMIT, window, warmup: 1 }), 1, LIMIT + 1, LIMIT],
])('%s: no window holds more permits than its bound', (_name, algorithm, largest, bound, reached) => {
  const worst = worstFound(algorithm, largest)
  expect(worst).toBeLessThanOrEqual(bound)
  expect(worst).toBeGreaterThanOrEqual(reached)
})

interface Ask {
  readonly gapUs: number
  readonly cost: number
}

const CLIMBS = 300
const STEPS = 400
const ASKS = 30

function worstFound(algorithm: Algorithm, largest: number): number {
  const random = seeded(algorithm.name.length)
  const below = (most: number) => Math.floor(random() * most)
  /** Gaps close to the ends of windows and slices, and random gaps. */
  const ask = (): Ask => {
    const gaps = [
      0,
      1,
      WINDOW_US / 10,
      WINDOW_US / LIMIT,
      WINDOW_US / 2,
      WINDOW_US - 1,
      WINDOW_US,
      3 * WINDOW_US,
    ]
    const gapUs = below(2) === 0 ? (gaps[below(gaps.length)] as number) : below(WINDOW_US)
    return { gapUs, cost: below(2) === 0 ? 1 : 1 + below(largest) }
  }
  let worst = 0
  for (let climb = 0; climb < CLIMBS; climb++) {
    let script = Array.from({ length: ASKS }, ask)
    let most = mostInAWindow(algorithm, script)
    for (let step = 0; step < STEPS; step++) {
      const changed = script.slice()
      for (let change = below(3); change >= 0; change--) changed[below(ASKS)] = ask()
      const found = mostInAWindow(algorithm, changed)
      if (found < most) continue
      most = found
      script = changed
    }
    worst = Math.max(worst, most)
  }
  return worst
}

/** The largest number of permits that take effect within one half-open window. */
function mostInAWindow(algorithm: Algorithm, script: readonly Ask[]): number {
  const state = new Float64Array(algorithm.lanes)
  const grants: { actUs: number; cost: number }[] = []
  let nowUs = 1_700_000_000_000_000
  for (const { gapUs, cost } of script) {
    nowUs += gapUs
    const decision = algorithm.step(state, 0, nowUs, cost, 0, true)
    if (decision.allowed) grants.push({ actUs: nowUs, cost })
  }
  algorithm.forget?.(state, 0)
  let most = 0
  let sum = 0
  let first = 0
  for (const { actUs, cost } of grants) {
    sum += cost
    for (; (grants[first]?.actUs as number) <= actUs - WINDOW_US; first++)
      sum -= grants[first]?.cost as number
    most = Math.max(most, sum)
  }
  return most
}
