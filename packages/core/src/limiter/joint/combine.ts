import { checkCost } from '../../shared/cost.js'
import { invalid } from '../../shared/errors.js'
import { type Answer, andThen, answerOf } from '../../shared/maybe-promise.js'
import { checkOptions } from '../../shared/validate.js'
import type { Limiter, WaitOptions } from '../limiter.js'
import { checkKey, type LedgerLimiter } from '../limiter-class.js'
import { addUp, decideJointly, type JointAsk, noteJointly } from './decide-all.js'
import type { JointDecision } from './joint-decision.js'
import { JointLimiter, JointLine, membersOf } from './joint-limiter.js'

/** An ask of one of several limiters. */
export interface LimiterAsk<Async extends boolean = boolean> {
  /** A limiter of `createLimiter` or `combine`. */
  readonly limiter: Limiter<Async>
  readonly key: string
  /** Permits asked for: a whole number, default 1. */
  readonly cost?: number | undefined
}

/**
 * Asks several limiters at once, all or none: permits are taken from each, or from none of them. A limiter and key that
 * come twice add up. The refusal names every limiter that refused (`refusedBy`) and carries the longest wait.
 *
 * Synchronous only if all of them are. Throws a TypeError or RangeError, like the verbs of a limiter, for a key or cost
 * that is none, a limiter that was not made by `createLimiter` or `combine`, and an empty list.
 *
 * @example
 * const decision = tryAcquireAll([
 *   { limiter: perUser, key: 'ann', cost: 5 },
 *   { limiter: perTenant, key: 'acme', cost: 5 },
 * ])
 * if (!decision.allowed) console.log(`${decision.refusedBy}: try again in ${decision.retryAfterMs} ms`)
 */
export function tryAcquireAll<Async extends boolean>(
  asks: readonly LimiterAsk<Async>[],
): Answer<Async, JointDecision> {
  const joint = checkAsks(asks)
  const isAsync = joint.some(({ limiter }) => limiter.ledger.async) as Async
  return answerOf(
    isAsync,
    andThen(decideJointly(joint, true), ({ decision }) => noteJointly(joint, decision)),
  )
}

/**
 * Like `tryAcquireAll`, and waits until all permits are there together, at most `maxWait` (default Infinity). Nothing is
 * taken before. Rejects like `acquire`.
 *
 * @example
 * await acquireAll([{ limiter: perUser, key: 'ann' }, { limiter: perTenant, key: 'acme' }], { maxWait: '10s' })
 */
export async function acquireAll(
  asks: readonly LimiterAsk[],
  options: Omit<WaitOptions, 'cost'> = {},
): Promise<JointDecision> {
  checkOptions('acquireAll', options, ['maxWait', 'signal', 'unref'])
  const joint = checkAsks(asks)
  return (await lineOf(joint).acquire(keyOf(joint), options)) as JointDecision
}

/**
 * A limiter made of limiters: it grants what all of them grant, and takes from all or none. Usable wherever a limiter is.
 *
 * Its name is theirs joined by `+`; its decisions are JointDecisions. It can `reserve` only without a wait, because its
 * limiters would have to agree on one instant, and `update` is theirs. Closing it ends its own waits. Throws a TypeError for
 * less than one limiter and for what is none.
 *
 * @example
 * const perSecond = createLimiter(tokenBucket({ limit: 10, window: '1s' }), { name: 'per-second' })
 * const perDay = createLimiter(fixedWindow({ limit: 10_000, window: '1d' }), { name: 'per-day' })
 * const both = combine(perSecond, perDay)
 * both.tryAcquire('ann').allowed
 */
export function combine<Async extends boolean>(...limiters: readonly Limiter<Async>[]): Limiter<Async> {
  if (limiters.length === 0) throw invalid(TypeError, 'combine', 'at least one limiter', undefined)
  const members = [...new Set(limiters.flatMap(membersOf))]
  return new JointLimiter(members, (key, cost) =>
    members.map(limiter => ({ limiter, key, cost })),
  ) as unknown as Limiter<Async>
}

/** Checks asks, and adds up those of the same limiter and key. */
function checkAsks(asks: readonly LimiterAsk[]): readonly JointAsk[] {
  if (!Array.isArray(asks) || asks.length === 0)
    throw invalid(TypeError, 'asks', 'a list such as [{ limiter, key }]', asks)
  const stated = asks.flatMap((ask: LimiterAsk) => {
    checkOptions('asks', ask, ['limiter', 'key', 'cost'])
    const { limiter, key, cost = 1 } = ask
    checkKey(key)
    checkCost(cost)
    return membersOf(limiter).map(member => ({ limiter: member, key, cost }))
  })
  return addUp(stated)
}

/** Who waits for the same asks stands in one line, which is kept while somebody does. */
const lines = new WeakMap<LedgerLimiter<boolean>, Map<string, JointLine>>()
const numbers = new WeakMap<LedgerLimiter<boolean>, number>()
let limitersNumbered = 0

/** The line of those who wait for these asks. */
export function lineOf(asks: readonly JointAsk[]): JointLine {
  const [{ limiter: first }] = asks as [JointAsk]
  const linesOfFirst = lines.get(first) ?? new Map<string, JointLine>()
  lines.set(first, linesOfFirst)
  const signature = JSON.stringify(asks.map(({ limiter, key, cost }) => [numberOf(limiter), key, cost]))
  const standing = linesOfFirst.get(signature)
  if (standing !== undefined) return standing
  const line: JointLine = new JointLine(asks, isOccupied => {
    if (isOccupied) linesOfFirst.set(signature, line)
    else linesOfFirst.delete(signature)
  })
  return line
}

/** What stands for the keys of several asks. */
export function keyOf(asks: readonly JointAsk[]): string {
  return [...new Set(asks.map(({ key }) => key))].join('+')
}

function numberOf(limiter: LedgerLimiter<boolean>): number {
  const number = numbers.get(limiter) ?? ++limitersNumbered
  numbers.set(limiter, number)
  return number
}
