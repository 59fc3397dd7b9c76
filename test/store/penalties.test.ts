import {
  type Algorithm,
  type Decision,
  type Ledger,
  type MemoryStoreOptions,
  memoryStore,
  slidingLog,
  tokenBucket,
  unlimited,
} from '@sluice/core'
import { manualClock } from '@sluice/core/testing'
import fc from 'fast-check'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import type { Ladder } from '../../packages/core/src/store/store.js'

const SECOND = 1_000_000
const HOUR = 3600 * SECOND
const DAY = 24 * HOUR

// A full store warns once per process.
beforeEach(() => {
  vi.spyOn(process, 'emitWarning').mockImplementation(() => {})
})
afterEach(() => {
  vi.restoreAllMocks()
})

/** A ledger. It is unlimited by default, so that only penalties refuse. */
function open(algorithm: Algorithm = unlimited(), options: MemoryStoreOptions = {}) {
  const clock = manualClock()
  const store = memoryStore(options)
  const ledger = store.open({ name: 'penalties', algorithm, clock })
  const startUs = clock.nowUs()
  return {
    clock,
    store,
    ledger,
    peek: (key = 'key') => ledger.decide(key, 1, 0, false),
    take: (key = 'key') => ledger.decide(key, 1, 0, true),
    /** Sets the clock to `us` microseconds after the start. */
    at: (us: number) => clock.set((startUs + us) / 1000),
  }
}

function ladder(after: number, ...stepSeconds: number[]): Ladder {
  return { after, stepsUs: stepSeconds.map(seconds => seconds * SECOND) }
}

function isBlocked({ allowed, code }: Decision): boolean {
  return !allowed && code === 'SLUICE_BLOCKED'
}

/** A refusal at `atSecond`, after which the key is blocked for `blockedFor` seconds. */
type Row = readonly [atSecond: number, blockedFor: number]

const TABLES: readonly (readonly [rule: string, ladder: Ladder, rows: readonly Row[]])[] = [
  [
    'blocks for the first step after the given number of refusals',
    ladder(3, 10),
    [
      [0, 0],
      [1, 0],
      [2, 10],
    ],
  ],
  [
    'blocks for the next step after as many again, and repeats the last step',
    ladder(2, 10, 60),
    [
      [0, 0],
      [0, 10],
      [10, 0],
      [10, 60],
      [70, 0],
      [80, 60],
      [140, 0],
      [199.999999, 60],
    ],
  ],
  [
    'blocks at every refusal if the number is 1',
    ladder(1, 1, 2, 4),
    [
      [0, 1],
      [1, 2],
      [3, 4],
      [7, 4],
      [11, 4],
    ],
  ],
  [
    'does not count refusals of a blocked key',
    ladder(2, 10, 60),
    [
      [0, 0],
      [1, 10],
      [2, 9],
      [3, 8],
      [10.999999, 0.000001],
      [11, 0],
      [12, 60],
    ],
  ],
  [
    'forgets refusals when the longest step has passed since the last one',
    ladder(3, 10, 60),
    [
      [0, 0],
      [59.999999, 0],
      [119.999998, 10],
    ],
  ],
  [
    'forgets refusals not a microsecond later',
    ladder(2, 10, 60),
    [
      [0, 0],
      [60, 0],
      [120, 0],
      [179.999999, 10],
    ],
  ],
  [
    'remembers a block for the longest step after its end',
    ladder(1, 10, 60),
    [
      [0, 10],
      [69.999999, 60],
    ],
  ],
  [
    'remembers a block not a microsecond longer',
    ladder(1, 10, 60),
    [
      [0, 10],
      [70, 10],
      [140, 10],
      [209, 60],
      [329, 10],
    ],
  ],
  [
    'remembers for the longest step, wherever it is on the ladder',
    ladder(1, 60, 10),
    [
      [0, 60],
      [119.999999, 10],
      [189.999998, 10],
      [259.999998, 60],
    ],
  ],
  [
    'remembers earlier refusals longer after another refusal',
    ladder(2, 10, 60),
    [
      [0, 0],
      [0, 10],
      [69, 0],
      [128, 60],
    ],
  ],
]

