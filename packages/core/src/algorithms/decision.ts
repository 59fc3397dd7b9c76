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
  /** @internal */ readonly first: number
  /** @internal */ readonly second: number

  /** @internal */
  constructor(gauge: Gauge, waitUs: number, retryAfterUs: number, first: number, second: number) {
    this.gauge = gauge
    this.waitUs = waitUs
    this.retryAfterUs = retryAfterUs
    this.first = first
    this.second = second
  }

  /** @internal The same grant, made after a wait. */
  waited(waitUs: number): Decision {
    return new Decision(this.gauge, waitUs, 0, this.first, this.second)
  }

  /** @internal The same figures, refused until a wait is over. */
  refusedFor(waitUs: number): Decision {
    return new Decision(this.gauge, waitUs, waitUs, this.first, this.second)
  }

  /** Whether the permits were granted. */
  get allowed(): boolean {
    return this.retryAfterUs === 0
  }

  /** The most permits that a rested key grants at once, one by one. */
  get limit(): number {
    return this.gauge.limit
  }

  /** The permits that would be granted now, one by one. */
  get remaining(): number {
    return this.gauge.remaining(this.first, this.second)
  }

  /** `remaining`, but exact: negative while permits of the future are booked, a fraction while a permit refills. */
  get balance(): number {
    return this.gauge.balance(this.first, this.second)
  }

  /**
   * On a grant: how long to wait before acting (0 from tryAcquire). On a refusal: how long until this cost would be granted
   * without a wait, if no other request comes; Retry-After is made of it.
   */
  get waitMs(): number {
    return this.waitUs / 1000
  }

  /** Until the same request with the same maxWait would be granted, if no other request comes; 0 on a grant. */
  get retryAfterMs(): number {
    return this.retryAfterUs / 1000
  }

  /** Until `remaining` grows by one; 0 when it is full. */
  get refillAfterMs(): number {
    return this.gauge.refillAfterUs(this.first, this.second) / 1000
  }

  /** Until the key decides like one never seen. */
  get resetAfterMs(): number {
    return this.gauge.resetAfterUs(this.first, this.second) / 1000
  }

  /** Why the decision did not come from the algorithm alone; undefined when it did. */
  get code(): DecisionCode | undefined {
    return this.gauge.code
  }

  /** A copy as plain data. (`JSON.stringify` writes Infinity as null. Spreading a decision copies no figure.) */
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
      ...(this.code === undefined ? {} : { code: this.code }),
    }
  }

  /** What `console.log` shows. */
  [Symbol.for('nodejs.util.inspect.custom')](): DecisionFigures {
    return this.toJSON()
  }
}

/**
 * Why a decision did not come from the algorithm alone.
 *
 * - `SLUICE_BLOCKED`: refused, because the key is blocked.
 * - `SLUICE_STORE_FULL`: refused, because the store holds `maxKeys` keys that are all being refused. Its waits are those
 *   of the worst case.
 * - `SLUICE_LOG_FULL`: refused, because a sliding log has reached its `maxBytes`. Its waits are those of the worst case.
 * - `SLUICE_STORE_ERROR`: granted or refused by `onStoreError`, because the store has failed. Its figures are not known.
 */
export type DecisionCode = 'SLUICE_BLOCKED' | 'SLUICE_STORE_FULL' | 'SLUICE_LOG_FULL' | 'SLUICE_STORE_ERROR'

/** A decision as plain data: what `toJSON` returns. */
export interface DecisionFigures {
  readonly allowed: boolean
  readonly limit: number
  readonly remaining: number
  readonly waitMs: number
  readonly retryAfterMs: number
  readonly refillAfterMs: number
  readonly resetAfterMs: number
  readonly balance: number
  readonly code?: DecisionCode
}

/**
 * Computes the figures of a decision from its two numbers, `first` and `second`, when they are read. Most callers read
 * only `allowed`. Each algorithm chooses what its two numbers mean.
 */
export interface Gauge {
  readonly limit: number
  readonly code?: DecisionCode | undefined
  remaining(first: number, second: number): number
  balance(first: number, second: number): number
  refillAfterUs(first: number, second: number): number
  resetAfterUs(first: number, second: number): number
}

/** A gauge whose figures are computed already. */
export class FixedGauge implements Gauge {
  readonly limit: number
  readonly code: DecisionCode | undefined
  private readonly figures: FixedFigures

  constructor(figures: FixedFigures) {
    this.limit = figures.limit
    this.code = figures.code
    this.figures = figures
  }

  remaining(): number {
    return Math.max(0, Math.floor(this.figures.balance))
  }

  balance(): number {
    return this.figures.balance
  }

  refillAfterUs(): number {
    return this.figures.refillAfterUs
  }

  resetAfterUs(): number {
    return this.figures.resetAfterUs
  }
}

export interface FixedFigures {
  readonly limit: number
  readonly balance: number
  readonly refillAfterUs: number
  readonly resetAfterUs: number
  readonly code?: DecisionCode | undefined
}

/** The refusal of a key for which no algorithm decides: nothing is left for another `waitUs`. */
export function refusalOf(code: DecisionCode, limit: number, waitUs: number): Decision {
  const figures = { code, limit, balance: 0, refillAfterUs: waitUs, resetAfterUs: waitUs }
  return new Decision(new FixedGauge(figures), waitUs, waitUs, 0, 0)
}
