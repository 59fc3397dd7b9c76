import { isDeepStrictEqual } from 'node:util'
import {
  type Algorithm,
  acquireAll,
  combine,
  createLimiter,
  type Limiter,
  type LimiterAsk,
  type Reservation,
  tryAcquireAll,
} from '@sluice/core'
import type { Ladder } from '@sluice/core/store'
import { manualClock } from '@sluice/core/testing'
import { redisStore } from '@sluice/redis'
import fc from 'fast-check'
import type { Redis } from 'ioredis'
import { ALGORITHMS } from '../support/algorithms.js'
import { cost, gapUs } from '../support/scripts.js'
import { answerOf, type Counts, move, rested } from './parity.js'

/*
 * Parity of several limiters that decide together: in memory one after the other in one tick, on a server in one call.
 */

/** Several limiters, and the calls that they get. */
export interface JointHistory {
  readonly algorithms: readonly Algorithm[]
  readonly steps: readonly JointStep[]
}

interface JointStep {
  readonly verb: keyof typeof VERBS
  readonly gapUs: number
  /** Which limiters are asked, and for what. */
  readonly asks: readonly { readonly place: number; readonly key: string; readonly cost: number }[]
  readonly algorithm: Algorithm
  readonly booking: number
}

/** Limiters of one store, alone and combined. */
interface Members {
  readonly limiters: readonly Limiter[]
  readonly all: Limiter
  readonly bookings: Reservation[]
}

interface Insider extends Limiter {
  strike(key: string, ladder: Ladder): unknown
}

const VERBS = {
  tryAcquireAll: [8, (members: Members, { asks }: JointStep) => tryAcquireAll(asksOf(members, asks))],
  acquireAll: [
    1,
    (members: Members, { asks }: JointStep) => acquireAll(asksOf(members, asks), { maxWait: 0 }),
  ],
  tryAcquire: [5, ({ all }: Members, step: JointStep) => all.tryAcquire(keyOf(step), costOf(step))],
  reserve: [
    5,
    async ({ all, bookings }: Members, step: JointStep) => {
      const booking = await all.reserve(keyOf(step), { ...costOf(step), maxWait: 0 })
      bookings.push(booking)
      return booking
    },
  ],
  peek: [2, ({ all }: Members, step: JointStep) => all.peek(keyOf(step), costOf(step))],
  cancel: [3, ({ bookings }: Members, { booking }: JointStep) => bookings.at(-booking)?.cancel()],
  refund: [3, ({ bookings }: Members, { booking }: JointStep) => bookings.at(-booking)?.refund()],
  release: [1, ({ all }: Members, step: JointStep) => all.release(keyOf(step), costOf(step).cost)],
  drain: [1, ({ all }: Members, step: JointStep) => all.drain(keyOf(step))],
  reset: [1, ({ all }: Members, step: JointStep) => all.reset(keyOf(step))],
  takeOfOne: [
    3,
    ({ limiters }: Members, { asks: [ask] }: JointStep) =>
      one(limiters, ask).tryAcquire(ask?.key ?? 'ann', { cost: ask?.cost ?? 1 }),
  ],
  blockOne: [1, ({ limiters }: Members, { asks: [ask] }: JointStep) => one(limiters, ask).block('ann', 3)],
  strike: [1, ({ all }: Members, step: JointStep) => (all as Insider).strike(keyOf(step), LADDER)],
  unblock: [1, ({ all }: Members, step: JointStep) => all.unblock(keyOf(step))],
  updateOne: [
    1,
    async ({ limiters }: Members, { asks: [ask], algorithm }: JointStep) => {
      const limiter = one(limiters, ask)
      // States of an algorithm that the limiter has left differ in memory and on a server.
      if (kindOf(limiter) === algorithm.name) await limiter.update(algorithm)
    },
  ],
} satisfies Record<string, readonly [weight: number, act: (members: Members, step: JointStep) => unknown]>

const LADDER: Ladder = { after: 2, stepsUs: [500, 3000] }

