import { createServer, type Server } from 'node:http'
import { type Algorithm, createDecision, createLimiter, RateLimitedError } from '@sluice/core'
import { limitRoute } from '@sluice/core/http'
import { type ManualClock, manualClock } from '@sluice/core/testing'
import { rateLimit } from '@sluice/express'
import express from 'express'
import request from 'supertest'
import { beforeEach, describe, expect, test } from 'vitest'

/*
 * An algorithm that is written by a user, with nothing but what the package exports: the one in the documentation of
 * `Algorithm`.
 */

/** At most `limit` permits in each minute of the clock. */
function perMinute(limit: number): Algorithm {
  const minuteUs = 60_000_000
  // Lanes: the minute of the newest grant, and the permits used in it.
  const lanesOf = (state: Float64Array, at: number) =>
    state.subarray(at, at + 2) as unknown as [number, number]
  const minuteAt = (state: Float64Array, at: number, nowUs: number) =>
    Math.max(Math.floor(nowUs / minuteUs), lanesOf(state, at)[0])
  const usedIn = (state: Float64Array, at: number, minute: number) => {
    const lanes = lanesOf(state, at)
    return lanes[0] === minute ? lanes[1] : 0
  }

  return {
    name: 'per-minute',
    args: [limit],
    policy: { limit, windowMs: 60_000, smooth: false },
    lanes: 2,
    bookable: false,
    step(state, at, nowUs, cost, _maxWaitUs, commit) {
      const minute = minuteAt(state, at, nowUs)
      const endsInUs = (minute + 1) * minuteUs - nowUs
      let used = usedIn(state, at, minute)
      let retryAfterUs = 0
      if (cost > 0 && used + cost > limit) retryAfterUs = cost > limit ? Infinity : endsInUs
      else if (commit && cost > 0) {
        used += cost
        state[at] = minute
        state[at + 1] = used
      }
      const refillAfterUs = used === 0 ? 0 : endsInUs
      return createDecision({
        limit,
        balance: limit - used,
        retryAfterUs,
        refillAfterUs,
        resetAfterUs: refillAfterUs,
      })
    },
    cancel(state, at, nowUs, booking) {
      return nowUs > booking.actUs ? 0 : this.refund(state, at, nowUs, booking.cost, booking)
    },
    refund(state, at, nowUs, permits, booking) {
      const minute = minuteAt(state, at, nowUs)
      if (booking !== undefined && booking.mark[0] !== minute) return 0
      const used = usedIn(state, at, minute)
      const given = Math.min(permits, used)
      if (given > 0) state[at + 1] = used - given
      return given
    },
    adopt() {},
    restsAt(state, at) {
      const [minute, used] = lanesOf(state, at)
      return used === 0 ? 0 : (minute + 1) * minuteUs
    },
    load: (state, at, nowUs) => Math.min(1, usedIn(state, at, minuteAt(state, at, nowUs)) / limit),
  }
}

/** The start of a minute, plus 15 seconds. */
const START_MS = Date.UTC(2025, 0, 1, 12, 0, 15)

let clock: ManualClock
beforeEach(() => {
  clock = manualClock({ startMs: START_MS })
})

describe('a limiter with an algorithm of your own', () => {
  const make = (limit = 3) => createLimiter(perMinute(limit), { clock, name: 'mine' })

  test('tryAcquire grants up to the limit, refuses until the wait is over, then grants again', () => {
    const limiter = make()
    expect(limiter.tryAcquire('ann', { cost: 2 }).toJSON()).toEqual({
      allowed: true,
      limit: 3,
      remaining: 1,
      balance: 1,
      waitMs: 0,
      retryAfterMs: 0,
      refillAfterMs: 45_000,
      resetAfterMs: 45_000,
    })
    expect(limiter.tryAcquire('ann', { cost: 2 })).toMatchObject({ allowed: false, retryAfterMs: 45_000 })
    expect(limiter.tryAcquire('ann', { cost: 4 }).retryAfterMs).toBe(Infinity)
    expect(limiter.tryAcquire('bob').remaining).toBe(2)
    clock.advance(44_999.999)
    expect(limiter.tryAcquire('ann', { cost: 2 }).allowed).toBe(false)
    clock.advance(0.001)
    expect(limiter.tryAcquire('ann', { cost: 2 }).allowed).toBe(true)
  })

  test('peek takes nothing', () => {
    const limiter = make()
    expect(limiter.peek('ann').remaining).toBe(3)
    expect(limiter.tryAcquire('ann', { cost: 3 }).allowed).toBe(true)
    expect(limiter.peek('ann').allowed).toBe(false)
  })

  test('reserve without a wait can be cancelled, and with a wait throws because nothing is bookable', () => {
    const limiter = make()
    const reservation = limiter.reserve('ann', { cost: 2, maxWait: 0 })
    expect(reservation).toMatchObject({ allowed: true, remaining: 1 })
    expect(reservation.cancel()).toBe(2)
    expect(limiter.peek('ann').remaining).toBe(3)
    expect(() => limiter.reserve('ann', { maxWait: '1s' })).toThrow(
      expect.objectContaining({ code: 'SLUICE_NOT_BOOKABLE' }),
    )
  })

  test('acquire waits until the next minute, or throws when that is longer than maxWait', async () => {
    const limiter = make()
    limiter.drain('ann')
    await expect(limiter.acquire('ann', { maxWait: '10s' })).rejects.toThrow(RateLimitedError)
    const waiting = limiter.acquire('ann', { cost: 2 })
    await Promise.resolve()
    expect(limiter.stats().waiting).toBe(1)
    clock.advance(45_000)
    expect(await waiting).toMatchObject({ allowed: true, waitMs: 45_000, remaining: 1 })
  })

  test('release, drain, reset, block and unblock', () => {
    const limiter = make()
    limiter.tryAcquire('ann', { cost: 2 })
    expect(limiter.release('ann', 1)).toBe(1)
    expect(limiter.drain('ann')).toBe(2)
    expect(limiter.peek('ann').remaining).toBe(0)
    limiter.reset('ann')
    expect(limiter.peek('ann').remaining).toBe(3)
    limiter.block('ann', '10s')
    expect(limiter.tryAcquire('ann')).toMatchObject({
      allowed: false,
      code: 'SLUICE_BLOCKED',
      waitMs: 10_000,
    })
    limiter.unblock('ann')
    expect(limiter.tryAcquire('ann').allowed).toBe(true)
  })

  test('update keeps what was used', () => {
    const limiter = make()
    limiter.tryAcquire('ann', { cost: 2 })
    limiter.update(perMinute(10))
    expect(limiter.policy.limit).toBe(10)
    expect(limiter.peek('ann').remaining).toBe(8)
    limiter.update(perMinute(1))
    expect(limiter.peek('ann')).toMatchObject({ allowed: false, balance: -1, remaining: 0 })
  })

  test('close refuses waiting requests', async () => {
    const limiter = make()
    limiter.drain('ann')
    const waiting = limiter.acquire('ann')
    limiter.close()
    await expect(waiting).rejects.toMatchObject({ code: 'SLUICE_CLOSED' })
  })
})

