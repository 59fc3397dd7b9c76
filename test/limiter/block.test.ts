import {
  type Algorithm,
  acquireAll,
  combine,
  createLimiter,
  cycle,
  type Duration,
  fixedWindow,
  type JointDecision,
  type Limiter,
  leakyBucket,
  memoryStore,
  RateLimitedError,
  slidingLog,
  slidingWindow,
  smoothBursty,
  smoothWarmingUp,
  tokenBucket,
  tryAcquireAll,
  unlimited,
} from '@sluice/core'
import { type ManualClock, manualClock } from '@sluice/core/testing'
import fc from 'fast-check'
import { describe, expect, expectTypeOf, test } from 'vitest'
import { strike } from '../../packages/core/src/limiter/internal-verbs.js'
import type { LedgerLimiter } from '../../packages/core/src/limiter/limiter-class.js'
import type { Ladder } from '../../packages/core/src/store/store.js'
import { ALGORITHMS } from '../support/algorithms.js'
import { asynchronous } from '../support/async-store.js'
import { heard } from '../support/events.js'
import { nextTick, outcome } from '../support/outcome.js'
import { type Ask, asks, cost, maxWaitUs } from '../support/scripts.js'

const BLOCKED = { allowed: false, code: 'SLUICE_BLOCKED', remaining: 0 }

describe.each(ALGORITHMS)('a blocked key: $name', ({ algorithm: arbitrary }) => {
  /** A limiter whose key will be blocked, and an equal one without a block. */
  function open(algorithm: Algorithm) {
    const clock = manualClock()
    const [limiter, twin] = [createLimiter(algorithm, { clock }), createLimiter(algorithm, { clock })]
    const ask = (of: Limiter<false>, { cost, maxWaitUs }: Ask) => {
      const reservation = of.reserve('key', { cost, maxWait: algorithm.bookable ? maxWaitUs / 1000 : 0 })
      return reservation.toJSON()
    }
    /** Makes the same calls to both, and expects the same decisions. */
    const askBoth = (script: readonly Ask[]) => {
      for (const one of script) {
        clock.advance(one.gapUs / 1000)
        expect(ask(limiter, one)).toEqual(ask(twin, one))
        expect(limiter.peek('key').toJSON()).toEqual(twin.peek('key').toJSON())
      }
    }
    return { clock, limiter, twin, ask, askBoth }
  }

  test('is refused until exactly the end of the block, and then as if it had not been blocked', () => {
    check(fc.tuple(arbitrary, asks(15), spanUs(), asks(8), asks(15)), scenario => {
      const [algorithm, before, forUs, during, after] = scenario
      const { clock, limiter, twin, ask, askBoth } = open(algorithm)
      askBoth(before)
      const endUs = clock.nowUs() + forUs
      limiter.block('key', forUs / 1000)
      for (const one of during) {
        if (clock.nowUs() + one.gapUs >= endUs) break
        clock.advance(one.gapUs / 1000)
        expect(ask(limiter, one)).toMatchObject({ ...BLOCKED, allowed: one.cost === 0 })
        expect(limiter.tryAcquire('key')).toMatchObject(BLOCKED)
      }
      clock.set((endUs - 1) / 1000)
      expect(limiter.tryAcquire('key')).toMatchObject(BLOCKED)
      clock.set(endUs / 1000)
      expect(limiter.peek('key').toJSON()).toEqual(twin.peek('key').toJSON())
      askBoth(after)
    })
  })

  test('is refused a microsecond before retryAfterMs, and granted at it', () => {
    check(fc.tuple(arbitrary, asks(15), spanUs(), cost(), maxWaitUs()), scenario => {
      const [algorithm, before, forUs, some, patienceUs] = scenario
      const { clock, limiter, twin, ask, askBoth } = open(algorithm)
      askBoth(before)
      limiter.block('key', forUs / 1000)
      const one = { gapUs: 0, cost: Math.max(some, 1), maxWaitUs: patienceUs }
      const { retryAfterMs } = ask(limiter, one)
      const figures = limiter.tryAcquire('key', { cost: one.cost })
      const free = twin.peek('key', { cost: one.cost })
      expect(figures.waitMs).toBe(Math.max(free.waitMs, forUs / 1000))
      expect(figures.retryAfterMs).toBe(Math.max(free.retryAfterMs, forUs / 1000))
      expect(figures.resetAfterMs).toBe(Math.max(free.resetAfterMs, forUs / 1000))
      expect(figures.balance).toBeLessThanOrEqual(0)
      if (retryAfterMs === Infinity) {
        clock.advance(forUs / 1000)
        expect(ask(limiter, one).retryAfterMs).toBe(Infinity)
        return
      }
      const atUs = clock.nowUs() + Math.round(retryAfterMs * 1000)
      clock.set((atUs - 1) / 1000)
      expect(ask(limiter, one).allowed).toBe(false)
      clock.set(atUs / 1000)
      expect(ask(limiter, one).allowed).toBe(true)
    })
  })

  test('gets its next permit after refillAfterMs', () => {
    check(fc.tuple(arbitrary, asks(15), spanUs()), ([algorithm, before, forUs]) => {
      const { clock, limiter, askBoth } = open(algorithm)
      askBoth(before)
      limiter.block('key', forUs / 1000)
      const { refillAfterMs } = limiter.peek('key')
      expect(refillAfterMs).toBeGreaterThanOrEqual(forUs / 1000)
      if (refillAfterMs === Infinity) return
      const atUs = clock.nowUs() + Math.round(refillAfterMs * 1000)
      clock.set((atUs - 1) / 1000)
      expect(limiter.peek('key').remaining).toBe(0)
      clock.set(atUs / 1000)
      expect(limiter.peek('key').remaining).toBeGreaterThanOrEqual(1)
    })
  })

  test('peek returns the decision of tryAcquire', () => {
    check(fc.tuple(arbitrary, asks(15), spanUs(), cost()), ([algorithm, before, forUs, cost]) => {
      const { limiter, askBoth } = open(algorithm)
      askBoth(before)
      limiter.block('key', forUs / 1000)
      const peeked = limiter.peek('key', { cost }).toJSON()
      expect(limiter.tryAcquire('key', { cost }).toJSON()).toEqual(peeked)
      expect(limiter.peek('key', { cost }).toJSON()).toEqual(peeked)
    })
  })

  test('a call of cost 0 is granted, and drain takes nothing', () => {
    check(fc.tuple(arbitrary, asks(15), spanUs()), ([algorithm, before, forUs]) => {
      const { limiter, twin, askBoth } = open(algorithm)
      askBoth(before)
      limiter.block('key', forUs / 1000)
      expect(limiter.tryAcquire('key', { cost: 0 })).toMatchObject({
        allowed: true,
        remaining: 0,
        waitMs: 0,
        retryAfterMs: 0,
      })
      expect(limiter.drain('key')).toBe(0)
      limiter.unblock('key')
      expect(limiter.peek('key').toJSON()).toEqual(twin.peek('key').toJSON())
    })
  })

  test('the longer of two blocks applies, in either order', () => {
    check(fc.tuple(arbitrary, spanUs(), spanUs(), fc.nat(20_000)), ([algorithm, first, second, gapUs]) => {
      const { clock, limiter } = open(algorithm)
      const startUs = clock.nowUs()
      limiter.block('key', first / 1000)
      clock.advance(gapUs / 1000)
      limiter.block('key', second / 1000)
      const endUs = Math.max(startUs + first, startUs + gapUs + second)
      clock.set((endUs - 1) / 1000)
      expect(limiter.peek('key').code).toBe('SLUICE_BLOCKED')
      clock.set(endUs / 1000)
      expect(limiter.peek('key').code).toBeUndefined()
    })
  })

  test('unblock lifts the block, and changes nothing else', () => {
    check(fc.tuple(arbitrary, asks(15), spanUs(), asks(10)), ([algorithm, before, forUs, after]) => {
      const { limiter, askBoth } = open(algorithm)
      askBoth(before)
      limiter.block('key', forUs / 1000)
      limiter.tryAcquire('key')
      limiter.unblock('key')
      askBoth(after)
    })
  })

  test('reset forgets the block and the counts', () => {
    check(fc.tuple(arbitrary, asks(15), spanUs(), asks(10)), ([algorithm, before, forUs, after]) => {
      const { limiter, twin, askBoth } = open(algorithm)
      askBoth(before)
      limiter.block('key', forUs / 1000)
      for (const one of [limiter, twin]) one.reset('key')
      askBoth(after)
    })
  })

  test('other keys stay as they are', () => {
    check(fc.tuple(arbitrary, asks(15), spanUs(), asks(15)), ([algorithm, before, forUs, after]) => {
      const { limiter, askBoth } = open(algorithm)
      askBoth(before)
      for (const other of ['other', '__proto__', 'key ', 'k']) limiter.block(other, forUs / 1000)
      askBoth(after)
    })
  })
})

