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
 * Parity: a limiter in memory and one on a server get the same calls at the same times, and every answer must be equal, to the
 * last bit. A history is a limiter and its calls. It is too short for memory to forget a rested key. It never goes back to
 * options that it had before: a state on the server has the options it was written under, but not which of two times.
 */

/** A limiter, and the calls that it gets. */
export interface History {
  readonly algorithm: Algorithm
  /** The algorithms of its updates, in their order. */
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
  /** Which booking is given back: the last one is 1. */
  readonly place: number
}

type Verb = keyof typeof VERBS

/** How many things were compared. */
export interface Counts {
  histories: number
  answers: number
  decisions: number
  granted: number
  differences: number
}

export function noCounts(): Counts {
  return { histories: 0, answers: 0, decisions: 0, granted: 0, differences: 0 }
}

/** A limiter with its internal verbs. */
interface Insider extends Limiter {
  strike(key: string, ladder: Ladder): unknown
  charge(key: string, cost: number): unknown
}

interface Subject {
  readonly limiter: Insider
  readonly bookings: Reservation[]
  readonly changes: Algorithm[]
}

/** The verbs, and how often each is called. */
const VERBS = {
  tryAcquire: [8, ({ limiter }: Subject, { key, cost }: Step) => limiter.tryAcquire(key, { cost })],
  reserve: [
    8,
    async ({ limiter, bookings }: Subject, { key, cost, maxWait }: Step) => {
      const booking = await limiter.reserve(key, { cost, maxWait })
      bookings.push(booking)
      return booking
    },
  ],
  acquire: [2, ({ limiter }: Subject, { key, cost }: Step) => limiter.acquire(key, { cost, maxWait: 0 })],
  peek: [3, ({ limiter }: Subject, { key, cost }: Step) => limiter.peek(key, { cost })],
  cancel: [4, ({ bookings }: Subject, { place }: Step) => bookings.at(-place)?.cancel()],
  refund: [4, ({ bookings }: Subject, { place }: Step) => bookings.at(-place)?.refund()],
  release: [3, ({ limiter }: Subject, { key, cost }: Step) => limiter.release(key, cost)],
  drain: [2, ({ limiter }: Subject, { key }: Step) => limiter.drain(key)],
  charge: [1, ({ limiter }: Subject, { key, cost }: Step) => limiter.charge(key, cost)],
  update: [
    2,
    ({ limiter, changes }: Subject) => {
      const [change] = changes.splice(0, 1)
      return change && limiter.update(change)
    },
  ],
  block: [1, ({ limiter }: Subject, { key, cost }: Step) => limiter.block(key, (1 + cost) / 10)],
  unblock: [1, ({ limiter }: Subject, { key }: Step) => limiter.unblock(key)],
  strike: [2, ({ limiter }: Subject, { key }: Step) => limiter.strike(key, LADDER)],
  reset: [1, ({ limiter }: Subject, { key }: Step) => limiter.reset(key)],
} satisfies Record<string, readonly [weight: number, act: (subject: Subject, step: Step) => unknown]>

const LADDER: Ladder = { after: 2, stepsUs: [500, 3000] }
const KEYS = ['ann', '{bob}%', 'é'.repeat(70)]

/** Histories of limiters that begin with one of these algorithms. */
export function histories(algorithms: fc.Arbitrary<Algorithm>, name: string): fc.Arbitrary<History> {
  const change = fc.oneof({ weight: 7, arbitrary: sameAlgorithm(algorithms, name) }, anyAlgorithm)
  return fc
    .record({
      algorithm: fc.oneof({ weight: 4, arbitrary: algorithms }, sameAlgorithm(algorithms, name)),
      changes: fc.array(change, { maxLength: 4 }),
      maxWait: fc.option(fc.constantFrom(0, 5, Infinity), { nil: undefined, freq: 2 }),
      goesBack: fc.boolean(),
      steps: fc.array(step(), { minLength: 1, maxLength: LONGEST, size: 'max' }),
    })
    .map(history => ({ ...history, changes: neverBack(history.algorithm, history.changes) }))
    .map(({ goesBack, ...history }) => ({
      ...history,
      steps: history.steps.map(goesBack ? withoutPenalty : onwards),
    }))
}

