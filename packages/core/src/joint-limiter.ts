import type { Policy } from './algorithm.js'
import { invalid } from './errors.js'
import { type JointAsk, JointLedger } from './joint-ledger.js'
import { LedgerLimiter, type Terms } from './ledger-limiter.js'
import type { Limiter } from './limiter.js'

/** A limiter made of limiters. */
export class JointLimiter extends LedgerLimiter<boolean> {
  readonly members: readonly LedgerLimiter<boolean>[]
  private readonly onEmpty: () => void

  /** `asksOf` says what an ask of this limiter means for each member; `onEmpty` hears that nobody waits any more. */
  constructor(
    members: readonly LedgerLimiter<boolean>[],
    asksOf: (key: string, cost: number) => readonly JointAsk[],
    onEmpty: () => void = () => {},
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
      maxWaitUs: undefined,
      bounds: {
        maxQueue: Math.min(...members.map(({ bounds }) => bounds.maxQueue)),
        maxQueuePerKey: Math.min(...members.map(({ bounds }) => bounds.maxQueuePerKey)),
      },
    })
    this.members = members
    this.onEmpty = onEmpty
  }

  /** What changes a member concerns who waits here. */
  protected override occupied(isOccupied: boolean): void {
    for (const member of this.members) member.share(this.waitingRoom, isOccupied)
    if (!isOccupied) this.onEmpty()
  }
}

/** The limiters that a combination is made of; any other limiter is its own only member. */
export function membersOf(limiter: Limiter): readonly LedgerLimiter<boolean>[] {
  if (limiter instanceof JointLimiter) return limiter.members
  if (limiter instanceof LedgerLimiter) return [limiter]
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
    return this.members
      .map(({ policy }) => policy)
      .reduce((lowest, policy) => (policy.limit < lowest.limit ? policy : lowest))
  }
}
