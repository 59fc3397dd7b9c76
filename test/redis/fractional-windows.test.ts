import { createLimiter, memoryStore } from '@sluice/core'
import { describe, expect, test } from 'vitest'
import { ALGORITHMS, asOnRedis } from './algorithms.js'
import { sharedLimits } from './shared-limits.js'

const here = sharedLimits()

describe('a window', () => {
  // express-rate-limit/rate-limit-redis 6.0.1
  test.each(ALGORITHMS)('of a fraction of a microsecond is rejected: $name', ({ of }) => {
    expect(() => of(5, 1000 / 3)).toThrow(expect.objectContaining({ code: 'SLUICE_INVALID_OPTION' }))
  })

  test.each(ALGORITHMS)(
    'of a fraction of a millisecond gives the decisions of memory: $name',
    async ({ of }) => {
      const ours = here.limiterOf(of(3, 333.333))
      const alone = createLimiter(asOnRedis(of(3, 333.333)), { clock: here.clock, store: memoryStore() })
      for (let asks = 0; asks < 40; asks++) {
        const [a, b] = [await ours.tryAcquire('k'), alone.tryAcquire('k')]
        expect(a.toJSON()).toEqual(b.toJSON())
        here.clock.advance(asks % 3 === 0 ? 111.111 : 7.001)
      }
      for (const key of await here.redis.keys('*')) expect(await here.redis.pttl(key)).toBeGreaterThan(0)
    },
  )
})