/** Histories of two to five limiters, one of them with one of these algorithms. */
export function jointHistories(algorithms: fc.Arbitrary<Algorithm>): fc.Arbitrary<JointHistory> {
  const any = fc.oneof(...ALGORITHMS.map(({ algorithm }) => algorithm))
  return fc.record({
    algorithms: fc
      .tuple(algorithms, fc.array(any, { minLength: 1, maxLength: 3 }), fc.nat(3))
      .map(([first, others, place]) => others.toSpliced(place, 0, first)),
    steps: fc.array(
      fc.record({
        verb: fc.oneof(
          ...Object.entries(VERBS).map(([verb, [weight]]) => ({
            weight,
            arbitrary: fc.constant(verb as keyof typeof VERBS),
          })),
        ),
        gapUs: gapUs(),
        asks: fc.array(
          fc.record({ place: fc.nat(3), key: fc.constantFrom('ann', 'ann', 'bob'), cost: cost() }),
          { minLength: 1, maxLength: 4 },
        ),
        algorithm: fc.oneof(algorithms, any),
        booking: fc.integer({ min: 1, max: 4 }),
      }),
      { minLength: 1, maxLength: 25, size: 'max' },
    ),
  })
}

/** Replays a history in memory and on a server. Returns the answers that differ. */
export async function jointDifferences(
  history: JointHistory,
  client: Redis,
  counts: Counts,
): Promise<string[]> {
  const clock = manualClock()
  const store = redisStore(client, { prefix: `joint-${histories++}`, deadline: '1m' })
  const named = (place: number) => ({ name: `limiter ${place}`, clock })
  const memory = membersOf(
    history.algorithms.map((algorithm, place) => createLimiter(rested(algorithm), named(place))),
  )
  const server = membersOf(
    history.algorithms.map((algorithm, place) => createLimiter(algorithm, { ...named(place), store })),
  )
  const kinds = history.algorithms.map(({ name }) => name)
  for (const { limiters } of [memory, server])
    for (const [place, limiter] of limiters.entries()) kindsOf.set(limiter, kinds[place] as string)
  const had = history.algorithms.map(({ args }) => [args])
  const found: string[] = []
  counts.histories++

  for (const [index, stated] of history.steps.entries()) {
    move(clock, stated.gapUs)
    const step = isNew(stated, had) ? stated : ({ ...stated, verb: 'peek' } as const)
    const [, act] = VERBS[step.verb]
    const ours = await answerOf(() => act(memory, { ...step, algorithm: rested(step.algorithm) }))
    const theirs = await answerOf(() => act(server, step))
    counts.answers++
    if (typeof ours === 'object' && ours !== null && 'allowed' in ours) {
      counts.decisions++
      if (ours.allowed) counts.granted++
    }
    if (isDeepStrictEqual(ours, theirs)) continue
    counts.differences++
    const described = JSON.stringify({ ...step, algorithm: step.algorithm.args })
    found.push(
      `step ${index}, ${described}\n  in memory ${JSON.stringify(ours)}\n  on Redis  ${JSON.stringify(theirs)}`,
    )
  }
  for (const [place, limiter] of memory.limiters.entries()) {
    const [ours, theirs] = [limiter, server.limiters[place] as Limiter].map(countsOf)
    counts.answers++
    if (isDeepStrictEqual(ours, theirs)) continue
    counts.differences++
    found.push(`limiter ${place} counts ${JSON.stringify([ours, theirs])}`)
  }
  return found
}

let histories = 0

/** The name of the algorithm that a limiter was made with. */
const kindsOf = new WeakMap<Limiter, string>()

function kindOf(limiter: Limiter): string | undefined {
  return kindsOf.get(limiter)
}

/** Whether a change of options is new to the limiter. */
function isNew({ verb, asks, algorithm }: JointStep, had: (readonly number[])[][]): boolean {
  if (verb !== 'updateOne') return true
  const own = had[(asks[0]?.place ?? 0) % had.length] ?? []
  if (own.some(args => isDeepStrictEqual(args, algorithm.args))) return false
  own.push(algorithm.args)
  return true
}

function membersOf(limiters: readonly Limiter[]): Members {
  return { limiters, all: combine(...limiters), bookings: [] }
}

function asksOf({ limiters }: Members, asks: JointStep['asks']): LimiterAsk[] {
  return asks.map(ask => ({ limiter: one(limiters, ask), key: ask.key, cost: ask.cost }))
}

function one(limiters: readonly Limiter[], ask: JointStep['asks'][number] | undefined): Limiter {
  return limiters[(ask?.place ?? 0) % limiters.length] as Limiter
}

function keyOf({ asks: [ask] }: JointStep): string {
  return ask?.key ?? 'ann'
}

function costOf({ asks: [ask] }: JointStep): { readonly cost: number } {
  return { cost: ask?.cost ?? 1 }
}

function countsOf(limiter: Limiter) {
  const { granted, refused, waited } = limiter.stats()
  return { granted, refused, waited }
}
