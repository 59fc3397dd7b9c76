import type { Policy } from '../../algorithms/algorithm.js'
import type { Decision } from '../../algorithms/decision.js'
import { invalid } from '../../shared/errors.js'
import type { Limiter } from '../limiter.js'
import { LedgerLimiter, type Terms } from '../limiter-class.js'
import { type JointAsk, JointLedger, noteJointly } from './decide-all.js'
import { JointDecision } from './joint-decision.js'

/** A limiter made of limiters. */
export class JointLimiter extends LedgerLimiter<boolean> {
  readonly members: readonly LedgerLimiter<boolean>[]
  private readonly asksOf: (key: string, cost: number) => readonly JointAsk[]

  /** `asksOf` says what an ask of this limiter means for each member. */
  constructor(
    members: readonly LedgerLimiter<boolean>[],
    asksOf: (key: string, cost: number) => readonly JointAsk[],
  ) {
    const [first] = members as readonly [LedgerLimiter<boolean>]
    super({
      name: [...new Set(members.map(({ name }) => name))].join('+'),
      terms: new JointTerms(members),
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

  override noted<D extends Decision>(key: string, cost: number, decision: D): D {
    this.noteMembers(key, cost, decision)
    return super.noted(key, cost, decision)
  }

  /** Its members count and tell of what they have granted or refused. */
  protected noteMembers(key: string, cost: number, decision: Decision): void {
    if (decision instanceof JointDecision) noteJointly(this.asksOf(key, cost), decision)
  }

  protected override standing(key: string, change: 1 | -1): void {
    for (const ask of this.asksOf(key, 1)) ask.limiter.countSharing(ask.key, change)
  }

  /** A member does not count those who wait in other rooms than its own, and yet they are no more than its bounds. */
  protected override isCrowded(key: string): boolean {
    return this.asksOf(key, 1).some(ask => ask.limiter.isShared(ask.key))
  }

  /** What changes a member concerns who waits here. */
  protected override occupied(isOccupied: boolean): void {
    for (const member of this.members) member.share(this.waitingRoom, isOccupied)
  }
}

/** The line of those who wait for the same asks; it is none that anybody has made, and tells nothing of itself. */
export class JointLine extends JointLimiter {
  private readonly onOccupied: (isOccupied: boolean) => void

  constructor(asks: readonly JointAsk[], onOccupied: (isOccupied: boolean) => void) {
    super(
      asks.map(({ limiter }) => limiter),
      () => asks,
    )
    this.onOccupied = onOccupied
  }

  override noted<D extends Decision>(key: string, cost: number, decision: D): D {
    this.noteMembers(key, cost, decision)
    return decision
  }

  protected override occupied(isOccupied: boolean): void {
    super.occupied(isOccupied)
    this.onOccupied(isOccupied)
  }
}

/** The limiters that a combination is made of; any other limiter is its own only member. */
export function membersOf(limiter: Limiter): readonly LedgerLimiter<boolean>[] {
  return limiter instanceof JointLimiter ? limiter.members : [ours(limiter)]
}

/** A limiter, if it is one of ours; others cannot do what goes past the verbs. */
export function ours(limiter: Limiter): LedgerLimiter<boolean> {
  if (limiter instanceof LedgerLimiter) return limiter
  throw invalid(
    TypeError,
    'limiter',
    'a limiter of createLimiter or combine',
    limiter,
    'SLUICE_INVALID_LIMITER',
  )
}

class JointTerms implements Terms {
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
