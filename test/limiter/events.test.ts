import { channel } from 'node:diagnostics_channel'
import { join } from 'node:path'
import {
  combine,
  createLimiter,
  createRegistry,
  type Decision,
  memoryStore,
  tokenBucket,
  unlimited,
} from '@sluice/core'
import { manualClock } from '@sluice/core/testing'
import { describe, expect, onTestFinished, test, vi } from 'vitest'
import { asynchronous } from '../support/async-store.js'
import { heard } from '../support/events.js'
import { run } from '../support/process.js'

const bucket = tokenBucket({ limit: 2, window: '1m' })

/** Two permits for each key; one more comes every 30 seconds. */
function setUp() {
  const clock = manualClock()
  const limiter = createLimiter(bucket, { name: 'two', clock })
  return { clock, limiter }
}

describe('sluice:decision', () => {
  test('is published for every grant and refusal, with the decision that the caller gets', () => {
    const { limiter } = setUp()
    const decisions = heard('sluice:decision')
    const granted = limiter.tryAcquire('ann', { cost: 2 })
    const refused = limiter.tryAcquire('ann')
    expect(decisions).toEqual([
      { limiter: 'two', key: 'ann', cost: 2, decision: granted },
      { limiter: 'two', key: 'ann', cost: 1, decision: refused },
    ])
    expect(decisions.map(({ decision }) => decision.allowed)).toEqual([true, false])
    expect(decisions[0]?.decision).toBe(granted)
  })

  test('is published for reservations', () => {
    const { limiter } = setUp()
    const decisions = heard('sluice:decision')
    limiter.reserve('ann', { cost: 2 })
    limiter.reserve('ann', { cost: 2 })
    limiter.reserve('ann', { cost: 2, maxWait: 0 })
    expect(decisions).toMatchObject([
      { limiter: 'two', key: 'ann', cost: 2, decision: { allowed: true, waitMs: 0 } },
      { limiter: 'two', key: 'ann', cost: 2, decision: { allowed: true, waitMs: 60_000 } },
      { limiter: 'two', key: 'ann', cost: 2, decision: { allowed: false } },
    ])
  })

  test('is published when an acquire is granted or refused', async () => {
    const { clock, limiter } = setUp()
    limiter.drain('ann')
    const decisions = heard('sluice:decision')
    const wait = limiter.acquire('ann', { cost: 2 })
    expect(decisions).toEqual([])
    clock.advance('1m')
    await wait
    await limiter.acquire('ann', { maxWait: 0 }).catch(() => {})
    expect(decisions).toMatchObject([
      { limiter: 'two', key: 'ann', cost: 2, decision: { allowed: true, waitMs: 60_000 } },
      { limiter: 'two', key: 'ann', cost: 1, decision: { allowed: false, waitMs: 30_000 } },
    ])
  })

  test('is published after an asynchronous store has decided', async () => {
    const decisions = heard('sluice:decision')
    const limiter = createLimiter(bucket, { name: 'later', store: asynchronous(memoryStore()) })
    const decision = await limiter.tryAcquire('ann')
    expect(decisions).toEqual([{ limiter: 'later', key: 'ann', cost: 1, decision }])
  })

  test('is not published for peek or drain', () => {
    const { limiter } = setUp()
    const decisions = heard('sluice:decision')
    limiter.peek('ann')
    limiter.drain('ann')
    expect(decisions).toEqual([])
  })

  test('is published for a combination and for each of its members', () => {
    const { clock, limiter } = setUp()
    const decisions = heard('sluice:decision')
    const hourly = createLimiter(tokenBucket({ limit: 9, window: '1h' }), { name: 'hourly', clock })
    combine(limiter, hourly).tryAcquire('ann', { cost: 2 })
    expect(decisions).toMatchObject([
      { limiter: 'two', key: 'ann', cost: 2, decision: { remaining: 0 } },
      { limiter: 'hourly', key: 'ann', cost: 2, decision: { remaining: 7 } },
      { limiter: 'two+hourly', key: 'ann', cost: 2, decision: { remaining: 0 } },
    ])
  })
})

describe('sluice:wait', () => {
  test('is published with the key and the wait of a waiter', async () => {
    const { clock, limiter } = setUp()
    const waits = heard('sluice:wait')
    await limiter.acquire('ann', { cost: 2 })
    expect(waits).toEqual([])
    const wait = limiter.acquire('ann', { cost: 2 })
    expect(waits).toEqual([{ limiter: 'two', key: 'ann', cost: 2, waitMs: 60_000 }])
    clock.advance('1m')
    await wait
    expect(waits).toHaveLength(1)
  })

  test('is not published for a refusal or a reservation', async () => {
    const { limiter } = setUp()
    const waits = heard('sluice:wait')
    limiter.drain('ann')
    limiter.reserve('ann')
    await limiter.acquire('ann', { maxWait: 0 }).catch(() => {})
    expect(waits).toEqual([])
  })
})

