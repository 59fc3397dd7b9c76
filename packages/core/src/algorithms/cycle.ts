import { type Duration, parseDuration, spanToUs } from '../shared/duration.js'
import { invalid } from '../shared/errors.js'
import { checkOptions, wholeNumber } from '../shared/validate.js'
import type { Algorithm, Booking, Policy } from './algorithm.js'
import { Decision, type Gauge } from './decision.js'
import { LATEST_US } from './internal/arithmetic.js'

/*
 * Cycle
 *
 * Time runs in cycles of one period, counted from `origin`. At the start of each cycle `limit` permits are added, up to
 * `limit`. A request that finds too few permits may book those of later cycles: the balance becomes negative, and the wait
 * lasts until the start of the cycle that pays for it.
 *
 *     limit 2 per second      at 300  +1 +1     balance  0
 *                             at 300  +1        balance -1    waits 700, for the cycle that starts at 1000
 *                             at 300  +1        balance -2    waits 700
 *                             at 300  +1        balance -3    waits 1700
 *
 * Promise: permits that are taken without a wait number at most `limit` in a cycle, so at most 2 * limit in any span of
 * one period (the end of one cycle, the start of the next). A booking of c permits waits until all c are there, and the
 * permits added before that are kept for it: with bookings, add the largest booking less one. The caller pays for its own
 * request. A fresh key has `limit` permits in the cycle of its first request.
 *
 * A cost above `limit` can be booked but never taken at once. It needs k = ceil((cost - limit) / limit) cycles beyond the
 * present one, so it is refused for ever unless `maxWait` is more than k - 1 periods.
 *
 * After AtomicRateLimiter of Resilience4j (2.4): limitForPeriod, limitRefreshPeriod, and timeoutDuration, which here is
 * the `maxWait` of the limiter. As there, a change of the limit takes effect with the next cycle, and cycles in which no
 * request came are refilled by the new limit. Deliberate differences: cycles count from the epoch unless `origin` says
 * otherwise (there from when the limiter was made), so that processes agree; a drain takes the permits that are there and
 * leaves debts alone; permits of a booking can be given back; a cost of 0 passes at once; a refused request does not wait.
 *
 * Lane 0 is the number of the cycle of the newest decision that took permits, plus one; lane 1 the balance after it.
 */

/** Options of `cycle`. */
export interface CycleOptions {
  /** Permits per cycle: a whole number; 0 refuses everything. */
  readonly limit: number
  /** The length of a cycle. */
  readonly period: Duration
  /** A time at which a cycle starts, in milliseconds since the epoch; default 0. */
  readonly origin?: number | undefined
}

/**
 * Cycles of fixed length: `limit` permits at the start of each, and permits of later cycles can be booked.
 *
 * `limit` is whole permits, `period` a duration of whole microseconds, `origin` milliseconds since the epoch (default 0).
 * Throws a TypeError for a wrong type or an unknown option, a RangeError for a value out of range; both carry `code` and
 * `option`. Decides like AtomicRateLimiter of Resilience4j 2.4.
 *
 * @example
 * const limiter = createLimiter(cycle({ limit: 50, period: '1s' }), { maxWait: '5s' })
 * await limiter.acquire('backend') // at once, or at the start of a second within the next five
 */
export function cycle(options: CycleOptions): Algorithm {
  checkOptions('cycle', options, ['limit', 'period', 'origin'])
  const limit = wholeNumber('limit', options.limit)
  const periodUs = spanToUs('period', options.period)
  return new Cycle(limit, periodUs, originToUs(options.origin === undefined ? 0 : options.origin) % periodUs)
}

/** The constants of `cycle` with these args. */
export function cycleConstants(args: readonly number[]): readonly number[] {
  const [limit = 0, periodUs = 0, offsetUs = 0] = args
  return new Cycle(limit, periodUs, offsetUs).constants
}