/** Two permits an hour, or a few more, by every algorithm on which a caller can wait. */
const HOURLY: readonly (readonly [string, Algorithm])[] = [
  ['tokenBucket', tokenBucket({ limit: 2, window: '1h' })],
  ['leakyBucket', leakyBucket({ limit: 2, window: '1h', capacity: 9 })],
  ['fixedWindow', fixedWindow({ limit: 2, window: '1h' })],
  ['slidingWindow', slidingWindow({ limit: 2, window: '1h' })],
  ['slidingLog', slidingLog({ limit: 2, window: '1h' })],
  ['cycle', cycle({ limit: 2, period: '1h' })],
  ['smoothBursty', smoothBursty({ limit: 2, window: '1h' })],
  ['smoothWarmingUp', smoothWarmingUp({ limit: 2, window: '1h', warmup: '1h' })],
]

describe.each(HOURLY)('waiting for a blocked key: %s', (_, algorithm) => {
  function exhausted() {
    const clock = manualClock()
    const limiter = createLimiter(algorithm, { name: 'hourly', clock })
    while (limiter.tryAcquire('key').allowed);
    return { clock, limiter }
  }

  test('acquire is refused at once, whatever its maxWait', async () => {
    const clock = manualClock()
    const limiter = createLimiter(algorithm, { name: 'hourly', clock })
    limiter.block('key', '1m')
    const { error, settledAfterMs } = await outcome(limiter.acquire('key', { maxWait: '1d' }), clock)
    expect(settledAfterMs).toBe(0)
    expectBlocked(error)
    expect((error as RateLimitedError).decision).toMatchObject({ ...BLOCKED, retryAfterMs: 60_000 })
    expect(clock.alarms).toBe(0)
    expect(limiter.stats()).toMatchObject({ granted: 0, refused: 1, waiting: 0 })
    clock.advance('1m')
    expect(await limiter.acquire('key')).toMatchObject({ allowed: true, waitMs: 0 })
  })

  test('acquire of cost 0 is granted', async () => {
    const clock = manualClock()
    const limiter = createLimiter(algorithm, { clock })
    limiter.block('key', '1m')
    expect(await limiter.acquire('key', { cost: 0 })).toMatchObject({ allowed: true, remaining: 0 })
  })

  test('a waiter is refused at once when its key is blocked, and leaves nothing booked', async () => {
    const { clock, limiter } = exhausted()
    const before = limiter.peek('key').toJSON()
    const waits = [1, 1, 2].map(cost => outcome(limiter.acquire('key', { cost }), clock))
    await nextTick()
    expect(limiter.stats().waiting).toBe(3)
    limiter.block('key', '1m')
    for (const { settledAfterMs, error } of await Promise.all(waits)) {
      expect(settledAfterMs).toBe(0)
      expectBlocked(error)
    }
    expect(limiter.stats().waiting).toBe(0)
    expect(clock.alarms).toBe(0)
    limiter.unblock('key')
    expect(limiter.peek('key').toJSON()).toEqual(before)
  })

  test('a block refuses a waiter even if it would end before its turn', async () => {
    const { clock, limiter } = exhausted()
    const wait = outcome(limiter.acquire('key'), clock)
    limiter.block('key', 0.001)
    expectBlocked((await wait).error)
  })

  test('a waiter for another key keeps waiting', async () => {
    const { clock, limiter } = exhausted()
    while (limiter.tryAcquire('other').allowed);
    const wait = outcome(limiter.acquire('other'), clock)
    limiter.block('key', '1m')
    await nextTick()
    expect(limiter.stats().waiting).toBe(1)
    clock.advance('3h')
    expect(await wait).toMatchObject({ value: { allowed: true } })
  })

  test('callers can wait again after the block', async () => {
    const { clock, limiter } = exhausted()
    limiter.block('key', '1m')
    await limiter.acquire('key').catch(() => {})
    clock.advance('1m')
    const wait = outcome(limiter.acquire('key'), clock)
    await nextTick()
    expect(limiter.stats().waiting).toBe(1)
    clock.advance('3h')
    expect(await wait).toMatchObject({ value: { allowed: true } })
  })

  test('on an asynchronous store, a waiter is refused as soon as the store has blocked its key', async () => {
    const clock = manualClock()
    const limiter = createLimiter(algorithm, { name: 'hourly', clock, store: asynchronous(memoryStore()) })
    while ((await limiter.tryAcquire('key')).allowed);
    const waits = [outcome(limiter.acquire('key'), clock), outcome(limiter.acquire('key'), clock)]
    await nextTick()
    expect(limiter.stats().waiting).toBe(2)
    await limiter.block('key', '1m')
    for (const { settledAfterMs, error } of await Promise.all(waits)) {
      expect(settledAfterMs).toBe(0)
      expectBlocked(error)
    }
    await limiter.acquire('key').then(
      () => expect.unreachable('a blocked key was granted'),
      error => expectBlocked(error),
    )
    expect(clock.alarms).toBe(0)
  })
})

