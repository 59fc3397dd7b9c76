import { MAX_SPAN_US } from '../../shared/duration.js'
import { invalid } from '../../shared/errors.js'
import type { Algorithm, Booking } from '../algorithm.js'
import { Decision, type Gauge } from '../decision.js'
import { greatestCommonDivisor } from './arithmetic.js'
import type { Balance, HoldsBalance } from './balance.js'
import { balanceFrom, writeBalance } from './gcra-bigint.js'

/*
 * GCRA, the generic cell rate algorithm, in exact numbers
 *
 * Permits lie on a line in time, one emission interval (window / limit) apart. The state of a key is the end of its line.
 * A grant moves the end by one interval per permit; the passing of time needs no bookkeeping. `atOnce` permits fit between
 * now and the end of the line without a wait. That span is the depth.
 *
 *          now             end of the line
 *     ------|---+---+---+---|- - - -|-->        a depth of six permits, four of them taken
 *           |<------- depth ------->|
 *
 * A window / limit is seldom a whole number of microseconds (3 per second: 333333 1/3), and a double that sums up such
 * fractions drifts. So an instant is two integers: whole microseconds, and a part, the numerator of a fraction over
 * `denominator` = limit / gcd(limit, window). Lanes 0 and 1 of a state hold the end of the line in this form.
 *
 * Decisions (the `step` of each algorithm) and their figures (below) use doubles that stay whole numbers below 2^53. Rare
 * operations (cancel, refund, a change of options) need products that may exceed 2^53; gcra-bigint.ts does them.
 *
 * Lane 0 is negative while the line is cut. A line is cut by cancelling a booking in its middle: from then on the end no
 * longer tells how much was booked after another booking. A cut line gives back permits only at its end. The cut ends
 * when the line lies in the past.
 */
export abstract class Gcra implements Gauge, HoldsBalance {
  readonly bookable = true
  /** The numbers below, from `denominator` to `atOnce`. */
  readonly constants: readonly number[]
  readonly denominator: number
  /** An interval is `intervalUnits / denominator` microseconds, which is `intervalUs` and `intervalPart`. */
  readonly intervalUnits: number
  readonly intervalUs: number
  readonly intervalPart: number
  readonly depthUs: number
  readonly depthPart: number
  readonly atOnce: number
  /** The time in which `atOnce` permits refill. */
  readonly refillUs: number

  constructor(limit: number, windowUs: number, atOnce: number) {
    const shared = greatestCommonDivisor(limit, windowUs)
    this.denominator = limit / shared
    this.intervalUnits = windowUs / shared
    this.intervalUs = Math.floor(this.intervalUnits / this.denominator)
    this.intervalPart = this.intervalUnits - this.intervalUs * this.denominator
    if (atOnce * this.intervalPart + 2 * limit > Number.MAX_SAFE_INTEGER)
      throw invalid(RangeError, 'limit', 'a limit and burst small enough to stay exact (within 2^53)', limit)
    this.refillUs = windowUs * (atOnce / limit)
    if (this.refillUs > MAX_SPAN_US)
      throw invalid(RangeError, 'burst', 'a burst that refills within 200 years', atOnce)
    const carry = Math.floor((atOnce * this.intervalPart) / this.denominator)
    this.depthUs = atOnce * this.intervalUs + carry
    this.depthPart = atOnce * this.intervalPart - carry * this.denominator
    this.atOnce = atOnce
    const { denominator, intervalUnits, intervalUs, intervalPart, depthUs, depthPart } = this
    this.constants = [denominator, intervalUnits, intervalUs, intervalPart, depthUs, depthPart, atOnce]
  }

  abstract step(
    state: Float64Array,
    at: number,
    nowUs: number,
    cost: number,
    maxWaitUs: number,
    commit: boolean,
  ): Decision
  abstract cancel(state: Float64Array, at: number, nowUs: number, booking: Booking): number
  abstract refund(
    state: Float64Array,
    at: number,
    nowUs: number,
    permits: number,
    booking?: Booking | undefined,
  ): number

  /** The decision on a cost of 0, which is always granted, or on a cost that is never granted. */
  protected always(granted: boolean, lagUs: number, lagPart: number): Decision {
    const waitUs = granted ? 0 : Infinity
    return new Decision(this, waitUs, waitUs, lagUs, lagPart)
  }

  read(waitUs: number, retryAfterUs: number, [lagUs = 0, lagPart = 0]: readonly number[]): Decision {
    return new Decision(this, waitUs, retryAfterUs, lagUs, lagPart)
  }

  restsAt(state: Float64Array, at: number): number {
    return Math.abs(state[at] as number) + (state[at + 1] === 0 ? 0 : 1)
  }

  load(state: Float64Array, at: number, nowUs: number): number {
    const lagUs = Math.max(Math.abs(state[at] as number) - nowUs, 0)
    const surelyFree = lagUs < this.depthUs - this.intervalUs - 1
    return surelyFree || this.step(state, at, nowUs, 1, 0, false).allowed ? lagUs / (this.depthUs + 1) : 1
  }

  /** The balance stays, up to what the new options hold. A key at rest stays at rest. */
  adopt(state: Float64Array, at: number, nowUs: number, previous: Algorithm): void {
    const balance = (previous as Algorithm & HoldsBalance).balanceOf(state, at, nowUs)
    state[at] = state[at + 1] = 0
    if (balance !== undefined) writeBalance(this, state, at, nowUs, balance)
  }

  balanceOf(state: Float64Array, at: number, nowUs: number): Balance | undefined {
    return balanceFrom(this, state, at, nowUs)
  }

  // The figures of a decision. Its two numbers are the lag, the span from now to the end of the line.

  get limit(): number {
    return this.atOnce
  }

  remaining(lagUs: number, lagPart: number): number {
    return this.permitsIn(this.depthUs - lagUs, this.depthPart - lagPart)
  }

  balance(lagUs: number, lagPart: number): number {
    return ((this.depthUs - lagUs) * this.denominator + (this.depthPart - lagPart)) / this.intervalUnits
  }

  refillAfterUs(lagUs: number, lagPart: number): number {
    const next = this.remaining(lagUs, lagPart) + 1
    if (next > this.atOnce) return 0
    const part = next * this.intervalPart
    const carry = Math.floor(part / this.denominator)
    const surplusUs = lagUs + next * this.intervalUs + carry - this.depthUs
    const surplusPart = lagPart + part - carry * this.denominator - this.depthPart
    return surplusUs + Math.ceil(surplusPart / this.denominator)
  }

  resetAfterUs(lagUs: number, lagPart: number): number {
    return lagUs + (lagPart > 0 ? 1 : 0)
  }

  /** Whole permits that fit in a span of microseconds and a part, at most `atOnce`. */
  private permitsIn(spanUs: number, spanPart: number): number {
    // The division may round where its terms exceed 2^53, by less than one permit; the comparisons are exact.
    const estimate = Math.floor((spanUs * this.denominator + spanPart) / this.intervalUnits)
    let permits = Math.min(Math.max(estimate, 0), this.atOnce)
    while (permits > 0 && this.exceeds(permits, spanUs, spanPart)) permits--
    while (permits < this.atOnce && !this.exceeds(permits + 1, spanUs, spanPart)) permits++
    return permits
  }

  /** Whether so many intervals are longer than a span. */
  private exceeds(permits: number, spanUs: number, spanPart: number): boolean {
    const part = permits * this.intervalPart
    const carry = Math.floor(part / this.denominator)
    const us = permits * this.intervalUs + carry - spanUs
    return us * this.denominator + (part - carry * this.denominator) - spanPart > 0
  }
}