describe('sluice:release', () => {
  test('is published with the permits given back', () => {
    const { limiter } = setUp()
    const releases = heard('sluice:release')
    limiter.tryAcquire('ann', { cost: 2 })
    limiter.release('ann', 5)
    limiter.drain('bob')
    limiter.reserve('bob', { cost: 2 }).cancel()
    limiter.reserve('cem').refund()
    expect(releases).toEqual([
      { limiter: 'two', key: 'ann', permits: 2 },
      { limiter: 'two', key: 'bob', permits: 2 },
      { limiter: 'two', key: 'cem', permits: 1 },
    ])
  })

  test('is not published if no permits come back', () => {
    const { limiter } = setUp()
    const releases = heard('sluice:release')
    limiter.release('ann', 1)
    const booking = limiter.reserve('ann')
    booking.refund()
    booking.refund()
    expect(releases).toHaveLength(1)
  })
})

describe('the other methods', () => {
  test('sluice:drain is published with the permits drained', () => {
    const { limiter } = setUp()
    const drains = heard('sluice:drain')
    limiter.drain('ann')
    limiter.drain('ann')
    expect(drains).toEqual([
      { limiter: 'two', key: 'ann', permits: 2 },
      { limiter: 'two', key: 'ann', permits: 0 },
    ])
  })

  test('sluice:reset is published with the key', () => {
    const { limiter } = setUp()
    const resets = heard('sluice:reset')
    limiter.reset('ann')
    expect(resets).toEqual([{ limiter: 'two', key: 'ann' }])
  })

  test('sluice:update is published with the algorithm and its policy', () => {
    const { limiter } = setUp()
    const updates = heard('sluice:update')
    const wider = tokenBucket({ limit: 5, window: '1m' })
    limiter.update(wider)
    limiter.update(unlimited())
    expect(updates).toEqual([
      { limiter: 'two', algorithm: 'token-bucket', policy: wider.policy },
      { limiter: 'two', algorithm: 'unlimited', policy: unlimited().policy },
    ])
  })

  test('are published after an asynchronous store has answered, and not after it has failed', async () => {
    const store = asynchronous(memoryStore())
    const limiter = createLimiter(bucket, { name: 'later', store })
    const [drains, resets, updates] = [heard('sluice:drain'), heard('sluice:reset'), heard('sluice:update')]
    const calls = () => [limiter.drain('ann'), limiter.reset('ann'), limiter.update(bucket)]
    const answers = calls()
    expect([drains, resets, updates]).toEqual([[], [], []])
    await Promise.all(answers)
    store.failWith(new Error('the store is down'))
    await Promise.allSettled(calls())
    expect([drains, resets, updates]).toMatchObject([
      [{ limiter: 'later', key: 'ann', permits: 2 }],
      [{ limiter: 'later', key: 'ann' }],
      [{ limiter: 'later', algorithm: 'token-bucket' }],
    ])
  })
})

describe('sluice:store-error', () => {
  test('is published once for each failed store call, with its error', async () => {
    const store = asynchronous(memoryStore())
    const limiter = createLimiter(bucket, { name: 'later', store })
    const errors = heard('sluice:store-error')
    const cause = new Error('the store is down')
    store.failWith(cause)
    await Promise.allSettled([limiter.tryAcquire('ann'), limiter.acquire('ann'), limiter.drain('ann')])
    const failure = { limiter: 'later', error: { code: 'SLUICE_STORE_ERROR', cause } }
    expect(errors).toMatchObject([failure, failure, failure])
  })
})

describe('sluice:registry', () => {
  test('is published for limiters that are added, replaced and removed', () => {
    const changes = heard('sluice:registry')
    const registry = createRegistry({ algorithm: bucket })
    registry.get('search')
    registry.get('search')
    registry.get('login')
    registry.replace('search', unlimited())
    registry.remove('search')
    registry.remove('search')
    registry.close()
    expect(changes).toEqual([
      { limiter: 'search', change: 'added' },
      { limiter: 'login', change: 'added' },
      { limiter: 'search', change: 'replaced' },
      { limiter: 'search', change: 'removed' },
      { limiter: 'login', change: 'removed' },
    ])
  })
})

