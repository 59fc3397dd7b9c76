import type { Algorithm, Booking, Policy } from '../algorithm.js'
import { Decision, fixedGauge, type Gauge } from '../decision.js'
import { type Duration, MAX_SPAN_US, spanToUs } from '../duration.js'
import { invalid } from '../errors.js'
import { checkOptions, wholeNumber } from '../options.js'

/*
 * Token bucket
 *
 * A bucket holds up to `burst` permits and refills continuously, one permit every `window / limit`. A request takes
 * what it costs or is refused. Promise: in any span W at most burst + W * limit / window permits. Who asks pays first: a
 * request waits until its own permits are there, whoever comes next starts from an emptier bucket. A fresh key has a
 * full bucket. A client that paces itself at one permit every window / limit is never refused.
 *
 * The bucket is kept as one instant, not as a count: the time at which it will be full again, called `full` here and
 * the theoretical arrival time in GCRA (ITU-T I.371, the leaky bucket as a virtual scheduling algorithm), which decides
 * exactly like a bucket of tokens. Taking a permit moves `full` one interval into the future; the passing of time needs
 * no bookkeeping at all. limit 2 per second and burst 3, so an interval of 500 ms and a depth of 1500 ms:
 *
 *      at    full before     full after    in the bucket
 *       0    0 (never seen)      500           2
 *       0    500                1000           1
 *       0    1000               1500           0
 *       0    1500               refused: 2000 lies 500 ms deeper than the bucket, wait 500
 *     500    1500               2000           0       one interval later one permit is there
 *    5000    2000               5500           2       full since 2000; it does not get fuller
 *
 * A reservation is the same step with more patience: `full` may move past the depth of the bucket by as much as the
 * caller is willing to wait, and whoever comes later queues behind it.
 *
 * Exactness. A window / limit is seldom a whole number of microseconds (3 per second: 333333 1/3), and a double that
 * collects such fractions drifts. So `full` is two integers: whole microseconds, and the fraction as a numerator over
 * `denominator` = limit / gcd(limit, window). No decision differs from exact arithmetic.
 *
 * Reservations, cancelling and waiting with a limit follow golang.org/x/time/rate (2025-09). Deliberate differences:
 * nothing is granted before its instant (there a wait is truncated to the clock's unit), time that goes back earns
 * nothing, a cancel works once and never gives back more than was taken, a request that can never pass is refused.
 * A bucket that a larger burst finds full is full at the new size, because a full bucket is a key never seen.
 */

/** Options of `tokenBucket`. */
export interface TokenBucketOptions {
  /** Permits that refill per `window`: a whole number; 0 refuses everything. */
  readonly limit: number
  /** The time in which `limit` permits refill. */
  readonly window: Duration
  /** Permits that a rested key may take at once: a whole number, by default `limit`. */
  readonly burst?: number | undefined
}

/**
 * A token bucket: `burst` permits at once, then `limit` per `window`, evenly; in any span W at most
 * `burst + W * limit / window` permits. Exact for every whole limit; decides like GCRA and like x/time/rate.
 *
 * `limit` and `burst` are whole permits (`burst` defaults to `limit`; 0 refuses everything), `window` is a duration of
 * whole microseconds. Throws a TypeError for a wrong type or an unknown option, a RangeError for a value out of range
 * or too large to stay exact; both carry `code` and `option`.
 *
 * @example
 * const limiter = createLimiter(tokenBucket({ limit: 600, window: '1m', burst: 50 }))
 * limiter.tryAcquire('ann').allowed // true, 49 more at once, then one every 100 ms
 */
export function tokenBucket(options: TokenBucketOptions): Algorithm {
  checkOptions('tokenBucket', options, ['limit', 'window', 'burst'])
  const limit = wholeNumber('limit', options.limit)
  const windowUs = spanToUs('window', options.window)
  const burst = options.burst === undefined ? limit : wholeNumber('burst', options.burst)
  if (limit === 0 || burst === 0) return new ClosedBucket(limit, windowUs, burst)
  return new TokenBucket(limit, windowUs, burst)
}

