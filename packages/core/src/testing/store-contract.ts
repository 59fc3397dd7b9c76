import type { Algorithm } from '../algorithms/algorithm.js'
import { cycle } from '../algorithms/cycle.js'
import type { Decision } from '../algorithms/decision.js'
import { fixedWindow } from '../algorithms/fixed-window.js'
import { leakyBucket } from '../algorithms/leaky-bucket.js'
import { slidingLog } from '../algorithms/sliding-log.js'
import { slidingWindow } from '../algorithms/sliding-window.js'
import { smoothBursty } from '../algorithms/smooth-bursty.js'
import { smoothWarmingUp } from '../algorithms/smooth-warming-up.js'
import { tokenBucket } from '../algorithms/token-bucket.js'
import { createLimiter } from '../limiter/create-limiter.js'
import { tryAcquireAll } from '../limiter/joint/combine.js'
import type { Limiter } from '../limiter/limiter.js'
import type { Reservation } from '../limiter/reservation.js'
import type { AsyncStore, SyncStore } from '../store/store.js'
import { type ContractTools, Random } from './contract-tools.js'
import { manualClock } from './manual-clock.js'

/** A verb of a limiter that a store may lack. */
export type StoreVerb = 'reserve' | 'cancel' | 'refund' | 'release' | 'drain' | 'block' | 'update' | 'reset'

/** Options of `storeContract`. */
export interface StoreContractOptions {
  /** Begins the name of each test. */
  readonly name: string
  /** Makes a store that holds no keys. Called once for each test. */
  readonly open: () => SyncStore | AsyncStore | Promise<SyncStore | AsyncStore>
  /** Closes a store that `open` made. Called at the end of each test. */
  readonly close?: ((store: SyncStore | AsyncStore) => unknown) | undefined
  /**
   * The algorithms that the store runs, by name; default all that this package has. Each is a list of one algorithm with
   * several sets of options: a limiter begins with the first, and `update` changes it to the next ones.
   */
  readonly algorithms?: Readonly<Record<string, readonly Algorithm[]>> | undefined
  /** Verbs that the store lacks; default none. Without `'block'` nothing is unblocked, without `'reserve'` nothing given back. */
  readonly without?: readonly StoreVerb[] | undefined
  /**
   * Whether the store decides by a clock of its own; default false, for the clock of the limiter. With true no time passes in
   * the suite, and it compares only `allowed`, `limit` and `remaining`. Use windows of an hour then.
   */
  readonly ownClock?: boolean | undefined
  /** How many random sequences of calls are made for each algorithm; default 20. */
  readonly sequences?: number | undefined
  /** The seed of the random calls; default 1. */
  readonly seed?: number | undefined
}

/**
 * Declares tests of what every store does: it answers any sequence of calls as `memoryStore()` does, keys and limiters
 * never share permits whatever they are called, calls made at once are granted no more permits than calls made in turn, and
 * several limits are charged all or none. Every store needs `peek`.
 *
 * Works with any test framework. If the store needs a server, the test starts it before.
 *
 * @example
 * import assert from 'node:assert/strict'
 * import { test } from 'node:test'
 * import { storeContract } from '@sluice/core/testing'
 *
 * storeContract({ name: 'myStore', open: () => myStore() }, { test, assert })
 */
