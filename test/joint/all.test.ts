import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import {
  type Algorithm,
  type AsyncStore,
  acquireAll,
  combine,
  createLimiter,
  createRegistry,
  cycle,
  fixedWindow,
  type JointDecision,
  type Limiter,
  type LimiterOptions,
  leakyBucket,
  memoryStore,
  RateLimitedError,
  type SluiceEvents,
  type SyncStore,
  slidingLog,
  slidingWindow,
  smoothBursty,
  tokenBucket,
  tryAcquireAll,
  unlimited,
} from '@sluice/core'
import { manualClock } from '@sluice/core/testing'
import { afterEach, describe, expect, expectTypeOf, test } from 'vitest'
import { asynchronous } from '../support/async-store.js'
import { breakable, expectStoreFailure, FAILURE, figuresOf, isCollected, logOf, settled } from './support.js'

type Options = Pick<LimiterOptions, 'maxQueue' | 'maxQueuePerKey'>

/** Limiters on one clock. Each has its own store by default. */
function setUp() {
  const clock = manualClock()
  const limiter = (
    name: string,
    algorithm: Algorithm,
    store: SyncStore = memoryStore(),
    options: Options = {},
  ) => createLimiter(algorithm, { name, clock, store, ...options })
  const later = (name: string, algorithm: Algorithm, store: AsyncStore = asynchronous(memoryStore())) =>
    createLimiter(algorithm, { name, clock, store })
  const perSecond = limiter('per-second', tokenBucket({ limit: 2, window: '1s' }))
  const perDay = limiter('per-day', fixedWindow({ limit: 5, window: '1d' }))
  return { clock, limiter, later, log: logOf(clock), perSecond, perDay }
}

