import type { Decision } from '../../algorithms/decision.js'
import { strike } from '../../limiter/internal-verbs.js'
import { type DecisionPart, isJoint, JointDecision } from '../../limiter/joint/joint-decision.js'
import type { LedgerLimiter } from '../../limiter/limiter-class.js'
import { all, andThen, isPromise, type MaybePromise } from '../../shared/maybe-promise.js'
import { blocked } from '../../store/blocked.js'
import type { Ladder } from '../../store/store.js'
import type { Exchange } from '../options.js'
import { jointAsks } from '../request/resolve-ask.js'
import type { Ask } from '../types.js'

/** Counts a refusal on the ladders of its policies. Returns the decision, which says so if the key is blocked now. */
export function countRefusal<X extends Exchange>(
  asks: readonly Ask<X>[],
  decision: Decision,
  isDryRun: boolean,
): MaybePromise<Decision> {
  // A dry run must not block a key of a limiter that other code may use.
  const ladderOf = ({ rule }: Ask<X>) => (isDryRun && !rule.isOwn ? undefined : rule.ladder)
  if (decision.allowed || asks.every(ask => ladderOf(ask) === undefined)) return decision
  if (!isJoint(decision)) {
    const [ask] = asks as readonly [Ask<X>]
    return countOne(ask.limiter, ask.key, ask.cost, decision, ladderOf(ask))
  }
  const members = asks.flatMap(jointAsks)
  const parted = decision.parts.map((part, index) => ({ part, ask: members[index] as Ask<X> }))
  const parts = all(parted, ({ part, ask }) =>
    andThen(countOne(ask.limiter, ask.key, ask.cost, part.decision, ladderOf(ask)), decision => ({
      ...part,
      decision,
    })),
  )
  return andThen(parts, (parts: DecisionPart[]) => new JointDecision(parts, 0, decision.retryAfterUs))
}

/** A ladder does not count a refusal with a code: the key is blocked already, or the store is full or has failed. */
function countOne(
  limiter: LedgerLimiter<boolean>,
  key: string,
  cost: number,
  decision: Decision,
  ladder: Ladder | undefined,
): MaybePromise<Decision> {
  if (decision.allowed || decision.code !== undefined || ladder === undefined) return decision
  const struck = strike(limiter, key, ladder)
  const withBlock = (leftUs: number) => (leftUs > 0 ? blocked(decision, leftUs, cost) : decision)
  // The refusal stands even if the store fails to count it.
  return isPromise(struck)
    ? Promise.resolve(struck).then(withBlock, () => decision)
    : withBlock(struck as number)
}
