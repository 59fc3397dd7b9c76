import * as core from '@sluice/core'
import { createGuard, type Exchange, type HttpOptions } from '@sluice/core/http'
import { manualClock } from '@sluice/core/testing'
import { describe, expect, test, vi } from 'vitest'
import { NO_RESPONSE } from '../http/no-response.js'

/*
 * A process may have two copies of the package: two versions in node_modules, or ESM beside CommonJS. A limiter of one
 * copy has to work in the other.
 */

vi.resetModules()
const copy: typeof core = await import('@sluice/core')

const BRAND = Symbol.for('@sluice/core/limiter')
const INVALID = expect.objectContaining({
  name: 'TypeError',
  code: 'SLUICE_INVALID_LIMITER',
  option: 'limiter',
})

function limiterOf({ createLimiter, tokenBucket }: typeof core, limit = 1, name = 'copied') {
  return createLimiter(tokenBucket({ limit, window: '1m' }), { name, clock: manualClock() })
}

function guardOf(options: HttpOptions<Exchange>) {
  const guard = createGuard(options, {
    address: () => '203.0.113.7',
    message: () => ({ headers: {} }),
    response: () => NO_RESPONSE,
    trusts: () => 'nobody',
  })
  return () => guard({})
}

test('the two copies of the package are distinct', () => {
  expect(copy.createLimiter).not.toBe(core.createLimiter)
  expect(limiterOf(copy)).not.toBeInstanceOf(limiterOf(core).constructor)
})

describe('a limiter of another copy', () => {
  test('limits a function', () => {
    const send = core.limited(limiterOf(copy))(() => 'sent')
    expect(send()).toBe('sent')
    expect(send).toThrow(expect.objectContaining({ code: 'SLUICE_RATE_LIMITED' }))
  })

  test('works in combine and tryAcquireAll with limiters of this copy', () => {
    const [a, b] = [limiterOf(copy, 1, 'a'), limiterOf(core, 2, 'b')]
    expect(core.combine(a, b).tryAcquire('ann').allowed).toBe(true)
    const asks = [a, b].map(limiter => ({ limiter, key: 'ann' }))
    expect(core.tryAcquireAll(asks)).toMatchObject({ allowed: false, refusedBy: ['a'] })
    const both = copy.combine(a, b)
    expect(core.tryAcquireAll([{ limiter: both, key: 'bob' }]).parts).toHaveLength(2)
  })

  test.each([
    ['given once', (limiter: core.Limiter) => ({ limiter })],
    ['chosen per request', (limiter: core.Limiter) => ({ limiter: () => limiter })],
    [
      'in a policy',
      (limiter: core.Limiter) => ({ policies: [{ limiter }, { limit: 5, window: '1m' }] as const }),
    ],
    ['with a refund', (limiter: core.Limiter) => ({ limiter, refund: { ifFailed: true } })],
  ])('limits requests, %s', async (_, optionsOf) => {
    const guard = guardOf(optionsOf(limiterOf(copy)))
    expect(await guard()).toMatchObject({ outcome: 'allowed' })
    expect(await guard()).toMatchObject({ outcome: 'refused' })
  })

  test('is reported limiter by limiter if it is a combination', async () => {
    const guard = guardOf({ limiter: copy.combine(limiterOf(copy, 1, 'a'), limiterOf(core, 2, 'b')) })
    expect(await guard()).toMatchObject({ decision: { parts: [{ limiter: 'a' }, { limiter: 'b' }] } })
    const refused = await guard()
    expect(refused).toMatchObject({ outcome: 'refused', decision: { refusedBy: ['a'] } })
  })

  test('refuses a request whose wait would be too long', async () => {
    const guard = guardOf({ limiter: limiterOf(copy), maxWait: '1s' })
    expect(await guard()).toMatchObject({ outcome: 'allowed' })
    expect(await guard()).toMatchObject({ outcome: 'refused', decision: { waitMs: 60_000 } })
  })
})

describe('a limiter that was not created by createLimiter or combine', () => {
  const handMade: Record<string, unknown> = {
    name: 'mine',
    policy: { limit: 5, smooth: true },
    tryAcquire: () => ({ allowed: true }),
    acquire: async () => ({ allowed: true }),
  }
  const uses: Record<string, (limiter: core.Limiter) => unknown> = {
    limited: limiter => core.limited(limiter),
    combine: limiter => core.combine(limiterOf(core), limiter),
    tryAcquireAll: limiter => core.tryAcquireAll([{ limiter, key: 'ann' }]),
    rateLimit: limiter => guardOf({ limiter }),
    policies: limiter => guardOf({ policies: [{ limiter }] }),
    'a function that returns it': limiter => guardOf({ limiter: () => limiter })(),
  }

  test.each(Object.entries(uses))('throws an error with a code: %s', (_, use) => {
    expect(() => use(handMade as unknown as core.Limiter)).toThrow(INVALID)
    const message = /expected a limiter made by createLimiter or combine.*, got an object$/
    expect(() => use(handMade as unknown as core.Limiter)).toThrow(message)
  })

  test.each(Object.entries(uses))(
    'throws an error with a code if it is a spread copy of a limiter: %s',
    (_, use) => {
      expect(() => use({ ...limiterOf(core), name: 'another' })).toThrow(INVALID)
    },
  )

  test.each(Object.entries(uses))(
    'throws an error with a code if it belongs to another version of the package: %s',
    (_, use) => {
      const limiter = { ...handMade, [BRAND]: 0 } as unknown as core.Limiter
      expect(() => use(limiter)).toThrow(INVALID)
      expect(() => use(limiter)).toThrow('of the same version of @sluice/core')
    },
  )
})
