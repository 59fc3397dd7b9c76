import type { Algorithm, Booking } from '../algorithms/algorithm.js'
import type { Decision } from '../algorithms/decision.js'
import { type ContractTools, type Random, repeat } from './contract-tools.js'

/** What an algorithm does never or hardly ever, so that a law about it has nothing to look at. */
export type Unreachable =
  /** It grants every cost at once, as `unlimited` does. */
  | 'refusal'
  /** A refused ask never passes later, as with a limit of 0. */
  | 'later grant'
  /** Every cost is granted at some time, as where the next caller pays. */
  | 'impossible cost'
  /** No permits come back, or there is no end to them. */
  | 'refill'
  /** Nothing can be given back. */
  | 'give-back'

/** What the suite has to know of an algorithm. */
export interface AlgorithmContractOptions {
  /** Shown in the names of the tests. */
  readonly name: string
  /**
   * One or more algorithms of the kind, with different options. Keep windows short, up to about 100 ms, and limits small, up
   * to about 50: the suite asks for up to 25 permits in steps of up to 20 ms.
   */
  readonly algorithms: readonly Algorithm[]
  /**
   * Whether its state is a count of permits: exactly `remaining` more pass now, and the balance grows by what is given back.
   * False where costs are rounded, as with Guava's smooth limiters: at least `remaining` more pass then. Default true.
   */
  readonly counts?: boolean | undefined
  /** What it does never or hardly ever; anything else must be reached in a fifth of the runs. */
  readonly unreachable?: readonly Unreachable[] | undefined
  /** How often each law is tried; default 300. */
  readonly runs?: number | undefined
  /** Where the random numbers begin; default 1. */
  readonly seed?: number | undefined
}

