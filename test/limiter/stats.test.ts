import { inspect } from 'node:util'
import {
  acquireAll,
  combine,
  createLimiter,
  memoryStore,
  slidingWindow,
  tokenBucket,
  tryAcquireAll,
} from '@sluice/core'
import { manualClock } from '@sluice/core/testing'
import { describe, expect, test } from 'vitest'
import { asynchronous } from '../support/async-store.js'

const bucket = tokenBucket({ limit: 2, window: '1m' })

/** Two permits for each key; one more comes every 30 seconds. */
function setUp(store = memoryStore()) {
  const clock = manualClock()
  const limiter = createLimiter(bucket, { name: 'two', clock, store })
  return { clock, limiter }
}

/** A limiter whose store is down. */
function down(name = 'two') {
  const store = asynchronous(memoryStore())
  const limiter = createLimiter(bucket, { name, store, clock: manualClock() })
  store.failWith(new Error('the store is down'))
  return limiter
}

describe('stats', () => {
  test('of a new limiter are its name and zeros', () => {
    expect(setUp().limiter.stats()).toEqual({
      name: 'two',
      granted: 0,
      refused: 0,
      waited: 0,
      waiting: 0,
      keys: 0,
      forgotten: 0,
      storeErrors: 0,
    })
  })

  test('are a copy that does not change', () => {
    const { limiter } = setUp()
    const before = limiter.stats()
    limiter.tryAcquire('ann')
    expect(before.granted).toBe(0)
  })

  test('hold no key', () => {
    const { limiter } = setUp()
    limiter.tryAcquire('ann@example.org', { cost: 2 })
    limiter.tryAcquire('ann@example.org')
    expect(JSON.stringify(limiter.stats())).not.toContain('ann')
  })
})

describe('granted and refused', () => {
  test('count calls, not permits', () => {
    const { limiter } = setUp()
    limiter.tryAcquire('ann', { cost: 2 })
    limiter.tryAcquire('ann')
    limiter.tryAcquire('ann')
    expect(limiter.stats()).toMatchObject({ granted: 1, refused: 2 })
  })

  test('count reservations, also cancelled and refunded ones', () => {
    const { limiter } = setUp()
    limiter.drain('ann')
    limiter.reserve('ann').cancel()
    limiter.reserve('ann', { maxWait: 0 })
    expect(limiter.stats()).toMatchObject({ granted: 1, refused: 1 })
  })

  test('count an acquire when it has ended', async () => {
    const { clock, limiter } = setUp()
    limiter.drain('ann')
    const waiting = limiter.acquire('ann')
    expect(limiter.stats()).toMatchObject({ granted: 0, refused: 0 })
    clock.advance('30s')
    await waiting
    await expect(limiter.acquire('ann', { maxWait: 0 })).rejects.toMatchObject({
      code: 'SLUICE_RATE_LIMITED',
    })
    expect(limiter.stats()).toMatchObject({ granted: 1, refused: 1 })
  })

  test('do not count calls of cost 0', () => {
    const { limiter } = setUp()
    limiter.peek('ann')
    limiter.peek('ann', { cost: 3 })
    limiter.drain('ann')
    limiter.release('ann', 1)
    limiter.reset('ann')
    limiter.update(tokenBucket({ limit: 3, window: '1m' }))
    expect(limiter.stats()).toMatchObject({ granted: 0, refused: 0 })
  })

  test('do not count invalid input', () => {
    const { limiter } = setUp()
    expect(() => limiter.tryAcquire('')).toThrow(TypeError)
    expect(() => limiter.tryAcquire('ann', { cost: -1 })).toThrow(RangeError)
    expect(limiter.stats()).toMatchObject({ granted: 0, refused: 0 })
  })

  test('do not count a wait that was aborted', async () => {
    const { limiter } = setUp()
    const abort = new AbortController()
    limiter.drain('ann')
    const waiting = limiter.acquire('ann', { signal: abort.signal })
    abort.abort('gone')
    await expect(waiting).rejects.toBe('gone')
    expect(limiter.stats()).toMatchObject({ granted: 0, refused: 0, waited: 0, waiting: 0 })
  })

  test('count on an asynchronous store', async () => {
    const limiter = createLimiter(bucket, { clock: manualClock(), store: asynchronous(memoryStore()) })
    await limiter.tryAcquire('ann', { cost: 2 })
    await limiter.tryAcquire('ann')
    await limiter.reserve('ann')
    expect(limiter.stats()).toMatchObject({ granted: 2, refused: 1 })
  })
})