class Cycle implements Algorithm, Gauge {
  readonly name = 'cycle'
  readonly args: readonly number[]
  readonly constants: readonly number[]
  readonly policy: Policy
  readonly lanes = 2
  readonly bookable = true
  readonly limit: number

  private readonly periodUs: number
  /** The start of cycle 0: at or before the epoch, so that no cycle has a number below 0. */
  private readonly originUs: number

  /** `offsetUs` is the start of the first cycle after the epoch. */
  constructor(limit: number, periodUs: number, offsetUs: number) {
    this.args = [limit, periodUs, offsetUs]
    this.policy = { limit, windowMs: periodUs / 1000, smooth: false }
    this.limit = limit
    this.periodUs = periodUs
    this.originUs = offsetUs === 0 ? 0 : offsetUs - periodUs
    this.constants = [this.originUs]
  }

  step(state: Float64Array, at: number, nowUs: number, cost: number, maxWaitUs: number, commit: boolean) {
    const number = this.cycleAt(state, at, nowUs)
    let balance = this.balanceIn(number, state, at)
    let waitUs = 0
    let retryAfterUs = 0
    if (cost > 0 && (balance < cost || this.limit === 0)) {
      waitUs = this.startOf(number + this.cyclesUntil(cost, balance)) - nowUs
      if (this.limit === 0 || nowUs + waitUs > LATEST_US) waitUs = retryAfterUs = Infinity
      else if (waitUs > maxWaitUs) {
        retryAfterUs = this.retryAfterUs(number, balance, nowUs, cost, maxWaitUs)
        if (cost > this.limit) waitUs = Infinity
      }
    }
    if (retryAfterUs === 0 && commit && cost > 0) {
      balance -= cost
      state[at] = number + 1
      state[at + 1] = balance
    }
    return new Decision(this, waitUs, retryAfterUs, balance, this.startOf(number + 1) - nowUs)
  }

  read(waitUs: number, retryAfterUs: number, [balance = 0, nextUs = 0]: readonly number[]): Decision {
    return new Decision(this, waitUs, retryAfterUs, balance, nextUs)
  }

  cancel(state: Float64Array, at: number, nowUs: number, booking: Booking): number {
    if (nowUs > booking.actUs) return 0
    if (nowUs === booking.actUs) return this.refund(state, at, nowUs, booking.cost, booking)
    const number = this.cycleAt(state, at, nowUs)
    const balance = this.balanceIn(number, state, at)
    const mark = this.balanceIn(number, booking.mark, 0)
    return this.giveBack(state, at, number, this.cancellable(booking.cost, mark, balance))
  }

  /** Gives back nothing while a request waits: the permits would be taken in a cycle that is booked already. */
  refund(state: Float64Array, at: number, nowUs: number, permits: number, booking?: Booking): number {
    const number = this.cycleAt(state, at, nowUs)
    const balance = this.balanceIn(number, state, at)
    if (balance < 0) return 0
    const then = booking === undefined ? balance : this.balanceIn(number, booking.mark, 0)
    return this.giveBack(state, at, number, Math.min(permits, this.limit - then))
  }

  /** Another limit converts nothing: the cycles since then are refilled by it. With another period the balance stays. */
  adopt(state: Float64Array, at: number, nowUs: number, previous: Algorithm): void {
    const old = previous as Cycle
    if (old.periodUs === this.periodUs && old.originUs === this.originUs) return
    state[at + 1] = Math.min(this.limit, old.balanceIn(old.cycleAt(state, at, nowUs), state, at))
    state[at] = Math.floor((nowUs - this.originUs) / this.periodUs) + 1
  }

  restsAt(state: Float64Array, at: number): number {
    if (state[at] === 0) return 0
    const missing = this.limit - (state[at + 1] as number)
    if (missing === 0) return 0
    return this.startOf((state[at] as number) - 1 + this.cyclesToRest(missing))
  }

  load(state: Float64Array, at: number, nowUs: number): number {
    const balance = this.balanceIn(this.cycleAt(state, at, nowUs), state, at)
    return balance <= 0 || this.limit === 0 ? 1 : Math.max(0, 1 - balance / this.limit)
  }