/** Histories of sliding logs that grow to hundreds of entries. */
export function longHistories(): fc.Arbitrary<History> {
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
      // Verbs and gaps that empty the log are replaced, or it would not grow.
      steps: steps.map(step =>
        step.gapUs > 1000 || RARE.includes(step.verb) ? { ...step, gapUs: 1, verb: 'peek' as const } : step,
      ),
    }))
}

const RARE: readonly Verb[] = ['reset', 'drain', 'strike', 'block']

/** A clock that goes back finds a past penalty again on a server, but memory may have forgotten it. */
function withoutPenalty(step: Step): Step {
  return step.verb === 'block' || step.verb === 'strike' ? { ...step, verb: 'peek' } : step
}

function onwards(step: Step): Step {
  return { ...step, gapUs: Math.abs(step.gapUs) }
}

/** After more calls than this, memory looks for keys that it can forget. */
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
      // All of them together are less than a second, so that no state counts as written after a change.
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

/** The options of the laws, large options, and limits of 0. */
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
    // A burst must refill within 200 years.
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

/** Drops changes back to earlier options, or to an algorithm or a number of slices that the limiter has left. */
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

/** Whether each can read the states of the other. */
function isAlike(a: Algorithm, b: Algorithm): boolean {
  return a.name === b.name && a.lanes === b.lanes
}

/** Replays a history in memory and on a server. Returns the answers that differ. */
export async function differences(history: History, store: RedisStore, counts: Counts): Promise<string[]> {
  const clock = manualClock()
  const options = { name: nextName(), clock, maxWait: history.maxWait }
  const memory = subjectOf(createLimiter(rested(history.algorithm), options), history.changes.map(rested))
  const server = subjectOf(createLimiter(history.algorithm, { ...options, store }), history.changes)
  const found: string[] = []
  counts.histories++

  const compare = async (what: string, act: (subject: Subject) => unknown) => {
    const ours = await answerOf(() => act(memory))
    const theirs = await answerOf(() => act(server))
    counts.answers++
    if (isDecision(ours)) counts.decisions++
    if (isDecision(ours) && ours.allowed) counts.granted++
    if (isDeepStrictEqual(ours, theirs)) return
    counts.differences++
    found.push(`${what}\n  in memory ${shown(ours)}\n  on Redis  ${shown(theirs)}`)
  }

  for (const [index, step] of history.steps.entries()) {
    move(clock, step.gapUs)
    const [, act] = VERBS[step.verb]
    await compare(`step ${index}, ${described(step)}`, subject => act(subject, step))
  }
  for (const key of KEYS)
    for (const cost of [0, 1])
      await compare(`${key} in the end`, ({ limiter }) => limiter.peek(key, { cost }))
  return found
}

let names = 0

/** A name that no limiter has had. */
export function nextName(): string {
  return `limiter ${names++}`
}

/** An algorithm whose fresh keys have rested since the epoch, as on a server. In memory they have since the limiter was made. */
export function rested(algorithm: Algorithm): Algorithm {
  if (algorithm.name !== 'smooth-bursty') return algorithm
  return Object.create(algorithm, { begin: { value: undefined } })
}

function subjectOf(limiter: Limiter, changes: readonly Algorithm[]): Subject {
  return { limiter: limiter as Insider, bookings: [], changes: [...changes] }
}

export function move(clock: ManualClock, byUs: number): void {
  clock.set(Math.round(clock.nowUs() + byUs) / 1000)
}

/** What must be equal: the figures of a decision or of a refusal, a number, or an error. */
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
