import type { Algorithm, Booking } from '../algorithms/algorithm.js'
import type { Decision } from '../algorithms/decision.js'
import { type ContractTools, type Random, repeat } from './contract-tools.js'

/** What an algorithm never or hardly ever does. The suite cannot test a law about it. */
export type Unreachable =
  /** It never refuses, like `unlimited`. */
  | 'refusal'
  /** A request that was refused is never granted later, as with a limit of 0. */
  | 'later grant'
  /** Every cost is granted sooner or later, as with `smoothBursty`. */
  | 'impossible cost'
  /** `remaining` never grows by itself. */
  | 'refill'
  /** No permits can be given back. */
  | 'give-back'

/** Options of `algorithmContract`. */
export interface AlgorithmContractOptions {
  /** Begins the name of each test. */
  readonly name: string
  /**
   * The algorithm with one or more sets of options. Use windows of up to 100 ms and limits of up to 50: the suite requests
   * up to 25 permits at a time, in steps of up to 20 ms.
   */
  readonly algorithms: readonly Algorithm[]
  /**
   * Whether `remaining` is exact; default true. False for an algorithm that rounds costs, like Guava's smooth limiters: then at
   * least `remaining` more permits pass.
   */
  readonly counts?: boolean | undefined
  /**
   * What the algorithm never or hardly ever does; default nothing. A test fails if anything else is reached in less than a
   * fifth of its runs, or if what is listed here is reached more often.
   */
  readonly unreachable?: readonly Unreachable[] | undefined
  /** How often each law is tried; default 300. */
  readonly runs?: number | undefined
  /** The seed of the random requests; default 1. */
  readonly seed?: number | undefined
}

/**
 * Declares a test for each law of algorithms: a refusal changes nothing, a request is refused before its retryAfter and
 * granted at it, exactly `remaining` more permits pass, a rested key decides like a new one, and so on. Each test makes random
 * requests, and the message of a failure names the seed that repeats it.
 *
 * Works with any test framework. The tests are synchronous. Throws a TypeError if `algorithms` is empty.
 *
 * @example
 * import assert from 'node:assert/strict'
 * import { test } from 'node:test'
 * import { algorithmContract } from '@sluice/core/testing'
 *
 * algorithmContract({ name: 'everyOther', algorithms: [everyOther({ limit: 5 })] }, { test, assert })
 */