describe('tryAcquireAll', () => {
  test.each<[string, number, number, boolean, string[], number, [number, number]]>([
    ['both have enough', 2, 5, true, [], 0, [0, 0]],
    ['both costs are 0', 0, 0, true, [], 0, [2, 5]],
    ['the first cost can never be granted', 3, 1, false, ['per-second'], Infinity, [2, 5]],
    ['the last cost can never be granted', 1, 6, false, ['per-day'], Infinity, [2, 5]],
    ['both refuse', 3, 6, false, ['per-second', 'per-day'], Infinity, [2, 5]],
  ])('%s', (_, first, second, allowed, refusedBy, waitMs, remaining) => {
    const { perSecond, perDay } = setUp()
    const decision = tryAcquireAll([
      { limiter: perSecond, key: 'ann', cost: first },
      { limiter: perDay, key: 'acme', cost: second },
    ])
    expect(decision).toMatchObject({ allowed, refusedBy, waitMs, retryAfterMs: waitMs })
    expect([perSecond.peek('ann').remaining, perDay.peek('acme').remaining]).toEqual(remaining)
  })

  test('a refusal reports the longest wait, and the same call passes after it', () => {
    const { clock, perSecond, perDay } = setUp()
    const asks = [
      { limiter: perDay, key: 'ann', cost: 3 },
      { limiter: perSecond, key: 'ann', cost: 2 },
    ]
    expect(tryAcquireAll(asks)).toMatchObject({ allowed: true, limit: 2, remaining: 0 })
    clock.advance(500)
    const refusal = tryAcquireAll(asks)
    expect(refusal).toMatchObject({ refusedBy: ['per-day', 'per-second'], waitMs: 86_399_500 })
    expect(refusal.parts.map(({ decision }) => decision.waitMs)).toEqual([86_399_500, 500])
    clock.advance(refusal.retryAfterMs)
    expect(tryAcquireAll(asks).allowed).toBe(true)
  })

  test('lists the limiter, key, cost and decision of each part', () => {
    const { perSecond, perDay } = setUp()
    const { parts } = tryAcquireAll([
      { limiter: perSecond, key: 'ann' },
      { limiter: perDay, key: 'acme', cost: 6 },
    ])
    expect(parts).toMatchObject([
      {
        limiter: 'per-second',
        policy: { limit: 2 },
        key: 'ann',
        cost: 1,
        decision: { allowed: true, remaining: 2 },
      },
      {
        limiter: 'per-day',
        policy: { limit: 5 },
        key: 'acme',
        cost: 6,
        decision: { allowed: false, remaining: 5 },
      },
    ])
  })

  test('as JSON, a joint decision is its figures and the names of the limiters that refused', () => {
    const { perSecond, perDay } = setUp()
    perSecond.tryAcquire('ann', { cost: 2 })
    const decision = tryAcquireAll([
      { limiter: perSecond, key: 'ann' },
      { limiter: perDay, key: 'ann', cost: 2 },
    ])
    expect(JSON.parse(JSON.stringify(decision))).toEqual({
      allowed: false,
      limit: 2,
      remaining: 0,
      waitMs: 500,
      retryAfterMs: 500,
      refillAfterMs: 500,
      resetAfterMs: 1000,
      balance: 0,
      refusedBy: ['per-second'],
    })
  })

  test('names a limiter once if two of the same name refuse', () => {
    const { limiter } = setUp()
    const closed = () => limiter('closed', tokenBucket({ limit: 0, window: '1s' }))
    const asks = [closed(), closed()].map(limiter => ({ limiter, key: 'ann' }))
    expect(tryAcquireAll(asks)).toMatchObject({ allowed: false, refusedBy: ['closed'] })
  })

  test('with any mix of algorithms, every limiter is charged or none is', () => {
    const { limiter } = setUp()
    const rate = { limit: 4, window: '1m' } as const
    const algorithms = [
      tokenBucket(rate),
      fixedWindow(rate),
      slidingWindow(rate),
      slidingLog(rate),
      cycle({ limit: 4, period: '1m' }),
      leakyBucket({ ...rate, capacity: 4 }),
      smoothBursty(rate),
      unlimited(),
    ]
    const limiters = algorithms.map(algorithm => limiter(algorithm.name, algorithm))
    const ask = (cost: number) => tryAcquireAll(limiters.map(limiter => ({ limiter, key: 'ann', cost })))
    const looks = () => limiters.map(limiter => limiter.peek('ann').toJSON())
    const fresh = looks()
    expect(ask(6)).toMatchObject({ allowed: false, waitMs: Infinity })
    expect(looks()).toEqual(fresh)
    expect(ask(2).allowed).toBe(true)
    const spent = looks()
    expect(ask(2)).toMatchObject({ allowed: false, refusedBy: ['leaky-bucket', 'smooth-bursty'] })
    expect(looks()).toEqual(spent)
  })

  test.each([
    ['together within the limit', 3, 2, true, 0],
    ['each within the limit, not together', 3, 3, false, 5],
  ])('adds up the costs of the same limiter and key: %s', (_, first, second, allowed, remaining) => {
    const { perDay } = setUp()
    const decision = tryAcquireAll([
      { limiter: perDay, key: 'ann', cost: first },
      { limiter: perDay, key: 'ann', cost: second },
    ])
    expect(decision).toMatchObject({ allowed, parts: [{ cost: first + second }] })
    expect(perDay.peek('ann').remaining).toBe(remaining)
  })

  test('does not add up the costs of different keys of one limiter', () => {
    const { perDay } = setUp()
    const asks = ['ann', 'bob'].map(key => ({ limiter: perDay, key, cost: 5 }))
    expect(tryAcquireAll(asks).allowed).toBe(true)
    expect(tryAcquireAll(asks)).toMatchObject({ allowed: false, refusedBy: ['per-day'] })
  })

  test('expands a combination into its limiters, and adds up costs with them', () => {
    const { perSecond, perDay } = setUp()
    const { parts } = tryAcquireAll([
      { limiter: combine(perSecond, perDay), key: 'ann' },
      { limiter: perDay, key: 'ann', cost: 2 },
    ])
    expect(parts.map(({ limiter, cost }) => [limiter, cost])).toEqual([
      ['per-second', 1],
      ['per-day', 3],
    ])
    expect([perSecond.peek('ann').remaining, perDay.peek('ann').remaining]).toEqual([1, 2])
  })

  test('stats count a grant for every limiter, and a refusal for the limiters that refused', () => {
    const { perSecond, perDay } = setUp()
    const ask = (cost: number) =>
      tryAcquireAll([
        { limiter: perSecond, key: 'ann', cost },
        { limiter: perDay, key: 'ann' },
      ])
    ask(2)
    ask(2)
    expect(perSecond.stats()).toMatchObject({ granted: 1, refused: 1 })
    expect(perDay.stats()).toMatchObject({ granted: 1, refused: 0 })
  })

  test('publishes a decision event for each limiter that granted or refused', async () => {
    const { perSecond, perDay } = setUp()
    const events = await decisionsOf(() =>
      tryAcquireAll([
        { limiter: perSecond, key: 'ann', cost: 2 },
        { limiter: perDay, key: 'acme' },
      ]),
    )
    expect(events).toEqual([
      { limiter: 'per-second', key: 'ann', cost: 2, allowed: true },
      { limiter: 'per-day', key: 'acme', cost: 1, allowed: true },
    ])
  })

  test('gives back the first part if a full store refuses the second', () => {
    const { limiter, perDay } = setUp()
    const store = memoryStore({ maxKeys: 1, onFull: 'refuse' })
    const crowded = limiter('crowded', fixedWindow({ limit: 1, window: '1h' }), store)
    const asks = (...keys: string[]) => [
      { limiter: perDay, key: 'acme', cost: 2 },
      ...keys.map(key => ({ limiter: crowded, key })),
    ]
    expect(tryAcquireAll(asks('a', 'b'))).toMatchObject({
      allowed: false,
      refusedBy: ['crowded'],
      code: 'SLUICE_STORE_FULL',
      waitMs: 3_600_000,
    })
    expect(perDay.peek('acme')).toMatchObject({ remaining: 5, resetAfterMs: 0 })
    expect(tryAcquireAll(asks('b')).allowed).toBe(true)
  })

  test('a refusal shows what a part has after its permits were given back', () => {
    const { limiter, perDay } = setUp()
    const store = memoryStore({ maxKeys: 1, onFull: 'refuse' })
    const crowded = limiter('crowded', fixedWindow({ limit: 1, window: '1h' }), store)
    const { parts } = tryAcquireAll([
      { limiter: perDay, key: 'acme', cost: 2 },
      { limiter: crowded, key: 'a' },
      { limiter: crowded, key: 'b' },
    ])
    expect(parts[0]?.decision.remaining).toBe(perDay.peek('acme').remaining)
  })
})

