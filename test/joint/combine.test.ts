import {
  type Algorithm,
  type AsyncStore,
  combine,
  createLimiter,
  fixedWindow,
  type JointDecision,
  type Limiter,
  type LimiterOptions,
  limited,
  memoryStore,
  RateLimitedError,
  slidingLog,
  tokenBucket,
  unlimited,
} from '@sluice/core'
import { manualClock } from '@sluice/core/testing'
import { describe, expect, expectTypeOf, test } from 'vitest'
import { asynchronous } from '../support/async-store.js'
import { breakable, expectStoreFailure, isCollected, logOf, settled } from './support.js'

type Options = Pick<LimiterOptions, 'maxQueue' | 'maxQueuePerKey'>

/** Two per second, and five per day. */
function setUp(options: Options = {}) {
  const clock = manualClock()
  const limiter = (name: string, algorithm: Algorithm) =>
    createLimiter(algorithm, { name, clock, ...options })
  const later = (name: string, algorithm: Algorithm, store: AsyncStore = asynchronous(memoryStore())) =>
    createLimiter(algorithm, { name, clock, store })
  const perSecond = limiter('per-second', tokenBucket({ limit: 2, window: '1s' }))
  const perDay = limiter('per-day', fixedWindow({ limit: 5, window: '1d' }))
  const remaining = (key = 'ann') => [perSecond.peek(key).remaining, perDay.peek(key).remaining]
  return {
    clock,
    limiter,
    later,
    log: logOf(clock),
    perSecond,
    perDay,
    both: combine(perSecond, perDay),
    remaining,
  }
}

describe('a combination', () => {
  test('grants if all of its limiters grant, and takes from all or none', () => {
    const { clock, both, remaining } = setUp()
    const ask = (cost: number) => both.tryAcquire('ann', { cost }) as JointDecision
    expect(ask(2)).toMatchObject({ allowed: true, refusedBy: [] })
    expect(remaining()).toEqual([0, 3])
    expect(ask(1)).toMatchObject({ allowed: false, refusedBy: ['per-second'], waitMs: 500 })
    expect(remaining()).toEqual([0, 3])
    clock.advance('1s')
    ask(2)
    clock.advance('1s')
    expect(ask(2)).toMatchObject({ allowed: false, refusedBy: ['per-day'], waitMs: 86_398_000 })
    expect(remaining()).toEqual([2, 1])
    expect(ask(0).allowed).toBe(true)
    expect(remaining()).toEqual([2, 1])
  })

  test('takes one permit by default', () => {
    const { both, remaining } = setUp()
    both.tryAcquire('ann')
    expect(remaining()).toEqual([1, 4])
  })

  test('keeps keys apart', () => {
    const { both } = setUp()
    both.tryAcquire('ann', { cost: 2 })
    expect([both.peek('ann').allowed, both.peek('bob').allowed]).toEqual([false, true])
  })

  test('is named after its limiters, and advertises their lowest limit, also after an update', () => {
    const { both, perDay } = setUp()
    expect(both).toMatchObject({ name: 'per-second+per-day', policy: { limit: 2, windowMs: 1000 } })
    perDay.update(fixedWindow({ limit: 1, window: '1d' }))
    expect(both.policy).toMatchObject({ limit: 1, windowMs: 86_400_000 })
  })

  test('of combinations contains all of their limiters', () => {
    const { limiter, perSecond, perDay, both } = setUp()
    const perMonth = limiter('per-month', fixedWindow({ limit: 7, window: '30d' }))
    const nested = combine(both, perMonth)
    const { parts } = nested.tryAcquire('ann', { cost: 2 }) as JointDecision
    expect(parts.map(({ limiter }) => limiter)).toEqual(['per-second', 'per-day', 'per-month'])
    expect([perSecond, perDay, perMonth].map(part => part.peek('ann').remaining)).toEqual([0, 3, 5])
    expect(nested.tryAcquire('ann')).toMatchObject({ allowed: false, refusedBy: ['per-second'] })
    expect(perMonth.peek('ann').remaining).toBe(5)
  })

  test('returns promises if any of its limiters is asynchronous', async () => {
    const { later, both, perSecond, remaining } = setUp()
    const slow = later('slow', slidingLog({ limit: 1, window: '1h' }))
    expectTypeOf(both).toEqualTypeOf<Limiter<false>>()
    expectTypeOf(combine(slow)).toEqualTypeOf<Limiter<true>>()
    const mixed = combine(perSecond, slow) as Limiter
    for (const verb of ['peek', 'tryAcquire', 'drain', 'reset'] as const)
      expect(mixed[verb]('bob')).toBeInstanceOf(Promise)
    expect(mixed.release('bob', 1)).toBeInstanceOf(Promise)
    await settled()
    await mixed.tryAcquire('ann')
    expect(await mixed.tryAcquire('ann')).toMatchObject({ allowed: false, refusedBy: ['slow'] })
    expect(remaining()).toEqual([1, 5])
  })

  test('gives the last permit to one of two concurrent calls on an asynchronous store', async () => {
    const { later } = setUp()
    const [x, y] = ['x', 'y'].map(name => later(name, slidingLog({ limit: 1, window: '1h' }))) as [
      Limiter<true>,
      Limiter<true>,
    ]
    const decisions = await Promise.all([combine(x, y).tryAcquire('ann'), combine(y, x).tryAcquire('ann')])
    const winners = decisions.filter(({ allowed }) => allowed).length
    expect(winners).toBeLessThanOrEqual(1)
    for (const part of [x, y]) expect((await part.peek('ann')).remaining).toBe(1 - winners)
  })

  test('can limit a function', () => {
    const { both, remaining } = setUp()
    const greet = limited(both, { key: (name: string) => name })((name: string) => `hello ${name}`)
    expect([greet('ann'), greet('ann')]).toEqual(['hello ann', 'hello ann'])
    expect(() => greet('ann')).toThrow(RateLimitedError)
    expect(remaining()).toEqual([0, 3])
  })
})

