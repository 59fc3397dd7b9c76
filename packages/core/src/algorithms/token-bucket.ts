import { type Duration, spanToUs } from '../shared/duration.js'
import { checkOptions, wholeNumber } from '../shared/validate.js'
import type { Algorithm, Booking, Policy } from './algorithm.js'
import { Decision } from './decision.js'
import { LATEST_US, larger, smaller } from './internal/arithmetic.js'
import { Gcra } from './internal/gcra.js'
import { endOf, isCut, moveEndBack, permitsToUnits, unitsOf } from './internal/gcra-bigint.js'
import { ZeroLimit } from './internal/zero-limit.js'

/*
 * Token bucket
 *
 * A bucket holds up to `burst` permits and refills continuously, one permit every `window / limit`. A request takes
 * what it costs or is refused. Promise: in any span W at most burst + W * limit / window permits. The caller pays first:
 * a request waits until its own permits are there, and the next request finds an emptier bucket. A fresh key has a full
 * bucket. A client that paces itself at one permit every window / limit is never refused.
 *
 * The bucket is kept as one instant, not as a count: the time at which it will be full again, called `full` here and
 * the theoretical arrival time in GCRA (ITU-T I.371, the leaky bucket as a virtual scheduling algorithm), which decides
 * exactly like a bucket of tokens. Taking a permit moves `full` one interval into the future; the passing of time needs
 * no bookkeeping. limit 2 per second and burst 3, so an interval of 500 ms and a depth of 1500 ms:
 *
 *      at    full before     full after    in the bucket
 *       0    0 (never seen)      500           2
 *       0    500                1000           1
 *       0    1000               1500           0
 *       0    1500               refused: 2000 lies 500 ms deeper than the bucket, wait 500
 *     500    1500               2000           0       one interval later one permit is there
 *    5000    2000               5500           2       full since 2000; it does not get fuller
 *
 * A reservation is the same step with a longer `maxWait`: `full` may lie deeper than the bucket by as much as the caller
 * accepts to wait, and later requests queue behind it.
 *
 * Exactness. `full` is two integers, whole microseconds and a fraction (see gcra.ts). No decision differs from exact
 * arithmetic.
 *
 * Reservations, cancelling and waiting with a limit follow golang.org/x/time/rate (2025-09). Deliberate differences:
 * no permit is granted before its instant (there a wait is truncated to the clock's unit); a clock that goes back refills
 * nothing; a cancel works once and never gives back more than was taken; a request that can never pass is refused. A full
 * bucket stays full when `update` raises the burst, because a full bucket is a key never seen.
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
  if (limit === 0 || burst === 0) return new ZeroLimit(NAME, [limit, windowUs, burst], 2)
  return new TokenBucket(limit, windowUs, burst)
}

const NAME = 'token-bucket'

/** The constants of `tokenBucket` with these args; none for a limit or burst of 0. */
export function tokenBucketConstants(args: readonly number[]): readonly number[] {
  const [limit = 0, windowUs = 0, burst = 0] = args
  return limit === 0 || burst === 0 ? [] : new TokenBucket(limit, windowUs, burst).constants
}

class TokenBucket extends Gcra implements Algorithm {
  readonly name = NAME
  readonly args: readonly number[]
  readonly policy: Policy
  readonly lanes = 2

  constructor(limit: number, windowUs: number, burst: number) {
    super(limit, windowUs, burst)
    this.args = [limit, windowUs, burst]
    this.policy = { limit: burst, windowMs: this.refillUs / 1000, smooth: true }
  }

  step(state: Float64Array, at: number, nowUs: number, cost: number, maxWaitUs: number, commit: boolean) {
    let fullUs = state[at] as number
    let fullPart = state[at + 1] as number
    let sign = 1
    if (fullUs < nowUs) {
      // Below 0 the line is cut; see gcra.ts.
      if (-fullUs >= nowUs) {
        fullUs = -fullUs
        sign = -1
      } else {
        fullUs = nowUs
        fullPart = 0
      }
    }
    let newUs = fullUs + cost * this.intervalUs
    let newPart = fullPart + cost * this.intervalPart
    if (newPart >= this.denominator) {
      const carry = Math.floor(newPart / this.denominator)
      newUs += carry
      newPart -= carry * this.denominator
    }
    if (cost === 0 || cost > this.atOnce || newUs > LATEST_US)
      return this.always(cost === 0, fullUs - nowUs, fullPart)

    let waitUs = newUs - this.depthUs - nowUs
    if (newPart > this.depthPart) waitUs++
    if (waitUs < 0) waitUs = 0
    let retryAfterUs = 0
    if (waitUs > maxWaitUs) {
      retryAfterUs = waitUs - maxWaitUs
    } else if (commit) {
      fullUs = newUs
      state[at] = sign * newUs
      state[at + 1] = fullPart = newPart
    }
    return new Decision(this, waitUs, retryAfterUs, fullUs - nowUs, fullPart)
  }

  /** Gives back the cost less what was booked after it, so that the instants of later bookings stay what they are. */
  cancel(state: Float64Array, at: number, nowUs: number, booking: Booking): number {
    if (nowUs > booking.actUs) return 0
    if (nowUs === booking.actUs) return this.refund(state, at, nowUs, booking.cost, booking)
    const bookedAfter = larger(endOf(this, state, at) - endOf(this, booking.mark, 0), 0n)
    if (bookedAfter > 0n && isCut(state, at)) return 0
    const wanted = permitsToUnits(this, booking.cost) - bookedAfter
    return moveEndBack(this, state, at, nowUs, wanted, bookedAfter > 0n)
  }

  /**
   * Keeps what bookings ahead of now need: their instants count on a bucket that never holds more than its burst. Without
   * a booking it gives back nothing while permits of the future are booked, because those may be the newest ones.
   */
  refund(state: Float64Array, at: number, nowUs: number, permits: number, booking?: Booking): number {
    const now = unitsOf(this, nowUs)
    const lag = endOf(this, state, at) - now
    const bookedAhead = larger(lag - unitsOf(this, this.depthUs, this.depthPart), 0n)
    if (booking === undefined && bookedAhead > 0n) return 0
    const notRefilled = booking === undefined ? lag : endOf(this, booking.mark, 0) - now
    const wanted = smaller(permitsToUnits(this, permits), notRefilled) - bookedAhead
    return moveEndBack(this, state, at, nowUs, wanted, bookedAhead > 0n)
  }
}