describe('waited and waiting', () => {
  test('count the acquire calls that wait now, and those that have waited', async () => {
    const { clock, limiter } = setUp()
    await limiter.acquire('ann', { cost: 2 })
    expect(limiter.stats()).toMatchObject({ waited: 0, waiting: 0 })
    limiter.drain('bob')
    const waits = [limiter.acquire('ann'), limiter.acquire('ann'), limiter.acquire('bob')]
    expect(limiter.stats()).toMatchObject({ waited: 0, waiting: 3 })
    clock.advance('30s')
    await Promise.all([waits[0], waits[2]])
    expect(limiter.stats()).toMatchObject({ waited: 2, waiting: 1, granted: 3 })
    clock.advance('30s')
    await waits[1]
    expect(limiter.stats()).toMatchObject({ waited: 3, waiting: 0, granted: 4 })
  })

  test('do not count a reservation', () => {
    const { limiter } = setUp()
    limiter.drain('ann')
    limiter.reserve('ann')
    expect(limiter.stats()).toMatchObject({ granted: 1, waited: 0, waiting: 0 })
  })

  test('count waiters on an algorithm that cannot book', async () => {
    const clock = manualClock()
    const limiter = createLimiter(slidingWindow({ limit: 1, window: '1m' }), { clock })
    limiter.tryAcquire('ann')
    const wait = limiter.acquire('ann')
    expect(limiter.stats()).toMatchObject({ waited: 0, waiting: 1 })
    clock.advance('2m')
    await wait
    expect(limiter.stats()).toMatchObject({ granted: 2, refused: 0, waited: 1, waiting: 0 })
  })

  test('count no waiters after close()', async () => {
    const { limiter } = setUp()
    limiter.drain('ann')
    const wait = limiter.acquire('ann')
    limiter.close()
    await expect(wait).rejects.toMatchObject({ code: 'SLUICE_CLOSED' })
    expect(limiter.stats()).toMatchObject({ waited: 0, waiting: 0 })
  })
})

describe('keys and forgotten', () => {
  test('keys counts the keys stored now', () => {
    const { limiter } = setUp()
    limiter.tryAcquire('ann')
    limiter.tryAcquire('bob')
    limiter.peek('cem')
    expect(limiter.stats().keys).toBe(2)
    limiter.reset('ann')
    expect(limiter.stats().keys).toBe(1)
  })

  test('keys counts the keys of this limiter only, on a shared store too', () => {
    const store = memoryStore()
    const [{ limiter }, { limiter: other }] = [setUp(store), setUp(store)]
    limiter.tryAcquire('ann')
    other.tryAcquire('ann')
    other.tryAcquire('bob')
    expect([limiter.stats().keys, other.stats().keys, store.size]).toEqual([1, 2, 3])
  })

  test('forgotten counts the keys that were evicted before they were full again', () => {
    const { clock, limiter } = setUp(memoryStore({ maxKeys: 2 }))
    limiter.tryAcquire('ann')
    limiter.tryAcquire('bob')
    expect(limiter.stats()).toMatchObject({ keys: 2, forgotten: 0 })
    limiter.tryAcquire('cem')
    expect(limiter.stats()).toMatchObject({ keys: 2, forgotten: 1 })
    clock.advance('1m')
    limiter.tryAcquire('dan')
    expect(limiter.stats()).toMatchObject({ keys: 2, forgotten: 1 })
  })

  test('forgotten counts evicted keys that were being refused', () => {
    const { limiter } = setUp(memoryStore({ maxKeys: 1 }))
    limiter.tryAcquire('ann', { cost: 2 })
    limiter.tryAcquire('bob', { cost: 2 })
    expect(limiter.stats().forgotten).toBe(1)
  })

  test('forgotten does not count a key that was reset', () => {
    const { limiter } = setUp()
    limiter.tryAcquire('ann')
    limiter.reset('ann')
    expect(limiter.stats().forgotten).toBe(0)
  })

  test('are undefined if the store does not count them', () => {
    const limiter = createLimiter(bucket, { store: asynchronous(memoryStore()) })
    expect(limiter.stats()).toMatchObject({ keys: undefined, forgotten: undefined })
  })
})

describe('storeErrors', () => {
  test('count every failed call to the store', async () => {
    const limiter = down()
    const calls = [
      () => limiter.tryAcquire('ann'),
      () => limiter.reserve('ann'),
      () => limiter.acquire('ann'),
      () => limiter.peek('ann'),
      () => limiter.release('ann', 1),
      () => limiter.drain('ann'),
      () => limiter.reset('ann'),
      () => limiter.update(bucket),
    ]
    for (const [index, call] of calls.entries()) {
      await expect(call()).rejects.toMatchObject({ code: 'SLUICE_STORE_ERROR' })
      expect(limiter.stats().storeErrors).toBe(index + 1)
    }
    expect(limiter.stats()).toMatchObject({ granted: 0, refused: 0 })
  })

  test('count a reservation that could not be given back', async () => {
    const store = asynchronous(memoryStore())
    const limiter = createLimiter(bucket, { store, clock: manualClock() })
    const booking = await limiter.reserve('ann')
    store.failWith(new Error('the store is down'))
    await expect(booking.refund()).rejects.toMatchObject({ code: 'SLUICE_STORE_ERROR' })
    expect(limiter.stats().storeErrors).toBe(1)
  })

  test('do not count invalid input', () => {
    const { limiter } = setUp()
    expect(() => limiter.tryAcquire('')).toThrow(TypeError)
    expect(limiter.stats().storeErrors).toBe(0)
  })
})