describe('without subscribers', () => {
  test('nothing is published', async () => {
    const publish = vi.spyOn(Object.getPrototypeOf(channel('sluice:decision')), 'publish')
    onTestFinished(() => publish.mockRestore())
    channel('sluice:nobody').publish('this spy sees what nobody hears')
    expect(publish).toHaveBeenCalledTimes(1)

    const { clock, limiter } = setUp()
    const store = asynchronous(memoryStore())
    const failing = createLimiter(bucket, { store })
    store.failWith(new Error('the store is down'))
    limiter.drain('ann')
    const wait = limiter.acquire('ann')
    clock.advance('30s')
    await wait
    limiter.tryAcquire('ann')
    limiter.reserve('ann').cancel()
    limiter.release('ann', 1)
    limiter.drain('ann')
    limiter.reset('ann')
    limiter.update(unlimited())
    await Promise.allSettled([failing.tryAcquire('ann')])
    createRegistry({ algorithm: bucket }).get('search')
    expect(publish).toHaveBeenCalledTimes(1)
  })

  test('no figure of a decision is computed', () => {
    const { limiter } = setUp()
    const Figures = Object.getPrototypeOf(limiter.peek('ann')) as Decision
    const figures = (
      ['limit', 'remaining', 'balance', 'waitMs', 'retryAfterMs', 'refillAfterMs', 'resetAfterMs'] as const
    ).map(figure => vi.spyOn(Figures, figure, 'get'))
    onTestFinished(() => {
      for (const figure of figures) figure.mockRestore()
    })
    const { allowed } = limiter.tryAcquire('ann')
    limiter.reserve('ann')
    expect(allowed).toBe(true)
    for (const figure of figures) expect(figure).not.toHaveBeenCalled()
    expect(limiter.peek('ann').remaining).toBe(0)
    expect(figures[1]).toHaveBeenCalledTimes(1)
  })
})

/** Runs a module until its process ends by itself, and returns its output. */
function outputOf(code: string): Promise<string> {
  const cwd = join(import.meta.dirname, '..')
  return run('node', ['--import', 'tsx', '--input-type=module', '--eval', code], cwd)
}

describe('in a process of its own', () => {
  test('a subscriber that throws does not change the answer; Node reports it as uncaught', async () => {
    const output = await outputOf(`
      import { subscribe } from 'node:diagnostics_channel'
      import { createLimiter, tokenBucket } from '@sluice/core'
      process.on('uncaughtException', error => console.log('uncaught:', error.message))
      subscribe('sluice:decision', () => { throw new Error('a broken subscriber') })
      subscribe('sluice:decision', ({ key }) => console.log('heard:', key))
      const limiter = createLimiter(tokenBucket({ limit: 1, window: '1h' }))
      console.log(limiter.tryAcquire('ann').allowed, limiter.tryAcquire('ann').allowed)
      console.log(limiter.stats().granted, limiter.stats().refused)`)
    expect(output.split('\n')).toEqual([
      'heard: ann',
      'heard: ann',
      'true false',
      '1 1',
      'uncaught: a broken subscriber',
      'uncaught: a broken subscriber',
      '',
    ])
  })

  test.each([
    ['process.getBuiltinModule', 'delete process.getBuiltinModule'],
    ['node:diagnostics_channel', 'process.getBuiltinModule = () => undefined'],
    ['process', 'delete globalThis.process'],
  ])('core works without %s', async (_, removal) => {
    const output = await outputOf(`
      import { subscribe } from 'node:diagnostics_channel'
      subscribe('sluice:decision', () => console.log('heard'))
      subscribe('sluice:wait', () => console.log('heard'))
      await import('express')
      ${removal}
      const { manualClock } = await import('@sluice/core/testing')
      const { createLimiter, createRegistry, limited, memoryStore, tokenBucket } = await import('@sluice/core')
      const clock = manualClock()
      const bucket = tokenBucket({ limit: 1, window: '1h' })
      const limiter = createLimiter(bucket, { clock, store: memoryStore({ maxKeys: 1 }) })
      console.log(limiter.tryAcquire('ann').allowed, limiter.tryAcquire('ann').allowed)
      const wait = limiter.acquire('ann')
      clock.advance('1h')
      console.log((await wait).waitMs)
      console.log(limiter.tryAcquire('bob'.repeat(100)).allowed, limiter.stats().forgotten)
      console.log(createRegistry({ algorithm: bucket, clock }).get('search').drain('ann'))
      console.log(limited(createLimiter(bucket))(() => 'sent')())`)
    expect(output.split('\n')).toEqual(['true false', '3600000', 'true 1', '1', 'sent', ''])
  })
})
