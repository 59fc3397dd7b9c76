import { tokenBucket } from '@sluice/core'
import { manualClock } from '@sluice/core/testing'
import { describe, expect, test } from 'vitest'
import { ALGORITHMS } from './algorithms.js'
import { RESTING, sharedLimits } from './shared-limits.js'

const here = sharedLimits()
const YEAR_MS = 8760 * 3_600_000

describe('no extra permits', () => {
  // spring-cloud/spring-cloud-gateway#2412
  test.each([undefined, 0, 500])(
    'when another process has a clock that is behind (maxWait %s)',
    async maxWait => {
      const bucket = tokenBucket({ limit: 2, window: '1s', burst: 4 })
      const behind = manualClock({ startMs: here.clock.nowMs - 10_000 })
      const hostA = here.limiterOf(bucket, { maxWait })
      const hostB = here.limiterOf(bucket, { clock: behind, maxWait })
      for (let asks = 0; asks < 4; asks++) expect((await hostA.tryAcquire('k')).allowed).toBe(true)
      expect((await hostB.tryAcquire('k')).allowed).toBe(false)
      behind.advance(500)
      expect((await hostB.tryAcquire('k')).allowed).toBe(false)
      for (let asks = 0; asks < 4; asks++) expect((await hostA.tryAcquire('k')).allowed).toBe(false)
    },
  )

  test.each(ALGORITHMS)('after the clock goes back and forth: $name', async ({ of }) => {
    const limiter = here.limiterOf(of(4, '2s'))
    await limiter.drain('k')
    const thenMs = here.clock.nowMs
    for (const backMs of [1, 999, 10_000]) {
      here.clock.set(thenMs - backMs)
      expect((await limiter.tryAcquire('k')).allowed).toBe(false)
    }
    here.clock.set(thenMs)
    expect((await limiter.tryAcquire('k')).allowed).toBe(false)
  })

  test.each(RESTING)(
    'after the clock jumps back, for a process with other options: $name',
    async ({ of }) => {
      await here.limiterOf(of(10, '1h')).drain('k')
      here.clock.set(here.clock.nowMs - 86_400_000)
      const after = here.limiterOf(of(10, '1m'), { client: here.other })
      expect((await after.tryAcquire('k')).allowed).toBe(false)
      expect((await after.peek('k')).remaining).toBe(0)
    },
  )
})

describe('a clock that jumps back', () => {
  test.each(RESTING)('refuses a used-up key no longer than its window: $name', async ({ of }) => {
    const limiter = here.limiterOf(of(4, '2s'))
    await limiter.drain('k')
    here.clock.set(here.clock.nowMs - 86_400_000)
    const refused = await limiter.tryAcquire('k')
    expect(refused.allowed).toBe(false)
    expect(refused.retryAfterMs).toBeLessThanOrEqual(4000)
    here.clock.advance(refused.retryAfterMs)
    expect((await limiter.tryAcquire('k')).allowed).toBe(true)
    here.clock.advance('4s')
    expect((await limiter.peek('k')).remaining).toBe((await limiter.peek('never seen')).remaining)
  })

  test('keeps the permits that are booked ahead', async () => {
    const limiter = here.limiterOf(tokenBucket({ limit: 2, window: '1s', burst: 4 }), { maxWait: 1000 })
    await limiter.reserve('k', { cost: 4 })
    await limiter.reserve('k', { cost: 2 })
    expect((await limiter.peek('k')).balance).toBe(-2)
    here.clock.set(here.clock.nowMs - 86_400_000)
    const refused = await limiter.tryAcquire('k')
    expect(refused).toMatchObject({ allowed: false, balance: -2, retryAfterMs: 1500 })
    here.clock.advance(1500)
    expect((await limiter.tryAcquire('k')).allowed).toBe(true)
  })

  test('is not confused with bookings further ahead than maxWait', async () => {
    const limiter = here.limiterOf(tokenBucket({ limit: 1, window: '1s' }), { maxWait: 1000 })
    const waits: number[] = []
    for (let asks = 0; asks < 6; asks++) waits.push((await limiter.reserve('k', { maxWait: '1h' })).waitMs)
    expect(waits).toEqual([0, 1000, 2000, 3000, 4000, 5000])
  })

  test('moves the end of a block back with it', async () => {
    const { clock } = here
    const limiter = here.limiterOf(tokenBucket({ limit: 9, window: '1m' }))
    clock.advance(YEAR_MS)
    await limiter.block('k', '10s')
    clock.set(clock.nowMs - YEAR_MS)
    expect((await limiter.tryAcquire('k')).waitMs).toBe(10_000)
    clock.advance('10s')
    expect((await limiter.tryAcquire('k')).allowed).toBe(true)
  })

  test('leaves nothing to give back of earlier bookings', async () => {
    const { clock } = here
    const limiter = here.limiterOf(tokenBucket({ limit: 10, window: '1s' }))
    clock.advance('1h')
    const first = await limiter.reserve('k', { cost: 10 })
    await limiter.reserve('k', { cost: 10 })
    clock.set(clock.nowMs - 3_600_000)
    expect(await first.cancel()).toBe(0)
  })
})
