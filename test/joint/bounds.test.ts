import { acquireAll, createLimiter, tokenBucket } from '@sluice/core'
import { manualClock } from '@sluice/core/testing'
import { expect, test } from 'vitest'

test('a waiter for several limiters counts towards the queue of each, for any other keys and costs', async () => {
  const clock = manualClock()
  const perUser = createLimiter(tokenBucket({ limit: 10, window: '1s' }), { clock, name: 'per-user' })
  const overall = createLimiter(tokenBucket({ limit: 1, window: '1h' }), { clock, name: 'overall' })
  overall.tryAcquire('all')
  const abort = new AbortController()
  const outcomes = Array.from({ length: 30 }, (_, number) =>
    acquireAll(
      [
        { limiter: perUser, key: `user ${number}`, cost: 1 + (number % 3) },
        { limiter: overall, key: 'all' },
      ],
      { signal: abort.signal },
    ).catch((error: { code?: string }) => error.code ?? 'left'),
  )
  await new Promise(resolve => setImmediate(resolve))
  expect(overall.stats().waiting).toBe(10)
  abort.abort({})
  const ends = await Promise.all(outcomes)
  expect(ends.filter(end => end === 'SLUICE_RATE_LIMITED')).toHaveLength(20)
  expect(ends.filter(end => end === 'left')).toHaveLength(10)
  expect([overall.stats().waiting, clock.alarms]).toEqual([0, 0])
  const next = acquireAll([{ limiter: overall, key: 'all' }], { maxWait: '2h' })
  clock.advance('1h')
  expect(await next).toMatchObject({ allowed: true })
})
