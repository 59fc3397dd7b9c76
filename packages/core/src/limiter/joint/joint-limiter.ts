import type { Policy } from '../../algorithms/algorithm.js'
import type { Decision } from '../../algorithms/decision.js'
import type { Limiter } from '../limiter.js'
import { type AlgorithmInfo, LedgerLimiter } from '../limiter-class.js'
import { limiterOf } from '../limiter-of.js'
import { type JointAsk, JointLedger, noteJointly } from './decide-all.js'
import { isJoint } from './joint-decision.js'

/** A limiter made of limiters. */
export class JointLimiter extends LedgerLimiter<boolean> {
  override readonly members: readonly LedgerLimiter<boolean>[]
  private readonly asksOf: (key: string, cost: number) => readonly JointAsk[]

  /** `asksOf` returns what a call of this limiter asks of each member. */
  constructor(
    members: readonly LedgerLimiter<boolean>[],
    asksOf: (key: string, cost: number) => readonly JointAsk[],
  ) {
    const [first] = members as readonly [LedgerLimiter<boolean>]
    super({
      name: [...new Set(members.map(({ name }) => name))].join('+'),
      algorithm: new Combination(members),
      ledger: new JointLedger(
        members.some(({ ledger }) => ledger.async),
        asksOf,
      ),
      clock: first.clock,
      maxWaitUs: Infinity,
      bounds: {
        maxQueue: Math.min(...members.map(({ bounds }) => bounds.maxQueue)),
        maxQueuePerKey: Math.min(...members.map(({ bounds }) => bounds.maxQueuePerKey)),
      },
    })
    this.members = members
    this.asksOf = asksOf
  }

  override get isClosed(): boolean {
    return super.isClosed || this.members.some(({ isClosed }) => isClosed)
  }

  override record<D extends Decision>(key: string, cost: number, decision: D): D {
    this.recordMembers(key, cost, decision)
    return super.record(key, cost, decision)
  }

  /** The members count and publish what they have granted or refused. */
  protected recordMembers(key: string, cost: number, decision: Decision): void {
    if (isJoint(decision)) noteJointly(this.asksOf(key, cost), decision)
  }

  protected override standing(key: string, change: 1 | -1): void {
    for (const ask of this.asksOf(key, 1)) ask.limiter.countSharing(ask.key, change)
  }

  /** A member's room does not count the calls that wait here, but together they must not exceed its bounds. */
  protected override isCrowded(key: string): boolean {
    return this.asksOf(key, 1).some(ask => ask.limiter.isShared(ask.key))
  }

  /** A change of a member has to reach the calls that wait here. */
  protected override occupied(isOccupied: boolean): void {
    for (const member of this.members) member.share(this.waitingRoom, isOccupied)
  }
}

/** The waiting calls of `acquireAll` for the same asks. It is not a limiter of the user, and publishes nothing of its own. */
export class JointLine extends JointLimiter {
  private readonly onOccupied: (isOccupied: boolean) => void

  constructor(asks: readonly JointAsk[], onOccupied: (isOccupied: boolean) => void) {
    super(
      asks.map(({ limiter }) => limiter),
      () => asks,
    )
    this.onOccupied = onOccupied
  }

  override record<D extends Decision>(key: string, cost: number, decision: D): D {
    this.recordMembers(key, cost, decision)
    return decision
  }

  protected override occupied(isOccupied: boolean): void {
    super.occupied(isOccupied)
    this.onOccupied(isOccupied)
  }
}

/** The limiters that a combination is made of; the limiter itself if it is not a combination. */
export function membersOf(limiter: Limiter): readonly LedgerLimiter<boolean>[] {
  const checked = limiterOf(limiter)
  return checked.members.length > 0 ? checked.members : [checked]
}

class Combination implements AlgorithmInfo {
  readonly name = 'combination'
  readonly bookable = false
  private readonly members: readonly LedgerLimiter<boolean>[]

  constructor(members: readonly LedgerLimiter<boolean>[]) {
    this.members = members
  }

  /** Of the member with the lowest limit. */
  get policy(): Policy {
    const { limit, windowMs, smooth } = this.members
      .map(({ policy }) => policy)
      .reduce((lowest, policy) => (policy.limit < lowest.limit ? policy : lowest))
    return windowMs === undefined ? { limit, smooth } : { limit, windowMs, smooth }
  }
}