/**
 * Declares the laws that every algorithm obeys, as tests: a refusal changes nothing, an ask is refused before its retryAfter
 * and granted at it, exactly `remaining` more permits pass, a rested key is like a new one, and so on.
 *
 * Works with any test framework. Throws a TypeError for an empty list of algorithms.
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

  /** A law about every key. */
  const law = (title: string, check: (key: Key, random: Random) => void) => {
    test(`${name}: ${title}`, () => {
      repeat(runs, seed, (random, run) =>
        check(usedKey(algorithms[run % algorithms.length] as Algorithm, random), random),
      )
    })
  }

  /** A law with a premise: `check` returns whether it was met, which must happen often enough to mean something. */
  const lawWhere = (premise: Unreachable, title: string, check: (key: Key, random: Random) => boolean) => {
    test(`${name}: ${title}`, () => {
      let met = 0
      repeat(runs, seed, (random, run) => {
        if (check(usedKey(algorithms[run % algorithms.length] as Algorithm, random), random)) met++
      })
      if (unreachable.includes(premise))
        assert.ok(met < runs / 5, `'${premise}' is reached in ${met} of ${runs} runs: it is not unreachable`)
      else assert.ok(met >= runs / 5, `only ${met} of ${runs} runs reached '${premise}'`)
    })
  }

  lawWhere('refusal', 'a refusal changes nothing', (key, random) => {
    const before = key.state.slice()
    const decision = key.ask(costOf(random), maxWaitOf(random))
    if (!decision.allowed) assert.deepStrictEqual(key.state, before)
    return !decision.allowed
  })

  law('a look and an ask of cost 0 change nothing, and cost 0 is always granted', (key, random) => {
    const before = key.state.slice()
    const maxWaitUs = maxWaitOf(random)
    key.look(costOf(random), maxWaitUs)
    const { allowed, waitMs } = key.ask(0, maxWaitUs)
    assert.deepStrictEqual({ allowed, waitMs }, { allowed: true, waitMs: 0 })
    assert.deepStrictEqual(key.state, before)
  })

  law('a look answers what an ask would', (key, random) => {
    const [cost, maxWaitUs] = [costOf(random), maxWaitOf(random)]
    const look = key.look(cost, maxWaitUs)
    const ask = key.ask(cost, maxWaitUs)
    assert.deepStrictEqual(waitsOf(look), waitsOf(ask))
  })

  lawWhere(
    'later grant',
    'a refused ask is refused until its retryAfter and granted at it, to the microsecond',
    (key, random) => {
      const [cost, maxWaitUs] = [costOf(random), maxWaitOf(random)]
      const { allowed, retryAfterUs } = key.look(cost, maxWaitUs)
      if (allowed || retryAfterUs === Infinity) return false
      assert.strictEqual(key.look(cost, maxWaitUs, retryAfterUs - 1).allowed, false, 'granted too early')
      assert.strictEqual(key.look(cost, maxWaitUs, retryAfterUs).allowed, true, 'refused at its retryAfter')
      return true
    },
  )

  lawWhere(
    'later grant',
    'a refused ask passes without waiting after its wait, and not before',
    (key, random) => {
      const [cost, maxWaitUs] = [costOf(random), maxWaitOf(random)]
      const { allowed, waitUs } = key.look(cost, maxWaitUs)
      if (allowed || waitUs === Infinity) return false
      assert.strictEqual(key.look(cost, 0, waitUs - 1).allowed, false, 'granted too early')
      assert.strictEqual(key.look(cost, 0, waitUs).allowed, true, 'refused after its wait')
      return true
    },
  )

  lawWhere(
    'impossible cost',
    'a cost that can never be granted is not granted later either',
    (key, random) => {
      const cost = random.pick([costOf(random), 1_000_000])
      if (key.look(cost, Infinity).retryAfterUs < Infinity) return false
      const { allowed, waitMs } = key.look(cost, Infinity, gapOf(random))
      assert.deepStrictEqual({ allowed, waitMs }, { allowed: false, waitMs: Infinity })
      return true
    },
  )

  law(`${counts ? 'exactly' : 'at least'} \`remaining\` more single permits pass now`, key => {
    const { remaining } = key.look(0)
    if (remaining === Infinity) return
    for (let permit = 0; permit < remaining; permit++)
      assert.ok(key.ask(1).allowed, `permit ${permit + 1} of ${remaining}`)
    if (counts) assert.strictEqual(key.ask(1).allowed, false, `more than ${remaining} pass`)
  })

  lawWhere('refill', '`remaining` grows after refillAfter, and not before', key => {
    const { remaining, refillAfterMs } = key.look(0)
    if (refillAfterMs === 0 || refillAfterMs === Infinity) return false
    const refillAfterUs = Math.round(refillAfterMs * 1000)
    assert.strictEqual(key.look(0, 0, refillAfterUs - 1).remaining, remaining)
    assert.ok(key.look(0, 0, refillAfterUs).remaining > remaining, 'remaining has not grown')
    return true
  })

  law('`remaining` is the whole part of the balance, from 0 to the limit', key => {
    const { remaining, balance, limit } = key.look(0)
    assert.strictEqual(remaining, Math.max(0, Math.min(limit, Math.floor(balance + 1e-9))))
  })

  law('a key rests at resetAfter, and decides then like a key never seen', (key, random) => {
    if (key.isUnused) return
    const restsAtUs = key.algorithm.restsAt(key.state, 0)
    const resetAfterUs = Math.round(key.look(0).resetAfterMs * 1000)
    assert.strictEqual(key.nowUs + resetAfterUs, Math.max(restsAtUs, key.nowUs))
    if (restsAtUs === Infinity) return
    key.nowUs = Math.max(key.nowUs, restsAtUs)
    const fresh = key.fresh()
    for (const { gapUs, cost, maxWaitUs } of asksOf(random, 10)) {
      const ask = (one: Key) => one.ask(cost, maxWaitUs, gapUs).toJSON()
      assert.deepStrictEqual(ask(key), ask(fresh))
    }
  })

  law('`load` is a share of the limit, and 1 exactly while a single permit would be refused', key => {
    const load = key.algorithm.load(key.state, 0, key.nowUs)
    assert.ok(load >= 0 && load <= 1, `load is ${load}`)
    assert.strictEqual(load === 1, !key.look(1).allowed)
  })

  law('every figure is a number, and none but the balance is negative', (key, random) => {
    const { allowed, code, balance, ...figures } = key.look(costOf(random), maxWaitOf(random)).toJSON()
    assert.strictEqual(typeof allowed, 'boolean')
    assert.ok(!Number.isNaN(balance), 'balance is NaN')
    for (const [figure, value] of Object.entries(figures)) assert.ok(value >= 0, `${figure} is ${value}`)
  })

  law('an algorithm keeps to its lanes, wherever they start', (key, random) => {
    const alone = key.fresh()
    const { algorithm } = alone
    const state = new Float64Array(algorithm.lanes + 2).fill(7)
    state.fill(0, 1, algorithm.lanes + 1)
    for (const { gapUs, cost, maxWaitUs } of asksOf(random, 20)) {
      const expected = alone.ask(cost, maxWaitUs, gapUs).toJSON()
      assert.deepStrictEqual(algorithm.step(state, 1, alone.nowUs, cost, maxWaitUs, true).toJSON(), expected)
    }
    assert.deepStrictEqual([state[0], state[state.length - 1]], [7, 7])
  })

  law('a clock that goes back grants no more than `remaining` said', (key, random) => {
    const { remaining } = key.look(0)
    key.nowUs -= random.integer(0, 50_000)
    for (let permit = 0; permit < Math.min(remaining, 1000); permit++) key.ask(1)
    if (counts && remaining < 1000)
      assert.strictEqual(key.ask(1).allowed, false, 'going back earned a permit')
  })

  lawWhere(
    'give-back',
    'a booking gives back at most its cost, and the balance grows by that',
    (key, random) => {
      const booking = key.book(random.integer(1, 10))
      if (booking === undefined) return false
      const before = key.look(0).balance
      const verb = random.pick(['cancel', 'refund'] as const)
      const given =
        verb === 'cancel'
          ? key.algorithm.cancel(key.state, 0, key.nowUs, booking)
          : key.algorithm.refund(key.state, 0, Math.max(key.nowUs, booking.actUs), booking.cost, booking)
      assert.ok(given >= 0 && given <= booking.cost, `${verb} of ${booking.cost} gave back ${given}`)
      const growth = key.look(0).balance - before
      if (counts && verb === 'cancel' && before < Infinity)
        assert.ok(Math.abs(growth - given) < 1e-6, `balance grew by ${growth}, not ${given}`)
      return given > 0
    },
  )

  law(
    'without a booking at most what was taken comes back, and never more than the limit is there',
    (key, random) => {
      const permits = random.integer(0, 30)
      const given = key.algorithm.refund(key.state, 0, key.nowUs, permits)
      assert.ok(given >= 0 && given <= permits, `${given} of ${permits} came back`)
      const { remaining, limit } = key.look(0)
      assert.ok(remaining <= limit, `${remaining} remain of ${limit}`)
    },
  )

  law('changing to equal options changes no answer', (key, random) => {
    if (key.isUnused || !counts) return
    const [cost, maxWaitUs] = [costOf(random), maxWaitOf(random)]
    const before = key.look(cost, maxWaitUs).toJSON()
    key.algorithm.adopt(key.state, 0, key.nowUs, key.algorithm)
    assert.deepStrictEqual(key.look(cost, maxWaitUs).toJSON(), before)
  })
}