export function storeContract(options: StoreContractOptions, { test, assert }: ContractTools): void {
  const { name, without = [], ownClock = false, sequences = 20, seed = 1, algorithms = EVERY } = options

  const withStore = (title: string, run: (store: SyncStore | AsyncStore) => Promise<void>) => {
    test(`${name}: ${title}`, async () => {
      const store = await options.open()
      try {
        await run(store)
      } finally {
        await options.close?.(store)
      }
    })
  }
  const figuresOf = (decision: Decision) => {
    const { allowed, limit, remaining } = decision
    return ownClock ? { allowed, limit, remaining } : decision.toJSON()
  }

  for (const [kind, variants] of Object.entries(algorithms)) {
    const [algorithm, ...changes] = variants as [Algorithm, ...Algorithm[]]
    withStore(`${kind} answers any sequence of calls as in memory`, async store => {
      for (let sequence = 0; sequence < sequences; sequence++) {
        const random = new Random(seed + sequence)
        const clock = manualClock()
        const name = `sequence-${sequence}`
        const ours = new Caller(createLimiter(algorithm, { name, clock, store }), changes, figuresOf)
        const theirs = new Caller(createLimiter(algorithm, { name, clock }), changes, figuresOf)
        if (!ownClock) clock.advance('1h')
        const calls = callsOf(random, algorithm, without, ownClock)
        for (const [index, call] of calls.entries()) {
          clock.advance(call.gapUs / 1000)
          const label = `call ${index + 1} of sequence ${sequence} (seed ${seed}): ${JSON.stringify(call)}`
          assert.deepStrictEqual(await ours.make(call), await theirs.make(call), label)
        }
      }
    })
  }

  const [kind, [algorithm]] = Object.entries(algorithms)[0] as [string, [Algorithm]]
  const clockOptions = () => ({ clock: manualClock() })

  withStore('two keys never share permits, whatever they are called', async store => {
    const limiter = createLimiter(algorithm, { name: 'keys', store, ...clockOptions() }) as Limiter
    for (const key of KEYS) {
      const { remaining, limit } = await limiter.peek(key)
      assert.strictEqual(remaining, limit, `${JSON.stringify(key)} was used before it was seen`)
      assert.ok((await limiter.tryAcquire(key)).allowed)
      assert.strictEqual((await limiter.peek(key)).remaining, limit - 1, JSON.stringify(key))
    }
  })

  withStore('two limiters of different names never share permits', async store => {
    const clock = manualClock()
    const names = ['a', 'a:b', 'b']
    for (const name of names) {
      const limiter = createLimiter(algorithm, { name, store, clock }) as Limiter
      for (const key of ['x', 'b:x', '{x}']) {
        const { remaining, limit } = await limiter.peek(key)
        assert.strictEqual(remaining, limit, `${name} and ${key}`)
        await limiter.tryAcquire(key)
      }
    }
  })

  withStore(`${kind} grants calls made at once as many permits as calls made in turn`, async store => {
    const limiter = createLimiter(algorithm, { name: 'at-once', store, ...clockOptions() }) as Limiter
    const { remaining } = await limiter.peek('key')
    const decisions = await Promise.all(
      Array.from({ length: remaining * 2 + 5 }, () => limiter.tryAcquire('key')),
    )
    assert.strictEqual(decisions.filter(({ allowed }) => allowed).length, remaining)
  })

  withStore('several limits are charged all or none', async store => {
    const clock = manualClock()
    const wide = createLimiter(algorithm, { name: 'wide', store, clock }) as Limiter
    const narrow = createLimiter(algorithm, { name: 'narrow', store, clock }) as Limiter
    const { remaining } = await narrow.peek('key')
    for (let permit = 0; permit < remaining; permit++) await narrow.tryAcquire('key')
    const joint = await tryAcquireAll([
      { limiter: wide, key: 'key' },
      { limiter: narrow, key: 'key' },
    ])
    assert.strictEqual(joint.allowed, false)
    const { remaining: left, limit } = await wide.peek('key')
    assert.strictEqual(left, limit, 'a limiter was charged although the other one refused')
  })

  if (!without.includes('reset')) {
    withStore('a key that was reset is like a key never seen', async store => {
      const limiter = createLimiter(algorithm, { name: 'reset', store, ...clockOptions() }) as Limiter
      const fresh = figuresOf(await limiter.peek('key'))
      await limiter.tryAcquire('key')
      await limiter.reset('key')
      assert.deepStrictEqual(figuresOf(await limiter.peek('key')), fresh)
    })
  }
}

const LIMITS = [7, 4, 11]

const EVERY: Readonly<Record<string, readonly Algorithm[]>> = {
  tokenBucket: LIMITS.map(limit => tokenBucket({ limit, window: 20, burst: limit - 2 })),
  fixedWindow: LIMITS.map(limit => fixedWindow({ limit, window: 20 })),
  slidingWindow: LIMITS.map(limit => slidingWindow({ limit, window: 20 })),
  slidingLog: LIMITS.map(limit => slidingLog({ limit, window: 20 })),
  leakyBucket: LIMITS.map(limit => leakyBucket({ limit, window: 20, capacity: limit - 2 })),
  cycle: LIMITS.map(limit => cycle({ limit, period: 20 })),
  smoothBursty: LIMITS.map(limit => smoothBursty({ limit, window: 20, maxBurst: 20 })),
  smoothWarmingUp: LIMITS.map(limit => smoothWarmingUp({ limit, window: 20, warmup: 30 })),
}

