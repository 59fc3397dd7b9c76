/**
 * The answer of a limiter to "may these permits pass now?".
 *
 * All times are durations in milliseconds from the instant of the decision, with microsecond precision; Infinity means
 * never. On a grant the figures are those after it; on a refusal or a `peek` those of the untouched state.
 *
 * @example
 * const decision = limiter.tryAcquire('ann')
 * if (!decision.allowed) console.log(`try again in ${decision.retryAfterMs} ms`)
 */
export class Decision {
  /** @internal */ readonly gauge: Gauge
  /** @internal */ readonly waitUs: number
  /** @internal */ readonly retryAfterUs: number
  /** @internal */ readonly lagUs: number
  /** @internal */ readonly lagPart: number

  /** @internal */
  constructor(gauge: Gauge, waitUs: number, retryAfterUs: number, lagUs: number, lagPart: number) {
    this.gauge = gauge
    this.waitUs = waitUs
    this.retryAfterUs = retryAfterUs
    this.lagUs = lagUs
    this.lagPart = lagPart
  }

  /** Whether the permits were granted. */
  get allowed(): boolean {
    return this.retryAfterUs === 0
  }

  /** The most single permits that a rested key passes at once. */
  get limit(): number {
    return this.gauge.limit
  }

  /** Single permits that would pass now. */
  get remaining(): number {
    return this.gauge.remaining(this.lagUs, this.lagPart)
  }

  /** Permits in hand, exact: negative while permits of the future are booked, fractional while one is refilling. */
  get balance(): number {
    return this.gauge.balance(this.lagUs, this.lagPart)
  }

  /**
   * On a grant: how long to wait before acting (0 from tryAcquire). On a refusal: how long until this cost would pass
   * unaided; Retry-After is made of it.
   */
  get waitMs(): number {
    return this.waitUs / 1000
  }

  /** When the same ask with the same maxWait would be granted, if nobody asks in between; 0 on a grant. */
  get retryAfterMs(): number {
    return this.retryAfterUs / 1000
  }

  /** Until `remaining` grows by one; 0 when it is full. */
  get refillAfterMs(): number {
    return this.gauge.refillAfterUs(this.lagUs, this.lagPart) / 1000
  }

  /** Until the key is as if it had never been seen. */
  get resetAfterMs(): number {
    return this.gauge.resetAfterUs(this.lagUs, this.lagPart) / 1000
  }

  /** A copy as plain data. (`JSON.stringify` then writes Infinity as null; spreading a decision copies no figure.) */
  toJSON(): DecisionFigures {
    return {
      allowed: this.allowed,
      limit: this.limit,
      remaining: this.remaining,
      waitMs: this.waitMs,
      retryAfterMs: this.retryAfterMs,
      refillAfterMs: this.refillAfterMs,
      resetAfterMs: this.resetAfterMs,
      balance: this.balance,
    }
  }

  /** What `console.log` shows. */
  [Symbol.for('nodejs.util.inspect.custom')](): DecisionFigures {
    return this.toJSON()
  }
}

/** A decision as plain data, as `toJSON` and logs have it. */
export interface DecisionFigures {
  readonly allowed: boolean
  readonly limit: number
  readonly remaining: number
  readonly waitMs: number
  readonly retryAfterMs: number
  readonly refillAfterMs: number
  readonly resetAfterMs: number
  readonly balance: number
}

/**
 * Reads the figures of a decision off the two numbers it was left with, when somebody asks for them; most decisions are
 * only asked whether they were granted.
 */
export interface Gauge {
  readonly limit: number
  remaining(lagUs: number, lagPart: number): number
  balance(lagUs: number, lagPart: number): number
  refillAfterUs(lagUs: number, lagPart: number): number
  resetAfterUs(lagUs: number, lagPart: number): number
}

/** A gauge whose figures are known already. */
export function fixedGauge(figures: FixedFigures): Gauge {
  return {
    limit: figures.limit,
    remaining: () => figures.remaining,
    balance: () => figures.balance,
    refillAfterUs: () => figures.refillAfterUs,
    resetAfterUs: () => figures.resetAfterUs,
  }
}

export interface FixedFigures {
  readonly limit: number
  readonly remaining: number
  readonly balance: number
  readonly refillAfterUs: number
  readonly resetAfterUs: number
}