describe('a reservation of a blocked key', () => {
  test('reports when it can be granted if its cost exceeds the limit of one cycle', () => {
    const clock = manualClock()
    const limiter = createLimiter(cycle({ limit: 2, period: '1s' }), { clock })
    const ask = () => limiter.reserve('key', { cost: 3, maxWait: 1 })
    expect(ask()).toMatchObject({ allowed: false, retryAfterMs: 999 })
    limiter.block('key', '1s')
    const { retryAfterMs } = ask()
    expect(retryAfterMs).toBe(1999)
    clock.advance(retryAfterMs - 0.001)
    expect(ask().allowed).toBe(false)
    clock.advance(0.001)
    expect(ask()).toMatchObject({ allowed: true, waitMs: 1 })
  })

  test.each(HOURLY)('is refused at once, and gives nothing back: %s', (_, algorithm) => {
    const clock = manualClock()
    const limiter = createLimiter(algorithm, { clock })
    limiter.block('key', '1m')
    const reservation = limiter.reserve('key', { maxWait: algorithm.bookable ? '1d' : 0 })
    expect(reservation).toMatchObject({ ...BLOCKED, waitMs: 60_000, retryAfterMs: 60_000 })
    clock.advance('1m')
    const before = limiter.peek('key').toJSON()
    expect([reservation.cancel(), reservation.refund()]).toEqual([0, 0])
    expect(limiter.peek('key').toJSON()).toEqual(before)
  })

  test.each(HOURLY)('made before the block gives its permits back during it: %s', (_, algorithm) => {
    const clock = manualClock()
    const limiter = createLimiter(algorithm, { clock })
    const before = limiter.peek('key').toJSON()
    const reservation = limiter.reserve('key', { maxWait: 0 })
    limiter.block('key', '1m')
    expect(reservation.refund()).toBeGreaterThan(0)
    expect(limiter.peek('key')).toMatchObject(BLOCKED)
    limiter.unblock('key')
    expect(limiter.peek('key').toJSON()).toEqual(before)
  })
})

