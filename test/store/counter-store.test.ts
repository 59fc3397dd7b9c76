import assert from 'node:assert/strict'
import { createLimiter, fixedWindow, type LimiterOptions, tokenBucket, tryAcquireAll } from '@sluice/core'
import { type CounterStoreOptions, counterStore } from '@sluice/core/store'
import { manualClock, storeContract } from '@sluice/core/testing'
import { describe, expect, test } from 'vitest'
import { memoryCounter } from '../support/counter.js'

const TEN = fixedWindow({ limit: 10, window: '1h' })

storeContract(
  {
    name: 'counterStore',
    open: () => {
      const { counts: _, ...callbacks } = memoryCounter()
      return counterStore(callbacks)
    },
    algorithms: { fixedWindow: [7, 4, 11].map(limit => fixedWindow({ limit, window: '1h' })) },
    without: ['release'],
    ownClock: true,
  },
  { test, assert },
)

/** A limiter of 10 permits an hour on a counter in memory. `callbacks` replaces or removes some of its callbacks. */
function setUp(callbacks: Partial<CounterStoreOptions> = {}, options: LimiterOptions = {}) {
  const counter = memoryCounter()
  const { counts, ...defaults } = counter
  const clock = manualClock()
  const store = counterStore({ ...defaults, ...callbacks })
  const limiter = createLimiter(TEN, { name: 'n', clock, ...options, store })
  return { counter, counts, clock, store, limiter }
}

const ignored = async () => {}

describe('concurrent calls', () => {
  test('are granted 10 of 25 times at a limit of 10, and the counter ends at 10', async () => {
    const { limiter, counts } = setUp()
    const decisions = await Promise.all(Array.from({ length: 25 }, () => limiter.tryAcquire('ann')))
    expect(decisions.filter(({ allowed }) => allowed)).toHaveLength(10)
    expect(counts).toEqual(new Map([['n:ann', 10]]))
  })

  test('never get more than the limit together, at any costs', async () => {
    const { limiter, counts } = setUp()
    const costs = [3, 9, 1, 4, 1, 5, 2, 6, 1]
    const decisions = await Promise.all(costs.map(cost => limiter.tryAcquire('ann', { cost })))
    const granted = costs.filter((_, index) => decisions[index]?.allowed)
    const sum = granted.reduce((sum, cost) => sum + cost, 0)
    expect(sum).toBeLessThanOrEqual(10)
    expect(counts.get('n:ann')).toBe(sum)
  })

  test('are counted once each, and without undo refused calls stay counted', async () => {
    const { limiter, counts } = setUp({ undo: undefined })
    const decisions = await Promise.all(Array.from({ length: 25 }, () => limiter.tryAcquire('ann')))
    expect(decisions.filter(({ allowed }) => allowed)).toHaveLength(10)
    expect(counts.get('n:ann')).toBe(25)
  })
})