describe('a ladder', () => {
  // With many keys, a sweep seldom reaches this one.
  describe.each([
    ['alone', 0],
    ['among many', 500],
  ])('of a key %s', (_, others) => {
    test.each(TABLES)('%s', (_, ladder, rows) => {
      const { ledger, at, peek } = open()
      for (let i = 0; i < others; i++) ledger.block(`other ${i}`, DAY)
      for (const [atSecond, blockedFor] of rows) {
        at(Math.round(atSecond * SECOND))
        const leftUs = Math.round(blockedFor * SECOND)
        expect([atSecond, ledger.strike('key', ladder)]).toEqual([atSecond, leftUs])
        expect(peek()).toMatchObject({ allowed: leftUs === 0, retryAfterMs: leftUs / 1000 })
      }
    })
  })

  test('counts each key separately', () => {
    const { ledger, peek } = open()
    for (const key of ['ann', 'bob']) expect(ledger.strike(key, ladder(2, 10))).toBe(0)
    expect(ledger.strike('ann', ladder(2, 10))).toBe(10 * SECOND)
    expect([peek('ann').allowed, peek('bob').allowed]).toEqual([false, true])
  })

  test('that is changed keeps the refusals counted before', () => {
    const { ledger, clock } = open()
    ledger.strike('key', ladder(5, 60))
    ledger.strike('key', ladder(5, 60))
    expect(ledger.strike('key', ladder(2, 10, 20))).toBe(10 * SECOND)
    clock.advance('10s')
    expect(ledger.strike('key', ladder(1, 30))).toBe(30 * SECOND)
  })

  test.each([
    ['unblock', (ledger: Ledger<false>) => ledger.unblock('key')],
    ['reset', (ledger: Ledger<false>) => ledger.reset('key')],
  ] as const)('%s forgets its refusals and its blocks', (_, lift) => {
    const { ledger, store, peek } = open()
    ledger.strike('key', ladder(2, 10, 60))
    lift(ledger)
    expect(ledger.strike('key', ladder(2, 10, 60))).toBe(0)
    expect(ledger.strike('key', ladder(2, 10, 60))).toBe(10 * SECOND)
    lift(ledger)
    expect(store.size).toBe(0)
    expect(peek().allowed).toBe(true)
    ledger.strike('key', ladder(2, 10, 60))
    expect(ledger.strike('key', ladder(2, 10, 60))).toBe(10 * SECOND)
  })

  test('is kept after an update to another algorithm', () => {
    const { ledger } = open(tokenBucket({ limit: 5, window: '1s' }))
    ledger.strike('key', ladder(2, 10))
    ledger.update(slidingLog({ limit: 5, window: '1s' }))
    expect(ledger.strike('key', ladder(2, 10))).toBe(10 * SECOND)
  })

  test('takes no permits', () => {
    const { ledger, peek } = open(tokenBucket({ limit: 5, window: '1h' }))
    ledger.decide('key', 2, 0, true)
    const before = peek().toJSON()
    for (let i = 0; i < 3; i++) ledger.strike('key', ladder(3, 10))
    ledger.unblock('key')
    expect(peek().toJSON()).toEqual(before)
  })
})

describe('a block by block() on a ladder', () => {
  test('refuses, and refusals while it lasts do not count', () => {
    const { ledger, clock } = open()
    ledger.strike('key', ladder(2, 10, 60))
    ledger.block('key', 5 * SECOND)
    expect(ledger.strike('key', ladder(2, 10, 60))).toBe(5 * SECOND)
    clock.advance('5s')
    expect(ledger.strike('key', ladder(2, 10, 60))).toBe(10 * SECOND)
  })

  test('does not count as a step of the ladder', () => {
    const { ledger, clock } = open()
    ledger.block('key', 10 * SECOND)
    clock.advance('10s')
    expect(ledger.strike('key', ladder(1, 10, 60))).toBe(10 * SECOND)
  })

  test('stays if it is longer than a step, and does not shorten a longer step', () => {
    const { ledger, at, peek } = open()
    ledger.strike('key', ladder(1, 10))
    ledger.block('key', 5 * SECOND)
    expect(peek().retryAfterMs).toBe(10_000)
    ledger.block('key', 20 * SECOND)
    expect(ledger.strike('key', ladder(1, 10))).toBe(20 * SECOND)
    at(20 * SECOND - 1)
    expect(isBlocked(peek())).toBe(true)
    at(20 * SECOND)
    expect(peek().allowed).toBe(true)
  })

  test('does not make the ladder forget sooner', () => {
    const { ledger, at } = open()
    ledger.strike('key', ladder(1, 10, 60))
    ledger.block('key', 20 * SECOND)
    at(70 * SECOND - 1)
    expect(ledger.strike('key', ladder(1, 10, 60))).toBe(60 * SECOND)
  })

  test('keeps the ladder remembered for the longest step after its end', () => {
    const { ledger, at } = open()
    ledger.strike('key', ladder(1, 10, 60))
    ledger.block('key', 100 * SECOND)
    at(160 * SECOND - 1)
    expect(ledger.strike('key', ladder(1, 10, 60))).toBe(60 * SECOND)
  })
})