describe('invalid input', () => {
  const limit = () => {
    const clock = manualClock()
    const store = memoryStore()
    const limiter = createLimiter(tokenBucket({ limit: 10, window: '1h' }), { store, clock })
    limiter.tryAcquire('ann')
    limiter.block('bob', '1m')
    const figures = () => [limiter.peek('ann').toJSON(), limiter.peek('bob').toJSON(), store.size]
    return { limiter, figures }
  }

  test.each([
    [undefined, TypeError],
    [null, TypeError],
    [true, TypeError],
    [5n, TypeError],
    [{}, TypeError],
    [0, RangeError],
    ['0s', RangeError],
    [-1, RangeError],
    [Number.NaN, RangeError],
    [Infinity, RangeError],
    ['500', RangeError],
    ['', RangeError],
    ['soon', RangeError],
    [0.0001, RangeError],
    [1000 / 3, RangeError],
    [201 * 365.25 * 86_400_000, RangeError],
  ])('block for %o is refused and changes nothing', (duration, ErrorType) => {
    const { limiter, figures } = limit()
    const before = figures()
    for (const key of ['ann', 'bob', 'cem']) {
      const error = thrownBy(() => limiter.block(key, duration as Duration))
      expect(error).toBeInstanceOf(ErrorType)
      expect(error).toMatchObject({ code: 'SLUICE_INVALID_OPTION', option: expect.stringMatching(/\S/) })
    }
    expect(figures()).toEqual(before)
  })

  test.each(['block', 'unblock'] as const)('%s refuses an invalid key and changes nothing', verb => {
    const { limiter, figures } = limit()
    const before = figures()
    for (const key of [undefined, null, '', 42, Number.NaN, [], ['bob'], {}, new String('bob'), 5n, false]) {
      const error = thrownBy(() => limiter[verb](key as never, '1h' as never))
      expect(error).toBeInstanceOf(TypeError)
      expect(error).toMatchObject({ code: 'SLUICE_INVALID_KEY', option: 'key' })
      expect(String(error)).not.toContain('bob')
    }
    expect(figures()).toEqual(before)
  })

  test('is thrown at once on an asynchronous store too', () => {
    const limiter = createLimiter(unlimited(), { store: asynchronous(memoryStore()) })
    expect(() => limiter.block('', '1h')).toThrow(TypeError)
    expect(() => limiter.block('ann', -1)).toThrow(RangeError)
    expect(() => limiter.unblock('')).toThrow(TypeError)
  })

  test('a combination refuses it before any of its limiters is blocked', () => {
    const { limiter, figures } = limit()
    const both = combine(limiter, createLimiter(unlimited(), { name: 'other' }))
    const before = figures()
    expect(() => both.block('ann', Infinity)).toThrow(RangeError)
    expect(() => both.block('', '1h')).toThrow(TypeError)
    expect(figures()).toEqual(before)
  })

  test('the longest block is 200 years', () => {
    const { limiter } = limit()
    const twoHundredYears = 200 * 365.25 * 86_400_000
    limiter.block('ann', twoHundredYears)
    expect(limiter.peek('ann').retryAfterMs).toBe(twoHundredYears)
    combine(limiter).block('bob', twoHundredYears)
    expect(limiter.peek('bob').retryAfterMs).toBe(twoHundredYears)
  })
})

describe('events', () => {
  test('are published for every block and unblock', () => {
    const limiter = createLimiter(unlimited(), { name: 'free', clock: manualClock() })
    const [blocks, unblocks] = [heard('sluice:block'), heard('sluice:unblock')]
    limiter.block('ann', '1m')
    limiter.block('ann', 0.5)
    limiter.unblock('ann')
    limiter.unblock('bob')
    expect(blocks).toEqual([
      { limiter: 'free', key: 'ann', forMs: 60_000 },
      { limiter: 'free', key: 'ann', forMs: 0.5 },
    ])
    expect(unblocks).toEqual([
      { limiter: 'free', key: 'ann' },
      { limiter: 'free', key: 'bob' },
    ])
  })

  test('are published for a refusal by a block, as for any other refusal', () => {
    const limiter = createLimiter(unlimited(), { name: 'free', clock: manualClock() })
    limiter.block('ann', '1m')
    const [decisions, blocks] = [heard('sluice:decision'), heard('sluice:block')]
    const decision = limiter.tryAcquire('ann', { cost: 3 })
    expect(decisions).toEqual([{ limiter: 'free', key: 'ann', cost: 3, decision }])
    expect(blocks).toEqual([])
    expect(limiter.stats()).toMatchObject({ granted: 0, refused: 1 })
  })

  test('are not published for invalid input', () => {
    const limiter = createLimiter(unlimited())
    const blocks = heard('sluice:block')
    expect(() => limiter.block('ann', -1)).toThrow(RangeError)
    expect(blocks).toEqual([])
  })

  test('are published after an asynchronous store has answered, and not after it has failed', async () => {
    const store = asynchronous(memoryStore())
    const limiter = createLimiter(unlimited(), { name: 'later', store })
    const [blocks, unblocks] = [heard('sluice:block'), heard('sluice:unblock')]
    const calls = () => [limiter.block('ann', '1m'), limiter.unblock('ann')]
    const answers = calls()
    expect([blocks, unblocks]).toEqual([[], []])
    await Promise.all(answers)
    store.failWith(new Error('the store is down'))
    await Promise.allSettled(calls())
    expect([blocks, unblocks]).toEqual([
      [{ limiter: 'later', key: 'ann', forMs: 60_000 }],
      [{ limiter: 'later', key: 'ann' }],
    ])
  })

  test('are published for a combination and for its members', () => {
    const { both } = combined()
    const [blocks, unblocks] = [heard('sluice:block'), heard('sluice:unblock')]
    both.block('ann', '1m')
    both.unblock('ann')
    const names = ['per-second', 'per-day', 'per-second+per-day']
    expect(blocks).toEqual(names.map(limiter => ({ limiter, key: 'ann', forMs: 60_000 })))
    expect(unblocks).toEqual(names.map(limiter => ({ limiter, key: 'ann' })))
  })
})