  remaining(balance: number): number {
    return this.limit === 0 ? 0 : Math.max(0, balance)
  }

  balance(balance: number): number {
    return balance
  }

  refillAfterUs(balance: number, nextUs: number): number {
    if (this.limit === 0) return Infinity
    if (balance >= this.limit) return 0
    return nextUs + Math.floor(Math.max(-balance, 0) / this.limit) * this.periodUs
  }

  resetAfterUs(balance: number, nextUs: number): number {
    const missing = this.limit - balance
    return missing === 0 ? 0 : nextUs + (this.cyclesToRest(missing) - 1) * this.periodUs
  }

  /** The cycle of an instant, but not earlier than the one in the state. */
  private cycleAt(state: Float64Array, at: number, nowUs: number): number {
    return Math.max(Math.floor((nowUs - this.originUs) / this.periodUs), (state[at] as number) - 1)
  }

  private balanceIn(number: number, state: Float64Array, at: number): number {
    if (state[at] === 0) return this.limit
    const elapsed = number - ((state[at] as number) - 1)
    const balance = state[at + 1] as number
    return elapsed <= 0 ? balance : Math.min(this.limit, balance + elapsed * this.limit)
  }

  private startOf(number: number): number {
    return this.originUs + number * this.periodUs
  }

  /** The number of cycles until the balance, if it is not capped on the way, has grown to a cost. */
  private cyclesUntil(cost: number, balance: number): number {
    return Math.ceil((cost - balance) / this.limit)
  }

  private cyclesToRest(missing: number): number {
    return missing < 0 ? 1 : Math.ceil(missing / this.limit)
  }

  /**
   * Until the wait has shrunk to `maxWaitUs`. The wait shrinks with time until the balance is capped. From then on it is
   * the same in every cycle, longest at its start.
   */
  private retryAfterUs(
    number: number,
    balance: number,
    nowUs: number,
    cost: number,
    maxWaitUs: number,
  ): number {
    const beforeUs = this.startOf(number + this.cyclesUntil(cost, balance)) - maxWaitUs
    if (cost <= this.limit) return beforeUs - nowUs
    const cappedIn = number + Math.max(0, Math.floor((this.limit - balance) / this.limit)) + 1
    if (beforeUs < this.startOf(cappedIn)) return beforeUs - nowUs
    const cycles = this.cyclesUntil(cost, this.limit)
    if (maxWaitUs <= (cycles - 1) * this.periodUs) return Infinity
    return Math.max(this.startOf(cappedIn), this.startOf(cappedIn + cycles) - maxWaitUs) - nowUs
  }

  /**
   * What may be given back of a booking that left the balance at `mark`: the cost less what was booked after it, and only
   * permits of the cycle that the last booking waits for. More would make room for a second booking in a later cycle.
   */
  private cancellable(cost: number, mark: number, balance: number): number {
    const bookedAfter = mark - balance
    if (this.limit === 0) return 0
    if (bookedAfter <= 0) return cost
    const cycles = this.cyclesUntil(0, mark)
    if (cycles !== this.cyclesUntil(0, balance)) return 0
    return Math.min(cost - bookedAfter, -mark - (cycles - 1) * this.limit)
  }

  private giveBack(state: Float64Array, at: number, number: number, wanted: number): number {
    const balance = this.balanceIn(number, state, at)
    const given = Math.max(0, Math.min(wanted, this.limit - balance))
    if (given > 0) {
      state[at] = number + 1
      state[at + 1] = balance + given
    }
    return given
  }
}

function originToUs(origin: unknown): number {
  if (typeof origin !== 'number') throw invalid(TypeError, 'origin', 'milliseconds since the epoch', origin)
  const us = Math.round(parseDuration(origin, 'origin') * 1000)
  if (!Number.isSafeInteger(us)) throw invalid(RangeError, 'origin', 'milliseconds since the epoch', origin)
  return us
}