export function algorithmContract(options: AlgorithmContractOptions, { test, assert }: ContractTools): void {
  const { name, algorithms, counts = true, unreachable = [], runs = 300, seed = 1 } = options
  if (algorithms.length === 0) throw new TypeError('algorithms: expected at least one algorithm')

  /** Declares a law about every key. */
  const law = (title: string, check: (key: Key, random: Random) => void) => {
    test(`${name}: ${title}`, () => {
      repeat(runs, seed, (random, run) =>
        check(usedKey(algorithms[run % algorithms.length] as Algorithm, random), random),
      )
    })
  }

  /** Declares a law with a premise. `check` returns whether the premise held, which it must often enough. */
  const lawWhere = (premise: Unreachable, title: string, check: (key: Key, random: Random) => boolean) => {
    test(`${name}: ${title}`, () => {
      let reached = 0
      repeat(runs, seed, (random, run) => {
        if (check(usedKey(algorithms[run % algorithms.length] as Algorithm, random), random)) reached++
      })
      if (unreachable.includes(premise))
        assert.ok(
          reached < runs / 5,
          `'${premise}' is reached in ${reached} of ${runs} runs: it is not unreachable`,
        )
      else assert.ok(reached >= runs / 5, `only ${reached} of ${runs} runs reached '${premise}'`)
    })
  }

  lawWhere('refusal', 'a refusal changes nothing', (key, random) => {
    const before = key.state.slice()
    const decision = key.take(costOf(random), maxWaitOf(random))
    if (!decision.allowed) assert.deepStrictEqual(key.state, before)
    return !decision.allowed
  })

  law('a peek and a request of cost 0 change nothing, and cost 0 is always granted', (key, random) => {
    const before = key.state.slice()
    const maxWaitUs = maxWaitOf(random)
    key.peek(costOf(random), maxWaitUs)
    const { allowed, waitMs } = key.take(0, maxWaitUs)
    assert.deepStrictEqual({ allowed, waitMs }, { allowed: true, waitMs: 0 })
    assert.deepStrictEqual(key.state, before)
  })

  law('a peek gives the decision that a request would get', (key, random) => {
    const [cost, maxWaitUs] = [costOf(random), maxWaitOf(random)]
    const peeked = key.peek(cost, maxWaitUs)
    const taken = key.take(cost, maxWaitUs)
    assert.deepStrictEqual(waitsOf(taken), waitsOf(peeked))
  })

  lawWhere(
    'later grant',
    'a refused request is refused until its retryAfter and granted at it, to the microsecond',
    (key, random) => {
      const [cost, maxWaitUs] = [costOf(random), maxWaitOf(random)]
      const { allowed, retryAfterUs } = key.peek(cost, maxWaitUs)
      if (allowed || retryAfterUs === Infinity) return false
      assert.strictEqual(key.peek(cost, maxWaitUs, retryAfterUs - 1).allowed, false, 'granted too early')
      assert.strictEqual(key.peek(cost, maxWaitUs, retryAfterUs).allowed, true, 'refused at its retryAfter')
      return true
    },
  )

  lawWhere(
    'later grant',
    'a refused request is granted at once after its wait, and not before',
    (key, random) => {
      const [cost, maxWaitUs] = [costOf(random), maxWaitOf(random)]
      const { allowed, waitUs } = key.peek(cost, maxWaitUs)
      if (allowed || waitUs === Infinity) return false
      assert.strictEqual(key.peek(cost, 0, waitUs - 1).allowed, false, 'granted too early')
      assert.strictEqual(key.peek(cost, 0, waitUs).allowed, true, 'refused after its wait')
      return true
    },
  )

  lawWhere('impossible cost', 'a cost whose retryAfter is Infinity is refused later too', (key, random) => {
    const cost = random.pick([costOf(random), 1_000_000])
    if (key.peek(cost, Infinity).retryAfterUs < Infinity) return false
    const { allowed, waitMs } = key.peek(cost, Infinity, gapOf(random))
    assert.deepStrictEqual({ allowed, waitMs }, { allowed: false, waitMs: Infinity })
    return true
  })

  law(`${counts ? 'exactly' : 'at least'} \`remaining\` more single permits pass now`, key => {
    const { remaining } = key.peek(0)
    if (remaining === Infinity) return
    for (let permit = 0; permit < remaining; permit++)
      assert.ok(key.take(1).allowed, `permit ${permit + 1} of ${remaining}`)
    if (counts) assert.strictEqual(key.take(1).allowed, false, `more than ${remaining} pass`)
  })

  lawWhere('refill', '`remaining` grows after refillAfter, and not before', key => {
    const { remaining, refillAfterMs } = key.peek(0)
    if (refillAfterMs === 0 || refillAfterMs === Infinity) return false
    const refillAfterUs = Math.round(refillAfterMs * 1000)
    assert.strictEqual(key.peek(0, 0, refillAfterUs - 1).remaining, remaining)
    assert.ok(key.peek(0, 0, refillAfterUs).remaining > remaining, 'remaining has not grown')
    return true
  })

  law('`remaining` is the whole part of the balance, from 0 to the limit', key => {
    const { remaining, balance, limit } = key.peek(0)
    assert.strictEqual(remaining, Math.max(0, Math.min(limit, Math.floor(balance + 1e-9))))
  })

  law('a key rests after resetAfter, and then decides like a key never seen', (key, random) => {
    if (key.isUnused) return
    const restsAtUs = key.algorithm.restsAt(key.state, 0)
    const resetAfterUs = Math.round(key.peek(0).resetAfterMs * 1000)
    assert.strictEqual(key.nowUs + resetAfterUs, Math.max(restsAtUs, key.nowUs))
    if (restsAtUs === Infinity) return
    key.nowUs = Math.max(key.nowUs, restsAtUs)
    const fresh = key.fresh()
    for (const { gapUs, cost, maxWaitUs } of requestsOf(random, 10)) {
      const figures = (one: Key) => one.take(cost, maxWaitUs, gapUs).toJSON()
      assert.deepStrictEqual(figures(key), figures(fresh))
    }
  })

  law('`load` is a share of the limit, and 1 exactly while a single permit would be refused', key => {
    const load = key.algorithm.load(key.state, 0, key.nowUs)
    assert.ok(load >= 0 && load <= 1, `load is ${load}`)
    assert.strictEqual(load === 1, !key.peek(1).allowed)
  })

  law('every figure is a number, and only the balance may be negative', (key, random) => {
    const { allowed, code, balance, ...figures } = key.peek(costOf(random), maxWaitOf(random)).toJSON()
    assert.strictEqual(typeof allowed, 'boolean')
    assert.ok(!Number.isNaN(balance), 'balance is NaN')
    for (const [figure, value] of Object.entries(figures)) assert.ok(value >= 0, `${figure} is ${value}`)
  })

  law('only the lanes of the key are written, wherever they start', (key, random) => {
    const alone = key.fresh()
    const { algorithm } = alone
    const state = new Float64Array(algorithm.lanes + 2).fill(7)
    state.fill(0, 1, algorithm.lanes + 1)
    for (const { gapUs, cost, maxWaitUs } of requestsOf(random, 20)) {
      const expected = alone.take(cost, maxWaitUs, gapUs).toJSON()
      assert.deepStrictEqual(algorithm.step(state, 1, alone.nowUs, cost, maxWaitUs, true).toJSON(), expected)
    }
    assert.deepStrictEqual([state[0], state[state.length - 1]], [7, 7])
  })

  law('no more than `remaining` permits are granted after the clock goes back', (key, random) => {
    const { remaining } = key.peek(0)
    key.nowUs -= random.integer(0, 50_000)
    for (let permit = 0; permit < Math.min(remaining, 1000); permit++) key.take(1)
    if (counts && remaining < 1000) assert.strictEqual(key.take(1).allowed, false, 'a permit was gained')
  })

  lawWhere(
    'give-back',
    'a booking gives back at most its cost, and the balance grows by that',
    (key, random) => {
      const booking = key.book(random)
      if (booking === undefined) return false
      const before = key.peek(0).balance
      const verb = random.pick(['cancel', 'refund'] as const)
      const given =
        verb === 'cancel'
          ? key.algorithm.cancel(key.state, 0, key.nowUs, booking)
          : key.algorithm.refund(key.state, 0, Math.max(key.nowUs, booking.actUs), booking.cost, booking)
      assert.ok(given >= 0 && given <= booking.cost, `${verb} of ${booking.cost} gave back ${given}`)
      const growth = key.peek(0).balance - before
      if (counts && verb === 'cancel' && before < Infinity)
        assert.ok(Math.abs(growth - given) < 1e-6, `balance grew by ${growth}, not ${given}`)
      return given > 0
    },
  )

  law(
    'a refund without a booking gives back at most what it is called with, and `remaining` stays within the limit',
    (key, random) => {
      const permits = random.integer(0, 30)
      const given = key.algorithm.refund(key.state, 0, key.nowUs, permits)
      assert.ok(given >= 0 && given <= permits, `a refund of ${permits} gave back ${given}`)
      const { remaining, limit } = key.peek(0)
      assert.ok(remaining <= limit, `${remaining} of ${limit} remain`)
    },
  )

  law('changing to equal options changes no decision', (key, random) => {
    if (key.isUnused || !counts) return
    const [cost, maxWaitUs] = [costOf(random), maxWaitOf(random)]
    const before = key.peek(cost, maxWaitUs).toJSON()
    key.algorithm.adopt(key.state, 0, key.nowUs, key.algorithm)
    assert.deepStrictEqual(key.peek(cost, maxWaitUs).toJSON(), before)
  })
}