describe.each([
  [
    'express',
    (algorithm: Algorithm): Server => {
      const app = express()
      app.use(rateLimit({ limiter: createLimiter(algorithm, { clock, name: 'mine' }) }))
      app.get('/', (_req, res) => void res.send('ok'))
      return createServer(app)
    },
  ],
  [
    'node:http',
    (algorithm: Algorithm): Server => {
      const limited = limitRoute({ limiter: createLimiter(algorithm, { clock, name: 'mine' }) })
      return createServer(limited((_req, res) => void res.end('ok')))
    },
  ],
] as const)('over HTTP on %s', (_name, serve) => {
  test('its policy is advertised, and its refusal is a 429 with Retry-After', async () => {
    const server = serve(perMinute(2))
    const first = await request(server).get('/')
    expect(first.status).toBe(200)
    expect(first.headers).toMatchObject({
      'ratelimit-policy': '"mine";q=2;w=60',
      ratelimit: '"mine";r=1;t=45',
    })
    await request(server).get('/')

    const refused = await request(server).get('/')
    expect(refused.status).toBe(429)
    expect(refused.headers).toMatchObject({ 'retry-after': '45', ratelimit: '"mine";r=0;t=45' })

    clock.advance(45_000)
    expect((await request(server).get('/')).status).toBe(200)
  })
})

describe('createDecision', () => {
  test('is a grant by default, with nothing to wait for', () => {
    expect(createDecision({ limit: 5, balance: 5 }).toJSON()).toEqual({
      allowed: true,
      limit: 5,
      remaining: 5,
      balance: 5,
      waitMs: 0,
      retryAfterMs: 0,
      refillAfterMs: 0,
      resetAfterMs: 0,
    })
  })

  test('is a refusal with a retryAfterUs, which is also its wait unless another one is given', () => {
    expect(createDecision({ limit: 5, balance: 0, retryAfterUs: 1500 })).toMatchObject({
      allowed: false,
      retryAfterMs: 1.5,
      waitMs: 1.5,
    })
    const decision = createDecision({ limit: 5, balance: 0, retryAfterUs: 500, waitUs: 1500 })
    expect(decision).toMatchObject({ allowed: false, retryAfterMs: 0.5, waitMs: 1.5 })
  })

  test('rounds remaining down to whole permits, at least 0', () => {
    expect(createDecision({ limit: 5, balance: 2.75 })).toMatchObject({ remaining: 2, balance: 2.75 })
    expect(createDecision({ limit: 5, balance: -1.5 })).toMatchObject({ remaining: 0, balance: -1.5 })
  })

  test('carries a code', () => {
    const decision = createDecision({ limit: 5, balance: 0, retryAfterUs: 1, code: 'SLUICE_STORE_FULL' })
    expect(decision.toJSON()).toMatchObject({ code: 'SLUICE_STORE_FULL' })
  })

  test.each([
    ['limit', { limit: -1 }, RangeError],
    ['limit', { limit: '5' }, TypeError],
    ['balance', { balance: Number.NaN }, RangeError],
    ['balance', { balance: undefined }, TypeError],
    ['retryAfterUs', { retryAfterUs: 0.5 }, RangeError],
    ['retryAfterUs', { retryAfterUs: -1 }, RangeError],
    ['waitUs', { waitUs: '1s' }, TypeError],
    ['waitUs', { waitUs: Infinity }, RangeError],
    ['refillAfterUs', { refillAfterUs: Number.NaN }, RangeError],
    ['resetAfterUs', { resetAfterUs: null }, TypeError],
  ])('throws for a wrong %s: %o', (option, wrong, ErrorClass) => {
    const make = () => createDecision({ limit: 5, balance: 5, ...wrong } as never)
    expect(make).toThrow(ErrorClass)
    expect(make).toThrow(expect.objectContaining({ code: 'SLUICE_INVALID_OPTION', option }))
  })
})