describe('tryAcquireAll on asynchronous stores', () => {
  test('returns a promise if any limiter is asynchronous', async () => {
    const { perSecond, perDay, later } = setUp()
    const slow = later('slow', slidingLog({ limit: 1, window: '1h' }))
    const synchronous = tryAcquireAll([
      { limiter: perSecond, key: 'ann' },
      { limiter: perDay, key: 'ann' },
    ])
    expectTypeOf(synchronous).toEqualTypeOf<JointDecision>()
    expect(synchronous.allowed).toBe(true)

    const asynchronous = tryAcquireAll([{ limiter: slow, key: 'ann' }])
    expectTypeOf(asynchronous).toEqualTypeOf<Promise<JointDecision>>()
    expect(asynchronous).toBeInstanceOf(Promise)
    expect((await asynchronous).allowed).toBe(true)

    const mixed = tryAcquireAll([
      { limiter: perSecond, key: 'ann' },
      { limiter: slow, key: 'ann' },
    ])
    expectTypeOf(mixed).toEqualTypeOf<JointDecision | Promise<JointDecision>>()
    expect(mixed).toBeInstanceOf(Promise)
    expect(await mixed).toMatchObject({ allowed: false, refusedBy: ['slow'] })
    expect(perSecond.peek('ann').remaining).toBe(1)
  })

  test.each([
    ['in the same order', ['x', 'y'], ['x', 'y'], 1],
    ['in opposite orders', ['x', 'y'], ['y', 'x'], 1],
  ])(
    'grants at most one of two concurrent calls %s, and gives everything back to a refused one',
    async (_, first, second, most) => {
      const { later } = setUp()
      const limiter = later('one', slidingLog({ limit: 1, window: '1h' }))
      const asks = (keys: readonly string[]) => keys.map(key => ({ limiter, key }))
      const decisions = await Promise.all([tryAcquireAll(asks(first)), tryAcquireAll(asks(second))])
      const winners = decisions.filter(({ allowed }) => allowed).length
      expect(winners).toBeLessThanOrEqual(most)
      for (const key of ['x', 'y']) expect((await limiter.peek(key)).remaining).toBe(1 - winners)
    },
  )

  test('gives back the other parts if another caller takes one in between', async () => {
    const { later, perDay } = setUp()
    const contested = later('contested', slidingLog({ limit: 1, window: '1h' }))
    const joint = tryAcquireAll([
      { limiter: perDay, key: 'ann', cost: 2 },
      { limiter: contested, key: 'ann' },
    ])
    const [decision, rival] = await Promise.all([joint, contested.tryAcquire('ann')])
    expect(rival.allowed).toBe(true)
    expect(decision).toMatchObject({ allowed: false, refusedBy: ['contested'], retryAfterMs: 3_600_000 })
    expect(perDay.peek('ann').remaining).toBe(5)
    expect(contested.stats()).toMatchObject({ granted: 1, refused: 1 })
    expect(perDay.stats()).toMatchObject({ granted: 0, refused: 0 })
  })
})