describe('the other verbs of a combination', () => {
  test('peek returns the decision of tryAcquire, and takes nothing', () => {
    const { both, remaining } = setUp()
    expect(both.peek('ann', { cost: 6 })).toMatchObject({
      allowed: false,
      refusedBy: ['per-second', 'per-day'],
    })
    expect(both.peek('ann')).toMatchObject({ allowed: true, remaining: 2, limit: 2 })
    expect(remaining()).toEqual([2, 5])
    expect(both.stats()).toMatchObject({ granted: 0, refused: 0 })
  })

  test('drain takes all remaining permits, and returns how many', () => {
    const { both } = setUp()
    expect(both.drain('ann')).toBe(2)
    expect(both.peek('ann').remaining).toBe(0)
    expect(both.drain('ann')).toBe(0)
  })

  test('drain and release return finite counts beside an unlimited limiter', () => {
    const { limiter, perSecond } = setUp()
    const both = combine(perSecond, limiter('free', unlimited()))
    expect(both.drain('ann')).toBe(2)
    expect(both.release('ann', 2)).toBe(2)
    expect(both.peek('ann').remaining).toBe(2)
  })

  test('release gives permits back to every limiter', () => {
    const { both, remaining } = setUp()
    both.tryAcquire('ann', { cost: 2 })
    expect(both.release('ann', 1)).toBe(1)
    expect(remaining()).toEqual([1, 4])
    expect(both.release('ann', 5)).toBe(1)
    expect(remaining()).toEqual([2, 5])
  })

  test('reset forgets the key in every limiter', () => {
    const { both, remaining } = setUp()
    both.tryAcquire('ann', { cost: 2 })
    both.tryAcquire('bob')
    both.reset('ann')
    expect([remaining(), remaining('bob')]).toEqual([
      [2, 5],
      [1, 4],
    ])
  })

  test('has its own stats, and its limiters count its calls too', async () => {
    const { both, perSecond, perDay } = setUp()
    both.tryAcquire('ann', { cost: 2 })
    both.tryAcquire('ann')
    await both.acquire('bob')
    await both.acquire('ann', { maxWait: 0 }).catch(() => {})
    expect(both.stats()).toEqual({
      name: 'per-second+per-day',
      granted: 2,
      refused: 2,
      waited: 0,
      waiting: 0,
      keys: undefined,
      forgotten: undefined,
      storeErrors: 0,
    })
    expect(perDay.stats()).toMatchObject({ granted: 2, refused: 0 })
    expect(perSecond.stats()).toMatchObject({ granted: 2, refused: 2 })
  })

  test('a store error fails the call, and the limiter of that store counts it', async () => {
    const { later } = setUp()
    const store = breakable(asynchronous(memoryStore()))
    const broken = later('broken', slidingLog({ limit: 3, window: '1h' }), store)
    const sound = later('sound', slidingLog({ limit: 3, window: '1h' }))
    const both = combine(sound, broken)
    store.failing = 'book'
    await expectStoreFailure(both.tryAcquire('ann'))
    store.failing = 'decide'
    await expectStoreFailure(both.peek('ann'))
    store.failing = undefined
    expect((await both.peek('ann')).remaining).toBe(3)
    expect([sound, broken].map(limiter => limiter.stats().storeErrors)).toEqual([0, 2])
  })

  test.each<[string, (both: Limiter<false>) => unknown, string]>([
    ['reserve', both => both.reserve('ann'), 'SLUICE_NOT_BOOKABLE'],
    ['update', both => both.update(unlimited()), 'SLUICE_INVALID_LIMITER'],
    ['tryAcquire with a bad key', both => both.tryAcquire(''), 'SLUICE_INVALID_KEY'],
    ['tryAcquire with a bad cost', both => both.tryAcquire('ann', { cost: -1 }), 'SLUICE_INVALID_COST'],
    [
      'tryAcquire with a misspelt cost',
      both => both.tryAcquire('ann', { costs: 2 } as never),
      'SLUICE_UNKNOWN_OPTION',
    ],
    ['release of half a permit', both => both.release('ann', 0.5), 'SLUICE_INVALID_OPTION'],
  ])('%s throws and takes nothing', (_, act, code) => {
    const { both, remaining } = setUp()
    both.tryAcquire('ann')
    expect(codeOf(() => act(both))).toBe(code)
    expect(remaining()).toEqual([1, 4])
    expect(both.policy.limit).toBe(2)
  })

  test.each<[string, unknown[], string]>([
    ['nothing', [], 'SLUICE_INVALID_OPTION'],
    ['null', [null], 'SLUICE_INVALID_LIMITER'],
    ['an algorithm', [unlimited()], 'SLUICE_INVALID_LIMITER'],
    ['a list of limiters', [[setUp().perDay]], 'SLUICE_INVALID_LIMITER'],
    [
      'an object with the shape of a limiter',
      [setUp().perDay, { name: 'x', tryAcquire() {} }],
      'SLUICE_INVALID_LIMITER',
    ],
  ])('combine of %s throws', (_, limiters, code) => {
    expect(codeOf(() => combine(...(limiters as never[])))).toBe(code)
  })
})

