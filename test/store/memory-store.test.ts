import { AsyncLocalStorage } from 'node:async_hooks'
import { setImmediate as nextTurn } from 'node:timers/promises'
import {
  createLimiter,
  type MemoryStoreOptions,
  memoryStore,
  type TokenBucketOptions,
  tokenBucket,
} from '@sluice/core'
import { manualClock } from '@sluice/core/testing'
import fc from 'fast-check'
import { afterEach, describe, expect, test, vi } from 'vitest'
import { Cursor, PAGE_SLOTS, type Page, Slots } from '../../packages/core/src/store/memory/slots.js'

const MB = 2 ** 20

function setUp(bucket: TokenBucketOptions, storeOptions: MemoryStoreOptions = {}) {
  const clock = manualClock()
  const store = memoryStore(storeOptions)
  const limiter = createLimiter(tokenBucket(bucket), { store, clock })
  return { clock, store, limiter }
}

function collectGarbage(): void {
  if (globalThis.gc === undefined) throw new Error('these tests need node --expose-gc')
  globalThis.gc()
}

/** The size of the heap, and of the array buffers and external strings that it keeps alive. */
async function memoryInUse(): Promise<number> {
  // Memory outside the heap, and objects behind weak references, are freed between turns of the event loop.
  for (let turn = 0; turn < 3; turn++) {
    await nextTurn()
    collectGarbage()
  }
  const { heapUsed, external } = process.memoryUsage()
  return heapUsed + external
}

/** Makes enough calls to sweep over `slots` slots. They change nothing, and their key is never stored. */
function callsThatSweep(limiter: ReturnType<typeof setUp>['limiter'], slots: number): void {
  for (let i = 0; i < slots + 128; i++) limiter.peek('never held')
}

describe('maxKeys', () => {
  test('is a bound at every moment', () => {
    const { store, limiter } = setUp({ limit: 100, window: '1h' }, { maxKeys: 50 })
    for (let i = 0; i < 500; i++) {
      expect(limiter.tryAcquire(`key ${i}`).allowed).toBe(true)
      expect(store.size).toBe(Math.min(i + 1, 50))
    }
  })

  test('is a bound for any calls', () => {
    const act = fc.record({
      verb: fc.constantFrom('tryAcquire', 'reserve', 'peek', 'reset', 'advance', 'update', 'sweep'),
      key: fc.integer({ min: 0, max: 30 }),
      cost: fc.integer({ min: 0, max: 4 }),
    })
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 12 }), fc.array(act, { maxLength: 200 }), (maxKeys, acts) => {
        const { clock, store, limiter } = setUp({ limit: 3, window: '1s' }, { maxKeys, onFull: 'refuse' })
        for (const { verb, key, cost } of acts) {
          if (verb === 'tryAcquire') limiter.tryAcquire(`key ${key}`, { cost })
          else if (verb === 'reserve') limiter.reserve(`key ${key}`, { cost })
          else if (verb === 'peek') limiter.peek(`key ${key}`, { cost })
          else if (verb === 'reset') limiter.reset(`key ${key}`)
          else if (verb === 'advance') clock.advance(key * 100)
          else if (verb === 'update') limiter.update(tokenBucket({ limit: cost + 1, window: '1s' }))
          else store.sweep()
          expect(store.size).toBeLessThanOrEqual(maxKeys)
        }
      }),
    )
  })

  test('of one keeps the newest key', () => {
    const { store, limiter } = setUp({ limit: 2, window: '1h' }, { maxKeys: 1 })
    limiter.tryAcquire('ann')
    limiter.tryAcquire('bob')
    expect(store.size).toBe(1)
    expect(limiter.peek('bob').remaining).toBe(1)
    expect(limiter.peek('ann').remaining).toBe(2)
  })

  test('bounds the keys of each limiter of a store separately', () => {
    const clock = manualClock()
    const store = memoryStore({ maxKeys: 3 })
    const one = createLimiter(tokenBucket({ limit: 2, window: '1h' }), { store, clock, name: 'one' })
    const two = createLimiter(tokenBucket({ limit: 2, window: '1h' }), { store, clock, name: 'two' })
    for (let i = 0; i < 10; i++) one.tryAcquire(`key ${i}`)
    expect(store.size).toBe(3)
    for (let i = 0; i < 10; i++) two.tryAcquire(`key ${i}`)
    expect(store.size).toBe(6)
  })

  test('does not count keys of calls that change nothing', () => {
    const { store, limiter } = setUp({ limit: 5, window: '1m' })
    limiter.peek('ann')
    limiter.tryAcquire('ann', { cost: 0 })
    limiter.reserve('ann', { cost: 0 })
    limiter.tryAcquire('ann', { cost: 6 })
    limiter.reset('ann')
    expect(store.size).toBe(0)
    limiter.tryAcquire('ann')
    expect(store.size).toBe(1)
    limiter.reset('ann')
    expect(store.size).toBe(0)
  })
})