describe('an asynchronous store', () => {
  function setUp(onStoreError: 'throw' | 'allow' | 'refuse' = 'throw') {
    const clock = manualClock()
    const store = asynchronous(memoryStore())
    const limiter = createLimiter(tokenBucket({ limit: 2, window: '1m' }), { clock, store, onStoreError })
    return { clock, store, limiter }
  }

  test('makes block and unblock return promises', async () => {
    const { clock, limiter } = setUp()
    const answer = limiter.block('ann', '1m')
    expectTypeOf(answer).toEqualTypeOf<Promise<void>>()
    expect(answer).toBeInstanceOf(Promise)
    expect(await answer).toBeUndefined()
    expect(await limiter.tryAcquire('ann')).toMatchObject({ ...BLOCKED, retryAfterMs: 60_000 })
    expect(await limiter.peek('ann')).toMatchObject(BLOCKED)
    expect(await limiter.reserve('ann')).toMatchObject(BLOCKED)
    expect(await limiter.drain('ann')).toBe(0)
    const lifted = limiter.unblock('ann')
    expect(lifted).toBeInstanceOf(Promise)
    expect(await lifted).toBeUndefined()
    expect(await limiter.tryAcquire('ann')).toMatchObject({ allowed: true, remaining: 1 })
    await limiter.block('ann', '1m')
    clock.advance('1m')
    expect((await limiter.peek('ann')).code).toBeUndefined()
  })

  test('makes them return undefined if it is synchronous', () => {
    const limiter = createLimiter(unlimited())
    expectTypeOf(limiter.block('ann', '1m')).toEqualTypeOf<void>()
    expect([limiter.block('ann', '1m'), limiter.unblock('ann')]).toEqual([undefined, undefined])
  })

  test.each(['throw', 'allow', 'refuse'] as const)(
    'that fails makes block reject: onStoreError %s',
    async onStoreError => {
      const { store, limiter } = setUp(onStoreError)
      store.failWith(new Error('the store is down'))
      await expect(limiter.block('ann', '1m')).rejects.toMatchObject({ code: 'SLUICE_STORE_ERROR' })
      await expect(limiter.unblock('ann')).rejects.toMatchObject({ code: 'SLUICE_STORE_ERROR' })
      expect(limiter.stats().storeErrors).toBe(2)
    },
  )
})

describe('a combination', () => {
  test('blocks and unblocks the key in all of its members', () => {
    const { clock, perSecond, perDay, both } = combined()
    const all = [perSecond, perDay, both]
    both.block('ann', '1m')
    for (const limiter of all) {
      expect(limiter.tryAcquire('ann')).toMatchObject({ ...BLOCKED, retryAfterMs: 60_000 })
      expect(limiter.peek('bob').code).toBeUndefined()
    }
    both.unblock('ann')
    for (const limiter of all) expect(limiter.peek('ann').code).toBeUndefined()
    both.block('ann', '1m')
    both.reset('ann')
    for (const limiter of all) expect(limiter.peek('ann').code).toBeUndefined()
    both.block('ann', '1m')
    clock.advance(59_999.999)
    for (const limiter of all) expect(limiter.peek('ann')).toMatchObject(BLOCKED)
    clock.advance(0.001)
    for (const limiter of all) expect(limiter.peek('ann').code).toBeUndefined()
  })

  test('is refused if one member is blocked, and takes from none', () => {
    const { clock, perSecond, perDay, both } = combined()
    perDay.block('ann', '1m')
    expect(both.tryAcquire('ann')).toMatchObject({
      ...BLOCKED,
      refusedBy: ['per-day'],
      waitMs: 60_000,
      retryAfterMs: 60_000,
    })
    expect(both.peek('ann').toJSON()).toEqual(both.tryAcquire('ann').toJSON())
    expect(both.drain('ann')).toBe(0)
    expect(both.tryAcquire('ann', { cost: 0 })).toMatchObject({ allowed: true, remaining: 0 })
    expect(perSecond.peek('ann').remaining).toBe(2)
    clock.advance('1m')
    expect(both.tryAcquire('ann', { cost: 2 })).toMatchObject({ allowed: true, remaining: 0 })
  })

  test('reports the longer wait of a block and a limit', () => {
    const { perSecond, perDay, both } = combined()
    perDay.drain('ann')
    perSecond.block('ann', '1m')
    const decision = both.tryAcquire('ann') as JointDecision
    expect(decision).toMatchObject({ refusedBy: ['per-second', 'per-day'], retryAfterMs: 86_400_000 })
    perSecond.block('ann', '2d')
    expect(both.tryAcquire('ann').retryAfterMs).toBe(2 * 86_400_000)
  })

  test('of several keys is refused if one of them is blocked', () => {
    const { perSecond, perDay } = combined()
    perDay.block('acme', '1m')
    const asked = [
      { limiter: perSecond, key: 'ann' },
      { limiter: perDay, key: 'acme' },
    ]
    expect(tryAcquireAll(asked)).toMatchObject({ ...BLOCKED, refusedBy: ['per-day'] })
    expect(perSecond.peek('ann').remaining).toBe(2)
  })

  test('refuses its waiters at once when a member is blocked', async () => {
    const { clock, perSecond, perDay, both } = combined()
    perDay.drain('ann')
    const asked = [
      { limiter: perSecond, key: 'bob' },
      { limiter: perDay, key: 'ann' },
    ]
    const waits = [both.acquire('ann'), acquireAll(asked)].map(wait => outcome(wait, clock))
    await nextTick()
    perDay.block('ann', '1m')
    for (const { settledAfterMs, error } of await Promise.all(waits)) {
      expect(settledAfterMs).toBe(0)
      expect(error).toBeInstanceOf(RateLimitedError)
      expect(String(error)).toContain('blocked')
    }
    expect(clock.alarms).toBe(0)
  })

  test('refuses its waiters and those of its members at once when it is blocked', async () => {
    const { clock, perDay, both } = combined()
    perDay.drain('ann')
    const waits = [both.acquire('ann'), perDay.acquire('ann')].map(wait => outcome(wait, clock))
    await nextTick()
    both.block('ann', '1m')
    for (const { settledAfterMs, error } of await Promise.all(waits)) {
      expect(settledAfterMs).toBe(0)
      expect(String(error)).toContain('blocked')
    }
    expect(clock.alarms).toBe(0)
  })

  test('keeps the waiters for other keys', async () => {
    const { clock, perDay, both } = combined()
    perDay.drain('bob')
    const wait = outcome(both.acquire('bob'), clock)
    both.block('ann', '1m')
    await nextTick()
    clock.advance('1d')
    expect(await wait).toMatchObject({ settledAfterMs: 86_400_000, value: { allowed: true } })
  })

  test('reports a blocked key even if the store of another member is full', async () => {
    const clock = manualClock()
    const store = memoryStore({ maxKeys: 1, onFull: 'refuse' })
    const full = createLimiter(fixedWindow({ limit: 1, window: '1h' }), { name: 'full', clock, store })
    full.tryAcquire('zoe')
    const blocking = createLimiter(unlimited(), { name: 'blocking', clock })
    blocking.block('ann', '1m')
    const wait = outcome(combine(full, blocking).acquire('ann'), clock)
    await nextTick()
    clock.advance('1h')
    const { settledAfterMs, error } = await wait
    expect(settledAfterMs).toBe(0)
    expect(String(error)).toContain('blocked')
  })

  test('with an asynchronous store returns promises', async () => {
    const { clock, perSecond } = combined()
    const store = asynchronous(memoryStore())
    const later = createLimiter(unlimited(), { name: 'later', clock, store })
    const both = combine<boolean>(perSecond, later)
    const answer = both.block('ann', '1m')
    expect(answer).toBeInstanceOf(Promise)
    await answer
    expect(perSecond.peek('ann')).toMatchObject(BLOCKED)
    expect(await later.peek('ann')).toMatchObject(BLOCKED)
    await both.unblock('ann')
    expect((await both.peek('ann')).code).toBeUndefined()
  })
})