describe('the ladder of random refusals', () => {
  const ladders = fc.record({
    after: fc.integer({ min: 1, max: 4 }),
    stepsUs: fc.array(fc.integer({ min: 1, max: 40 }), { minLength: 1, maxLength: 4 }),
  })
  const acts = fc.array(
    fc.record({
      gapUs: fc.oneof(fc.constantFrom(0, 1), fc.nat(15), fc.nat(120)),
      act: fc.constantFrom('strike', 'strike', 'strike', 'take', 'peek', 'sweep', 'unblock' as const),
    }),
    { maxLength: 80 },
  )

  test.each([
    ['without a limit', unlimited()],
    ['with a limit', tokenBucket({ limit: 3, window: 0.05 })],
  ])('blocks like a simple list of all counted refusals, %s', (_, algorithm) => {
    fc.assert(
      fc.property(ladders, acts, (ladder, acts) => {
        const { clock, store, ledger, peek, take } = open(algorithm)
        const model = new ListOfRefusals(ladder)
        for (const { gapUs, act } of acts) {
          clock.advance(gapUs / 1000)
          const nowUs = clock.nowUs()
          if (act === 'strike') {
            model.refuse(nowUs)
            expect(ledger.strike('key', ladder)).toBe(model.leftUs(nowUs))
          } else if (act === 'take') {
            expect(isBlocked(take())).toBe(model.leftUs(nowUs) > 0)
          } else if (act === 'sweep') {
            store.sweep()
          } else if (act === 'unblock') {
            ledger.unblock('key')
            model.forget()
          }
          const leftUs = model.leftUs(nowUs)
          expect(isBlocked(peek())).toBe(leftUs > 0)
          if (leftUs > 0) expect(peek().retryAfterMs).toBeGreaterThanOrEqual(leftUs / 1000)
        }
      }),
      { numRuns: 1000 },
    )
  })

  test('is independent for each key', () => {
    const keys = fc.constantFrom('a', 'b', '__proto__', 'constructor', 'x'.repeat(200), 'x'.repeat(201))
    const struck = fc.array(fc.record({ key: keys, gapUs: fc.nat(20) }), { maxLength: 80 })
    fc.assert(
      fc.property(ladders, struck, (ladder, struck) => {
        const { clock, ledger } = open()
        const models = new Map<string, ListOfRefusals>()
        for (const { key, gapUs } of struck) {
          clock.advance(gapUs / 1000)
          const model = models.get(key) ?? new ListOfRefusals(ladder)
          models.set(key, model)
          model.refuse(clock.nowUs())
          expect(ledger.strike(key, ladder)).toBe(model.leftUs(clock.nowUs()))
        }
      }),
      { numRuns: 300 },
    )
  })
})

/** A simple model of a ladder, from the list of counted refusals. Every `after` of them start a block; the n-th block lasts the n-th step. */
class ListOfRefusals {
  private readonly ladder: Ladder
  private counted: number[] = []

  constructor(ladder: Ladder) {
    this.ladder = ladder
  }

  refuse(nowUs: number): void {
    if (this.leftUs(nowUs) > 0) return
    const longestUs = this.ladder.stepsUs.toSorted((a, b) => b - a)[0] as number
    const last = this.counted.at(-1)
    if (last !== undefined && nowUs - Math.max(last, this.endUs()) >= longestUs) this.forget()
    this.counted.push(nowUs)
  }

  leftUs(nowUs: number): number {
    return Math.max(0, this.endUs() - nowUs)
  }

  forget(): void {
    this.counted = []
  }

  /** When the last block ends or ended. */
  private endUs(): number {
    const { after, stepsUs } = this.ladder
    const blocks = Math.floor(this.counted.length / after)
    if (blocks === 0) return 0
    const step = stepsUs[blocks - 1] ?? stepsUs[stepsUs.length - 1]
    return (this.counted[blocks * after - 1] as number) + (step as number)
  }
}