describe('a flood of new keys', () => {
  test('leaves a blocked key blocked', () => {
    const maxKeys = 1000
    const { store, limiter } = setUp({ limit: 10, window: '1h' }, { maxKeys })
    limiter.tryAcquire('blocked', { cost: 10 })
    for (let i = 0; i < 10 * maxKeys; i++) {
      expect(limiter.tryAcquire(`flood ${i}`).allowed).toBe(true)
      if (i % 100 === 0) expect(limiter.peek('blocked').allowed).toBe(false)
    }
    expect(store.size).toBe(maxKeys)
    expect(limiter.tryAcquire('blocked')).toMatchObject({ allowed: false, remaining: 0 })
  })

  test('does not evict a key that has booked ahead', () => {
    const maxKeys = 200
    const { limiter } = setUp({ limit: 10, window: '1h' }, { maxKeys })
    limiter.reserve('booked', { cost: 10 })
    limiter.reserve('booked', { cost: 10 })
    for (let i = 0; i < 10 * maxKeys; i++) limiter.tryAcquire(`flood ${i}`)
    expect(limiter.peek('booked').balance).toBe(-10)
  })

  test('needs no more memory than the stored keys', async () => {
    const maxKeys = 20_000
    const { store, limiter } = setUp({ limit: 10, window: '1h' }, { maxKeys })
    const flood = (from: number, to: number) => {
      for (let i = from; i < to; i++) limiter.tryAcquire(`flood from the address ${i}`)
    }
    flood(0, 5 * maxKeys)
    const halfWay = await memoryInUse()
    flood(5 * maxKeys, 10 * maxKeys)
    expect(store.size).toBe(maxKeys)
    // Keeping the second half (100,000 keys of 60 bytes and their strings) would need 8 MB and more.
    expect((await memoryInUse()) - halfWay).toBeLessThan(3 * MB)
  })
})

