import {
  cycle,
  fixedWindow,
  leakyBucket,
  slidingLog,
  slidingWindow,
  smoothBursty,
  smoothWarmingUp,
  tokenBucket,
} from '@sluice/core'

/**
 * Every algorithm at the same rate as the floor.
 *
 * @satisfies {Record<string, (rate: { limit: number, window: import('@sluice/core').Duration }) => import('@sluice/core').Algorithm>}
 */
export const ALGORITHMS = {
  tokenBucket,
  slidingWindow,
  // Space for a million keys.
  slidingLog: rate => slidingLog({ ...rate, maxBytes: 2 ** 30 }),
  fixedWindow,
  leakyBucket: rate => leakyBucket({ ...rate, capacity: rate.limit }),
  cycle: ({ limit, window }) => cycle({ limit, period: window }),
  smoothBursty: rate => smoothBursty({ ...rate, maxBurst: rate.window }),
  smoothWarmingUp: rate => smoothWarmingUp({ ...rate, warmup: '10s' }),
}
