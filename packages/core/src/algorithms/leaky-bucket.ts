import { type Duration, spanToUs } from '../shared/duration.js'
import { checkOptions, wholeNumber } from '../shared/validate.js'
import type { Algorithm, Booking, Policy } from './algorithm.js'
import { Decision } from './decision.js'
import { LATEST_US } from './internal/arithmetic.js'
import { ExactLine, smaller } from './internal/gcra.js'
import { Closed } from './internal/zero-limit.js'

/*
 * Leaky bucket
 *
 * The bucket as a queue (Turner 1986; the traffic shaper of the textbooks): requests go in at the top and leave at the
 * bottom one interval (window / limit) apart, however they came. A granted request waits for its turn; one that finds
 * the bucket full is refused. Promise: single permits leave evenly spaced, in any span W at most W * limit / window + 1.
 * A fresh key has an empty bucket: the first request goes at once, `capacity` more may wait.
 *
 * limit 2 per second, so one every 500 ms, and capacity 2:
 *
 *      at    leaves at
 *       0        0        and holds the outlet until 500
 *       0      500
 *       0     1000
 *       0    refused:     two wait already
 *     600     1500        one waits (for 1000)
 *
 * A request that costs more goes at its turn, holds the outlet for as many intervals as it costs, and needs that much
 * room: cost c is granted while the line in front of it is at most capacity + 1 - c intervals long. In any span W at most
 * W * limit / window and one ask, that is.
 *
 * As a queue it is meant to wait: unless told otherwise a limiter with it waits up to capacity * window / limit, also in
 * HTTP. Asked with no patience (`tryAcquire`) it lets one pass per interval. The other leaky bucket of the literature,
 * the meter, is `tokenBucket` with `burst` = capacity.
 *
 * A booking that is given up gives back all of it while nobody is behind; who is behind has a slot that starts where this
 * one ends, so that a newcomer in the gap would leave together with somebody else.
 *
 * The line is kept as exactly as that of the token bucket: lanes 0 and 1 are the instant at which the outlet is free, and
 * lane 2 is when the newest request leaves, which tells whether somebody waits.
 */

/** Options of `leakyBucket`. */
export interface LeakyBucketOptions {
  /** Permits that leave per `window`, evenly spaced: a whole number; 0 refuses everything. */
  readonly limit: number
  /** The time in which `limit` permits leave. */
  readonly window: Duration
  /** Permits that may wait: a whole number. */
  readonly capacity: number
}

/**
 * A leaky bucket as a queue: permits leave one every `window / limit`, up to `capacity` wait for their turn, more are
 * refused. Exact for every whole limit.
 *
 * `limit` and `capacity` are whole permits (limit 0 refuses everything, capacity 0 lets nobody wait), `window` is a
 * duration of whole microseconds. Its default `maxWait` is capacity * window / limit. Throws a TypeError for a wrong type
 * or an unknown option, a RangeError for a value out of range or too large to stay exact; both carry `code` and `option`.
 *
 * @example
 * const limiter = createLimiter(leakyBucket({ limit: 10, window: '1s', capacity: 50 }))
 * await limiter.acquire('printer') // goes at once or in its turn, 100 ms after the one before
 */
export function leakyBucket(options: LeakyBucketOptions): Algorithm {
  checkOptions('leakyBucket', options, ['limit', 'window', 'capacity'])
  const limit = wholeNumber('limit', options.limit)
  const windowUs = spanToUs('window', options.window)
  const capacity = wholeNumber('capacity', options.capacity)
  if (limit === 0) return new Closed(NAME, [limit, windowUs, capacity], LANES)
  return new LeakyBucket(limit, windowUs, capacity)
}

const NAME = 'leaky-bucket'
const LANES = 3

class LeakyBucket extends ExactLine implements Algorithm {
  readonly name = NAME
  readonly args: readonly number[]
  readonly policy: Policy
  readonly lanes = LANES

  private readonly capacity: number

  constructor(limit: number, windowUs: number, capacity: number) {
    super(limit, windowUs, 1)
    this.args = [limit, windowUs, capacity]
    this.capacity = capacity
    const intervalMs = windowUs / limit / 1000
    const quota = Math.max(1, capacity)
    this.policy = {
      limit: quota,
      windowMs: quota * intervalMs,
      smooth: true,
      maxWaitMs: Math.ceil(capacity * intervalMs * 1000) / 1000,
    }
  }

  step(state: Float64Array, at: number, nowUs: number, cost: number, maxWaitUs: number, commit: boolean) {
    let freeUs = state[at] as number
    let freePart = state[at + 1] as number
    if (freeUs < nowUs) {
      freeUs = nowUs
      freePart = 0
    }
    let newUs = freeUs + cost * this.intervalUs
    let newPart = freePart + cost * this.intervalPart
    if (newPart >= this.denominator) {
      const carry = Math.floor(newPart / this.denominator)
      newUs += carry
      newPart -= carry * this.denominator
    }
    if (cost === 0 || cost > this.capacity + 1 || newUs > LATEST_US)
      return this.always(cost === 0, freeUs - nowUs, freePart)

    const waitUs = freeUs - nowUs + (freePart > 0 ? 1 : 0)
    const retryAfterUs = Math.max(waitUs - maxWaitUs, this.untilRoomUs(freeUs - nowUs, freePart, cost), 0)
    if (retryAfterUs === 0 && commit) {
      state[at] = freeUs = newUs
      state[at + 1] = freePart = newPart
      state[at + 2] = nowUs + waitUs
    }
    return new Decision(this, waitUs, retryAfterUs, freeUs - nowUs, freePart)
  }

  /** All of it, as long as nobody is behind: who is has a slot that starts where this one ends. */
  override cancel(state: Float64Array, at: number, nowUs: number, booking: Booking): number {
    if (nowUs > booking.actUs) return 0
    return this.refund(state, at, nowUs, booking.cost, booking)
  }

  refund(state: Float64Array, at: number, nowUs: number, permits: number, booking?: Booking): number {
    const now = this.units(nowUs, 0)
    const free = this.endOf(state, at)
    const end = booking === undefined ? now : this.endOf(booking.mark, 0)
    const someoneWaits = (state[at + 2] as number) > nowUs
    if (someoneWaits && free > end) return 0
    const notRefilled = (booking === undefined ? free : end) - now
    return this.giveBack(state, at, nowUs, smaller(this.permits(permits), notRefilled))
  }

  /** Until the line in front is short enough for the cost to fit in behind it; not above 0 when it is already. */
  private untilRoomUs(lagUs: number, lagPart: number, cost: number): number {
    const room = this.capacity + 1 - cost
    const part = room * this.intervalPart
    const carry = Math.floor(part / this.denominator)
    const tooLongUs = lagUs - (room * this.intervalUs + carry)
    return tooLongUs + (lagPart > part - carry * this.denominator ? 1 : 0)
  }
}