describe('a store that fails', () => {
  function withBroken() {
    const { clock, limiter, later, perDay } = setUp()
    const store = breakable(asynchronous(memoryStore()))
    const broken = later('broken', slidingLog({ limit: 3, window: '1h' }), store)
    const sound = later('sound', tokenBucket({ limit: 3, window: '1h' }))
    const asks = [perDay, sound, broken].map(limiter => ({ limiter, key: 'ann', cost: 2 }) as const)
    return { clock, limiter, perDay, store, broken, sound, asks }
  }

  test.each(['decide', 'book'] as const)(
    'in %s: the call fails with the error of the store, and keeps no permits',
    async verb => {
      const { store, asks, perDay, sound, broken } = withBroken()
      store.failing = verb
      await expectStoreFailure(tryAcquireAll(asks))
      store.failing = undefined
      expect(await figuresOf('ann', perDay, sound, broken)).toMatchObject([
        { remaining: 5 },
        { remaining: 3 },
        { remaining: 3 },
      ])
      for (const part of [perDay, sound, broken])
        expect(part.stats()).toMatchObject({ granted: 0, refused: 0 })
      expect((await tryAcquireAll(asks)).allowed).toBe(true)
    },
  )

  test.each(['decide', 'book'] as const)(
    'in %s: the limiter of that store counts the error once',
    async verb => {
      const { store, asks, perDay, sound, broken } = withBroken()
      store.failing = verb
      await expectStoreFailure(tryAcquireAll(asks))
      expect([perDay, sound, broken].map(part => part.stats().storeErrors)).toEqual([0, 0, 1])
    },
  )

  test('in acquireAll: the error ends the wait, and no permits stay taken', async () => {
    const { store, asks, perDay, sound, broken } = withBroken()
    store.failing = 'book'
    await expectStoreFailure(acquireAll(asks))
    store.failing = undefined
    expect((await figuresOf('ann', perDay, sound, broken)) as object[]).toMatchObject([
      { remaining: 5 },
      { remaining: 3 },
      { remaining: 3 },
    ])
    expect(broken.stats().storeErrors).toBe(1)
  })

  test('in acquireAll, during a wait: the error ends the wait, and no timer is left', async () => {
    const { clock, store, asks, broken } = withBroken()
    await broken.tryAcquire('ann', { cost: 3 })
    const wait = acquireAll(asks)
    const outcome = expectStoreFailure(wait)
    await settled()
    store.failing = 'decide'
    clock.advance('1h')
    await outcome
    expect(clock.alarms).toBe(0)
  })

  test('that is synchronous: the call throws, and the permits taken are given back', () => {
    const { limiter, perDay } = withBroken()
    const store = breakable(memoryStore())
    const broken = limiter('broken', slidingLog({ limit: 3, window: '1h' }), store)
    store.failing = 'book'
    const asks = [perDay, broken].map(limiter => ({ limiter, key: 'ann', cost: 2 }))
    expect(() => tryAcquireAll(asks)).toThrow(FAILURE)
    expect(perDay.peek('ann').remaining).toBe(5)
  })
})