describe('a full store', () => {
  const warnings: Error[] = []
  const noteWarning = (warning: Error) => void warnings.push(warning)

  afterEach(() => {
    process.off('warning', noteWarning)
    warnings.length = 0
  })

  test('forgets the least loaded key', () => {
    const { limiter } = setUp({ limit: 10, window: '1h' }, { maxKeys: 4 })
    limiter.tryAcquire('nine', { cost: 9 })
    limiter.tryAcquire('five', { cost: 5 })
    limiter.tryAcquire('one', { cost: 1 })
    limiter.tryAcquire('seven', { cost: 7 })
    limiter.tryAcquire('new', { cost: 8 })
    expect(limiter.peek('one').remaining).toBe(10)
    limiter.tryAcquire('newer', { cost: 6 })
    expect(limiter.peek('five').remaining).toBe(10)
    expect(['nine', 'seven', 'new', 'newer'].map(key => limiter.peek(key).remaining)).toEqual([1, 3, 2, 4])
  })

  test('forgets by load and not by age', () => {
    const { clock, limiter } = setUp({ limit: 10, window: '10s' }, { maxKeys: 2 })
    limiter.tryAcquire('old and blocked', { cost: 10 })
    clock.advance(900)
    limiter.tryAcquire('young and light', { cost: 1 })
    limiter.tryAcquire('new')
    expect(limiter.peek('old and blocked').allowed).toBe(false)
    expect(limiter.peek('young and light').remaining).toBe(10)
  })

  test('forgets a full key before any key in use', () => {
    const { clock, limiter } = setUp({ limit: 10, window: '10s' }, { maxKeys: 3 })
    limiter.tryAcquire('rested', { cost: 2 })
    clock.advance('2s')
    limiter.tryAcquire('light')
    limiter.tryAcquire('heavy', { cost: 9 })
    limiter.tryAcquire('new')
    expect(limiter.peek('light').remaining).toBe(9)
    expect(limiter.peek('heavy').remaining).toBe(1)
  })

  test("with onFull 'refuse' refuses a new key while all stored keys are being refused, and forgets none", () => {
    const keys = ['a', 'b', 'c', 'd']
    const { clock, store, limiter } = setUp({ limit: 1, window: '1m' }, { maxKeys: 4, onFull: 'refuse' })
    for (const key of keys) {
      limiter.tryAcquire(key)
      clock.advance('1s')
    }
    const refused = limiter.tryAcquire('new')
    expect(refused).toMatchObject({
      allowed: false,
      limit: 1,
      remaining: 0,
      waitMs: 56_000,
      retryAfterMs: 56_000,
    })
    expect(limiter.reserve('new').allowed).toBe(false)
    expect(store.size).toBe(4)
    for (const key of keys) expect(limiter.peek(key).allowed).toBe(false)

    clock.advance(refused.retryAfterMs - 0.001)
    expect(limiter.tryAcquire('new').allowed).toBe(false)
    clock.advance(0.001)
    expect(limiter.tryAcquire('new').allowed).toBe(true)
    expect(store.size).toBe(4)
    for (const key of ['b', 'c', 'd', 'new']) expect(limiter.peek(key).allowed).toBe(false)
  })

  test("with onFull 'refuse' serves the stored keys", () => {
    const { limiter } = setUp({ limit: 2, window: '1m' }, { maxKeys: 2, onFull: 'refuse' })
    limiter.tryAcquire('a', { cost: 2 })
    limiter.tryAcquire('b', { cost: 2 })
    expect(limiter.tryAcquire('new').allowed).toBe(false)
    expect(limiter.reserve('a').waitMs).toBe(30_000)
    expect(limiter.tryAcquire('new', { cost: 0 }).allowed).toBe(true)
    limiter.reset('b')
    expect(limiter.tryAcquire('new').allowed).toBe(true)
  })

  test("with onFull 'refuse' still forgets a key that is not being refused", () => {
    const { store, limiter } = setUp({ limit: 2, window: '1m' }, { maxKeys: 2, onFull: 'refuse' })
    limiter.tryAcquire('a', { cost: 2 })
    limiter.tryAcquire('b', { cost: 1 })
    expect(limiter.tryAcquire('new').allowed).toBe(true)
    expect(store.size).toBe(2)
    expect(limiter.peek('a').allowed).toBe(false)
    expect(limiter.peek('b').remaining).toBe(2)
  })

  test("a new key refused by onFull 'refuse' is granted at its retryAfterMs and not before", () => {
    const { clock, limiter } = setUp({ limit: 2, window: '1m' }, { maxKeys: 2, onFull: 'refuse' })
    limiter.tryAcquire('a', { cost: 2 })
    limiter.tryAcquire('b', { cost: 2 })
    const { retryAfterMs } = limiter.tryAcquire('new')
    clock.advance(retryAfterMs - 0.001)
    expect(limiter.tryAcquire('new').allowed).toBe(false)
    clock.advance(0.001)
    expect(limiter.tryAcquire('new').allowed).toBe(true)
  })

  test("a new key refused by onFull 'refuse' in a store of many keys is granted at its retryAfterMs", () => {
    const { clock, store, limiter } = setUp({ limit: 1, window: '1h' }, { maxKeys: 100, onFull: 'refuse' })
    for (let i = 0; i < 100; i++) {
      limiter.tryAcquire(`key ${i}`)
      clock.advance('1s')
    }
    const { allowed, retryAfterMs } = limiter.tryAcquire('new')
    expect(allowed).toBe(false)
    expect(retryAfterMs).toBeLessThanOrEqual(3_600_000)
    expect(store.size).toBe(100)
    clock.advance(retryAfterMs)
    expect(limiter.tryAcquire('new').allowed).toBe(true)
  })

  test("peek returns the decision of tryAcquire, also for a new key under onFull 'refuse'", () => {
    const { limiter } = setUp({ limit: 1, window: '1m' }, { maxKeys: 1, onFull: 'refuse' })
    limiter.tryAcquire('a')
    const peeked = limiter.peek('new')
    expect(peeked.toJSON()).toEqual(limiter.tryAcquire('new').toJSON())
  })

  test('forgets a refused key by default, and warns once with a code', async () => {
    // A fresh copy of the modules: the warning is given once per process.
    vi.resetModules()
    const fresh = await import('@sluice/core')
    const clock = manualClock()
    const bucket = fresh.tokenBucket({ limit: 1, window: '1h' })
    const open = (maxKeys: number) =>
      fresh.createLimiter(bucket, { store: fresh.memoryStore({ maxKeys }), clock })
    process.on('warning', noteWarning)
    const limiter = open(3)
    for (const key of ['a', 'b', 'c']) limiter.tryAcquire(key)
    await nextTurn()
    expect(warnings).toEqual([])

    for (const key of ['d', 'e', 'f', 'g']) expect(limiter.tryAcquire(key).allowed).toBe(true)
    const another = open(1)
    for (const key of ['a', 'b']) another.tryAcquire(key)
    await nextTurn()
    expect(warnings).toMatchObject([{ name: 'SluiceWarning', code: 'SLUICE_FORGOT_REFUSED_KEY' }])
    expect(warnings[0]?.message).toContain('maxKeys 3')
    expect(warnings[0]?.message).toContain("onFull: 'refuse'")
  })
})

