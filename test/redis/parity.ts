import { isDeepStrictEqual } from 'node:util'
import {
  type Algorithm,
  createLimiter,
  cycle,
  fixedWindow,
  type Limiter,
  leakyBucket,
  RateLimitedError,
  type Reservation,
  slidingLog,
  slidingWindow,
  smoothBursty,
  smoothWarmingUp,
  tokenBucket,
} from '@sluice/core'
import type { Ladder } from '@sluice/core/store'
import { type ManualClock, manualClock } from '@sluice/core/testing'
import type { RedisStore } from '@sluice/redis'
import fc from 'fast-check'
import { ALGORITHMS } from '../support/algorithms.js'
import { cost, gapUs } from '../support/scripts.js'

/*
 * Parity: a limiter in memory and one on a server are told the same at the same times, and every answer is to be equal, to
 * the last bit. A life is what happens to one limiter. It is shorter than what memory does before it forgets a key that has
 * rested, and never goes back to options that it has had: a state on the server says under which it was written, and not when.
 */

/** What happens to one limiter. */
export interface Life {
  readonly algorithm: Algorithm
  /** What it is changed to, one after the other. */
  readonly changes: readonly Algorithm[]
  readonly maxWait: number | undefined
  readonly steps: readonly Step[]
}

export interface Step {
  readonly verb: Verb
  readonly gapUs: number
  readonly key: string
  readonly cost: number
  readonly maxWait: number | undefined
  /** Which of the bookings so far is given back. */
  readonly place: number
}

type Verb = keyof typeof VERBS

/** How many were compared. */
export interface Counts {
  lives: number
  answers: number
  decisions: number
  granted: number
  differences: number
}

export function noCounts(): Counts {
  return { lives: 0, answers: 0, decisions: 0, granted: 0, differences: 0 }
}

/** What both limiters are asked by; some of it is not for users. */
interface Insider extends Limiter {
  strike(key: string, ladder: Ladder): unknown
  charge(key: string, cost: number): unknown
}

interface Asked {
  readonly limiter: Insider
  readonly bookings: Reservation[]
  readonly changes: Algorithm[]
}

/** What is done to either limiter, and how often. */
const VERBS = {
  tryAcquire: [8, ({ limiter }: Asked, { key, cost }: Step) => limiter.tryAcquire(key, { cost })],
  reserve: [
    8,
    async ({ limiter, bookings }: Asked, { key, cost, maxWait }: Step) => {
      const booking = await limiter.reserve(key, { cost, maxWait })
      bookings.push(booking)
      return booking
    },
  ],
  acquire: [2, ({ limiter }: Asked, { key, cost }: Step) => limiter.acquire(key, { cost, maxWait: 0 })],
  peek: [3, ({ limiter }: Asked, { key, cost }: Step) => limiter.peek(key, { cost })],
  cancel: [4, ({ bookings }: Asked, { place }: Step) => bookings.at(-place)?.cancel()],
  refund: [4, ({ bookings }: Asked, { place }: Step) => bookings.at(-place)?.refund()],
  release: [3, ({ limiter }: Asked, { key, cost }: Step) => limiter.release(key, cost)],
  drain: [2, ({ limiter }: Asked, { key }: Step) => limiter.drain(key)],
  charge: [1, ({ limiter }: Asked, { key, cost }: Step) => limiter.charge(key, cost)],
  update: [
    2,
    ({ limiter, changes }: Asked) => {
      const [change] = changes.splice(0, 1)
      return change && limiter.update(change)
    },
  ],
  block: [1, ({ limiter }: Asked, { key, cost }: Step) => limiter.block(key, (1 + cost) / 10)],
  unblock: [1, ({ limiter }: Asked, { key }: Step) => limiter.unblock(key)],
  strike: [2, ({ limiter }: Asked, { key }: Step) => limiter.strike(key, LADDER)],
  reset: [1, ({ limiter }: Asked, { key }: Step) => limiter.reset(key)],
} satisfies Record<string, readonly [weight: number, act: (asked: Asked, step: Step) => unknown]>

