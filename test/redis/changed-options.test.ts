import { fixedWindow, slidingWindow, tokenBucket } from '@sluice/core'
import { describe, expect, test } from 'vitest'
import { ALGORITHMS } from './algorithms.js'
import { RESTING, sharedLimits } from './shared-limits.js'

const here = sharedLimits()
const HOUR_MS = 3_600_000

describe('a process with other options', () => {
  // Tabcorp/redis-rate-limiter#44
  // Without the smooth limiters: their next caller waits for the last grant under the options that it was made under.
  test.each(RESTING)('uses a shorter window at once: $name', async ({ of }) => {
    const before = here.limiterOf(of(10, '1h'))
    await before.drain('k')
    const after = here.limiterOf(of(10, '1s'), { client: here.other })
    const refused = await after.tryAcquire('k')
    expect(refused.retryAfterMs).toBeLessThanOrEqual(1000)
    here.clock.advance(refused.retryAfterMs)
    expect((await after.tryAcquire('k')).allowed).toBe(true)
    here.clock.advance('5s')
    for (let asks = 0; asks < 4; asks++) {
      const { retryAfterMs } = await after.tryAcquire('k')
      expect(retryAfterMs).toBeLessThanOrEqual(1000)
    }
  })

  test.each(ALGORITHMS)('uses a longer window at once: $name', async ({ of }) => {
    await here.limiterOf(of(10, '1s')).drain('k')
    const after = here.limiterOf(of(10, '1h'), { client: here.other })
    here.clock.advance(1)
    expect((await after.tryAcquire('k')).allowed).toBe(false)
  })

  test.each(RESTING)(
    'has the permits that a higher limit adds, and none under a lower limit: $name',
    async ({ of }) => {
      await here.limiterOf(of(10, '1h')).drain('k')
      const higher = here.limiterOf(of(14, '1h'), { client: here.other })
      expect((await higher.peek('k')).remaining).toBeLessThanOrEqual(5)
      const lower = here.limiterOf(of(5, '1h'), { client: here.other })
      expect((await lower.tryAcquire('k')).allowed).toBe(false)
    },
  )

  test.each(RESTING)(
    'gets no extra permits by taking turns with a process with the old options: $name',
    async ({ of }) => {
      const [old, young] = [
        here.limiterOf(of(10, '1h')),
        here.limiterOf(of(10, '30m'), { client: here.other }),
      ]
      let granted = 0
      for (let asks = 0; asks < 60; asks++)
        if ((await (asks % 2 ? old : young).tryAcquire('k')).allowed) granted++
      expect(granted).toBeLessThanOrEqual(10)
      expect(granted).toBeGreaterThanOrEqual(1)
      for (const key of await here.redis.keys('*'))
        expect(await here.redis.pttl(key)).toBeGreaterThan(HOUR_MS / 1000)
    },
  )
})

describe('an update', () => {
  test.each(ALGORITHMS)('in two processes leads both to the same state: $name', async ({ of }) => {
    const [mine, yours] = here.twoProcesses(of(4, '1m'))
    await mine.drain('k')
    here.clock.advance('5s')
    await mine.update(of(8, '1m'))
    await yours.update(of(8, '1m'))
    here.clock.advance('5s')
    expect((await mine.peek('k')).toJSON()).toEqual((await yours.peek('k')).toJSON())
  })
})

describe('a process that goes on with the old options', () => {
  test('has its grants converted as of now, not as of the time of the update', async () => {
    const { clock } = here
    const [first, second] = here.twoProcesses(tokenBucket({ limit: 10, window: '1s' }))
    await first.update(tokenBucket({ limit: 10, window: '1h' }))
    clock.advance('10s')
    await second.tryAcquire('k')
    expect((await first.tryAcquire('k')).remaining).toBe(8)
  })

  test('and one with the new options grant no more than both limits together', async () => {
    const { clock } = here
    const [first, second] = here.twoProcesses(tokenBucket({ limit: 10, window: '100s' }))
    await first.update(tokenBucket({ limit: 20, window: '20s' }))
    clock.advance('5s')
    let granted = 0
    for (let asks = 0; asks < 100; asks++) {
      if ((await first.tryAcquire('k')).allowed) granted++
      if ((await second.tryAcquire('k')).allowed) granted++
    }
    expect(granted).toBeLessThanOrEqual(30)
  })

  test('with another number of slices counts beside the new one, and clears nothing', async () => {
    const rates = [10, 20].map(slices => here.limiterOf(slidingWindow({ limit: 5, window: '1h', slices })))
    let granted = 0
    for (let asks = 0; asks < 20; asks++)
      for (const limiter of rates) if ((await limiter.tryAcquire('k')).allowed) granted++
    expect(granted).toBe(10)
  })
})

test('an update while callers wait lets all of them through, and charges each once', async () => {
  const limiter = here.byServerClock(tokenBucket({ limit: 10, window: '10s', burst: 1 }))
  const waits = Array.from({ length: 3 }, () => limiter.acquire('k'))
  await waits[0]
  await limiter.update(tokenBucket({ limit: 1000, window: '10s', burst: 1 }))
  for (const wait of waits) expect((await wait).allowed).toBe(true)
  expect((await limiter.peek('k')).balance).toBeGreaterThanOrEqual(0)
  expect(limiter.stats().storeErrors).toBe(0)
})

test('an update to an algorithm that does not run on Redis throws, and changes nothing', async () => {
  const limiter = here.byServerClock(tokenBucket({ limit: 9, window: '1h' }))
  const strange = { ...fixedWindow({ limit: 1, window: '1h' }), name: 'strange', step: () => {} }
  expect(() => limiter.update(strange as never)).toThrow(
    expect.objectContaining({ code: 'SLUICE_INVALID_OPTION', option: 'algorithm' }),
  )
  expect((await limiter.tryAcquire('k')).limit).toBe(9)
  expect(limiter.stats().storeErrors).toBe(0)
})