describe('forgetting full keys', () => {
  test.each([
    { name: 'a window of a minute: a minute after they came to rest', window: '1m', keptMs: 120_000 },
    { name: 'a window below a second: a second after they came to rest', window: '100ms', keptMs: 1100 },
  ] as const)('$name', ({ window, keptMs }) => {
    const { clock, store, limiter } = setUp({ limit: 1, window })
    for (let i = 0; i < 300; i++) limiter.tryAcquire(`key ${i}`)
    clock.advance(keptMs - 0.001)
    callsThatSweep(limiter, 600)
    expect(store.size).toBe(300)
    clock.advance(0.001)
    callsThatSweep(limiter, 600)
    expect(store.size).toBe(0)
  })

  test('keeps the keys in use', () => {
    const { clock, store, limiter } = setUp({ limit: 2, window: '1s' })
    for (let i = 0; i < 300; i++) limiter.tryAcquire(`key ${i}`)
    limiter.reserve('busy', { cost: 2 })
    limiter.reserve('busy', { cost: 2 })
    limiter.reserve('busy', { cost: 2 })
    clock.advance(1500)
    callsThatSweep(limiter, 602)
    expect(store.size).toBe(1)
    expect(limiter.peek('busy').balance).toBe(-1)
  })

  test('keeps up with a stream of keys that are used once', () => {
    const { clock, store, limiter } = setUp({ limit: 1, window: '1s' })
    let most = 0
    for (let i = 0; i < 100_000; i++) {
      limiter.tryAcquire(`key ${i}`)
      clock.advance(1)
      most = Math.max(most, store.size)
    }
    // 2,000 keys are younger than the time to refill and a window. One round of the sweep adds at most a part of those.
    expect(most).toBeGreaterThanOrEqual(2000)
    expect(most).toBeLessThan(4000)
  })

  test('happens during calls, without timers', () => {
    // In one turn of the event loop, so that no other timer starts or ends.
    const timersBefore = process.getActiveResourcesInfo().length
    const { clock, store, limiter } = setUp({ limit: 1, window: '1s' })
    for (let i = 0; i < 100; i++) limiter.reserve(`key ${i}`)
    limiter.reserve('key 1', { maxWait: '1h' })
    limiter.update(tokenBucket({ limit: 2, window: '1s' }))
    clock.advance('1m')
    expect(store.size).toBe(100)
    callsThatSweep(limiter, 200)
    expect(store.size).toBe(0)
    expect(process.getActiveResourcesInfo().length).toBe(timersBefore)
  })

  test('one sweep forgets 100,000 keys two windows later (S42, nestjs/throttler#2665)', () => {
    const { clock, store, limiter } = setUp({ limit: 1, window: '1m' })
    for (let i = 0; i < 100_000; i++) limiter.tryAcquire(`key ${i}`)
    expect(store.size).toBe(100_000)
    store.sweep()
    expect(store.size).toBe(100_000)
    clock.advance('2m')
    store.sweep()
    expect(store.size).toBe(0)
  })

  test('frees the memory', async () => {
    const { clock, store, limiter } = setUp({ limit: 1, window: '1m' })
    limiter.tryAcquire('first')
    const before = await memoryInUse()
    for (let i = 0; i < 90_000; i++) limiter.tryAcquire(`a key of some length ${i}`)
    expect((await memoryInUse()) - before).toBeGreaterThan(4 * MB)
    clock.advance('2m')
    store.sweep()
    expect((await memoryInUse()) - before).toBeLessThan(MB)
    expect(limiter.peek('first').remaining).toBe(1)
  })

  test('does not change the decisions for a forgotten key', () => {
    const { clock, store, limiter } = setUp({ limit: 3, window: '3s' })
    limiter.tryAcquire('ann', { cost: 3 })
    clock.advance('1m')
    const kept = limiter.peek('ann').toJSON()
    store.sweep()
    expect(store.size).toBe(0)
    expect(limiter.peek('ann').toJSON()).toEqual(kept)
  })
})