describe('figures', () => {
  test('come from the counter', async () => {
    const { limiter } = setUp({ hit: async () => ({ used: 4, resetAfterMs: 1234.5 }) })
    const { allowed, limit, remaining, retryAfterMs, resetAfterMs } = await limiter.tryAcquire('ann')
    expect({ allowed, limit, remaining, retryAfterMs, resetAfterMs }).toEqual({
      allowed: true,
      limit: 10,
      remaining: 6,
      retryAfterMs: 0,
      resetAfterMs: 1234.5,
    })
  })

  test('of a refusal exclude the cost of the refused call', async () => {
    const { limiter } = setUp({ hit: async () => ({ used: 12, resetAfterMs: 500 }) })
    const { allowed, remaining, retryAfterMs } = await limiter.tryAcquire('ann', { cost: 5 })
    expect({ allowed, remaining, retryAfterMs }).toEqual({ allowed: false, remaining: 3, retryAfterMs: 500 })
  })

  test.each([
    ['a window that has just ended', -3, 1],
    ['a window whose end is unknown', undefined, 3_600_000],
  ])('%s: retryAfterMs of a refused call', async (_, resetAfterMs, expected) => {
    const { limiter } = setUp({ hit: async () => ({ used: 11, resetAfterMs }) })
    expect((await limiter.tryAcquire('ann')).retryAfterMs).toBe(expected)
  })

  test('a cost above the limit is refused forever, and not counted', async () => {
    const { limiter, counts } = setUp()
    await limiter.tryAcquire('ann', { cost: 4 })
    const { allowed, remaining, retryAfterMs } = await limiter.tryAcquire('ann', { cost: 11 })
    expect({ allowed, remaining, retryAfterMs }).toEqual({
      allowed: false,
      remaining: 6,
      retryAfterMs: Infinity,
    })
    expect(counts.get('n:ann')).toBe(4)
  })

  test('without read, peek and calls of cost 0 report that nothing remains', async () => {
    const { limiter } = setUp({ read: undefined })
    const free = await limiter.tryAcquire('ann', { cost: 0 })
    const tooMuch = await limiter.tryAcquire('ann', { cost: 11 })
    expect([free, tooMuch].map(({ allowed, remaining }) => ({ allowed, remaining }))).toEqual([
      { allowed: true, remaining: 0 },
      { allowed: false, remaining: 0 },
    ])
  })

  test('a window below one millisecond is rounded up to one', async () => {
    const windows: number[] = []
    const { store } = setUp({
      hit: async (_key, _cost, windowMs) => {
        windows.push(windowMs)
        return { used: 1 }
      },
    })
    await createLimiter(fixedWindow({ limit: 1, window: 0.5 }), { name: 'short', store }).tryAcquire('ann')
    expect(windows).toEqual([1])
  })
})

describe('giving permits back', () => {
  test.each(['refund', 'cancel'] as const)('%s gives permits back once', async verb => {
    const { limiter, counts } = setUp()
    const booking = await limiter.reserve('ann', { cost: 4, maxWait: 0 })
    expect([await booking[verb](), await booking[verb]()]).toEqual([4, 0])
    expect(counts.get('n:ann')).toBe(0)
  })

  test('gives nothing back without undo', async () => {
    const { limiter } = setUp({ undo: undefined })
    expect(await (await limiter.reserve('ann', { maxWait: 0 })).refund()).toBe(0)
  })

  test('gives nothing back if the end of the window is unknown, because the next window may have begun', async () => {
    const { limiter, counts } = setUp({ hit: async () => ({ used: 1 }), undo: async () => assert.fail() })
    expect(await (await limiter.reserve('ann', { maxWait: 0 })).refund()).toBe(0)
    expect(counts.size).toBe(0)
  })

  test.each([
    ['more than a deadline before the window ends', '59.8m', 1],
    ['less than a deadline before it', '60m', 0],
    ['after it', '61m', 0],
  ] as const)('%s', async (_, after, expected) => {
    const { limiter, clock } = setUp({}, { deadline: '10s' })
    const booking = await limiter.reserve('ann', { maxWait: 0 })
    clock.advance(after)
    expect(await booking.refund()).toBe(expected)
  })

  test('gives nothing back after a reset', async () => {
    const { limiter, counts } = setUp()
    const booking = await limiter.reserve('ann', { cost: 4, maxWait: 0 })
    await limiter.reset('ann')
    await limiter.tryAcquire('ann')
    expect(await booking.refund()).toBe(0)
    expect(counts.get('n:ann')).toBe(1)
  })

  test('gives back no permits that were taken during a reset', async () => {
    const { counter, limiter } = setUp()
    const reset = limiter.reset('ann')
    const booking = await limiter.reserve('ann', { maxWait: 0 })
    await reset
    expect(await booking.refund()).toBe(0)
    expect(counter.counts.get('n:ann')).toBe(1)
  })

  test('release throws an error with a code', () => {
    const { limiter } = setUp()
    expect(() => limiter.release('ann', 1)).toThrow(
      expect.objectContaining({ code: 'SLUICE_INVALID_OPTION', option: 'release' }),
    )
  })
})

