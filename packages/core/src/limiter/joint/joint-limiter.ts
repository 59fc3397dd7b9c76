import type { Policy } from '../../algorithms/algorithm.js'
import type { Decision } from '../../algorithms/decision.js'
import type { Booked } from '../../store/store.js'
import type { Limiter, WaitOptions } from '../limiter.js'
import { type AlgorithmInfo, LedgerLimiter } from '../limiter-class.js'
import { limiterOf } from '../limiter-of.js'
import { type JointAsk, JointLedger, noteJointly } from './decide-all.js'
import { isJoint } from './joint-decision.js'
import { sharedWaitHooks } from './shared-waits.js'

/** A limiter made of limiters. */
export class JointLimiter extends LedgerLimiter<boolean> {
  override readonly members: readonly LedgerLimiter<boolean>[]
  readonly #asksOf: (key: string, cost: number) => readonly JointAsk[]

  /** `asksOf` returns what a call of this limiter asks of each member. */
  constructor(
    members: readonly LedgerLimiter<boolean>[],
    asksOf: (key: string, cost: number) => readonly JointAsk[],
    onOccupied?: (isOccupied: boolean) => void,
  ) {
    const sharing = sharedWaitHooks(asksOf, members)
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
      sharing: {
        ...sharing,
        onOccupied(room, isOccupied) {
          sharing.onOccupied(room, isOccupied)
          onOccupied?.(isOccupied)
        },
      },
    })
    this.members = members
    this.#asksOf = asksOf
  }

  /** A closed member ends the waits here too. */
  override hold(key: string, options?: WaitOptions): Promise<Booked> {
    if (this.members.some(({ waitingRoom }) => waitingRoom.closed)) this.waitingRoom.close()
    return super.hold(key, options)
  }

  override record<D extends Decision>(key: string, cost: number, decision: D): D {
    this.recordMembers(key, cost, decision)
    return super.record(key, cost, decision)
  }

  /** The members count and publish what they have granted or refused. */
  protected recordMembers(key: string, cost: number, decision: Decision): void {
    if (isJoint(decision)) noteJointly(this.#asksOf(key, cost), decision)
  }
}

/** The waiting calls of `acquireAll` for the same asks. It is not a limiter of the user, and publishes nothing of its own. */
export class JointLine extends JointLimiter {
  constructor(asks: readonly JointAsk[], onOccupied: (isOccupied: boolean) => void) {
    super(
      asks.map(({ limiter }) => limiter),
      () => asks,
      onOccupied,
    )
  }

  override record<D extends Decision>(key: string, cost: number, decision: D): D {
    this.recordMembers(key, cost, decision)
    return decision
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
  readonly #members: readonly LedgerLimiter<boolean>[]

  constructor(members: readonly LedgerLimiter<boolean>[]) {
    this.#members = members
  }

  /** Of the member with the lowest limit. */
  get policy(): Policy {
    const { limit, windowMs, smooth } = this.#members
      .map(({ policy }) => policy)
      .reduce((lowest, policy) => (policy.limit < lowest.limit ? policy : lowest))
    return windowMs === undefined ? { limit, smooth } : { limit, windowMs, smooth }
  }
}