const NAME = 'token-bucket'

/** A booking that ends later than this would not be exact. */
const LATEST_US = Number.MAX_SAFE_INTEGER

class TokenBucket implements Algorithm, Gauge {
  readonly name = NAME
  readonly args: readonly number[]
  readonly policy: Policy
  readonly lanes = 2
  readonly bookable = true

  private readonly burst: number
  /** An interval is `intervalUnits / denominator` microseconds, or `intervalUs` and `intervalPart / denominator`. */
  private readonly denominator: number
  private readonly intervalUnits: number
  private readonly intervalUs: number
  private readonly intervalPart: number
  /** The depth of the bucket, `burst` intervals. */
  private readonly depthUs: number
  private readonly depthPart: number

  constructor(limit: number, windowUs: number, burst: number) {
    this.args = [limit, windowUs, burst]
    const shared = greatestCommonDivisor(limit, windowUs)
    this.burst = burst
    this.denominator = limit / shared
    this.intervalUnits = windowUs / shared
    this.intervalUs = Math.floor(this.intervalUnits / this.denominator)
    this.intervalPart = this.intervalUnits - this.intervalUs * this.denominator
    if (burst * this.intervalPart + 2 * limit > Number.MAX_SAFE_INTEGER)
      throw invalid(RangeError, 'limit', 'a limit and burst small enough to stay exact (within 2^53)', limit)
    const refillUs = windowUs * (burst / limit)
    if (refillUs > MAX_SPAN_US)
      throw invalid(RangeError, 'burst', 'a burst that refills within 200 years', burst)
    const carry = Math.floor((burst * this.intervalPart) / this.denominator)
    this.depthUs = burst * this.intervalUs + carry
    this.depthPart = burst * this.intervalPart - carry * this.denominator
    this.policy = { limit: burst, windowMs: refillUs / 1000, smooth: true }
  }

  step(state: Float64Array, at: number, nowUs: number, cost: number, maxWaitUs: number, commit: boolean) {
    let fullUs = state[at] as number
    let fullPart = state[at + 1] as number
    if (fullUs < nowUs) {
      fullUs = nowUs
      fullPart = 0
    }
    let newUs = fullUs + cost * this.intervalUs
    let newPart = fullPart + cost * this.intervalPart
    if (newPart >= this.denominator) {
      const carry = Math.floor(newPart / this.denominator)
      newUs += carry
      newPart -= carry * this.denominator
    }
    if (cost === 0 || cost > this.burst || newUs > LATEST_US)
      return this.always(cost === 0, fullUs - nowUs, fullPart)

    let waitUs = newUs - this.depthUs - nowUs
    if (newPart > this.depthPart) waitUs++
    if (waitUs < 0) waitUs = 0
    let retryAfterUs = 0
    if (waitUs > maxWaitUs) {
      retryAfterUs = waitUs - maxWaitUs
    } else if (commit) {
      state[at] = fullUs = newUs
      state[at + 1] = fullPart = newPart
    }
    return new Decision(this, waitUs, retryAfterUs, fullUs - nowUs, fullPart)
  }

  cancel(state: Float64Array, at: number, nowUs: number, booking: Booking): number {
    if (nowUs > booking.actUs) return 0
    if (nowUs === booking.actUs) return this.refund(state, at, nowUs, booking.cost, booking)
    const full = this.units(state[at] as number, state[at + 1] as number)
    const bookedAfter = larger(full - this.endOf(booking), 0n)
    return this.giveBack(state, at, nowUs, this.permits(booking.cost) - bookedAfter)
  }