describe('a clock that goes back', () => {
  test('does not end a block', () => {
    const { ledger, at, peek } = open()
    at(100 * SECOND)
    ledger.block('hand', 10 * SECOND)
    ledger.strike('ladder', ladder(1, 10))
    for (const second of [0, 105, 50, 109]) {
      at(second * SECOND)
      for (const key of ['hand', 'ladder']) {
        expect(isBlocked(peek(key))).toBe(true)
        expect(peek(key).retryAfterMs).toBe((110 - second) * 1000)
      }
    }
    at(110 * SECOND)
    for (const key of ['hand', 'ladder']) expect(peek(key).allowed).toBe(true)
  })

  test('does not let a sweep or another block shorten a block', () => {
    const { store, ledger, at, peek } = open()
    at(100 * SECOND)
    ledger.block('key', 10 * SECOND)
    at(0)
    store.sweep()
    ledger.block('key', 10 * SECOND)
    expect(ledger.strike('key', ladder(1, 1))).toBe(110 * SECOND)
    at(110 * SECOND - 1)
    expect(isBlocked(peek())).toBe(true)
  })

  test('loses no refusal', () => {
    const { ledger, at } = open()
    at(100 * SECOND)
    expect(ledger.strike('key', ladder(3, 60))).toBe(0)
    at(0)
    expect(ledger.strike('key', ladder(3, 60))).toBe(0)
    expect(ledger.strike('key', ladder(3, 60))).toBe(60 * SECOND)
  })

  test('and then forward again does not make the ladder forget sooner', () => {
    const { ledger, at } = open()
    at(100 * SECOND)
    ledger.strike('key', ladder(3, 60))
    at(0)
    ledger.strike('key', ladder(3, 60))
    at(101 * SECOND)
    expect(ledger.strike('key', ladder(3, 60))).toBe(60 * SECOND)
  })

  test('ends no block early, for any jumps', () => {
    const jump = fc.record({
      toUs: fc.nat(200),
      act: fc.constantFrom('strike', 'strike', 'block', 'peek', 'sweep' as const),
    })
    fc.assert(
      fc.property(fc.array(jump, { maxLength: 60 }), jumps => {
        const { store, ledger, at, peek } = open()
        let untilUs = 0
        for (const { toUs, act } of jumps) {
          at(toUs)
          // A block that has ended need not apply again when the clock goes back.
          if (toUs >= untilUs) untilUs = 0
          let leftUs = 0
          if (act === 'block') {
            leftUs = 20
            ledger.block('key', leftUs)
          } else if (act === 'strike') leftUs = ledger.strike('key', { after: 2, stepsUs: [5, 50] })
          else if (act === 'sweep') store.sweep()
          if (leftUs > 0) untilUs = Math.max(untilUs, toUs + leftUs)
          expect(peek().retryAfterMs).toBeGreaterThanOrEqual(Math.max(0, untilUs - toUs) / 1000)
        }
      }),
      { numRuns: 500 },
    )
  })
})

const ON_FULL = ['forget', 'refuse'] as const

