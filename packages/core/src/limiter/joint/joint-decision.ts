import type { Policy } from '../../algorithms/algorithm.js'
import { Decision, type DecisionFigures, type Gauge } from '../../algorithms/decision.js'
import { isBlocked } from '../../store/blocked.js'

/** The decision of one of several limiters. */
export interface DecisionPart {
  /** The limiter's name. */
  readonly limiter: string
  /** The limiter's policy. */
  readonly policy: Policy
  readonly key: string
  /** How many permits were asked for. */
  readonly cost: number
  /** The limiter's own decision. If only other limiters refused, it is a grant, but no permits were taken. */
  readonly decision: Decision
}

/**
 * The decision of several limiters, all or none. It is allowed if every part is. Its waits are the longest of the parts,
 * its other figures those of the part with the least left.
 *
 * @example
 * const decision = tryAcquireAll([{ limiter: perSecond, key: 'ann' }, { limiter: perDay, key: 'ann' }])
 * if (!decision.allowed) console.log(`refused by ${decision.refusedBy.join(' and ')}`)
 */
export class JointDecision extends Decision {
  readonly parts: readonly DecisionPart[]

  /** @internal */
  constructor(parts: readonly DecisionPart[], waitedUs = 0, refusedUs = 0) {
    const refused = parts.filter(({ decision }) => !decision.allowed)
    super(
      new JointGauge(parts),
      Math.max(
        waitedUs,
        refusedUs,
        longest(refused, ({ waitUs }) => waitUs),
      ),
      Math.max(
        refusedUs,
        longest(refused, ({ retryAfterUs }) => retryAfterUs),
      ),
      0,
      0,
    )
    this.parts = parts
  }

  /** @internal */
  override waited(waitUs: number): JointDecision {
    return new JointDecision(this.parts, waitUs)
  }

  /** @internal */
  override refusedFor(waitUs: number): JointDecision {
    return new JointDecision(this.parts, 0, waitUs)
  }

  /** The names of the limiters that refused. */
  get refusedBy(): readonly string[] {
    const refused = this.parts.filter(({ decision }) => !decision.allowed)
    return [...new Set(refused.map(({ limiter }) => limiter))]
  }

  override toJSON(): DecisionFigures & { readonly refusedBy: readonly string[] } {
    return { ...super.toJSON(), refusedBy: this.refusedBy }
  }
}

/** Whether a decision is one of several limiters, also of another copy of this package, or a reservation of one. */
export function isJoint(decision: Decision): decision is JointDecision {
  return (decision as Partial<JointDecision>).parts !== undefined
}

function longest(parts: readonly DecisionPart[], of: (decision: Decision) => number): number {
  return parts.reduce((most, { decision }) => Math.max(most, of(decision)), 0)
}

class JointGauge implements Gauge {
  readonly #parts: readonly DecisionPart[]

  constructor(parts: readonly DecisionPart[]) {
    this.#parts = parts
  }

  get code() {
    const blocked = this.#parts.find(({ decision }) => isBlocked(decision))
    return (blocked ?? this.#parts.find(({ decision }) => decision.code !== undefined))?.decision.code
  }

  get limit(): number {
    return this.#least(({ limit }) => limit)
  }

  remaining(): number {
    return this.#least(({ remaining }) => remaining)
  }

  balance(): number {
    return this.#least(({ balance }) => balance)
  }

  /** Until the parts with the least left have one more; 0 if one of them is full. */
  refillAfterUs(): number {
    const remaining = this.remaining()
    const tightest = this.#parts.filter(({ decision }) => decision.remaining === remaining)
    if (tightest.some(({ decision }) => decision.refillAfterMs === 0)) return 0
    return Math.round(longest(tightest, ({ refillAfterMs }) => refillAfterMs) * 1000)
  }

  resetAfterUs(): number {
    return Math.round(longest(this.#parts, ({ resetAfterMs }) => resetAfterMs) * 1000)
  }

  #least(of: (decision: Decision) => number): number {
    return this.#parts.reduce((least, { decision }) => Math.min(least, of(decision)), Infinity)
  }
}