describe('keys', () => {
  test.each(['__proto__', 'constructor', 'toString', 'hasOwnProperty'])(
    '%s is a key like any other (S29, ysocorp/koa2-ratelimit 1.1.3)',
    key => {
      const { store, limiter } = setUp({ limit: 2, window: '1m' })
      const answers = [1, 2, 3].map(() => limiter.tryAcquire(key).allowed)
      expect(answers).toEqual([true, true, false])
      expect(store.size).toBe(1)
      limiter.reset(key)
      expect(limiter.peek(key).remaining).toBe(2)
    },
  )

  const long = 'x'.repeat(128)
  const alike: readonly (readonly [string, readonly string[]])[] = [
    [
      'up to and above 128 bytes',
      [long, `${long}x`, `${long}y`, `y${long}`, long.repeat(1000), `${long.repeat(1000)}x`],
    ],
    [
      'with several bytes a character',
      ['é'.repeat(64), 'é'.repeat(65), 'é'.repeat(66), '水'.repeat(42), '水'.repeat(43), '😀'.repeat(33)],
    ],
    ['in different Unicode normal forms', [`${long}\u00e9`, `${long}e\u0301`, '\u00e9', 'e\u0301']],
    [
      'with lone surrogates',
      [
        '\ud800',
        '\ud801',
        '\udc00',
        '\ufffd',
        `${long}\ud800`,
        `${long}\ud801`,
        `${long}\udc00`,
        `${long}\ufffd`,
      ],
    ],
    [
      'that start with NUL',
      ['\0', '\0\0', '\0a', 'a', 'a\0', '\0\ud800', '\0\ud801', '\0\ufffd', `\0${long}`, `\0${long}x`],
    ],
    ['with spaces and punctuation', [' ', '  ', 'a ', ' a', 'a\n', 'a:b', 'a:b:', ':', '{a}', '%00']],
  ]
  test.each(alike)('keys %s are distinct', (_, keys) => {
    const { store, limiter } = setUp({ limit: keys.length, window: '1m' })
    keys.forEach((key, index) => {
      limiter.tryAcquire(key, { cost: index + 1 })
    })
    expect(store.size).toBe(keys.length)
    keys.forEach((key, index) => {
      expect(limiter.peek(key).remaining).toBe(keys.length - index - 1)
    })
    for (const key of keys) limiter.reset(key)
    expect(store.size).toBe(0)
  })

  test('a long key is limited, booked, given back and reset like a short one', () => {
    const { limiter } = setUp({ limit: 2, window: '2s' })
    const key = 'häuser/'.repeat(1000)
    limiter.tryAcquire(key, { cost: 2 })
    const booking = limiter.reserve(key)
    expect(booking.waitMs).toBe(1000)
    expect(booking.cancel()).toBe(1)
    expect(limiter.tryAcquire(key).allowed).toBe(false)
    limiter.reset(key)
    expect(limiter.tryAcquire(key).allowed).toBe(true)
  })

  test('no key collides with the stored hash of a longer key', () => {
    const { store, limiter } = setUp({ limit: 1, window: '1m' })
    const lookedUp: unknown[] = []
    const set = vi.spyOn(Map.prototype, 'set').mockImplementation(function (
      this: Map<unknown, unknown>,
      key,
      value,
    ) {
      lookedUp.push(key)
      set.mockRestore()
      return this.set(key, value)
    })
    limiter.tryAcquire(long.repeat(2))
    set.mockRestore()
    const [held] = lookedUp
    if (typeof held !== 'string') throw new Error('the store does not hold its keys in a Map any more')
    expect(Buffer.byteLength(held)).toBeLessThanOrEqual(128)
    expect(store.size).toBe(1)
    expect(limiter.tryAcquire(held).allowed).toBe(true)
    expect(store.size).toBe(2)
  })

  test('any two different strings are two keys', () => {
    const text = fc.oneof(
      fc.string({ unit: 'binary', minLength: 1, maxLength: 200 }),
      fc.string({ unit: fc.constantFrom('\0', 'a', '\ud800', '\udc00', 'é'), minLength: 1, maxLength: 60 }),
    )
    fc.assert(
      fc.property(fc.uniqueArray(text, { minLength: 2, maxLength: 20 }), keys => {
        const { store, limiter } = setUp({ limit: 1, window: '1m' })
        for (const key of keys) expect(limiter.tryAcquire(key).allowed).toBe(true)
        expect(store.size).toBe(keys.length)
        for (const key of keys) expect(limiter.tryAcquire(key).allowed).toBe(false)
      }),
    )
  })

  test('a key sliced from a long string does not keep that string in memory', async () => {
    const texts = 60
    /** Twenty characters, sliced from a string of about a megabyte. */
    const cutKey = (number: number) => {
      const header = Buffer.alloc(MB - 20_000, 'h')
      header.write(String(number).padStart(20, '0'), 1000, 'latin1')
      return header.toString('latin1').slice(1000, 1020)
    }
    const { store, limiter } = setUp({ limit: 1, window: '1h' })
    limiter.tryAcquire('warm up')
    const before = await memoryInUse()
    for (let i = 0; i < texts; i++) limiter.tryAcquire(cutKey(i))
    const grownBy = (await memoryInUse()) - before
    expect(store.size).toBe(texts + 1)
    expect(grownBy).toBeLessThan(5 * MB)
    expect(limiter.peek('7'.padStart(20, '0')).allowed).toBe(false)

    // A check of the measurement: the same slices, stored as they are, do keep the long strings.
    const pieces = Array.from({ length: texts }, (_, i) => cutKey(i))
    expect((await memoryInUse()) - before).toBeGreaterThan((texts / 2) * MB)
    expect(pieces.length).toBe(texts)
  })
})