/** One key of an algorithm: its state and the time. */
class Key {
  readonly algorithm: Algorithm
  readonly state: Float64Array
  nowUs: number

  /** `algorithm` is one that has begun. */
  constructor(algorithm: Algorithm, nowUs: number) {
    this.algorithm = algorithm
    this.state = new Float64Array(algorithm.lanes)
    this.nowUs = nowUs
  }

  /** Whether nothing was ever taken: a store keeps no state of such a key, and converts none. */
  get isUnused(): boolean {
    return this.state.every(lane => lane === 0)
  }

  /** A key of the same limiter that was never seen. */
  fresh(): Key {
    return new Key(this.algorithm, this.nowUs)
  }

  /** Asks after a while, and takes what is granted. */
  ask(cost: number, maxWaitUs = 0, gapUs = 0): Decision {
    this.nowUs += gapUs
    return this.algorithm.step(this.state, 0, this.nowUs, cost, maxWaitUs, true)
  }

  /** What an ask would be answered later, without taking anything. */
  look(cost: number, maxWaitUs = 0, inUs = 0): Decision {
    return this.algorithm.step(this.state, 0, this.nowUs + inUs, cost, maxWaitUs, false)
  }

  /** Books permits at once, or for the future where the algorithm can; undefined when refused. */
  book(cost: number): Booking | undefined {
    const { allowed, waitUs } = this.ask(cost, this.algorithm.bookable ? Infinity : 0)
    if (!allowed) return undefined
    return { atUs: this.nowUs, actUs: this.nowUs + waitUs, cost, mark: this.state.slice() }
  }
}

const START_US = 1_700_000_000_000_000

/** A key with a random past; every second one has nothing left, because that is where the laws bite. */
function usedKey(algorithm: Algorithm, random: Random): Key {
  const key = new Key(algorithm.begin?.(START_US) ?? algorithm, START_US)
  for (const { gapUs, cost, maxWaitUs } of asksOf(random, 40)) key.ask(cost, maxWaitUs, gapUs)
  if (random.integer(0, 1) === 0) return key
  const { remaining } = key.look(0)
  if (remaining < Infinity) key.ask(remaining)
  if (random.integer(0, 3) === 0) key.nowUs += random.integer(0, 50)
  return key
}

interface Ask {
  readonly gapUs: number
  readonly cost: number
  readonly maxWaitUs: number
}

function asksOf(random: Random, most: number): Ask[] {
  return random.list(most, () => ({
    gapUs: gapOf(random),
    cost: costOf(random),
    maxWaitUs: maxWaitOf(random),
  }))
}

/** Often nothing, often about one refill, sometimes long. */
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