const LADDER: Ladder = { after: 2, stepsUs: [500, 3000] }
const KEYS = ['ann', '{bob}%', 'é'.repeat(70)]

/** Lives of limiters with one of these algorithms at first. */
export function lives(algorithms: fc.Arbitrary<Algorithm>, name: string): fc.Arbitrary<Life> {
  const change = fc.oneof({ weight: 7, arbitrary: sameAlgorithm(algorithms, name) }, anyAlgorithm)
  return fc
    .record({
      algorithm: fc.oneof({ weight: 4, arbitrary: algorithms }, sameAlgorithm(algorithms, name)),
      changes: fc.array(change, { maxLength: 4 }),
      maxWait: fc.option(fc.constantFrom(0, 5, Infinity), { nil: undefined, freq: 2 }),
      goesBack: fc.boolean(),
      steps: fc.array(step(), { minLength: 1, maxLength: LONGEST, size: 'max' }),
    })
    .map(life => ({ ...life, changes: neverBack(life.algorithm, life.changes) }))
    .map(({ goesBack, ...life }) => ({ ...life, steps: life.steps.map(goesBack ? withoutPenalty : onwards) }))
}

/** Lives of sliding logs that grow to hundreds of entries. */
export function longLives(): fc.Arbitrary<Life> {
  const log = fc
    .record({ limit: fc.integer({ min: 100, max: 700 }), window: fc.integer({ min: 1, max: 20 }) })
    .map(options => slidingLog(options))
  const usual = fc.record({
    verb: fc.constantFrom('tryAcquire' as const, 'reserve' as const),
    gapUs: fc.nat(60),
    key: fc.constant('ann'),
    cost: fc.oneof({ weight: 5, arbitrary: fc.constant(1) }, fc.nat(40)),
    maxWait: fc.constant(0),
    place: fc.constant(1),
  })
  const other = step().map(step =>
    onwards({ ...step, key: 'ann', place: step.place ** 3, cost: step.cost % 100 }),
  )
  const steps = fc.array(fc.oneof({ weight: 8, arbitrary: usual }, other), {
    minLength: 200,
    maxLength: 400,
    size: 'max',
  })
  return fc
    .record({ algorithm: log, changes: fc.array(log, { maxLength: 4 }), steps })
    .map(({ algorithm, changes, steps }) => ({
      algorithm,
      changes: neverBack(algorithm, changes),
      maxWait: undefined,
      // What empties the log is rare, or it would not grow.
      steps: steps.map(step =>
        step.gapUs > 1000 || RARE.includes(step.verb) ? { ...step, gapUs: 1, verb: 'peek' as const } : step,
      ),
    }))
}

const RARE: readonly Verb[] = ['reset', 'drain', 'strike', 'block']

/** Memory may have forgotten a penalty that is over, which a clock that goes back would find again. */
function withoutPenalty(step: Step): Step {
  return step.verb === 'block' || step.verb === 'strike' ? { ...step, verb: 'peek' } : step
}

function onwards(step: Step): Step {
  return { ...step, gapUs: Math.abs(step.gapUs) }
}

/** Memory looks for keys that it may forget once it has been asked that often, or less with new keys. */
const LONGEST = 40

const anyAlgorithm = fc.oneof(...ALGORITHMS.map(({ algorithm }) => algorithm))

