import { type Algorithm, createLimiter, type Limiter } from '@sluice/core'
import { type ManualClock, manualClock } from '@sluice/core/testing'
import { type RedisClient, redisStore } from '@sluice/redis'
import { Redis } from 'ioredis'
import { afterAll, beforeAll, beforeEach } from 'vitest'
import { ALGORITHMS } from './algorithms.js'
import { server } from './server.js'

const PATIENT = { deadline: '10s' } as const

/** Algorithms that grant permits ahead of time. */
export const BOOKABLE = ALGORITHMS.filter(({ of }) => of(1, '1s').bookable)
/** Algorithms whose keys rest at a time that does not depend on how fast the permits were taken. */
export const RESTING = ALGORITHMS.filter(({ name }) => !name.startsWith('smooth'))

/** The limiters of several processes on one server. Each limiter has a store of its own, as in a process of its own. */
export function sharedLimits() {
  const it = server()
  let other: Redis
  let clock: ManualClock
  let names = 0
  beforeAll(() => {
    other = new Redis(it.port)
  })
  afterAll(() => other.disconnect())
  beforeEach(async () => {
    await it.redis.flushall()
    clock = manualClock()
  })

  /** A limiter by the manual clock. All of them share their keys. */
  function limiterOf(
    algorithm: Algorithm,
    options: { client?: RedisClient; clock?: ManualClock; maxWait?: number | undefined } = {},
  ): Limiter<true> {
    const { client = it.redis, maxWait } = options
    const store = redisStore(client, PATIENT)
    return createLimiter(algorithm, { name: 'n', clock: options.clock ?? clock, maxWait, store })
  }

  return {
    /** The connection of the first process. */
    get redis() {
      return it.redis
    },
    /** The connection of a second process. */
    get other() {
      return other
    },
    get clock() {
      return clock
    },
    limiterOf,
    twoProcesses: (algorithm: Algorithm) =>
      [limiterOf(algorithm), limiterOf(algorithm, { client: other })] as const,
    /** A limiter by the server's clock, with keys of its own. */
    byServerClock(algorithm: Algorithm, name = `n${names++}`): Limiter<true> {
      return createLimiter(algorithm, { name, store: redisStore(it.redis, PATIENT) })
    },
  }
}
