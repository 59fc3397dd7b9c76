import assert from 'node:assert/strict'
import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { createLimiter, fixedWindow } from '@sluice/core'
import { counterStore } from '@sluice/core/store'
import { storeContract } from '@sluice/core/testing'
import { rateLimit } from '@sluice/express'
import express from 'express'
import type { ClientRateLimitInfo, Options } from 'express-rate-limit'
import { type RedisReply, RedisStore } from 'rate-limit-redis'
import request from 'supertest'
import { describe, expect, test } from 'vitest'
import { server } from './server.js'

const it = server()
const WINDOW_MS = 3_600_000
const TEN = fixedWindow({ limit: 10, window: WINDOW_MS })
let opened = 0

/** A store over rate-limit-redis, as in docs/writing-a-store.md. */
async function open(prefix = `counter-${opened++}:`) {
  const counter = new RedisStore({
    prefix,
    sendCommand: (command, ...args) => it.redis.call(command, ...args) as Promise<RedisReply>,
  })
  await counter.init({ windowMs: WINDOW_MS } as Options)
  const times = <T>(cost: number, call: () => Promise<T>) =>
    Promise.all(Array.from({ length: cost }, () => call()))
  const resetAfterMs = ({ resetTime }: ClientRateLimitInfo) => resetTime && resetTime.getTime() - Date.now()
  return counterStore({
    hit: async (key, cost) => {
      const hits = await times(cost, () => counter.increment(key))
      const last = hits.at(-1) as ClientRateLimitInfo
      return {
        used: Math.max(...hits.map(({ totalHits }) => totalHits)),
        resetAfterMs: resetAfterMs(last),
      }
    },
    read: async key => {
      const info = await counter.get(key)
      return info && info.totalHits > 0
        ? { used: info.totalHits, resetAfterMs: resetAfterMs(info) }
        : undefined
    },
    undo: (key, cost) => times(cost, () => counter.decrement(key)),
    forget: key => counter.resetKey(key),
    deadline: '10s',
  })
}

storeContract(
  {
    name: 'counterStore over rate-limit-redis',
    open,
    algorithms: { fixedWindow: [7, 4, 11].map(limit => fixedWindow({ limit, window: WINDOW_MS })) },
    without: ['release'],
    ownClock: true,
    sequences: 5,
  },
  { test, assert },
)

describe('counterStore over rate-limit-redis', () => {
  test('grants 10 of 25 calls of two processes at once, and ends at 10', async () => {
    const stores = [await open('shared:'), await open('shared:')]
    const limiters = stores.map(store => createLimiter(TEN, { name: 'per-user', store }))
    const calls = Array.from({ length: 25 }, (_, index) => limiters[index % 2]?.tryAcquire('ann'))
    const decisions = await Promise.all(calls)
    expect(decisions.filter(decision => decision?.allowed)).toHaveLength(10)
    expect(await it.redis.get('shared:per-user:ann')).toBe('10')
  })

  test('a refund comes back once', async () => {
    const limiter = createLimiter(TEN, { name: 'refund', store: await open() })
    const booking = await limiter.reserve('ann', { cost: 4, maxWait: 0 })
    expect([await booking.refund(), await booking.refund()]).toEqual([4, 0])
    expect((await limiter.peek('ann')).remaining).toBe(10)
  })

  test('a window ends when Redis says', async () => {
    const limiter = createLimiter(TEN, { name: 'ends', store: await open('ends:') })
    await limiter.tryAcquire('ann', { cost: 10 })
    await it.redis.pexpire('ends:ends:ann', 5000)
    const { allowed, retryAfterMs } = await limiter.tryAcquire('ann')
    expect(allowed).toBe(false)
    expect(retryAfterMs).toBeGreaterThan(0)
    expect(retryAfterMs).toBeLessThanOrEqual(5000)
    await it.redis.del('ends:ends:ann')
    expect((await limiter.tryAcquire('ann')).remaining).toBe(9)
  })

  test('limits requests of Express, and gives refunds', async () => {
    const limiter = createLimiter(fixedWindow({ limit: 2, window: WINDOW_MS }), {
      name: 'http',
      store: await open('http:'),
    })
    const app = express()
    app.use(rateLimit({ limiter, key: () => 'ann', refund: { ifFailed: true } }))
    app.get('/ok', (_, response) => void response.send('ok'))
    app.get('/failed', (_, response) => void response.status(500).end())
    const statusOf = async (path: string) => (await request(app).get(path)).status
    const refunded = new Promise<void>(resolve => {
      const listener = () => {
        unsubscribe('sluice:release', listener)
        resolve()
      }
      subscribe('sluice:release', listener)
    })
    expect(await statusOf('/failed')).toBe(500)
    await refunded
    expect(await it.redis.get('http:http:ann')).toBe('0')
    expect([await statusOf('/ok'), await statusOf('/ok'), await statusOf('/ok')]).toEqual([200, 200, 429])
    const { headers } = await request(app).get('/ok')
    expect(headers).toMatchObject({
      'ratelimit-policy': '"http";q=2;w=3600',
      'retry-after': expect.stringMatching(/^3[56]\d\d$/),
    })
    expect(headers.ratelimit).toMatch(/^"http";r=0;t=3[56]\d\d$/)
  })
})