/** One key of an algorithm: its state and the time. */
class Key {
  readonly algorithm: Algorithm
  readonly state: Float64Array
  nowUs: number

  /** `algorithm` is what its `begin` returned, if it has one. */
  constructor(algorithm: Algorithm, nowUs: number) {
    this.algorithm = algorithm
    this.state = new Float64Array(algorithm.lanes)
    this.nowUs = nowUs
  }

  /** Whether the state is that of a key never seen. Stores keep no such state. */
  get isUnused(): boolean {
    return this.state.every(lane => lane === 0)
  }

  /** A key never seen, of the same limiter. */
  fresh(): Key {
    return new Key(this.algorithm, this.nowUs)
  }

  /** Requests permits after `gapUs`. */
  take(cost: number, maxWaitUs = 0, gapUs = 0): Decision {
    this.nowUs += gapUs
    return this.algorithm.step(this.state, 0, this.nowUs, cost, maxWaitUs, true)
  }

  /** What a request would be answered in `inUs`. Takes nothing. */
  peek(cost: number, maxWaitUs = 0, inUs = 0): Decision {
    return this.algorithm.step(this.state, 0, this.nowUs + inUs, cost, maxWaitUs, false)
  }

  /** Books permits. Where the algorithm cannot, takes some that are there, after a wait if need be. Undefined if it refuses. */
  book(random: Random): Booking | undefined {
    const { bookable } = this.algorithm
    if (!bookable) this.nowUs += this.untilOneUs()
    const { limit, remaining } = this.peek(0)
    const cost = random.integer(1, Math.max(1, Math.min(10, bookable ? limit : remaining)))
    const { allowed, waitUs } = this.take(cost, bookable ? Infinity : 0)
    if (!allowed) return undefined
    return { atUs: this.nowUs, actUs: this.nowUs + waitUs, cost, mark: this.state.slice() }
  }

