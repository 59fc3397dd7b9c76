import type { Decision } from '../../algorithms/decision.js'
import { type DecisionPart, JointDecision } from '../../limiter/joint/joint-decision.js'
import { ours } from '../../limiter/joint/joint-limiter.js'
import type { Limiter } from '../../limiter/limiter.js'
import { all, andThen, isPromise, type MaybePromise } from '../../shared/maybe-promise.js'
import { blocked } from '../../store/blocked.js'
import type { Ladder } from '../../store/store.js'
import type { Exchange } from '../options.js'
import { type Ask, jointAsks } from '../request/resolve-ask.js'

/** Notes a refusal where there are ladders, and returns the decision in which what is blocked by now is so. */
export function penalized<X extends Exchange>(
  asks: readonly Ask<X>[],
  decision: Decision,
  isDryRun: boolean,
): MaybePromise<Decision> {
  // What is dry holds nothing against anybody by a limiter that others may use.
  const ladderOf = ({ rule }: Ask<X>) => (isDryRun && !rule.isOwn ? undefined : rule.ladder)
  if (decision.allowed || asks.every(ask => ladderOf(ask) === undefined)) return decision
  if (!(decision instanceof JointDecision)) {
    const [ask] = asks as readonly [Ask<X>]
    return struck(ask.limiter, ask.key, ask.cost, decision, ladderOf(ask))
  }
  const members = asks.flatMap(jointAsks)
  const parted = decision.parts.map((part, index) => ({ part, ask: members[index] as Ask<X> }))
  const parts = all(parted, ({ part, ask }) =>
    andThen(struck(ask.limiter, ask.key, ask.cost, part.decision, ladderOf(ask)), decision => ({
      ...part,
      decision,
    })),
  )
  return andThen(parts, (parts: DecisionPart[]) => new JointDecision(parts, 0, decision.retryAfterUs))
}

/** What has refused because of a block, or for want of memory or an answer, is no refusal of the ladder. */
function struck(
  limiter: Limiter,
  key: string,
  cost: number,
  decision: Decision,
  ladder: Ladder | undefined,
): MaybePromise<Decision> {
  if (decision.allowed || decision.code !== undefined || ladder === undefined) return decision
  const struck = ours(limiter).strike(key, ladder)
  const noted = (leftUs: number) => (leftUs > 0 ? blocked(decision, leftUs, cost) : decision)
  // What was refused stays refused, also when the store cannot note it.
  return isPromise(struck) ? Promise.resolve(struck).then(noted, () => decision) : noted(struck as number)
}