describe('a store full of keys, some of them being refused', () => {
  /** A full store with a limit of two permits an hour. Key number `i` has taken `taken[i]` permits. */
  function full(taken: readonly number[], onFull: 'forget' | 'refuse') {
    const { clock, limiter } = setUp({ limit: 2, window: '1h' }, { maxKeys: taken.length, onFull })
    const keys = taken.map((_, index) => `k${index}`)
    for (const [index, cost] of taken.entries()) limiter.tryAcquire(`k${index}`, { cost })
    return { clock, limiter, remaining: () => keys.map(key => limiter.peek(key).remaining) }
  }

  const MIXED = [1, 1, 1, 1, 1, 2, 2, 2, 2, 2]

  test('peek of a new key returns the decision of tryAcquire', () => {
    for (const taken of [MIXED, MIXED.toReversed(), MIXED.map(() => 2)]) {
      const { limiter } = full(taken, 'refuse')
      const { allowed, waitMs } = limiter.peek('new')
      expect(limiter.tryAcquire('new')).toMatchObject({ allowed, waitMs })
    }
  })

  test('peek of a new key does not change which key is forgotten', () => {
    const [looked, other] = [full(MIXED, 'forget'), full(MIXED, 'forget')]
    looked.limiter.peek('new')
    for (const { limiter } of [looked, other]) limiter.tryAcquire('new')
    expect(looked.remaining()).toEqual(other.remaining())
  })

  test('a refused new key is refused until its retryAfterMs, and then granted', () => {
    const { clock, limiter } = full([2, 2, 2, 2, 2, 1, 1, 1, 1, 1], 'refuse')
    const { allowed, retryAfterMs } = limiter.tryAcquire('new')
    expect(allowed).toBe(false)
    expect(limiter.tryAcquire('new').allowed).toBe(false)
    clock.advance(retryAfterMs - 0.001)
    expect(limiter.tryAcquire('new').allowed).toBe(false)
    clock.advance(0.001)
    expect(limiter.tryAcquire('new').allowed).toBe(true)
  })
})

describe('two limiters on one store', () => {
  test('keep their own windows (S20, express-rate-limit#326)', () => {
    const clock = manualClock()
    const store = memoryStore()
    const second = createLimiter(tokenBucket({ limit: 1, window: '1s' }), { store, clock, name: 'second' })
    const hour = createLimiter(tokenBucket({ limit: 1, window: '1h' }), { store, clock, name: 'hour' })
    expect([second.tryAcquire('ann').allowed, hour.tryAcquire('ann').allowed]).toEqual([true, true])
    expect([second.tryAcquire('ann').retryAfterMs, hour.tryAcquire('ann').retryAfterMs]).toEqual([
      1000, 3_600_000,
    ])
    clock.advance('1s')
    expect([second.tryAcquire('ann').allowed, hour.tryAcquire('ann').allowed]).toEqual([true, false])
    second.reset('ann')
    expect([second.peek('ann').allowed, hour.peek('ann').allowed]).toEqual([true, false])
    second.update(tokenBucket({ limit: 9, window: '1s' }))
    expect([second.peek('ann').limit, hour.peek('ann').limit]).toEqual([9, 1])
  })

  test('share no count if their joined names and keys are equal (S30, rate-limiter-flexible 11.2.0)', () => {
    const clock = manualClock()
    const store = memoryStore()
    const pairs = [
      ['3x', '12'],
      ['23x', '1'],
      ['a:b', 'c'],
      ['a', 'b:c'],
    ] as const
    const limiters = pairs.map(([name]) =>
      createLimiter(tokenBucket({ limit: 4, window: '1m' }), { store, clock, name }),
    )
    pairs.forEach(([, key], index) => {
      limiters[index]?.tryAcquire(key, { cost: index + 1 })
    })
    expect(pairs.map(([, key], index) => limiters[index]?.peek(key).remaining)).toEqual([3, 2, 1, 0])
    expect(store.size).toBe(4)
  })
})

test('calls do not keep their async context in memory (S40, nestjs/throttler#2629)', async () => {
  const { store, limiter } = setUp({ limit: 10, window: '1h' })
  const context = new AsyncLocalStorage<object>()
  const contexts: WeakRef<object>[] = []
  const check = (number: number) => {
    const big = { payload: new Array(100).fill(number) }
    contexts.push(new WeakRef(big))
    context.run(big, () => {
      limiter.tryAcquire(`key ${number}`)
      limiter.reserve(`key ${number}`)
    })
  }
  for (let i = 0; i < 10_000; i++) check(i)
  // A WeakRef keeps its object until the end of the turn.
  await nextTurn()
  collectGarbage()
  await nextTurn()
  collectGarbage()
  expect(contexts.filter(ref => ref.deref() !== undefined).length).toBe(0)
  expect(store.size).toBe(10_000)
  expect(limiter.peek('key 1').remaining).toBe(8)
})