describe('drain', () => {
  test.each([
    ['', {}],
    [' without read', { read: undefined }],
  ])('takes the remaining permits%s', async (_, callbacks) => {
    const { limiter, counts } = setUp(callbacks)
    await limiter.tryAcquire('ann', { cost: 7 })
    expect([await limiter.drain('ann'), await limiter.drain('ann')]).toEqual([3, 0])
    expect(counts.get('n:ann')).toBe(10)
  })

  test('and concurrent calls take the limit together', async () => {
    const { limiter, counts } = setUp()
    const [first, drained, last] = await Promise.all([
      limiter.tryAcquire('ann', { cost: 3 }),
      limiter.drain('ann'),
      limiter.tryAcquire('ann'),
    ])
    expect(drained + (first.allowed ? 3 : 0) + (last.allowed ? 1 : 0)).toBeLessThanOrEqual(10)
    expect(counts.get('n:ann')).toBeLessThanOrEqual(10)
  })
})

describe('blocks are kept in this process', () => {
  test('a blocked key is refused without a call to the counter', async () => {
    const { limiter, counts, clock } = setUp()
    await limiter.block('ann', '1m')
    const { allowed, code, retryAfterMs } = await limiter.tryAcquire('ann')
    expect({ allowed, code, retryAfterMs }).toEqual({
      allowed: false,
      code: 'SLUICE_BLOCKED',
      retryAfterMs: 60_000,
    })
    expect([await limiter.drain('ann'), counts.size]).toEqual([0, 0])
    clock.advance('1m')
    expect((await limiter.tryAcquire('ann')).allowed).toBe(true)
  })

  test.each(['unblock', 'reset'] as const)('%s ends a block', async verb => {
    const { limiter } = setUp()
    await limiter.block('ann', '1m')
    await limiter[verb]('ann')
    expect((await limiter.tryAcquire('ann')).allowed).toBe(true)
  })
})

describe('a missing callback', () => {
  test.each([
    ['read', 'peek', (limiter: ReturnType<typeof setUp>['limiter']) => limiter.peek('ann')],
    [
      'read',
      'tryAcquireAll',
      (limiter: ReturnType<typeof setUp>['limiter']) =>
        tryAcquireAll([
          { limiter, key: 'ann' },
          { limiter, key: 'bob' },
        ]),
    ],
    ['forget', 'reset', (limiter: ReturnType<typeof setUp>['limiter']) => limiter.reset('ann')],
  ] as const)('%s: %s is a coded error, and no failure of the store', async (option, _, call) => {
    const { limiter } = setUp({ [option]: undefined }, { onStoreError: 'allow' })
    expect(() => call(limiter)).toThrow(expect.objectContaining({ code: 'SLUICE_INVALID_OPTION', option }))
    expect(limiter.stats().storeErrors).toBe(0)
  })
})

const NONSENSE: readonly unknown[] = [
  undefined,
  null,
  3,
  '3',
  {},
  { used: '1' },
  { used: Number.NaN },
  { used: -1 },
  { used: 1.5 },
  { used: Infinity },
  { used: 1, resetAfterMs: Number.NaN },
  { used: 1, resetAfterMs: '1000' },
  { used: 1, resetAfterMs: Infinity },
  { used: 1, resetAfterMs: null },
]

describe('a callback that returns no count is a failed call', () => {
  test.each([...NONSENSE, { used: 0 }].map(value => [value]))('hit: %j', async value => {
    const { limiter } = setUp({ hit: async () => value as never })
    await expect(limiter.tryAcquire('ann')).rejects.toMatchObject({ code: 'SLUICE_STORE_ERROR' })
    expect(limiter.stats().storeErrors).toBe(1)
  })

  test.each(NONSENSE.slice(1).map(value => [value]))('read: %j', async value => {
    const { limiter } = setUp({ read: async () => value as never })
    await expect(limiter.peek('ann')).rejects.toMatchObject({ code: 'SLUICE_STORE_ERROR' })
  })

  test.each([
    ['allow', true],
    ['refuse', false],
  ] as const)('and onStoreError %s decides', async (onStoreError, allowed) => {
    const { limiter } = setUp({ hit: async () => ({ used: Number.NaN }) }, { onStoreError })
    expect(await limiter.tryAcquire('ann')).toMatchObject({ allowed, code: 'SLUICE_STORE_ERROR' })
  })
})