describe('acquireAll', () => {
  function exhausted(options: Options = {}) {
    const { clock, limiter, log } = setUp()
    const fast = limiter('fast', tokenBucket({ limit: 1, window: '1s' }), memoryStore(), options)
    const slow = limiter('slow', fixedWindow({ limit: 1, window: '3s' }), memoryStore(), options)
    const asks = [
      { limiter: fast, key: 'ann' },
      { limiter: slow, key: 'acme' },
    ]
    tryAcquireAll(asks)
    return { clock, limiter, log, fast, slow, asks }
  }

  test('grants at once if the permits are available', async () => {
    const { clock, perSecond, perDay } = setUp()
    const decision = await acquireAll([
      { limiter: perSecond, key: 'ann', cost: 2 },
      { limiter: perDay, key: 'ann' },
    ])
    expect(decision).toMatchObject({ allowed: true, waitMs: 0, refusedBy: [] })
    expect([perSecond.peek('ann').remaining, perDay.peek('ann').remaining]).toEqual([0, 4])
    expect(clock.alarms).toBe(0)
  })

  test('waits until all limiters can grant, and takes nothing before', async () => {
    const { clock, log, fast, slow, asks } = exhausted()
    const wait = acquireAll(asks)
    log.note('all', wait)
    clock.advance(2999.999)
    await settled()
    expect(log.entries).toEqual([])
    expect([fast.peek('ann').remaining, slow.peek('acme').remaining]).toEqual([1, 0])
    clock.advance(0.001)
    await settled()
    expect(log.entries).toEqual(['all after 3000'])
    expect(await wait).toMatchObject({
      allowed: true,
      waitMs: 3000,
      retryAfterMs: 0,
      parts: [{ cost: 1 }, { cost: 1 }],
    })
    expect([fast.peek('ann').remaining, slow.peek('acme').remaining]).toEqual([0, 0])
    expect(clock.alarms).toBe(0)
  })

  test('tries again if another caller took the permits first', async () => {
    const { clock, log, fast, slow, asks } = exhausted()
    log.note('all', acquireAll(asks))
    clock.advance(2500)
    fast.tryAcquire('ann')
    clock.advance(500)
    await settled()
    expect([log.entries, slow.peek('acme').remaining]).toEqual([[], 1])
    clock.advance(500)
    await settled()
    expect(log.entries).toEqual(['all after 3500'])
  })

  test('adds up the costs of the same limiter and key', async () => {
    const { clock, log, perSecond } = setUp()
    perSecond.tryAcquire('ann')
    log.note('two', acquireAll([1, 2].map(() => ({ limiter: perSecond, key: 'ann' }))))
    clock.advance(499)
    await settled()
    expect(log.entries).toEqual([])
    clock.advance(1)
    await settled()
    expect(log.entries).toEqual(['two after 500'])
  })

  test.each([
    ['synchronous', memoryStore],
    ['asynchronous', () => asynchronous(memoryStore()) as never],
  ])('serves equal calls first come, first served, on %s stores', async (_, store) => {
    const { clock, limiter, log } = setUp()
    const asks = ['fast', 'slow'].map(name => ({
      limiter: limiter(
        name,
        tokenBucket({ limit: 1, window: name === 'fast' ? '1s' : '2s' }),
        store(),
      ) as Limiter,
      key: 'ann',
    }))
    await tryAcquireAll(asks)
    for (const name of ['a', 'b', 'c']) {
      log.note(name, acquireAll(asks))
      await settled()
    }
    for (let second = 0; second < 6; second++) {
      clock.advance('1s')
      await settled()
    }
    expect(log.entries).toEqual(['a after 2000', 'b after 4000', 'c after 6000'])
    expect(clock.alarms).toBe(0)
  })

  test('a new caller does not overtake a waiter with an equal call', async () => {
    const { clock, limiter, log } = setUp()
    const bookable = limiter('bookable', tokenBucket({ limit: 1, window: '1s' }))
    const booking = bookable.reserve('ann')
    const asks = [{ limiter: bookable, key: 'ann' }]
    log.note('first', acquireAll(asks))
    booking.cancel()
    log.note('second', acquireAll(asks))
    await settled()
    expect(log.entries).not.toContain('second after 0')
    clock.advance('1s')
    await settled()
    clock.advance('1s')
    await settled()
    expect(log.entries.map(entry => entry.split(' ')[0])).toEqual(['first', 'second'])
  })

  test('equal calls share one queue, whose length is the smallest maxQueue of the limiters', async () => {
    const { clock, log, asks } = exhausted({ maxQueuePerKey: 1 })
    log.note('first', acquireAll(asks))
    log.note('second', acquireAll(asks))
    await settled()
    expect(log.entries).toEqual(['second failed: SLUICE_RATE_LIMITED'])
    clock.advance('3s')
    await settled()
    expect(log.entries[1]).toBe('first after 3000')
  })

  test('different calls do not wait behind each other', async () => {
    const { log, fast, asks } = exhausted()
    log.note('all', acquireAll(asks))
    log.note('bob', acquireAll([{ limiter: fast, key: 'bob' }]))
    await settled()
    expect(log.entries).toEqual(['bob after 0'])
  })

  test('refuses at once if the wait would exceed maxWait, and takes nothing', async () => {
    const { clock, fast, slow, asks } = exhausted()
    clock.advance('1s')
    const before = await figuresOf('ann', fast)
    const error = await acquireAll(asks, { maxWait: 1999.999 }).catch(error => error)
    expect(error).toBeInstanceOf(RateLimitedError)
    expect(error).toMatchObject({
      code: 'SLUICE_RATE_LIMITED',
      decision: {
        allowed: false,
        refusedBy: ['slow'],
        waitMs: 2000,
        parts: [{ limiter: 'fast' }, { limiter: 'slow' }],
      },
    })
    expect(await figuresOf('ann', fast)).toEqual(before)
    expect(slow.peek('acme').remaining).toBe(0)
    expect(clock.alarms).toBe(0)
  })

  test('waits up to maxWait, to the microsecond', async () => {
    const { clock, log, asks } = exhausted()
    log.note('all', acquireAll(asks, { maxWait: '3s' }))
    clock.advance('3s')
    await settled()
    expect(log.entries).toEqual(['all after 3000'])
  })

  test('refuses a waiter when its maxWait passes before its turn, with a joint decision', async () => {
    const { clock, slow, asks } = exhausted()
    const wait = acquireAll(asks, { maxWait: '4s' }).catch(error => error)
    clock.advance(2500)
    slow.update(fixedWindow({ limit: 1, window: '10s' }))
    clock.advance('2s')
    expect(await wait).toMatchObject({ code: 'SLUICE_RATE_LIMITED', decision: { refusedBy: ['slow'] } })
    expect(clock.alarms).toBe(0)
  })

  test('waits without limit by default', async () => {
    const { clock, limiter, log } = setUp()
    const queue = limiter('queue', leakyBucket({ limit: 1, window: '1s', capacity: 1 }))
    const hourly = limiter('hourly', fixedWindow({ limit: 2, window: '1h' }))
    hourly.tryAcquire('ann', { cost: 2 })
    log.note('all', acquireAll([queue, hourly].map(limiter => ({ limiter, key: 'ann' }))))
    await settled()
    expect(log.entries).toEqual([])
    clock.advance('1h')
    await settled()
    expect(log.entries).toEqual(['all after 3600000'])
  })

  test('refuses at once a cost that can never be granted', async () => {
    const { clock, fast, slow } = exhausted()
    const never = acquireAll([
      { limiter: fast, key: 'ann' },
      { limiter: slow, key: 'acme', cost: 2 },
    ])
    await expect(never).rejects.toMatchObject({ decision: { waitMs: Infinity } })
    expect(clock.alarms).toBe(0)
  })

  test('stats count a refusal for the limiters that refused', async () => {
    const { clock, fast, slow, asks } = exhausted()
    clock.advance('1s')
    await expect(acquireAll(asks, { maxWait: 0 })).rejects.toMatchObject({ code: 'SLUICE_RATE_LIMITED' })
    expect([fast.stats().refused, slow.stats().refused]).toEqual([0, 1])
  })

  test('publishes events of its own limiters only', async () => {
    const { perSecond, perDay } = setUp()
    const events = await decisionsOf(() =>
      acquireAll([
        { limiter: perSecond, key: 'ann', cost: 2 },
        { limiter: perDay, key: 'acme' },
      ]),
    )
    expect(events).toEqual([
      { limiter: 'per-second', key: 'ann', cost: 2, allowed: true },
      { limiter: 'per-day', key: 'acme', cost: 1, allowed: true },
    ])
  })

  test('an abort rejects the wait with its reason, and takes nothing', async () => {
    const { clock, fast, asks } = exhausted()
    const abort = new AbortController()
    const wait = acquireAll(asks, { signal: abort.signal })
    clock.advance('1s')
    abort.abort(new Error('enough'))
    await expect(wait).rejects.toThrow('enough')
    expect(fast.peek('ann').remaining).toBe(1)
    expect(clock.alarms).toBe(0)
  })

  test('rejects with an already aborted signal without calling a store', async () => {
    const { fast, slow } = exhausted()
    const asks = [fast, slow].map(limiter => ({ limiter, key: 'bob' }))
    await expect(acquireAll(asks, { signal: AbortSignal.abort('too late') })).rejects.toBe('too late')
    expect([fast.peek('bob').remaining, slow.peek('bob').remaining]).toEqual([1, 1])
  })

  test.each<[string, (slow: Limiter<false>) => unknown]>([
    ['reset', slow => slow.reset('acme')],
    ['release', slow => slow.release('acme', 1)],
    ['update', slow => slow.update(unlimited())],
    ['update to a higher limit', slow => slow.update(fixedWindow({ limit: 2, window: '3s' }))],
  ])('%s of one limiter wakes the waiters, in order', async (_, change) => {
    const { clock, log, slow, asks } = exhausted()
    for (const name of ['first', 'second']) log.note(name, acquireAll(asks))
    clock.advance('1s')
    change(slow)
    await settled()
    expect(log.entries).toEqual(['first after 1000'])
  })

  test.each([true, false])(
    'close of one limiter rejects the waiters, closing the first one: %s',
    async closesFirst => {
      const { clock, log, fast, slow, asks } = exhausted()
      for (const name of ['a', 'b']) log.note(name, acquireAll(asks))
      const [closed, open] = closesFirst ? [fast, slow] : [slow, fast]
      closed.close()
      await settled()
      expect(log.entries).toEqual(['a failed: SLUICE_CLOSED', 'b failed: SLUICE_CLOSED'])
      expect(clock.alarms).toBe(0)
      log.note('open', open.acquire('bob'))
      await settled()
      expect(log.entries).toContain('open after 0')
    },
  )

  test('rejects if one limiter is closed, with the error of its acquire', async () => {
    const { fast, slow } = exhausted()
    fast.close()
    const asks = [fast, slow].map(limiter => ({ limiter, key: 'bob' }))
    await expect(acquireAll(asks)).rejects.toMatchObject({ code: 'SLUICE_CLOSED' })
    expect(slow.peek('bob').remaining).toBe(1)
  })

  test('on asynchronous stores, gives everything back to a waiter that aborts during a store call', async () => {
    const { later } = setUp()
    const limiters = ['x', 'y'].map(name => later(name, slidingLog({ limit: 1, window: '1h' })))
    for (let turns = 0; turns < 20; turns++) {
      const abort = new AbortController()
      const wait = acquireAll(
        limiters.map(limiter => ({ limiter, key: 'ann' })),
        { signal: abort.signal },
      ).then(
        () => 'granted',
        () => 'left',
      )
      for (let turn = 0; turn < turns; turn++) await Promise.resolve()
      abort.abort()
      const outcome = await wait
      await settled()
      const remaining = await Promise.all(
        limiters.map(async limiter => (await limiter.peek('ann')).remaining),
      )
      expect([turns, outcome, remaining]).toEqual([turns, outcome, outcome === 'left' ? [1, 1] : [0, 0]])
      for (const limiter of limiters) await limiter.reset('ann')
    }
  })

  describe('lets the limiters of a finished call be garbage-collected', () => {
    /** Whether a limiter stays in memory after `act` has used it together with a limiter that stays in use. */
    async function held(
      act: (asks: Parameters<typeof acquireAll>[0], clock: ReturnType<typeof manualClock>) => unknown,
    ) {
      const { clock, limiter, perSecond } = setUp()
      async function asked(): Promise<WeakRef<object>> {
        const other = limiter('other', fixedWindow({ limit: 1, window: '1s' }))
        await act(
          [
            { limiter: perSecond, key: 'ann' },
            { limiter: other, key: 'ann' },
          ],
          clock,
        )
        return new WeakRef(other)
      }
      const reference = await asked()
      await settled()
      const isGone = await isCollected(reference)
      expect(perSecond.peek('ann').limit).toBe(2)
      return !isGone
    }

    test.each<[string, Parameters<typeof held>[0]]>([
      ['is served at once', asks => acquireAll(asks)],
      [
        'is served after a wait',
        async (asks, clock) => {
          tryAcquireAll(asks as never)
          const wait = acquireAll(asks)
          clock.advance('1s')
          await wait
        },
      ],
      [
        'is refused',
        async asks => {
          tryAcquireAll(asks as never)
          await acquireAll(asks, { maxWait: 0 }).catch(() => {})
        },
      ],
      [
        'is aborted during its wait',
        async asks => {
          tryAcquireAll(asks as never)
          const abort = new AbortController()
          const wait = acquireAll(asks, { signal: abort.signal }).catch(() => {})
          abort.abort()
          await wait
        },
      ],
      [
        'has an already aborted signal',
        asks => acquireAll(asks, { signal: AbortSignal.abort() }).catch(() => {}),
      ],
      ['has an invalid option', asks => acquireAll(asks, { maxWait: 'soon' as never }).catch(() => {})],
    ])('when the call %s', async (_, act) => {
      expect(await held(act)).toBe(false)
    })
  })
})

