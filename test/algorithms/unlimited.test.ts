import { createLimiter, memoryStore, tokenBucket, unlimited } from '@sluice/core'
import { expect, test } from 'vitest'

test('grants everything, stores no key, and every figure is 0 or Infinity', () => {
  const store = memoryStore()
  const limiter = createLimiter(unlimited(), { store })
  const decision = limiter.tryAcquire('key', { cost: Number.MAX_SAFE_INTEGER })
  expect(decision.toJSON()).toEqual({
    allowed: true,
    limit: Infinity,
    remaining: Infinity,
    waitMs: 0,
    retryAfterMs: 0,
    refillAfterMs: 0,
    resetAfterMs: 0,
    balance: Infinity,
  })
  expect(limiter.reserve('key', { cost: 5 }).cancel()).toBe(0)
  expect(store.size).toBe(0)
})

test('an update to unlimited and back switches a limit off and on', () => {
  const limiter = createLimiter(tokenBucket({ limit: 1, window: '1m' }))
  limiter.tryAcquire('key')
  limiter.update(unlimited())
  expect(limiter.tryAcquire('key').allowed).toBe(true)
  limiter.update(tokenBucket({ limit: 1, window: '1m' }))
  expect([limiter.tryAcquire('key').allowed, limiter.tryAcquire('key').allowed]).toEqual([true, false])
})