describe('a callback that fails', () => {
  const error = new Error('down')
  test.each([
    ['rejects', () => Promise.reject(error)],
    [
      'throws',
      () => {
        throw error
      },
    ],
  ])('%s: the error is the cause', async (_, hit) => {
    const { limiter } = setUp({ hit })
    await expect(limiter.tryAcquire('ann')).rejects.toMatchObject({
      code: 'SLUICE_STORE_ERROR',
      cause: error,
    })
  })

  test('undo after a refusal: the call is refused, and the error is reported', async () => {
    const { limiter } = setUp({ undo: () => Promise.reject(error) }, { onStoreError: 'allow' })
    expect((await limiter.tryAcquire('ann', { cost: 10 })).allowed).toBe(true)
    expect((await limiter.tryAcquire('ann')).allowed).toBe(false)
    expect(limiter.stats().storeErrors).toBe(1)
  })

  test('undo of a refund: the refund fails, and is not repeated', async () => {
    const { limiter } = setUp({ undo: () => Promise.reject(error) })
    const booking = await limiter.reserve('ann', { maxWait: 0 })
    await expect(booking.refund()).rejects.toMatchObject({ code: 'SLUICE_STORE_ERROR', cause: error })
    expect(await booking.refund()).toBe(0)
  })
})

describe('invalid options', () => {
  const { counts: _, ...callbacks } = memoryCounter()

  test.each([
    ['an unknown callback', { ...callbacks, increment: ignored }, TypeError, 'increment'],
    ['no hit', { read: callbacks.read }, TypeError, 'hit'],
    ['a hit that is not a function', { hit: 5 }, TypeError, 'hit'],
    ['a read that is not a function', { ...callbacks, read: null }, TypeError, 'read'],
    ['an undo that is not a function', { ...callbacks, undo: true }, TypeError, 'undo'],
    ['a forget that is not a function', { ...callbacks, forget: 'del' }, TypeError, 'forget'],
    ['a deadline of 0', { ...callbacks, deadline: 0 }, RangeError, 'deadline'],
    ['an unknown onStoreError', { ...callbacks, onStoreError: 'local' }, TypeError, 'onStoreError'],
    ['no object', undefined, TypeError, 'counterStore options'],
  ])('%s', async (_, options, ErrorType, option) => {
    const make = () => counterStore(options as never)
    expect(make).toThrow(ErrorType)
    expect(make).toThrow(expect.objectContaining({ option }))
  })

  test.each([
    [
      'an algorithm other than fixedWindow',
      tokenBucket({ limit: 1, window: '1s' }),
      'algorithm',
      "expected fixedWindow, the only one that counterStore runs, got 'token-bucket'",
    ],
    [
      'a fixedWindow aligned to the epoch',
      fixedWindow({ limit: 1, window: '1s', align: 'epoch' }),
      'align',
      "expected 'first', because the counter decides when windows start, got 'epoch'",
    ],
  ])('%s, also in update', (_, algorithm, option, message) => {
    const store = counterStore(callbacks)
    const expected = expect.objectContaining({
      code: 'SLUICE_INVALID_OPTION',
      option,
      message: expect.stringContaining(`${option}: ${message}`),
    })
    expect(() => createLimiter(algorithm, { name: 'n', store })).toThrow(expected)
    const limiter = createLimiter(TEN, { name: 'n', store })
    expect(() => limiter.update(algorithm)).toThrow(expected)
  })

  test('a limiter without a name', () => {
    expect(() => createLimiter(TEN, { store: counterStore(callbacks) })).toThrow(
      expect.objectContaining({ code: 'SLUICE_INVALID_OPTION', option: 'name' }),
    )
  })
})