describe('of several limiters at once', () => {
  function setUpTwo() {
    const { clock, limiter: two } = setUp()
    const one = createLimiter(tokenBucket({ limit: 1, window: '1m' }), { name: 'one', clock })
    const figuresOf = () => [one, two].map(limiter => limiter.stats())
    const asks = [one, two].map(limiter => ({ limiter, key: 'ann' }))
    return { clock, one, two, asks, figuresOf }
  }

  test('count a grant for every limiter, and a refusal for the limiters that refused', () => {
    const { asks, figuresOf } = setUpTwo()
    tryAcquireAll(asks)
    tryAcquireAll(asks)
    expect(figuresOf()).toMatchObject([
      { granted: 1, refused: 1 },
      { granted: 1, refused: 0 },
    ])
  })

  test('a combination has its own counts too', () => {
    const { one, two, figuresOf } = setUpTwo()
    const both = combine(one, two)
    both.tryAcquire('ann')
    both.tryAcquire('ann')
    expect(both.stats()).toMatchObject({ name: 'one+two', granted: 1, refused: 1, keys: undefined })
    expect(figuresOf()).toMatchObject([
      { granted: 1, refused: 1 },
      { granted: 1, refused: 0 },
    ])
  })

  test('a combination counts its waiters', async () => {
    const { clock, one, two } = setUpTwo()
    const both = combine(one, two)
    both.tryAcquire('ann')
    const wait = both.acquire('ann')
    expect(both.stats()).toMatchObject({ waited: 0, waiting: 1 })
    clock.advance('1m')
    await wait
    expect(both.stats()).toMatchObject({ granted: 2, refused: 0, waited: 1, waiting: 0 })
  })

  test('count a refusal of acquire for the limiters that refused', async () => {
    const { one, two, asks, figuresOf } = setUpTwo()
    await acquireAll(asks)
    await expect(acquireAll(asks, { maxWait: 0 })).rejects.toMatchObject({ code: 'SLUICE_RATE_LIMITED' })
    expect(figuresOf()).toMatchObject([
      { granted: 1, refused: 1 },
      { granted: 1, refused: 0 },
    ])
    await expect(combine(one, two).acquire('ann', { maxWait: 0 })).rejects.toMatchObject({
      code: 'SLUICE_RATE_LIMITED',
    })
    expect(figuresOf()).toMatchObject([{ refused: 2 }, { refused: 0 }])
  })

  test('count a waiter for each limiter that it waits for', async () => {
    const { clock, asks, figuresOf } = setUpTwo()
    await acquireAll(asks)
    const wait = acquireAll(asks)
    expect(figuresOf()).toMatchObject([{ waiting: 1 }, { waiting: 1 }])
    clock.advance('1m')
    await wait
    expect(figuresOf()).toMatchObject([
      { granted: 2, waited: 1, waiting: 0 },
      { granted: 2, waited: 1, waiting: 0 },
    ])
  })

  test('count a store error for the limiter of that store', async () => {
    const [broken, sound] = [down('broken'), createLimiter(bucket, { store: asynchronous(memoryStore()) })]
    const asks = [broken, sound].map(limiter => ({ limiter, key: 'ann' }))
    await expect(tryAcquireAll(asks)).rejects.toMatchObject({ code: 'SLUICE_STORE_ERROR' })
    expect([broken.stats().storeErrors, sound.stats().storeErrors]).toEqual([1, 0])
  })
})

describe('console.log of a limiter', () => {
  test('shows its name, algorithm, policy and counts', () => {
    const { limiter } = setUp()
    limiter.tryAcquire('ann', { cost: 3 })
    const { algorithm, policy, ...stats } = custom(limiter)
    expect({ algorithm, policy }).toEqual({ algorithm: 'token-bucket', policy: limiter.policy })
    expect(stats).toEqual(limiter.stats())
    expect(inspect(limiter)).toContain("name: 'two'")
    expect(inspect(limiter)).toContain('refused: 1')
  })

  test('shows no keys, even while callers wait', () => {
    const { limiter } = setUp()
    const both = combine(limiter, setUp().limiter)
    const abort = new AbortController()
    const waits = [limiter, both].flatMap(each =>
      Array.from({ length: 3 }, () => each.acquire('ann@example.org', { signal: abort.signal })),
    )
    limiter.block('bob@example.org', '1h')
    for (const each of [limiter, both]) {
      expect(inspect(each, { depth: 9, showHidden: true })).not.toContain('example.org')
      expect(inspect(each).split('\n').length).toBeLessThan(20)
    }
    abort.abort()
    return Promise.allSettled(waits)
  })

  test('shows a combination under the names of its limiters', () => {
    expect(custom(combine(setUp().limiter, down('three')))).toMatchObject({
      name: 'two+three',
      algorithm: 'combination',
      policy: { limit: 2 },
    })
  })

  function custom(limiter: object): Record<string, unknown> {
    const show = Reflect.get(limiter, inspect.custom) as () => Record<string, unknown>
    return show.call(limiter)
  }
})