describe('a change of the algorithm', () => {
  test.each(HOURLY)('to %s and back keeps the block', (_, algorithm) => {
    const clock = manualClock()
    const limiter = createLimiter(tokenBucket({ limit: 5, window: '1s' }), { clock })
    limiter.block('ann', '1m')
    limiter.update(algorithm)
    expect(limiter.tryAcquire('ann')).toMatchObject({ ...BLOCKED, retryAfterMs: 60_000 })
    clock.advance('30s')
    limiter.update(unlimited())
    expect(limiter.tryAcquire('ann')).toMatchObject({ ...BLOCKED, retryAfterMs: 30_000 })
    limiter.update(tokenBucket({ limit: 5, window: '1s' }))
    clock.advance(29_999.999)
    expect(limiter.tryAcquire('ann')).toMatchObject(BLOCKED)
    clock.advance(0.001)
    expect(limiter.tryAcquire('ann')).toMatchObject({ allowed: true, remaining: 4 })
  })

  test('of its options keeps the block, and the permits of the key', () => {
    const clock = manualClock()
    const limiter = createLimiter(tokenBucket({ limit: 5, window: '1h' }), { clock })
    limiter.tryAcquire('ann', { cost: 3 })
    limiter.block('ann', '1s')
    limiter.update(tokenBucket({ limit: 4, window: '1h' }))
    expect(limiter.tryAcquire('ann')).toMatchObject(BLOCKED)
    clock.advance('1s')
    expect(limiter.tryAcquire('ann')).toMatchObject({ allowed: true, remaining: 1 })
  })
})