  /** Until a single permit is granted; 0 if it never is. */
  private untilOneUs(): number {
    const { retryAfterUs } = this.peek(1)
    return retryAfterUs === Infinity ? 0 : retryAfterUs
  }
}

const START_US = 1_700_000_000_000_000

/** A key with random requests behind it. Every second one has nothing left, where most mistakes show. */
function usedKey(algorithm: Algorithm, random: Random): Key {
  const key = new Key(algorithm.begin?.(START_US) ?? algorithm, START_US)
  for (const { gapUs, cost, maxWaitUs } of requestsOf(random, 40)) key.take(cost, maxWaitUs, gapUs)
  if (random.integer(0, 1) === 0) return key
  const { remaining } = key.peek(0)
  if (remaining < Infinity) key.take(remaining)
  if (random.integer(0, 3) === 0) key.nowUs += random.integer(0, 50)
  return key
}

interface Request {
  readonly gapUs: number
  readonly cost: number
  readonly maxWaitUs: number
}

function requestsOf(random: Random, most: number): Request[] {
  return random.list(most, () => ({
    gapUs: gapOf(random),
    cost: costOf(random),
    maxWaitUs: maxWaitOf(random),
  }))
}

/** 0, less than a refill, or longer. */
function gapOf(random: Random): number {
  return random.pick([0, random.integer(0, 50), random.integer(0, 20_000)])
}

function costOf(random: Random): number {
  return random.pick([1, 1, random.integer(0, 25)])
}

function maxWaitOf(random: Random): number {
  return random.pick([0, 0, random.integer(0, 30_000), Infinity])
}

function waitsOf({ allowed, waitUs, retryAfterUs }: Decision): object {
  return { allowed, waitUs, retryAfterUs }
}