function step(): fc.Arbitrary<Step> {
  const verbs = Object.entries(VERBS).map(([verb, [weight]]) => ({
    weight,
    arbitrary: fc.constant(verb as Verb),
  }))
  return fc.record({
    verb: fc.oneof(...verbs),
    gapUs: fc.oneof(
      { weight: 8, arbitrary: gapUs() },
      { weight: 3, arbitrary: fc.constant(0) },
      { weight: 1, arbitrary: fc.integer({ min: 0, max: 100_000_000 }) },
      // All of them together less than the second by which a server's clock has been set back.
      { weight: 1, arbitrary: fc.integer({ min: -20_000, max: -1 }) },
    ),
    key: fc.oneof({ weight: 5, arbitrary: fc.constant('ann') }, fc.constantFrom(...KEYS)),
    cost: fc.oneof(
      { weight: 12, arbitrary: cost() },
      fc.constantFrom(100, 1000, 123_457, Number.MAX_SAFE_INTEGER),
    ),
    maxWait: fc.oneof(
      fc.constantFrom(undefined, 0, Infinity),
      fc.integer({ min: 0, max: 30_000 }).map(us => us / 1000),
    ),
    place: fc.oneof(fc.constant(1), fc.integer({ min: 1, max: 5 })),
  })
}

/** With the options of the laws, with large ones, and with those that refuse everything. */
function sameAlgorithm(algorithms: fc.Arbitrary<Algorithm>, name: string): fc.Arbitrary<Algorithm> {
  const others = OTHERS[name]
  return others === undefined ? algorithms : fc.oneof({ weight: 3, arbitrary: algorithms }, others)
}

const large = {
  limit: fc.oneof(fc.constant(0), fc.integer({ min: 1, max: 1_000_000 })),
  window: fc.oneof(
    fc.constantFrom<number>(1000, 60_000, 86_400_000),
    fc.integer({ min: 1, max: 10_000_000 }).map(us => us / 1000),
  ),
}
const permits = fc.oneof(fc.nat(30), fc.nat(1_000_000))

const OTHERS: Readonly<Record<string, fc.Arbitrary<Algorithm>>> = {
  tokenBucket: fc
    .record({ ...large, burst: permits })
    // What takes more than 200 years to come back is no burst.
    .map(({ limit, window, burst }) =>
      tokenBucket({ limit, window, burst: Math.min(burst, 30 + 10 * limit) }),
    ),
  leakyBucket: fc.record({ ...large, capacity: permits }).map(options => leakyBucket(options)),
  fixedWindow: fc
    .record({ ...large, align: fc.constantFrom('first' as const, 'epoch' as const) })
    .map(options => fixedWindow(options)),
  slidingWindow: fc
    .record({ ...large, slices: fc.integer({ min: 1, max: 12 }) })
    .map(({ limit, window, slices }) =>
      slidingWindow({ limit, window: Math.max(window, slices / 1000), slices }),
    ),
  slidingLog: fc.record(large).map(options => slidingLog(options)),
  cycle: fc
    .record({ ...large, origin: fc.nat(100_000) })
    .map(({ limit, window, origin }) => cycle({ limit, period: window, origin })),
  smoothBursty: fc
    .record({ ...large, maxBurst: fc.constantFrom(0, 1, 1000, 60_000) })
    .map(({ limit, window, maxBurst }) => smoothBursty({ limit: bounded(limit, window), window, maxBurst })),
  smoothWarmingUp: fc
    .record({
      ...large,
      warmup: fc.constantFrom(0, 1, 3000, 60_000),
      coldFactor: fc.constantFrom(1, 1.1, 3, 7.7),
    })
    .map(({ limit, window, warmup, coldFactor }) =>
      smoothWarmingUp({ limit: bounded(limit, window), window, warmup, coldFactor }),
    ),
}

/** No more than one permit a microsecond. */
function bounded(limit: number, windowMs: number): number {
  return Math.min(limit, Math.floor(windowMs * 1000))
}

/** Without options that it has had, and without a way back to algorithms, or numbers of slices, that it has left. */
function neverBack(first: Algorithm, changes: readonly Algorithm[]): readonly Algorithm[] {
  const kept: Algorithm[] = [first]
  for (const change of changes) {
    const last = kept.at(-1) as Algorithm
    const wasThere = kept.some(
      before => isAlike(before, change) && isDeepStrictEqual(before.args, change.args),
    )
    const wasLeft = !isAlike(last, change) && kept.some(before => isAlike(before, change))
    if (!wasThere && !wasLeft) kept.push(change)
  }
  return kept.slice(1)
}