describe('a reservation with maxWait 0', () => {
  const WINDOWS: readonly (readonly [string, Algorithm])[] = [
    ['fixedWindow', fixedWindow({ limit: 3, window: '1m' })],
    ['fixedWindow, aligned', fixedWindow({ limit: 3, window: '1m', align: 'epoch' })],
    ['slidingWindow', slidingWindow({ limit: 3, window: '1m', slices: 6 })],
    ['slidingLog', slidingLog({ limit: 3, window: '1m' })],
  ]

  describe.each([
    ...WINDOWS.map(([name, algorithm]) => [name, (clock: ManualClock) => alone(algorithm, clock)] as const),
    ['combine', (clock: ManualClock) => several(clock)],
  ] as const)('%s', (_, make) => {
    function setUp() {
      const clock = manualClock()
      return { clock, limiter: make(clock) }
    }

    test('takes the permits that tryAcquire would, or takes nothing if it is refused', () => {
      const { limiter } = setUp()
      expect(limiter.reserve('ann', { cost: 2, maxWait: 0 })).toMatchObject({
        allowed: true,
        waitMs: 0,
        remaining: 1,
      })
      const refused = limiter.reserve('ann', { cost: 2, maxWait: 0 })
      expect(refused).toMatchObject({ allowed: false, remaining: 1 })
      expect([refused.cancel(), refused.refund()]).toEqual([0, 0])
      expect(limiter.peek('ann').remaining).toBe(1)
    })

    test('gives back its permits once', () => {
      const { clock, limiter } = setUp()
      const booking = limiter.reserve('ann', { cost: 2, maxWait: 0 })
      limiter.tryAcquire('ann')
      clock.advance('1s')
      expect(booking.refund()).toBe(2)
      expect(limiter.peek('ann').remaining).toBe(2)
      expect([booking.refund(), booking.cancel()]).toEqual([0, 0])
      expect(limiter.peek('ann').remaining).toBe(2)
    })

    test('can be cancelled only in the microsecond of its grant, and refunded later', () => {
      const { clock, limiter } = setUp()
      expect(limiter.reserve('ann', { cost: 2, maxWait: 0 }).cancel()).toBe(2)
      expect(limiter.peek('ann').remaining).toBe(3)
      const booking = limiter.reserve('ann', { cost: 2, maxWait: 0 })
      clock.advance(0.001)
      expect(booking.cancel()).toBe(0)
      expect(limiter.peek('ann').remaining).toBe(1)
      expect(booking.refund()).toBe(2)
      expect(limiter.peek('ann').remaining).toBe(3)
    })

    test('gives nothing back after its permits have refilled', () => {
      const { clock, limiter } = setUp()
      const booking = limiter.reserve('ann', { cost: 2, maxWait: 0 })
      clock.advance('2m')
      limiter.tryAcquire('ann')
      expect([booking.refund(), booking.cancel()]).toEqual([0, 0])
      expect(limiter.peek('ann').remaining).toBe(2)
    })

    test('gives nothing back to a key that was reset', () => {
      const { limiter } = setUp()
      const booking = limiter.reserve('ann', { maxWait: 0 })
      limiter.reset('ann')
      limiter.tryAcquire('ann', { cost: 2 })
      expect(booking.refund()).toBe(0)
      expect(limiter.peek('ann').remaining).toBe(1)
    })

    test('of cost 0 is granted and gives nothing back', () => {
      const { limiter } = setUp()
      const booking = limiter.reserve('ann', { cost: 0, maxWait: 0 })
      expect(booking).toMatchObject({ allowed: true, remaining: 3 })
      expect(booking.refund()).toBe(0)
    })

    test.each([undefined, 1, '1s', Infinity] as const)(
      'throws SLUICE_NOT_BOOKABLE with maxWait %o',
      maxWait => {
        const { limiter } = setUp()
        const error = thrownBy(() => limiter.reserve('ann', maxWait === undefined ? {} : { maxWait }))
        expect(error).toBeInstanceOf(TypeError)
        expect(error).toMatchObject({ code: 'SLUICE_NOT_BOOKABLE', option: 'reserve' })
        expect(limiter.peek('ann').remaining).toBe(3)
      },
    )

    test('publishes a decision event, and a release event for its refund', () => {
      const { limiter } = setUp()
      const [decisions, releases] = [heard('sluice:decision'), heard('sluice:release')]
      const booking = limiter.reserve('ann', { cost: 2, maxWait: 0 })
      booking.refund()
      const own = ({ limiter: name }: { limiter: string }) => name === limiter.name
      expect(decisions.filter(own)).toMatchObject([{ key: 'ann', cost: 2, decision: { allowed: true } }])
      expect(releases.filter(own)).toMatchObject([{ key: 'ann', permits: 2 }])
    })

    test('is refused for a blocked key', () => {
      const { limiter } = setUp()
      limiter.block('ann', '1s')
      expect(limiter.reserve('ann', { maxWait: 0 })).toMatchObject({ ...BLOCKED, retryAfterMs: 1000 })
    })
  })

  test.each(WINDOWS)('is the default on a limiter with maxWait 0: %s', (_, algorithm) => {
    const limiter = createLimiter(algorithm, { clock: manualClock(), maxWait: 0 })
    expect(limiter.reserve('ann').refund()).toBe(1)
    expect(() => limiter.reserve('ann', { maxWait: '1s' })).toThrow(TypeError)
  })

  test.each(WINDOWS)('on an asynchronous store gives back by promises: %s', async (_, algorithm) => {
    const limiter = createLimiter(algorithm, { clock: manualClock(), store: asynchronous(memoryStore()) })
    const booking = await limiter.reserve('ann', { cost: 2, maxWait: 0 })
    expect(await Promise.all([booking.refund(), booking.refund()])).toEqual([2, 0])
    expect((await limiter.peek('ann')).remaining).toBe(3)
  })

  test('of a combination takes from all members or none, and gives back to all', () => {
    const { perSecond, perDay, both } = combined()
    const remaining = () => [perSecond.peek('ann').remaining, perDay.peek('ann').remaining]
    const booking = both.reserve('ann', { cost: 2, maxWait: 0 })
    expect(remaining()).toEqual([0, 3])
    expect(both.reserve('ann', { maxWait: 0 })).toMatchObject({ allowed: false, retryAfterMs: 1000 })
    expect(remaining()).toEqual([0, 3])
    expect(booking.refund()).toBe(2)
    expect(remaining()).toEqual([2, 5])
  })

  test('of a combination names the limiters that refused', () => {
    const { perDay, both } = combined()
    perDay.drain('ann')
    expect(both.tryAcquire('ann')).toMatchObject({ allowed: false, refusedBy: ['per-day'] })
    expect(both.reserve('ann', { maxWait: 0 })).toMatchObject({ allowed: false, refusedBy: ['per-day'] })
  })

  test('of a combination is counted in the stats of its members, as tryAcquire is', () => {
    const verbs = [
      (limiter: Limiter<false>) => limiter.tryAcquire('ann', { cost: 2 }),
      (limiter: Limiter<false>) => limiter.reserve('ann', { cost: 2, maxWait: 0 }),
    ]
    const [tried, reserved] = verbs.map(act => {
      const { perSecond, perDay, both } = combined()
      for (let i = 0; i < 3; i++) act(both)
      return [perSecond, perDay, both].map(limiter => {
        const { granted, refused } = limiter.stats()
        return { granted, refused }
      })
    })
    expect(tried).toEqual([
      { granted: 1, refused: 2 },
      { granted: 1, refused: 0 },
      { granted: 1, refused: 2 },
    ])
    expect(reserved).toEqual(tried)
  })

  test('of a combination publishes a release event for each member when it is refunded', () => {
    const { both } = combined()
    const booking = both.reserve('ann', { maxWait: 0 })
    const releases = heard('sluice:release')
    booking.refund()
    const names = ['per-second', 'per-day', 'per-second+per-day']
    expect(releases).toEqual(names.map(limiter => ({ limiter, key: 'ann', permits: 1 })))
    both.tryAcquire('ann')
    both.release('ann', 1)
    expect(releases.slice(3)).toEqual(releases.slice(0, 3))
  })

  test('of a combination gives back once, to the members that have not refilled', () => {
    const { clock, perSecond, perDay, both } = combined()
    const booking = both.reserve('ann', { maxWait: 0 })
    perDay.tryAcquire('ann', { cost: 3 })
    clock.advance('1s')
    const remaining = () => [perSecond.peek('ann').remaining, perDay.peek('ann').remaining]
    expect(remaining()).toEqual([2, 1])
    booking.refund()
    expect(remaining()).toEqual([2, 2])
    booking.refund()
    booking.cancel()
    booking.refund()
    expect(remaining()).toEqual([2, 2])
  })

  test('of a combination with an unlimited member gives back to the others', () => {
    const clock = manualClock()
    const limited = alone(fixedWindow({ limit: 3, window: '1m' }), clock)
    const free = createLimiter(unlimited(), { name: 'free', clock })
    expect(combine(free, limited).reserve('ann', { cost: 2, maxWait: 0 }).refund()).toBe(2)
    expect(limited.peek('ann').remaining).toBe(3)
    expect(combine(free).reserve('ann', { cost: 2, maxWait: 0 }).refund()).toBe(0)
  })
})