  /**
   * Of a booking, what the line of those who still wait would lose stays: their slots count on a bucket that does not
   * get fuller than full.
   */
  refund(state: Float64Array, at: number, nowUs: number, permits: number, booking?: Booking): number {
    const full = this.units(state[at] as number, state[at + 1] as number)
    const now = this.units(nowUs, 0)
    if (booking === undefined) return this.giveBack(state, at, nowUs, this.permits(permits))
    const notRefilled = smaller(this.permits(permits), this.endOf(booking) - now)
    const bookedAhead = larger(full - this.units(this.depthUs, this.depthPart) - now, 0n)
    return this.giveBack(state, at, nowUs, notRefilled - bookedAhead)
  }

  /** The balance stays what it is, as far as the new bucket holds it; a full bucket stays full. */
  adopt(state: Float64Array, at: number, nowUs: number, previous: Algorithm): void {
    const balance = (previous as TokenBucket | ClosedBucket).balanceOf(state, at, nowUs)
    state[at] = state[at + 1] = 0
    if (balance === undefined) return
    const missing = BigInt(this.burst) * balance.scale - balance.permits
    if (missing <= 0n) return
    const units = BigInt(this.intervalUnits)
    const debt = (missing * units + balance.scale - 1n) / balance.scale
    this.write(state, at, this.units(nowUs, 0) + debt)
  }

  restsAt(state: Float64Array, at: number): number {
    return (state[at] as number) + (state[at + 1] === 0 ? 0 : 1)
  }

  load(state: Float64Array, at: number, nowUs: number): number {
    const lagUs = Math.max((state[at] as number) - nowUs, 0)
    const surelyFree = lagUs < this.depthUs - this.intervalUs - 1
    return surelyFree || this.step(state, at, nowUs, 1, 0, false).allowed ? lagUs / (this.depthUs + 1) : 1
  }

  get limit(): number {
    return this.burst
  }

  remaining(lagUs: number, lagPart: number): number {
    return this.permitsIn(this.depthUs - lagUs, this.depthPart - lagPart)
  }

  balance(lagUs: number, lagPart: number): number {
    return ((this.depthUs - lagUs) * this.denominator + (this.depthPart - lagPart)) / this.intervalUnits
  }

  refillAfterUs(lagUs: number, lagPart: number): number {
    const next = this.remaining(lagUs, lagPart) + 1
    if (next > this.burst) return 0
    const part = next * this.intervalPart
    const carry = Math.floor(part / this.denominator)
    const surplusUs = lagUs + next * this.intervalUs + carry - this.depthUs
    const surplusPart = lagPart + part - carry * this.denominator - this.depthPart
    return surplusUs + Math.ceil(surplusPart / this.denominator)
  }

  resetAfterUs(lagUs: number, lagPart: number): number {
    return lagUs + (lagPart > 0 ? 1 : 0)
  }

  /** Permits in the bucket as a fraction `permits / scale`; undefined when it is full. */
  balanceOf(state: Float64Array, at: number, nowUs: number): Balance | undefined {
    const debt = this.units(state[at] as number, state[at + 1] as number) - this.units(nowUs, 0)
    if (debt <= 0n) return undefined
    const scale = BigInt(this.intervalUnits)
    return { permits: BigInt(this.burst) * scale - debt, scale }
  }

  /** Whole permits that refill in a span of microseconds and a part (a numerator over `denominator`), at most `burst`. */
  private permitsIn(spanUs: number, spanPart: number): number {
    // The division may round where its terms leave 2^53, by less than one permit; the comparisons are exact.
    const estimate = Math.floor((spanUs * this.denominator + spanPart) / this.intervalUnits)
    let permits = Math.min(Math.max(estimate, 0), this.burst)
    while (permits > 0 && this.comesAfter(permits, spanUs, spanPart)) permits--
    while (permits < this.burst && !this.comesAfter(permits + 1, spanUs, spanPart)) permits++
    return permits
  }