describe.each(ON_FULL)('a store full of keys: onFull %s', onFull => {
  const KEYS = ['a', 'b', 'c', 'd', 'e', 'f', 'g', '__proto__', 'x'.repeat(200), 'x'.repeat(201)]
  const acts = fc.array(
    fc.record({
      verb: fc.constantFrom(
        'take',
        'take',
        'book',
        'strike',
        'strike',
        'block',
        'unblock',
        'reset',
        'peek',
        'drain',
        'sweep',
        'update',
      ),
      key: fc.constantFrom(...KEYS),
      gapUs: fc.oneof(fc.constant(0), fc.nat(2 * SECOND)),
      after: fc.integer({ min: 1, max: 3 }),
    }),
    { maxLength: 150 },
  )

  test.each([
    ['tokenBucket', tokenBucket({ limit: 2, window: '10s' })],
    ['slidingLog', slidingLog({ limit: 2, window: '10s' })],
    ['unlimited', unlimited()],
  ])('maxKeys is a bound for any calls on a %s', (_, algorithm) => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 8 }), acts, (maxKeys, acts) => {
        const { clock, store, ledger, take, peek } = open(algorithm, { maxKeys, onFull })
        for (const { verb, key, gapUs, after } of acts) {
          clock.advance(gapUs / 1000)
          const ladder = { after, stepsUs: [SECOND, 5 * SECOND] }
          if (verb === 'take') {
            if (!take(key).allowed) ledger.strike(key, ladder)
          } else if (verb === 'book') ledger.book(key, after, 0)
          else if (verb === 'strike') ledger.strike(key, ladder)
          else if (verb === 'block') ledger.block(key, after * SECOND)
          else if (verb === 'unblock') ledger.unblock(key)
          else if (verb === 'reset') ledger.reset(key)
          else if (verb === 'peek') peek(key)
          else if (verb === 'drain') ledger.drain(key)
          else if (verb === 'update') ledger.update(after === 1 ? unlimited() : algorithm)
          else store.sweep()
          expect(store.size).toBeLessThanOrEqual(maxKeys)
          expect(ledger.keys).toBe(store.size)
          if (verb === 'block') expect(isBlocked(peek(key))).toBe(true)
        }
        clock.advance('1d')
        store.sweep()
        expect(store.size).toBe(0)
      }),
      { numRuns: 300 },
    )
  })

  test('block() blocks a key even if all other keys are being refused', () => {
    const { store, ledger, take, peek } = open(tokenBucket({ limit: 1, window: '1h' }), {
      maxKeys: 4,
      onFull,
    })
    for (const key of ['a', 'b', 'c', 'd']) take(key)
    ledger.block('key', HOUR)
    expect(isBlocked(peek())).toBe(true)
    expect(store.size).toBe(4)
  })

  test('keeps every block by block() that the store has room for', () => {
    const { store, ledger, take, peek } = open(tokenBucket({ limit: 1, window: '1h' }), {
      maxKeys: 8,
      onFull,
    })
    for (let i = 0; i < 20; i++) take(`before ${i}`)
    const blocked = Array.from({ length: 8 }, (_, i) => `blocked ${i}`)
    for (const key of blocked) ledger.block(key, HOUR)
    expect(blocked.filter(key => !isBlocked(peek(key)))).toEqual([])
    expect(store.size).toBe(8)
  })

  test.each([
    ['shorter', ladder(1, 60)],
    ['longer', ladder(1, 2 * 86_400)],
  ])('a key blocked by block() stays blocked in a flood of keys blocked for %s', (_, ladder) => {
    const { clock, store, ledger, take, peek } = open(tokenBucket({ limit: 1, window: '1h' }), {
      maxKeys: 8,
      onFull,
    })
    ledger.block('key', DAY)
    for (let i = 0; i < 200; i++) {
      for (let ask = 0; ask < 3; ask++) if (!take(`flood ${i}`).allowed) ledger.strike(`flood ${i}`, ladder)
      clock.advance('1s')
      expect([i, isBlocked(peek())]).toEqual([i, true])
    }
    expect(store.size).toBeLessThanOrEqual(8)
  })

  test('a key blocked by block() stays blocked in a flood of new keys', () => {
    const { ledger, take, peek } = open(tokenBucket({ limit: 2, window: '1h' }), { maxKeys: 8, onFull })
    ledger.block('key', DAY)
    for (let i = 0; i < 200; i++) {
      take(`flood ${i}`)
      expect([i, isBlocked(peek())]).toEqual([i, true])
    }
  })

  test('penalties leave room for the counts of keys, so that the limit still applies', () => {
    const { ledger, take } = open(tokenBucket({ limit: 3, window: '1h' }), { maxKeys: 100, onFull })
    for (let i = 0; i < 1000; i++) {
      for (let ask = 0; ask < 4; ask++)
        if (!take(`flood ${i}`).allowed) ledger.strike(`flood ${i}`, ladder(1, 86_400))
    }
    let granted = 0
    for (let ask = 0; ask < 50; ask++)
      for (const key of ['ann', 'bob', 'cem']) if (take(key).allowed) granted++
    expect(granted).toBeLessThanOrEqual(9)
  })
})

