import { Decision, type DecisionCode, type Gauge } from './decision.js'

/** The decision over a key that is blocked for some time, whatever it would have been otherwise. */
export function blocked(decision: Decision, leftUs: number, cost: number): Decision {
  const { gauge, waitUs, retryAfterUs, first, second } = decision
  const figures = new BlockedGauge(gauge, leftUs)
  // No permits are granted to anybody.
  if (cost === 0) return new Decision(figures, 0, 0, first, second)
  return new Decision(figures, Math.max(waitUs, leftUs), Math.max(retryAfterUs, leftUs), first, second)
}

/** Whether a decision is a refusal because of a block. */
export function isBlocked({ allowed, code }: Decision): boolean {
  return !allowed && code === 'SLUICE_BLOCKED'
}

/** The figures of a key that is blocked: nothing is left until the block ends. */
class BlockedGauge implements Gauge {
  readonly code: DecisionCode = 'SLUICE_BLOCKED'
  readonly limit: number
  private readonly gauge: Gauge
  private readonly leftUs: number

  constructor(gauge: Gauge, leftUs: number) {
    this.limit = gauge.limit
    this.gauge = gauge
    this.leftUs = leftUs
  }

  remaining(): number {
    return 0
  }

  balance(first: number, second: number): number {
    return Math.min(this.gauge.balance(first, second), 0)
  }

  refillAfterUs(first: number, second: number): number {
    if (this.gauge.remaining(first, second) > 0) return this.leftUs
    return Math.max(this.gauge.refillAfterUs(first, second), this.leftUs)
  }

  resetAfterUs(first: number, second: number): number {
    return Math.max(this.gauge.resetAfterUs(first, second), this.leftUs)
  }
}