/** Whether the one can read the states of the other. */
function isAlike(a: Algorithm, b: Algorithm): boolean {
  return a.name === b.name && a.lanes === b.lanes
}

/** Lives a life in memory and on a server at once. Returns the answers that differ. */
export async function differences(life: Life, store: RedisStore, counts: Counts): Promise<string[]> {
  const clock = manualClock()
  const options = { name: nextName(), clock, maxWait: life.maxWait }
  const memory = asked(createLimiter(rested(life.algorithm), options), life.changes.map(rested))
  const server = asked(createLimiter(life.algorithm, { ...options, store }), life.changes)
  const found: string[] = []
  counts.lives++

  const compare = async (what: string, act: (asked: Asked) => unknown) => {
    const ours = await answerOf(() => act(memory))
    const theirs = await answerOf(() => act(server))
    counts.answers++
    if (isDecision(ours)) counts.decisions++
    if (isDecision(ours) && ours.allowed) counts.granted++
    if (isDeepStrictEqual(ours, theirs)) return
    counts.differences++
    found.push(`${what}\n  in memory ${shown(ours)}\n  on Redis  ${shown(theirs)}`)
  }

  for (const [index, step] of life.steps.entries()) {
    move(clock, step.gapUs)
    const [, act] = VERBS[step.verb]
    await compare(`step ${index}, ${described(step)}`, asked => act(asked, step))
  }
  for (const key of KEYS)
    for (const cost of [0, 1])
      await compare(`${key} in the end`, ({ limiter }) => limiter.peek(key, { cost }))
  return found
}

let names = 0

/** One that no limiter on the store has had. */
export function nextName(): string {
  return `limiter ${names++}`
}

/** Memory knows since when there is a limiter; on a server there is no such time, and a key never seen has rested since ever. */
export function rested(algorithm: Algorithm): Algorithm {
  if (algorithm.name !== 'smooth-bursty') return algorithm
  return Object.create(algorithm, { begin: { value: undefined } })
}

function asked(limiter: Limiter, changes: readonly Algorithm[]): Asked {
  return { limiter: limiter as Insider, bookings: [], changes: [...changes] }
}

export function move(clock: ManualClock, byUs: number): void {
  clock.set(Math.round(clock.nowUs() + byUs) / 1000)
}

/** What is to be equal: the figures of a decision or of a refusal, a number, or what was thrown. */
export async function answerOf(act: () => unknown): Promise<unknown> {
  try {
    return figuresOf(await act())
  } catch (error) {
    if (error instanceof RateLimitedError) return { rejected: figuresOf(error.decision) }
    const { code, message, cause } = error as Error & { code?: unknown }
    return { code, message, cause: (cause as Error | undefined)?.message }
  }
}

/** Decisions as plain data, the parts of a joint one included. */
function figuresOf(answer: unknown): unknown {
  const { toJSON, parts } = (answer ?? {}) as { toJSON?(): object; parts?: readonly { decision: unknown }[] }
  if (toJSON === undefined) return answer
  const figures = toJSON.call(answer)
  if (parts === undefined) return figures
  return { ...figures, parts: parts.map(part => ({ ...part, decision: figuresOf(part.decision) })) }
}

function isDecision(answer: unknown): answer is { readonly allowed: boolean } {
  return typeof answer === 'object' && answer !== null && 'allowed' in answer
}

function described({ verb, gapUs, key, cost, maxWait, place }: Step): string {
  return `${verb} of ${key} after ${gapUs} us, cost ${cost}, maxWait ${maxWait}, booking -${place}`
}

function shown(answer: unknown): string {
  return JSON.stringify(answer, (_, value) => (value === Infinity ? 'Infinity' : value)) ?? 'nothing'
}
