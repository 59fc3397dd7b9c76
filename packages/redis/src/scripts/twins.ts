import type { Algorithm } from '@sluice/core'
import { invalid } from '@sluice/core/store'
import { cycleTwin } from './algorithms/cycle.lua.js'
import { fixedWindowTwin } from './algorithms/fixed-window.lua.js'
import { leakyBucketTwin } from './algorithms/leaky-bucket.lua.js'
import { slidingLogTwin } from './algorithms/sliding-log.lua.js'
import { slidingWindowTwin } from './algorithms/sliding-window.lua.js'
import { smoothBurstyTwin } from './algorithms/smooth-bursty.lua.js'
import { smoothWarmingUpTwin } from './algorithms/smooth-warming-up.lua.js'
import { tokenBucketTwin } from './algorithms/token-bucket.lua.js'
import { unlimitedTwin } from './algorithms/unlimited.lua.js'
import type { Twin } from './twin.js'

/** Every algorithm that runs on Redis. */
export const TWINS: readonly Twin[] = [
  tokenBucketTwin,
  cycleTwin,
  fixedWindowTwin,
  leakyBucketTwin,
  slidingWindowTwin,
  slidingLogTwin,
  smoothBurstyTwin,
  smoothWarmingUpTwin,
  unlimitedTwin,
]

const byName = new Map(TWINS.map(twin => [twin.name, twin]))

/** The names of the algorithms that store states, as they stand in keys. */
export const STORED_ALGORITHMS = TWINS.filter(twin => twin !== unlimitedTwin).map(({ name }) => name)

/** The number of an algorithm in scripts that decide over several limiters; from 1. */
export function numberOf(twin: Twin): number {
  return TWINS.indexOf(twin) + 1
}

/** The twin of an algorithm. Throws a TypeError for an algorithm without one. */
export function twinOf({ name, read }: Algorithm): Twin {
  const twin = byName.get(name)
  if (twin === undefined || read === undefined)
    throw invalid(TypeError, 'algorithm', `one of @sluice/core (${[...byName.keys()].join(', ')})`, name)
  return twin
}