/** Keys that a careless store mistakes for each other, for its own names or for patterns. */
const KEYS = [
  'a',
  'ann',
  'Ann',
  'ann:',
  ':ann',
  '{ann}',
  '{{ann}}',
  '%7Bann%7D',
  'ann*',
  'ann?',
  '[a-z]nn',
  'a\\nn',
  'a\nn',
  'a\u0000nn',
  ' ann',
  '__proto__',
  'constructor',
  'é',
  'e\u0301',
  '\ud800',
  '\udfff',
  'k'.repeat(129),
  'k'.repeat(130),
  'é'.repeat(70),
]

interface Call {
  readonly verb: 'tryAcquire' | 'peek' | 'unblock' | StoreVerb
  readonly key: string
  readonly gapUs: number
  readonly cost: number
  readonly maxWait: number
  /** The reservation that is given back, counted from the newest. */
  readonly booking: number
}

function callsOf(
  random: Random,
  { bookable }: Algorithm,
  without: readonly StoreVerb[],
  ownClock: boolean,
): Call[] {
  const verbs = VERBS.filter(verb => !without.includes(verb === 'unblock' ? 'block' : (verb as StoreVerb)))
  return random.list(60, () => ({
    verb: random.pick(verbs),
    key: random.pick(['ann', 'ann', '{bob}%', 'é'.repeat(70)]),
    gapUs: ownClock
      ? 0
      : random.pick([0, 0, random.integer(0, 500), random.integer(0, 500), random.integer(0, 10_000)]),
    cost: random.pick([1, 1, 1, random.integer(0, 9)]),
    maxWait: bookable && !ownClock ? random.pick([0, 5, Infinity, Infinity]) : 0,
    booking: random.integer(1, 4),
  }))
}

/** Common verbs several times. */
const VERBS: readonly Call['verb'][] = [
  ...Array.from({ length: 6 }, () => 'tryAcquire' as const),
  ...Array.from({ length: 6 }, () => 'reserve' as const),
  'peek',
  'peek',
  'cancel',
  'cancel',
  'refund',
  'refund',
  'release',
  'drain',
  'block',
  'unblock',
  'reset',
  'update',
]

/** Makes calls to a limiter, and remembers its reservations. */
class Caller {
  private readonly limiter: Limiter
  private readonly changes: Algorithm[]
  private readonly figuresOf: (decision: Decision) => object
  private readonly reservations: Reservation[] = []

  constructor(limiter: Limiter, changes: readonly Algorithm[], figuresOf: (decision: Decision) => object) {
    this.limiter = limiter
    this.changes = [...changes]
    this.figuresOf = figuresOf
  }

  async make({ verb, key, cost, maxWait, booking }: Call): Promise<unknown> {
    const { limiter, reservations } = this
    switch (verb) {
      case 'tryAcquire':
        return this.figuresOf(await limiter.tryAcquire(key, { cost }))
      case 'peek':
        return this.figuresOf(await limiter.peek(key, { cost }))
      case 'reserve': {
        const reservation = await limiter.reserve(key, { cost, maxWait })
        reservations.push(reservation)
        return this.figuresOf(reservation)
      }
      case 'cancel':
        return reservations.at(-booking)?.cancel()
      case 'refund':
        return reservations.at(-booking)?.refund()
      case 'release':
        return limiter.release(key, cost)
      case 'drain':
        return limiter.drain(key)
      case 'block':
        return limiter.block(key, 5 + cost)
      case 'unblock':
        return limiter.unblock(key)
      case 'update': {
        const [change] = this.changes.splice(0, 1)
        return change === undefined ? undefined : limiter.update(change)
      }
      case 'reset':
        return limiter.reset(key)
    }
  }
}
