import {
  type Algorithm,
  cycle,
  type Duration,
  fixedWindow,
  leakyBucket,
  slidingLog,
  slidingWindow,
  smoothBursty,
  smoothWarmingUp,
  tokenBucket,
} from '@sluice/core'

/** An algorithm that stores a state on the server. */
export interface Kind {
  readonly name: string
  readonly of: (limit: number, window: Duration) => Algorithm
}

export const ALGORITHMS: readonly Kind[] = [
  { name: 'tokenBucket', of: (limit, window) => tokenBucket({ limit, window }) },
  { name: 'leakyBucket', of: (limit, window) => leakyBucket({ limit, window, capacity: limit }) },
  { name: 'fixedWindow', of: (limit, window) => fixedWindow({ limit, window }) },
  { name: 'slidingWindow', of: (limit, window) => slidingWindow({ limit, window }) },
  { name: 'slidingLog', of: (limit, window) => slidingLog({ limit, window }) },
  { name: 'cycle', of: (limit, period) => cycle({ limit, period }) },
  { name: 'smoothBursty', of: (limit, window) => smoothBursty({ limit, window, maxBurst: window }) },
  { name: 'smoothWarmingUp', of: (limit, window) => smoothWarmingUp({ limit, window, warmup: window }) },
]

/** The algorithm as it runs on Redis, where a key never seen has rested since the epoch. */
export function asOnRedis(algorithm: Algorithm): Algorithm {
  if (algorithm.begin === undefined || algorithm.name === slidingLog({ limit: 1, window: 1 }).name)
    return algorithm
  return Object.create(algorithm, { begin: { value: undefined } })
}