describe('a store full of penalties, some of them blocks', () => {
  /** Ten keys. The keys at `blocked` are blocked, each an hour longer than the one before. The others have one refusal. */
  function full(blocked: readonly number[]) {
    const opened = open(tokenBucket({ limit: 2, window: '1h' }), { maxKeys: 10, onFull: 'refuse' })
    for (let i = 0; i < 10; i++) {
      if (blocked.includes(i)) opened.ledger.block(`k${i}`, (i + 1) * HOUR)
      else opened.ledger.strike(`k${i}`, ladder(5, 30 * 86_400))
    }
    return opened
  }

  const MIXES: readonly (readonly [string, readonly number[]])[] = [
    ['the first half', [0, 1, 2, 3, 4]],
    ['the second half', [5, 6, 7, 8, 9]],
    ['some in the middle', [3, 4, 5, 6, 9]],
    ['all', [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]],
  ]

  test.each(MIXES)('peek of a new key returns the decision of tryAcquire: %s blocked', (_, blocked) => {
    const { peek, take } = full(blocked)
    const { allowed, waitMs } = peek('new')
    expect(take('new')).toMatchObject({ allowed, waitMs })
  })

  test.each(MIXES)('a refused new key is granted at its retryAfterMs: %s blocked', (_, blocked) => {
    const { clock, take } = full(blocked)
    const { allowed, retryAfterMs } = take('new')
    if (allowed) return
    expect(take('new').allowed).toBe(false)
    clock.advance(retryAfterMs - 0.001)
    expect(take('new').allowed).toBe(false)
    clock.advance(0.001)
    expect(take('new').allowed).toBe(true)
  })

  test("with onFull 'refuse' refuses a new key instead of forgetting a block", () => {
    const { ledger, take, peek } = full([0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
    for (let i = 0; i < 30; i++) expect(take(`new ${i}`).allowed).toBe(false)
    for (let i = 0; i < 30; i++) expect(ledger.strike(`new ${i}`, ladder(1, 10))).toBe(0)
    for (let i = 0; i < 10; i++) expect(isBlocked(peek(`k${i}`))).toBe(true)
    expect(ledger.forgotten).toBe(0)
  })

  test('forgets the refusals that expire first, and a block of a ladder before a block by block()', () => {
    const { ledger, at, peek } = open(unlimited(), { maxKeys: 4 })
    ledger.block('hand', HOUR)
    ledger.strike('blocked', ladder(1, 3600))
    ledger.strike('newer', ladder(2, 60))
    at(1 * SECOND)
    ledger.strike('older', ladder(2, 30))
    at(2 * SECOND)
    ledger.strike('a', ladder(2, 60))
    expect(ledger.strike('newer', ladder(2, 60))).toBe(60 * SECOND)
    expect(ledger.strike('a', ladder(2, 60))).toBe(60 * SECOND)
    ledger.block('b', HOUR)
    expect(['hand', 'blocked', 'b'].filter(key => !isBlocked(peek(key)))).toEqual([])
    expect(['newer', 'a'].filter(key => isBlocked(peek(key))).length).toBe(1)
    ledger.block('c', HOUR)
    ledger.block('d', HOUR)
    expect(['hand', 'b', 'c', 'd'].filter(key => !isBlocked(peek(key)))).toEqual([])
  })

  test('counts the penalties that it forgets early, and warns', () => {
    const { ledger, peek } = open(unlimited(), { maxKeys: 2 })
    for (const key of ['a', 'b', 'c']) ledger.strike(key, ladder(5, 60))
    expect(ledger.forgotten).toBe(1)
    expect(ledger.keys).toBe(2)
    ledger.block('d', HOUR)
    ledger.block('e', HOUR)
    ledger.block('f', 2 * HOUR)
    expect(ledger.forgotten).toBe(4)
    expect(isBlocked(peek('f'))).toBe(true)
  })
})

describe('sweeping', () => {
  test('forgets ended blocks and expired refusals on time', () => {
    const { store, ledger, at } = open()
    ledger.block('hand', 10 * SECOND)
    ledger.strike('refused', ladder(2, 10, 20))
    ledger.strike('blocked', ladder(1, 10, 20))
    const sizes: number[][] = []
    for (const us of [
      10 * SECOND - 1,
      10 * SECOND,
      20 * SECOND - 1,
      20 * SECOND,
      30 * SECOND - 1,
      30 * SECOND,
    ]) {
      at(us)
      store.sweep()
      sizes.push([us, store.size])
    }
    expect(sizes.map(([, size]) => size)).toEqual([3, 2, 2, 1, 1, 0])
    expect(ledger.forgotten).toBe(0)
  })

  test('happens without sweep()', () => {
    const { clock, store, ledger, peek } = open(tokenBucket({ limit: 1, window: '1s' }))
    for (let i = 0; i < 100; i++) ledger.block(`key ${i}`, SECOND)
    expect(store.size).toBe(100)
    clock.advance('1s')
    for (let i = 0; i < 100 * 64; i++) peek('never held')
    expect(store.size).toBe(0)
  })

  test('continues while new keys are blocked', () => {
    const { clock, store, ledger } = open()
    for (let i = 0; i < 5000; i++) {
      ledger.block(`key ${i}`, 100_000)
      clock.advance(1)
    }
    expect(store.size).toBeLessThan(250)
  })
})

describe('the keys of penalties', () => {
  test('long keys are stored as their hash, and stay distinct', () => {
    const { ledger, peek } = open()
    const set = vi.spyOn(Map.prototype, 'set')
    const long = 'x'.repeat(100_000)
    ledger.block(long, HOUR)
    ledger.strike(`${long}y`, ladder(1, 10))
    const held = set.mock.calls.map(([key]) => key).filter(key => typeof key === 'string')
    set.mockRestore()
    expect(held.length).toBe(2)
    for (const key of held) expect(Buffer.byteLength(key)).toBeLessThanOrEqual(128)
    expect(peek(long).retryAfterMs).toBe(3_600_000)
    expect(peek(`${long}y`).retryAfterMs).toBe(10_000)
    expect(peek(`${long}z`).allowed).toBe(true)
    for (const key of held) expect(peek(key).allowed).toBe(true)
    ledger.unblock(long)
    expect(peek(long).allowed).toBe(true)
  })

  test.each(['__proto__', 'constructor', 'toString', 'hasOwnProperty', '\ud800', ' '])(
    '%j is an ordinary key',
    key => {
      const { clock, store, ledger, peek } = open()
      expect(peek(key).allowed).toBe(true)
      ledger.unblock(key)
      expect(ledger.strike(key, ladder(2, 10))).toBe(0)
      expect(ledger.strike(key, ladder(2, 10))).toBe(10 * SECOND)
      expect(isBlocked(peek(key))).toBe(true)
      expect(peek('another').allowed).toBe(true)
      clock.advance('10s')
      ledger.block(key, SECOND)
      expect(isBlocked(peek(key))).toBe(true)
      ledger.reset(key)
      expect(peek(key).allowed).toBe(true)
      expect(store.size).toBe(0)
    },
  )

  test('take no room in the store without a block or refusal', () => {
    const { store, ledger, take, peek } = open()
    peek('ann')
    take('ann')
    ledger.unblock('ann')
    ledger.reset('ann')
    expect(store.size).toBe(0)
    ledger.block('ann', SECOND)
    expect(store.size).toBe(1)
  })
})

describe('a ladder on a full store', () => {
  test.each([
    [1000, 450],
    [1000, 900],
    [100, 100],
    [2, 2],
    [1, 1],
  ])('of %i keys grants %i clients no more than their limits', (maxKeys, clients) => {
    const clock = manualClock()
    const algorithm = tokenBucket({ limit: 5, window: '1h' })
    const ledger = memoryStore({ maxKeys }).open({ name: 'full', algorithm, clock })
    let granted = 0
    for (let round = 0; round < 40; round++)
      for (let client = 0; client < clients; client++) {
        const { allowed, code } = ledger.decide(`c${client}`, 1, 0, true)
        if (allowed) granted++
        else if (code === undefined) ledger.strike(`c${client}`, { after: 3, stepsUs: [60_000_000] })
      }
    expect(granted).toBe(5 * clients)
  })

  test('forgets refusals without a block before it forgets a block by block()', () => {
    const clock = manualClock()
    const algorithm = tokenBucket({ limit: 1, window: '1h' })
    const ledger = memoryStore({ maxKeys: 100 }).open({ name: 'full', algorithm, clock })
    for (let key = 0; key < 5; key++) ledger.block(`bad${key}`, 3_600_000_000)
    for (let key = 0; key < 1000; key++) {
      ledger.decide(`k${key}`, 1, 0, true)
      ledger.strike(`k${key}`, { after: 3, stepsUs: [60_000_000] })
    }
    for (let key = 0; key < 5; key++)
      expect(ledger.decide(`bad${key}`, 1, 0, false).code).toBe('SLUICE_BLOCKED')
  })
})