describe('slots', () => {
  const LANES = 2

  /** Takes a slot and sets its key, as the ledger does. */
  function take(slots: Slots): number {
    const slot = slots.take()
    pageOf(slots, slot).keys[slot % PAGE_SLOTS] = `key ${slot}`
    return slot
  }

  function pageOf(slots: Slots, slot: number): Page {
    const page = slots.pages[Math.floor(slot / PAGE_SLOTS)]
    if (page === undefined) throw new Error(`no page for slot ${slot}`)
    return page
  }

  function takeMany(slots: Slots, count: number): number[] {
    return Array.from({ length: count }, () => take(slots))
  }

  test('are taken from the lowest page first, each once', () => {
    const slots = new Slots(LANES)
    const taken = takeMany(slots, 2 * PAGE_SLOTS + 1)
    expect(new Set(taken).size).toBe(taken.length)
    expect(Math.max(...taken)).toBe(2 * PAGE_SLOTS)
    expect(slots.pages.length).toBe(3)
    expect(pageOf(slots, 0).state.length).toBe(PAGE_SLOTS * LANES)
  })

  test('are taken again after they are given back, from the lowest page with free slots', () => {
    const slots = new Slots(LANES)
    takeMany(slots, 2 * PAGE_SLOTS + 10)
    const freed = [2 * PAGE_SLOTS + 3, PAGE_SLOTS + 7, 5, PAGE_SLOTS + 8]
    for (const slot of freed) slots.giveBack(slot)
    const again = takeMany(slots, 5)
    expect(again[0]).toBe(5)
    expect(again.slice(1, 3).sort()).toEqual([PAGE_SLOTS + 7, PAGE_SLOTS + 8])
    expect(again[3]).toBe(2 * PAGE_SLOTS + 3)
    expect(again[4]).toBe(2 * PAGE_SLOTS + 10)
  })

  test('of an empty page are freed, at the end and in between', () => {
    const slots = new Slots(LANES)
    const taken = takeMany(slots, 4 * PAGE_SLOTS)
    for (const slot of taken.slice(PAGE_SLOTS, 2 * PAGE_SLOTS)) slots.giveBack(slot)
    expect(slots.pages.map(page => page !== undefined)).toEqual([true, false, true, true])
    for (const slot of taken.slice(2 * PAGE_SLOTS)) slots.giveBack(slot)
    expect(slots.pages.length).toBe(1)
    for (const slot of taken.slice(0, PAGE_SLOTS)) slots.giveBack(slot)
    expect(slots.pages.length).toBe(0)
    expect(take(slots)).toBe(0)
  })

  test('keep one empty page, so that a key at the edge of a page does not allocate again and again', () => {
    const slots = new Slots(LANES)
    takeMany(slots, PAGE_SLOTS)
    const edge = take(slots)
    const page = pageOf(slots, edge)
    for (let i = 0; i < 3; i++) {
      slots.giveBack(edge)
      expect(slots.pages.length).toBe(1)
      expect(take(slots)).toBe(edge)
      expect(pageOf(slots, edge)).toBe(page)
    }
  })

  test('are never used twice and leave no empty page, for random calls', () => {
    const act = fc.oneof(
      fc.record({ take: fc.integer({ min: 1, max: 3000 }) }),
      fc.record({
        giveBack: fc.integer({ min: 1, max: 3000 }),
        from: fc.double({ min: 0, max: 1, noNaN: true }),
      }),
    )
    fc.assert(
      fc.property(fc.array(act, { maxLength: 15 }), acts => {
        const slots = new Slots(LANES)
        const inUse: number[] = []
        const usedOf = new Map<number, number>()
        const held = new Set<number>()
        const roomBelow = (slot: number) => {
          for (let page = 0; page < Math.floor(slot / PAGE_SLOTS); page++)
            if ((usedOf.get(page) ?? 0) < PAGE_SLOTS) return true
          return false
        }
        const count = (slot: number, by: number) => {
          const page = Math.floor(slot / PAGE_SLOTS)
          usedOf.set(page, (usedOf.get(page) ?? 0) + by)
        }
        let faults = 0
        for (const step of acts) {
          if ('take' in step) {
            for (let i = 0; i < step.take; i++) {
              const slot = take(slots)
              if (held.has(slot) || roomBelow(slot)) faults++
              // Values that the owner of a slot writes must not affect other slots.
              pageOf(slots, slot).state.fill(
                -7,
                (slot % PAGE_SLOTS) * LANES,
                ((slot % PAGE_SLOTS) + 1) * LANES,
              )
              held.add(slot)
              inUse.push(slot)
              count(slot, 1)
            }
          } else {
            const from = Math.floor(step.from * inUse.length)
            for (const slot of inUse.splice(from, step.giveBack)) {
              slots.giveBack(slot)
              held.delete(slot)
              count(slot, -1)
            }
          }
          expect(faults).toBe(0)
          slots.pages.forEach((page, number) => {
            if (page !== undefined) expect(page.used).toBe(usedOf.get(number))
          })
          const full = [...usedOf].filter(([, used]) => used > 0).map(([page]) => page)
          const present = [...slots.pages.keys()].filter(number => slots.pages[number] !== undefined)
          expect(present).toEqual(full.sort((a, b) => a - b))
        }
      }),
      { numRuns: 50 },
    )
  })

  test('take little memory for few keys, and keep their lanes as the store grows', () => {
    const slots = new Slots(LANES)
    const taken = [slots.take()]
    expect(slots.pages[0]?.state.byteLength).toBeLessThan(4096)
    const write = (slot: number) => {
      const at = (slot % PAGE_SLOTS) * LANES
      pageOf(slots, slot).state.fill(slot, at, at + LANES)
    }
    write(0)
    while (taken.length < PAGE_SLOTS + 1) {
      const slot = slots.take()
      taken.push(slot)
      write(slot)
    }
    for (const slot of taken) {
      const at = (slot % PAGE_SLOTS) * LANES
      expect([...pageOf(slots, slot).state.slice(at, at + LANES)]).toEqual(Array(LANES).fill(slot))
    }
  })

  describe('the cursor', () => {
    test('visits every slot in use within a round, and no free one', () => {
      fc.assert(
        fc.property(
          fc.array(fc.boolean(), { minLength: 1, maxLength: 60 }),
          fc.integer({ min: 1, max: 700 }),
          fc.integer({ min: 0, max: 40 }),
          (kept, perMove, movesBefore) => {
            const slots = new Slots(LANES)
            const taken = takeMany(slots, 3 * PAGE_SLOTS - 100)
            const inUse = new Set(taken)
            for (const slot of taken) {
              if (kept[slot % kept.length]) continue
              slots.giveBack(slot)
              inUse.delete(slot)
            }
            const cursor = new Cursor()
            for (let i = 0; i < movesBefore; i++) cursor.move(slots.pages, perMove, () => false)
            const visited = new Set<number>()
            let wrongPages = 0
            // A whole round and one more move, because the first may start in the middle of a page.
            for (let i = 0; i <= Math.ceil(taken.length / perMove); i++) {
              let visits = 0
              cursor.move(slots.pages, perMove, (page, slot) => {
                if (page !== pageOf(slots, slot)) wrongPages++
                visited.add(slot)
                visits++
                return false
              })
              expect(visits).toBeLessThanOrEqual(perMove)
            }
            expect(wrongPages).toBe(0)
            // Compares arrays, because comparing sets of this size takes seconds.
            expect([...visited].sort((a, b) => a - b)).toEqual([...inUse])
          },
        ),
        { numRuns: 25 },
      )
    })

    test('stops if the callback returns true, and continues behind that slot', () => {
      const slots = new Slots(LANES)
      takeMany(slots, 10)
      const cursor = new Cursor()
      const visited: number[] = []
      for (let i = 0; i < 12; i++)
        cursor.move(slots.pages, Infinity, (_, slot) => {
          visited.push(slot)
          return true
        })
      expect(visited).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1])
    })

    test('ends if there are no slots, and continues after pages were removed', () => {
      const slots = new Slots(LANES)
      const cursor = new Cursor()
      const visited: number[] = []
      const look = () => {
        visited.length = 0
        cursor.move(slots.pages, Infinity, (_, slot) => {
          visited.push(slot)
          return false
        })
      }
      look()
      expect(visited).toEqual([])
      const taken = takeMany(slots, 3 * PAGE_SLOTS)
      cursor.move(slots.pages, 2 * PAGE_SLOTS + 5, () => false)
      for (const slot of taken.slice(1)) slots.giveBack(slot)
      look()
      expect(new Set(visited)).toEqual(new Set([0]))
    })

    test('allows the callback to give back the visited slot', () => {
      const slots = new Slots(LANES)
      takeMany(slots, 3 * PAGE_SLOTS)
      const cursor = new Cursor()
      cursor.move(slots.pages, PAGE_SLOTS + 5, () => false)
      let visits = 0
      cursor.move(slots.pages, Infinity, (_, slot) => {
        slots.giveBack(slot)
        visits++
        return false
      })
      expect(visits).toBe(3 * PAGE_SLOTS)
      expect(slots.pages.length).toBe(0)
    })
  })
})