describe('invalid input throws, and charges nothing', () => {
  const { perDay: limiter } = setUp()
  const good = { limiter, key: 'ann' }
  afterEach(() => limiter.reset('ann'))
  const foreign = { name: 'foreign', tryAcquire: () => ({ allowed: true }) }

  const BAD: [string, unknown, string][] = [
    ['an empty list', [], 'SLUICE_INVALID_OPTION'],
    ['an object instead of a list', good, 'SLUICE_INVALID_OPTION'],
    ['undefined instead of a list', undefined, 'SLUICE_INVALID_OPTION'],
    ['null instead of a call', [good, null], 'SLUICE_INVALID_OPTION'],
    ['no limiter', [good, { key: 'ann' }], 'SLUICE_INVALID_LIMITER'],
    ['null instead of a limiter', [good, { limiter: null, key: 'ann' }], 'SLUICE_INVALID_LIMITER'],
    ['a foreign limiter', [good, { limiter: foreign, key: 'ann' }], 'SLUICE_INVALID_LIMITER'],
    ['an algorithm', [good, { limiter: unlimited(), key: 'ann' }], 'SLUICE_INVALID_LIMITER'],
    ['no key', [good, { limiter }], 'SLUICE_INVALID_KEY'],
    ['an empty key', [good, { limiter, key: '' }], 'SLUICE_INVALID_KEY'],
    ['a number instead of a key', [good, { limiter, key: 5 }], 'SLUICE_INVALID_KEY'],
    ['a negative cost', [good, { limiter, key: 'ann', cost: -1 }], 'SLUICE_INVALID_COST'],
    ['half a permit', [good, { limiter, key: 'ann', cost: 0.5 }], 'SLUICE_INVALID_COST'],
    ['null instead of a cost', [good, { limiter, key: 'ann', cost: null }], 'SLUICE_INVALID_COST'],
    ['a string instead of a cost', [good, { limiter, key: 'ann', cost: '1' }], 'SLUICE_INVALID_COST'],
    ['a misspelt cost', [good, { limiter, key: 'ann', costs: 5 }], 'SLUICE_UNKNOWN_OPTION'],
  ]

  test.each(BAD)('tryAcquireAll: %s', (_, asks, code) => {
    let error: unknown
    try {
      tryAcquireAll(asks as never)
    } catch (thrown) {
      error = thrown
    }
    expect(error).toMatchObject({ code, name: expect.stringMatching(/^(Type|Range)Error$/) })
    expect(limiter.peek('ann').remaining).toBe(5)
  })

  test.each(BAD)('acquireAll: %s', async (_, asks, code) => {
    await expect(acquireAll(asks as never)).rejects.toMatchObject({ code })
    expect(limiter.peek('ann').remaining).toBe(5)
  })

  test.each<[string, object, string]>([
    ['a misspelt maxWait', { maxwait: '1s' }, 'SLUICE_UNKNOWN_OPTION'],
    ['an invalid maxWait', { maxWait: 'soon' }, 'SLUICE_INVALID_OPTION'],
    ['an invalid signal', { signal: 'stop' }, 'SLUICE_INVALID_OPTION'],
    ['a cost among the options', { cost: 5 }, 'SLUICE_UNKNOWN_OPTION'],
  ])('acquireAll: %s', async (_, options, code) => {
    await expect(acquireAll([good], options as never)).rejects.toMatchObject({ code })
    expect(limiter.peek('ann').remaining).toBe(5)
  })

  test('throws at once on an asynchronous store, without calling it', () => {
    const { later } = setUp()
    const store = breakable(asynchronous(memoryStore()))
    const slow = later('slow', slidingLog({ limit: 1, window: '1h' }), store)
    expect(() =>
      tryAcquireAll([
        { limiter: slow, key: 'ann' },
        { limiter: slow, key: '' },
      ]),
    ).toThrow(TypeError)
    expect(store.calls).toBe(0)
  })
})