  /** What neither patience nor time changes: a cost of 0 passes, one that is out of reach never does. */
  private always(granted: boolean, lagUs: number, lagPart: number): Decision {
    const waitUs = granted ? 0 : Infinity
    return new Decision(this, waitUs, waitUs, lagUs, lagPart)
  }

  private comesAfter(permits: number, spanUs: number, spanPart: number): boolean {
    const part = permits * this.intervalPart
    const carry = Math.floor(part / this.denominator)
    const us = permits * this.intervalUs + carry - spanUs
    return us * this.denominator + (part - carry * this.denominator) - spanPart > 0
  }

  private giveBack(state: Float64Array, at: number, nowUs: number, wanted: bigint): number {
    const full = this.units(state[at] as number, state[at + 1] as number)
    const held = full - this.units(nowUs, 0)
    const given = larger(smaller(wanted, held), 0n)
    if (given > 0n) this.write(state, at, full - given)
    return Number(given) / this.intervalUnits
  }

  /** An instant or a span in units of 1 / denominator microseconds. */
  private units(us: number, part: number): bigint {
    return BigInt(us) * BigInt(this.denominator) + BigInt(part)
  }

  private endOf(booking: Booking): bigint {
    return this.units(booking.mark[0] as number, booking.mark[1] as number)
  }

  private permits(permits: number): bigint {
    return BigInt(permits) * BigInt(this.intervalUnits)
  }

  private write(state: Float64Array, at: number, units: bigint): void {
    const denominator = BigInt(this.denominator)
    state[at] = Number(units / denominator)
    state[at + 1] = Number(units % denominator)
  }
}

/**
 * A bucket that never refills or holds nothing, so that it refuses everything. It keeps what it has adopted as it was:
 * lane 0 is -1 and lane 1 the balance, because switching a limit off and on again must not fill a bucket.
 */
class ClosedBucket implements Algorithm {
  readonly name = NAME
  readonly args: readonly number[]
  readonly policy: Policy
  readonly lanes = 2
  readonly bookable = true

  constructor(limit: number, windowUs: number, burst: number) {
    this.args = [limit, windowUs, burst]
    this.policy = { limit: 0, windowMs: windowUs / 1000, smooth: true }
  }

  step(_state: Float64Array, _at: number, _nowUs: number, cost: number): Decision {
    const waitUs = cost === 0 ? 0 : Infinity
    return new Decision(CLOSED, waitUs, waitUs, 0, 0)
  }

  cancel(): number {
    return 0
  }

  refund(): number {
    return 0
  }

  adopt(state: Float64Array, at: number, nowUs: number, previous: Algorithm): void {
    const balance = (previous as TokenBucket | ClosedBucket).balanceOf(state, at, nowUs)
    state[at] = balance === undefined ? 0 : FROZEN
    state[at + 1] = balance === undefined ? 0 : floorDivide(balance.permits, balance.scale)
  }

  restsAt(state: Float64Array, at: number): number {
    return state[at] === FROZEN ? Infinity : 0
  }

  load(): number {
    return 1
  }

  balanceOf(state: Float64Array, at: number): Balance | undefined {
    return state[at] === FROZEN ? { permits: BigInt(state[at + 1] as number), scale: 1n } : undefined
  }
}

const FROZEN = -1

const CLOSED = fixedGauge({ limit: 0, remaining: 0, balance: 0, refillAfterUs: Infinity, resetAfterUs: 0 })

interface Balance {
  readonly permits: bigint
  readonly scale: bigint
}

function smaller(a: bigint, b: bigint): bigint {
  return a > b ? b : a
}

function larger(a: bigint, b: bigint): bigint {
  return a > b ? a : b
}

function floorDivide(numerator: bigint, denominator: bigint): number {
  const quotient = numerator / denominator
  return Number(numerator < 0n && quotient * denominator !== numerator ? quotient - 1n : quotient)
}

function greatestCommonDivisor(a: number, b: number): number {
  while (b > 0) [a, b] = [b, a % b]
  return a
}
