import { MAX_SPAN_US } from '../../shared/duration.js'
import { invalid } from '../../shared/errors.js'
import type { Algorithm, Booking } from '../algorithm.js'
import { Decision, type Gauge } from '../decision.js'

/*
 * The exact line
 *
 * Permits lie on a line in time, one interval (window / limit) apart; lanes 0 and 1 of a state say where the line ends.
 * A window / limit is seldom a whole number of microseconds, so the end is two integers: whole microseconds, and the
 * fraction as a numerator over `denominator` = limit / gcd(limit, window). Decisions are made in doubles that stay whole
 * numbers; what is rare (giving back, converting) is done in bigints, in units of 1 / denominator microseconds.
 *
 * Lane 0 is negative while the line is cut: a booking in the middle of it was given up, so that its end no longer tells what
 * stands behind another one. Until the line has passed, only what lies at its end gives back anything.
 *
 * `atOnce` permits fit between now and the end of the line without anybody having to wait: that is its depth.
 */
export abstract class ExactLine implements Gauge {
  readonly bookable = true
  /** An interval is `intervalUnits / denominator` microseconds, or `intervalUs` and `intervalPart / denominator`. */
  protected readonly denominator: number
  protected readonly intervalUnits: number
  protected readonly intervalUs: number
  protected readonly intervalPart: number
  protected readonly atOnce: number
  protected readonly depthUs: number
  protected readonly depthPart: number
  /** The time in which `atOnce` permits come back. */
  protected readonly refillUs: number

  constructor(limit: number, windowUs: number, atOnce: number) {
    const shared = greatestCommonDivisor(limit, windowUs)
    this.atOnce = atOnce
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
  }

  abstract step(
    state: Float64Array,
    at: number,
    nowUs: number,
    cost: number,
    maxWaitUs: number,
    commit: boolean,
  ): Decision
  abstract refund(
    state: Float64Array,
    at: number,
    nowUs: number,
    permits: number,
    booking?: Booking | undefined,
  ): number

  read(waitUs: number, retryAfterUs: number, [first = 0, second = 0]: readonly number[]): Decision {
    return new Decision(this, waitUs, retryAfterUs, first, second)
  }

  cancel(state: Float64Array, at: number, nowUs: number, booking: Booking): number {
    if (nowUs > booking.actUs) return 0
    if (nowUs === booking.actUs) return this.refund(state, at, nowUs, booking.cost, booking)
    const bookedAfter = larger(this.endOf(state, at) - this.endOf(booking.mark, 0), 0n)
    if (bookedAfter > 0n && this.isCut(state, at)) return 0
    return this.giveBack(state, at, nowUs, this.permits(booking.cost) - bookedAfter, bookedAfter > 0n)
  }

  /** The balance stays what it is, as far as there is room for it; who is at rest stays so. */
  adopt(state: Float64Array, at: number, nowUs: number, previous: Algorithm): void {
    const balance = (previous as Algorithm & HoldsBalance).balanceOf(state, at, nowUs)
    const isCut = previous instanceof ExactLine && previous.isCut(state, at)
    state[at] = state[at + 1] = 0
    if (balance === undefined) return
    const missing = BigInt(this.atOnce) * balance.scale - balance.permits
    if (missing <= 0n) return
    const debt = (missing * BigInt(this.intervalUnits) + balance.scale - 1n) / balance.scale
    this.write(state, at, this.units(nowUs, 0) + debt, isCut)
  }

  restsAt(state: Float64Array, at: number): number {
    return Math.abs(state[at] as number) + (state[at + 1] === 0 ? 0 : 1)
  }

  load(state: Float64Array, at: number, nowUs: number): number {
    const lagUs = Math.max(Math.abs(state[at] as number) - nowUs, 0)
    const surelyFree = lagUs < this.depthUs - this.intervalUs - 1
    return surelyFree || this.step(state, at, nowUs, 1, 0, false).allowed ? lagUs / (this.depthUs + 1) : 1
  }

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

  balanceOf(state: Float64Array, at: number, nowUs: number): Balance | undefined {
    const debt = this.endOf(state, at) - this.units(nowUs, 0)
    if (debt <= 0n) return undefined
    const scale = BigInt(this.intervalUnits)
    return { permits: BigInt(this.atOnce) * scale - debt, scale }
  }

  /** What neither patience nor time changes: a cost of 0 passes, one that is out of reach never does. */
  protected always(granted: boolean, lagUs: number, lagPart: number): Decision {
    const waitUs = granted ? 0 : Infinity
    return new Decision(this, waitUs, waitUs, lagUs, lagPart)
  }

  /** Moves the end of the line back by what is wanted, as far as it lies ahead. Returns permits. */
  protected giveBack(state: Float64Array, at: number, nowUs: number, wanted: bigint, cuts = false): number {
    const end = this.endOf(state, at)
    const held = end - this.units(nowUs, 0)
    const given = larger(smaller(wanted, held), 0n)
    if (given > 0n) this.write(state, at, end - given, cuts || this.isCut(state, at))
    return Number(given) / this.intervalUnits
  }

  protected isCut(state: Float64Array, at: number): boolean {
    return (state[at] as number) < 0
  }

  protected get depth(): bigint {
    return this.units(this.depthUs, this.depthPart)
  }

  /** An instant or a span in units of 1 / denominator microseconds. */
  protected units(us: number, part: number): bigint {
    return BigInt(us) * BigInt(this.denominator) + BigInt(part)
  }

  protected endOf(state: Float64Array, at: number): bigint {
    return this.units(Math.abs(state[at] as number), state[at + 1] as number)
  }

  protected permits(permits: number): bigint {
    return BigInt(permits) * BigInt(this.intervalUnits)
  }

  private write(state: Float64Array, at: number, units: bigint, isCut = false): void {
    const denominator = BigInt(this.denominator)
    state[at] = Number(units / denominator) * (isCut ? -1 : 1)
    state[at + 1] = Number(units % denominator)
  }

  /** Whole permits that fit in a span of microseconds and a part (a numerator over `denominator`), at most `atOnce`. */
  private permitsIn(spanUs: number, spanPart: number): number {
    // The division may round where its terms leave 2^53, by less than one permit; the comparisons are exact.
    const estimate = Math.floor((spanUs * this.denominator + spanPart) / this.intervalUnits)
    let permits = Math.min(Math.max(estimate, 0), this.atOnce)
    while (permits > 0 && this.comesAfter(permits, spanUs, spanPart)) permits--
    while (permits < this.atOnce && !this.comesAfter(permits + 1, spanUs, spanPart)) permits++
    return permits
  }

  private comesAfter(permits: number, spanUs: number, spanPart: number): boolean {
    const part = permits * this.intervalPart
    const carry = Math.floor(part / this.denominator)
    const us = permits * this.intervalUs + carry - spanUs
    return us * this.denominator + (part - carry * this.denominator) - spanPart > 0
  }
}

/** What survives a change of options. */
export interface HoldsBalance {
  /** Permits in hand; undefined when the key is at rest. */
  balanceOf(state: Float64Array, at: number, nowUs: number): Balance | undefined
}

/** Permits as a fraction `permits / scale`. */
export interface Balance {
  readonly permits: bigint
  readonly scale: bigint
}

export function smaller(a: bigint, b: bigint): bigint {
  return a > b ? b : a
}

export function larger(a: bigint, b: bigint): bigint {
  return a > b ? a : b
}

function greatestCommonDivisor(a: number, b: number): number {
  while (b > 0) [a, b] = [b, a % b]
  return a
}
