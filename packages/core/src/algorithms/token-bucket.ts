import { type Duration, spanToUs } from '../shared/duration.js'
import { checkOptions, wholeNumber } from '../shared/validate.js'
import type { Algorithm, Booking, Policy } from './algorithm.js'
import { Decision } from './decision.js'
import { LATEST_US } from './internal/arithmetic.js'
import { ExactLine, larger, smaller } from './internal/gcra.js'
import { Closed } from './internal/zero-limit.js'

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
  if (limit === 0 || burst === 0) return new Closed(NAME, [limit, windowUs, burst], 2)
  return new TokenBucket(limit, windowUs, burst)
}

const NAME = 'token-bucket'

class TokenBucket extends ExactLine implements Algorithm {
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

  /**
   * What the line of those who still wait would lose stays: their slots count on a bucket that does not get fuller than
   * full. Without a booking nothing can be told to be free while somebody waits.
   */
  refund(state: Float64Array, at: number, nowUs: number, permits: number, booking?: Booking): number {
    const now = this.units(nowUs, 0)
    const held = this.endOf(state, at) - now
    const bookedAhead = larger(held - this.depth, 0n)
    if (booking === undefined && bookedAhead > 0n) return 0
    const notRefilled = booking === undefined ? held : this.endOf(booking.mark, 0) - now
    const wanted = smaller(this.permits(permits), notRefilled) - bookedAhead
    return this.giveBack(state, at, nowUs, wanted, bookedAhead > 0n)
  }
}