describe('a ladder of refusals', () => {
  const LADDER: Ladder = { after: 1, stepsUs: [60_000_000] }

  test('blocks a key as block() does, and publishes a block event', async () => {
    const clock = manualClock()
    const limiter = createLimiter(fixedWindow({ limit: 1, window: '1h' }), { name: 'hourly', clock })
    limiter.tryAcquire('ann')
    const blocks = heard('sluice:block')
    const wait = outcome(limiter.acquire('ann'), clock)
    expect(strikeOn(limiter, LADDER)).toBe(60_000_000)
    expect(blocks).toEqual([{ limiter: 'hourly', key: 'ann', forMs: 60_000 }])
    expectBlocked((await wait).error)
  })

  test('publishes no block event for a refusal that does not block', () => {
    const limiter = createLimiter(unlimited(), { clock: manualClock() })
    const blocks = heard('sluice:block')
    expect(strikeOn(limiter, { ...LADDER, after: 2 })).toBe(0)
    expect(blocks).toEqual([])
  })

  test('on an asynchronous store returns a promise', async () => {
    const store = asynchronous(memoryStore())
    const limiter = createLimiter(unlimited(), { clock: manualClock(), store, onStoreError: 'allow' })
    expect(await strikeOn(limiter, LADDER)).toBe(60_000_000)
    store.failWith(new Error('the store is down'))
    expect(await strikeOn(limiter, LADDER)).toBe(0)
  })

  test('is counted by each limiter of a combination', () => {
    const { perSecond, perDay, both } = combined()
    expect(strikeOn(both, LADDER)).toBe(60_000_000)
    for (const limiter of [perSecond, perDay, both])
      expect(limiter.peek('ann')).toMatchObject({ ...BLOCKED, retryAfterMs: 60_000 })
  })

  test.each([
    ['can book', tokenBucket({ limit: 1, window: '1h' })],
    ['cannot book', fixedWindow({ limit: 1, window: '1h' })],
  ])('of a combination refuses at once the waiters for a member that %s', async (_, algorithm) => {
    const clock = manualClock()
    const member = createLimiter(algorithm, { name: 'hourly', clock })
    const both = combine(member, createLimiter(unlimited(), { name: 'free', clock }))
    member.tryAcquire('ann')
    const wait = outcome(member.acquire('ann'), clock)
    strikeOn(both, LADDER)
    await nextTick()
    clock.advance('1h')
    const { settledAfterMs, error } = await wait
    expectBlocked(error)
    expect(settledAfterMs).toBe(0)
  })
})

/** Two limiters, of two per second and five per day, and their combination. */
function combined() {
  const clock = manualClock()
  const perSecond = createLimiter(fixedWindow({ limit: 2, window: '1s' }), { name: 'per-second', clock })
  const perDay = createLimiter(fixedWindow({ limit: 5, window: '1d' }), { name: 'per-day', clock })
  return { clock, perSecond, perDay, both: combine(perSecond, perDay) }
}

function alone(algorithm: Algorithm, clock: ManualClock): Limiter<false> {
  return createLimiter(algorithm, { clock })
}

/** A combination that grants three per minute. */
function several(clock: ManualClock): Limiter<false> {
  return combine(
    createLimiter(fixedWindow({ limit: 3, window: '1m' }), { name: 'minute', clock }),
    createLimiter(slidingLog({ limit: 5, window: '1m' }), { name: 'log', clock }),
  )
}

/** Counts a refusal as HTTP does. */
function strikeOn<Async extends boolean>(limiter: Limiter<Async>, ladder: Ladder) {
  return strike(limiter as unknown as LedgerLimiter<Async>, 'ann', ladder)
}

function expectBlocked(error: unknown): void {
  expect(error).toBeInstanceOf(RateLimitedError)
  expect(error).toMatchObject({ code: 'SLUICE_RATE_LIMITED', limiter: 'hourly' })
  expect(String(error)).toContain('blocked')
  expect((error as RateLimitedError).decision.code).toBe('SLUICE_BLOCKED')
}

function thrownBy(act: () => unknown): unknown {
  try {
    act()
  } catch (error) {
    return error
  }
  return undefined
}

/** How long a block lasts. */
function spanUs(): fc.Arbitrary<number> {
  return fc.oneof(fc.integer({ min: 1, max: 100 }), fc.integer({ min: 1, max: 50_000 }))
}

function check<T>(arbitrary: fc.Arbitrary<T>, property: (value: T) => void): void {
  fc.assert(fc.property(arbitrary, property))
}