describe('acquire of a combination', () => {
  /** One per second and one per three seconds, both used up for ann. */
  function exhausted(options: Options = {}) {
    const { clock, limiter, log } = setUp(options)
    const fast = limiter('fast', tokenBucket({ limit: 1, window: '1s' }))
    const slow = limiter('slow', fixedWindow({ limit: 1, window: '3s' }))
    const both = combine(fast, slow)
    both.tryAcquire('ann')
    return { clock, limiter, log, fast, slow, both }
  }

  test('waits until all limiters can grant, takes nothing before, and serves in order', async () => {
    const { clock, log, fast, slow, both } = exhausted()
    for (const name of ['a', 'b', 'c']) log.note(name, both.acquire('ann'))
    expect([both.stats().waiting, clock.alarms]).toEqual([3, 1])
    clock.advance('2s')
    expect([fast.peek('ann').remaining, slow.peek('ann').remaining]).toEqual([1, 0])
    for (let second = 2; second < 9; second++) {
      clock.advance('1s')
      await settled()
    }
    expect(log.entries).toEqual(['a after 3000', 'b after 6000', 'c after 9000'])
    expect(both.stats()).toMatchObject({ granted: 4, waited: 3, waiting: 0 })
    expect(clock.alarms).toBe(0)
  })

  test('resolves to a joint decision with the wait', async () => {
    const { clock, both } = exhausted()
    const wait = both.acquire('ann')
    clock.advance('3s')
    expect(await wait).toMatchObject({
      allowed: true,
      waitMs: 3000,
      refusedBy: [],
      parts: [{ limiter: 'fast' }, { limiter: 'slow' }],
    })
  })

  test('small calls do not overtake a large one before them in the queue', async () => {
    const { clock, log, perSecond, both } = setUp()
    perSecond.tryAcquire('ann', { cost: 2 })
    log.note('large', both.acquire('ann', { cost: 2 }))
    log.note('small', both.acquire('ann', { cost: 1 }))
    clock.advance(500)
    await settled()
    expect(log.entries).toEqual([])
    clock.advance(500)
    await settled()
    clock.advance(500)
    await settled()
    expect(log.entries).toEqual(['large after 1000', 'small after 1500'])
  })

  test('refuses at once if the wait would exceed maxWait, and takes nothing', async () => {
    const { clock, fast, slow, both } = exhausted()
    clock.advance('1s')
    const error = await both.acquire('ann', { maxWait: 1999.999 }).catch(error => error)
    expect(error).toBeInstanceOf(RateLimitedError)
    expect(error).toMatchObject({
      limiter: 'fast+slow',
      key: 'ann',
      decision: { refusedBy: ['slow'], waitMs: 2000 },
    })
    expect([fast.peek('ann').remaining, slow.peek('ann').remaining, clock.alarms]).toEqual([1, 0, 0])
  })

  test('refuses a queued waiter as soon as its wait must exceed maxWait, with a joint decision', async () => {
    const { clock, log, both } = exhausted()
    log.note('first', both.acquire('ann'))
    const second = both.acquire('ann', { maxWait: '4s' }).catch(error => error)
    clock.advance('3s')
    expect(await second).toMatchObject({
      code: 'SLUICE_RATE_LIMITED',
      decision: { refusedBy: ['fast', 'slow'], waitMs: 3000 },
    })
    expect(log.entries).toEqual(['first after 3000'])
    expect(clock.alarms).toBe(0)
  })

  test('queues as many waiters as the smallest maxQueue of its limiters', async () => {
    const { clock, log, both } = exhausted({ maxQueuePerKey: 2 })
    for (const name of ['a', 'b', 'c']) log.note(name, both.acquire('ann'))
    await settled()
    expect(log.entries).toEqual(['c failed: SLUICE_RATE_LIMITED'])
    both.close()
    await settled()
    expect(clock.alarms).toBe(0)
  })

  test('an abort rejects the wait with its reason, and the waiters behind it move up', async () => {
    const { clock, log, both } = exhausted()
    const abort = new AbortController()
    log.note('leaves', both.acquire('ann', { signal: abort.signal }))
    log.note('stays', both.acquire('ann'))
    abort.abort('enough')
    await settled()
    expect(log.entries).toEqual(['leaves failed: enough'])
    clock.advance('3s')
    await settled()
    expect(log.entries[1]).toBe('stays after 3000')
    expect(clock.alarms).toBe(0)
  })

  test('a caller that arrives in the tick of an abort joins the same queue', async () => {
    const { clock, log, both } = exhausted()
    const abort = new AbortController()
    log.note('leaves', both.acquire('ann', { signal: abort.signal }))
    abort.abort('enough')
    log.note('first', both.acquire('ann'))
    log.note('second', both.acquire('ann'))
    await settled()
    expect(log.entries).toEqual(['leaves failed: enough'])
    both.close()
    await settled()
    expect(log.entries.slice(1)).toEqual(['first failed: SLUICE_CLOSED', 'second failed: SLUICE_CLOSED'])
    expect(clock.alarms).toBe(0)
  })

  test.each<[string, (slow: Limiter<false>, both: Limiter<false>) => unknown]>([
    ['a reset of one limiter', slow => slow.reset('ann')],
    ['a release of one limiter', slow => slow.release('ann', 1)],
    ['an update of one limiter', slow => slow.update(fixedWindow({ limit: 2, window: '3s' }))],
    ['a reset of the combination', (_, both) => both.reset('ann')],
    ['a release of the combination', (_, both) => both.release('ann', 1)],
  ])('%s wakes the waiters, once each and in order', async (_, change) => {
    const { clock, log, slow, both } = exhausted()
    for (const name of ['first', 'second']) log.note(name, both.acquire('ann'))
    clock.advance('1s')
    change(slow, both)
    await settled()
    expect(log.entries).toEqual(['first after 1000'])
    both.close()
    await settled()
    expect(clock.alarms).toBe(0)
  })

  test('a change of one limiter wakes the waiters on asynchronous stores too', async () => {
    const { clock, later, log } = setUp()
    const slow = later('slow', fixedWindow({ limit: 1, window: '1h' }))
    const both = combine(later('fast', tokenBucket({ limit: 1, window: '1s' })), slow)
    await both.tryAcquire('ann')
    log.note('wait', both.acquire('ann'))
    await settled()
    clock.advance('1s')
    await slow.release('ann', 1)
    await settled()
    expect(log.entries).toEqual(['wait after 1000'])
    expect(clock.alarms).toBe(0)
  })

  test('refuses waiters when an update makes their cost impossible', async () => {
    const { clock, log, slow, both } = exhausted()
    log.note('wait', both.acquire('ann'))
    slow.update(fixedWindow({ limit: 0, window: '3s' }))
    await settled()
    expect(log.entries).toEqual(['wait failed: SLUICE_RATE_LIMITED'])
    expect(clock.alarms).toBe(0)
  })

  test('waits longer if the limiter is drained during the wait', async () => {
    const { clock, log, fast, both } = exhausted()
    log.note('wait', both.acquire('ann'))
    clock.advance(2500)
    fast.drain('ann')
    clock.advance(500)
    await settled()
    expect(log.entries).toEqual([])
    clock.advance(500)
    await settled()
    expect(log.entries).toEqual(['wait after 3500'])
  })

  test('close rejects the waiters of the combination only, and leaves its limiters open', async () => {
    const { clock, log, fast, slow, both } = exhausted()
    log.note('both', both.acquire('ann'))
    log.note('fast', fast.acquire('ann'))
    both.close()
    await settled()
    expect(log.entries).toEqual(['both failed: SLUICE_CLOSED'])
    await expect(both.acquire('bob')).rejects.toMatchObject({ code: 'SLUICE_CLOSED' })
    expect([both.tryAcquire('bob').allowed, slow.peek('bob').remaining]).toEqual([true, 0])
    clock.advance('1s')
    await settled()
    expect(log.entries[1]).toBe('fast after 1000')
    expect(clock.alarms).toBe(0)
  })

  test.each(['fast', 'slow'] as const)(
    'close of its limiter %s rejects its waiters, and later calls',
    async name => {
      const { clock, log, fast, slow, both } = exhausted()
      log.note('ann', both.acquire('ann'))
      if (name === 'fast') fast.close()
      else slow.close()
      await settled()
      expect(log.entries).toEqual(['ann failed: SLUICE_CLOSED'])
      await expect(both.acquire('bob')).rejects.toMatchObject({ code: 'SLUICE_CLOSED' })
      expect(clock.alarms).toBe(0)
    },
  )

  test('close of a limiter rejects later calls even without waiters', async () => {
    const { slow, both } = exhausted()
    slow.close()
    await expect(both.acquire('bob')).rejects.toMatchObject({ code: 'SLUICE_CLOSED' })
    expect(both.tryAcquire('carl').allowed).toBe(true)
  })

  test('of combinations waits for all of their limiters', async () => {
    const { clock, limiter, log, slow, both } = exhausted()
    const slowest = limiter('slowest', fixedWindow({ limit: 1, window: '5s' }))
    const nested = combine(both, slowest)
    slow.reset('ann')
    slowest.tryAcquire('ann')
    log.note('nested', nested.acquire('ann'))
    clock.advance(4999)
    await settled()
    expect(log.entries).toEqual([])
    clock.advance(1)
    await settled()
    expect(log.entries).toEqual(['nested after 5000'])
    expect(clock.alarms).toBe(0)
  })

  test('an unused combination is garbage-collected while its limiters stay in use', async () => {
    const { clock, fast, slow } = exhausted()
    async function used(): Promise<WeakRef<object>> {
      const both = combine(fast, slow)
      const wait = both.acquire('ann')
      clock.advance('3s')
      await wait
      return new WeakRef(both)
    }
    const reference = await used()
    expect(await isCollected(reference)).toBe(true)
    expect(fast.peek('ann').limit).toBe(1)
  })
})

function codeOf(act: () => unknown): unknown {
  try {
    act()
  } catch (error) {
    return (error as { code?: unknown }).code
  }
  throw new Error('nothing was thrown')
}
