import { invalid } from '../../shared/errors.js'
import { type Answer, andThen, asAnswer } from '../../shared/maybe-promise.js'
import { checkCost, checkKey, checkOptions } from '../../shared/validate.js'
import type { Limiter, WaitOptions } from '../limiter.js'
import type { LedgerLimiter } from '../limiter-class.js'
import { addUp, decideJointly, type JointAsk, noteJointly } from './decide-all.js'
import type { JointDecision } from './joint-decision.js'
import { JointLimiter, JointLine, membersOf } from './joint-limiter.js'

/** How many permits of which key to take from one of several limiters. */
export interface LimiterAsk<Async extends boolean = boolean> {
  /** A limiter of `createLimiter` or `combine`. */
  readonly limiter: Limiter<Async>
  readonly key: string
  /** How many permits: a whole number, default 1. */
  readonly cost?: number | undefined
}

/**
 * Takes permits from several limiters together: from all of them, or from none. The costs of the same limiter and key are
 * added up. A refusal names every limiter that refused (`refusedBy`) and has the longest wait.
 *
 * Returns a promise if one of the stores is asynchronous. Throws a TypeError or RangeError for a bad key or cost, a limiter
 * that was not made by `createLimiter` or `combine`, and an empty list.
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
  return asAnswer(
    isAsync,
    andThen(decideJointly(joint, true), ({ decision }) => noteJointly(joint, decision)),
  )
}

/**
 * Like `tryAcquireAll`, and waits until all permits are available together, at most `maxWait` (default Infinity). Takes
 * nothing before. Rejects like `acquire`.
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
 * Makes one limiter of several: it grants what all of them grant, and takes permits from all of them, or from none. It can
 * be used wherever a limiter can.
 *
 * Its name is the names joined by `+`; its decisions are JointDecisions. `reserve` needs a `maxWait` of 0, because the
 * limiters cannot book one common instant. `update` throws; update the limiters themselves. `close` ends its own waits
 * only. Throws a TypeError without limiters, and for a value that is not a limiter.
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

/** Checks asks, and adds up the costs of the same limiter and key. */
function checkAsks(asks: readonly LimiterAsk[]): readonly JointAsk[] {
  if (!Array.isArray(asks) || asks.length === 0)
    throw invalid(TypeError, 'asks', 'a list such as [{ limiter, key }]', asks)
  const checked = asks.flatMap((ask: LimiterAsk) => {
    checkOptions('asks', ask, ['limiter', 'key', 'cost'])
    const { limiter, key, cost = 1 } = ask
    checkKey(key)
    checkCost(cost)
    return membersOf(limiter).map(member => ({ limiter: member, key, cost }))
  })
  return addUp(checked)
}

/** Calls that wait for the same asks form one line, which exists while there are such calls. */
const lines = new WeakMap<LedgerLimiter<boolean>, Map<string, JointLine>>()
const numbers = new WeakMap<LedgerLimiter<boolean>, number>()
let limitersNumbered = 0

/** The line of the calls that wait for these asks. */
export function lineOf(asks: readonly JointAsk[]): JointLine {
  const [{ limiter: first }] = asks as [JointAsk]
  const linesOfFirst = lines.get(first) ?? new Map<string, JointLine>()
  lines.set(first, linesOfFirst)
  const signature = JSON.stringify(asks.map(({ limiter, key, cost }) => [numberOf(limiter), key, cost]))
  const existing = linesOfFirst.get(signature)
  if (existing !== undefined) return existing
  const line: JointLine = new JointLine(asks, isOccupied => {
    if (isOccupied) linesOfFirst.set(signature, line)
    else linesOfFirst.delete(signature)
  })
  return line
}

/** One key for several asks, for errors and events. */
export function keyOf(asks: readonly JointAsk[]): string {
  return [...new Set(asks.map(({ key }) => key))].join('+')
}

function numberOf(limiter: LedgerLimiter<boolean>): number {
  const number = numbers.get(limiter) ?? ++limitersNumbered
  numbers.set(limiter, number)
  return number
}
