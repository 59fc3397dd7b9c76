import { Decision, type DecisionCode, type Gauge } from '../algorithms/decision.js'

/**
 * The decision for a key that is blocked for another `leftUs`. `decision` is what the algorithm says now, `later` what it
 * will say at the end of the block.
 */
export function blocked(decision: Decision, leftUs: number, cost: number, later?: Decision): Decision {
  const { gauge, first, second } = decision
  const figures = new BlockedGauge(gauge, leftUs)
  // A cost of 0 is always granted.
  if (cost === 0) return new Decision(figures, 0, 0, first, second)
  const waitUs = later === undefined ? Math.max(decision.waitUs, leftUs) : leftUs + later.waitUs
  const retryUs = later === undefined ? Math.max(decision.retryAfterUs, leftUs) : leftUs + later.retryAfterUs
  return new Decision(figures, waitUs, retryUs, first, second)
}

/** The decision of another process for a key that is blocked. `decision` already has the waits of a blocked key. */
export function blockedElsewhere(decision: Decision, leftUs: number): Decision {
  const { gauge, waitUs, retryAfterUs, first, second } = decision
  return new Decision(new BlockedGauge(gauge, leftUs), waitUs, retryAfterUs, first, second)
}

/** Whether a decision is a refusal because of a block. */
export function isBlocked({ allowed, code }: Decision): boolean {
  return !allowed && code === 'SLUICE_BLOCKED'
}

/** The figures of a blocked key: nothing is left until the block ends. */
class BlockedGauge implements Gauge {
  readonly code: DecisionCode = 'SLUICE_BLOCKED'
  readonly limit: number
  readonly #gauge: Gauge
  readonly #leftUs: number

  constructor(gauge: Gauge, leftUs: number) {
    this.limit = gauge.limit
    this.#gauge = gauge
    this.#leftUs = leftUs
  }

  remaining(): number {
    return 0
  }

  balance(first: number, second: number): number {
    return Math.min(this.#gauge.balance(first, second), 0)
  }

  refillAfterUs(first: number, second: number): number {
    if (this.#gauge.remaining(first, second) > 0) return this.#leftUs
    return Math.max(this.#gauge.refillAfterUs(first, second), this.#leftUs)
  }

  resetAfterUs(first: number, second: number): number {
    return Math.max(this.#gauge.resetAfterUs(first, second), this.#leftUs)
  }
}