describe('bugs reported in other libraries', () => {
  // S02: unkeyed/unkey#1995
  test('limits listed before one that refuses are not charged', () => {
    const { limiter } = setUp()
    const wide = limiter('p1', tokenBucket({ limit: 100, window: '60s' }))
    const narrow = limiter('p2', tokenBucket({ limit: 2, window: '60s' }))
    const ask = () => tryAcquireAll([wide, narrow].map(limiter => ({ limiter, key: 'ann' }))).allowed
    expect([ask(), ask(), ask(), ask(), ask()]).toEqual([true, true, false, false, false])
    expect(wide.peek('ann').remaining).toBe(98)
  })

  // S03: laravel/framework#51967
  test('two limits on one key of one store are counted separately', () => {
    const { limiter } = setUp()
    const store = memoryStore()
    const perMinute = limiter('default', fixedWindow({ limit: 5, window: '1m' }), store)
    const perDay = limiter('default', fixedWindow({ limit: 50, window: '1d' }), store)
    const ask = () =>
      tryAcquireAll([perMinute, perDay].map(limiter => ({ limiter, key: '203.0.113.7' }))).allowed
    expect(Array.from({ length: 6 }, ask)).toEqual([true, true, true, true, true, false])
    expect(perDay.peek('203.0.113.7').remaining).toBe(45)
  })

  // S20: express-rate-limit/express-rate-limit#326
  test('one store given to two limiters keeps both windows, and closing leaves no timer', async () => {
    const clock = manualClock()
    const limits = createRegistry({ store: memoryStore(), clock })
    const perSecond = limits.get('per-second', fixedWindow({ limit: 1, window: '1s' }))
    const perHour = limits.get('per-hour', fixedWindow({ limit: 1, window: '1h' }))
    const asks = [perSecond, perHour].map(limiter => ({ limiter, key: 'ann' }))
    expect(tryAcquireAll(asks).allowed).toBe(true)
    clock.advance('1s')
    expect([perSecond.peek('ann').allowed, perHour.peek('ann').allowed]).toEqual([true, false])
    const wait = acquireAll(asks).catch(error => error)
    expect(clock.alarms).toBe(1)
    limits.close()
    expect(await wait).toMatchObject({ code: 'SLUICE_CLOSED' })
    expect(clock.alarms).toBe(0)
  })

  // S30: FRL 11.2.0, key and group joined without a separator
  test('names and keys that are equal when joined are counted separately', async () => {
    const limits = createRegistry({
      store: memoryStore(),
      algorithm: fixedWindow({ limit: 1, window: '1h' }),
    })
    const asks = [
      ['3x', '12'],
      ['23x', '1'],
      ['a:b', 'c'],
      ['a', 'b:c'],
    ].map(([name, key]) => ({ limiter: limits.get(name as string), key: key as string }))
    for (const ask of asks) expect(tryAcquireAll([ask]).allowed).toBe(true)
    for (const { limiter, key } of asks) expect(limiter.peek(key).remaining).toBe(0)
    for (const { limiter, key } of asks) limiter.reset(key)
    expect(tryAcquireAll(asks).parts.map(({ cost }) => cost)).toEqual([1, 1, 1, 1])
  })

  // S30 again, for waiters: each key has its own queue.
  test('calls whose names and keys are equal when joined do not share a queue', async () => {
    const { limiter, log } = setUp()
    const group = limiter('group', fixedWindow({ limit: 1, window: '1h' }))
    const ask = (...keys: string[]) => keys.map(key => ({ limiter: group, key }))
    tryAcquireAll(ask('a","b'))
    log.note('waits', acquireAll(ask('a","b')))
    log.note('passes', acquireAll(ask('a', 'b')))
    await settled()
    expect(log.entries).toEqual(['passes after 0'])
  })
})

type DecisionEvent = Omit<SluiceEvents['sluice:decision'], 'decision'> & { readonly allowed: boolean }

/** The decision events that are published while `act` runs. */
async function decisionsOf(act: () => unknown): Promise<DecisionEvent[]> {
  const events: DecisionEvent[] = []
  const listener = (event: unknown) => {
    const { decision, ...rest } = event as SluiceEvents['sluice:decision']
    events.push({ ...rest, allowed: decision.allowed })
  }
  subscribe('sluice:decision', listener)
  try {
    await act()
  } finally {
    unsubscribe('sluice:decision', listener)
  }
  return events
}
