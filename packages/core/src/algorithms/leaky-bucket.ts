import { type Duration, spanToUs } from '../shared/duration.js'
import { checkOptions, wholeNumber } from '../shared/validate.js'
import type { Algorithm, Booking, Policy } from './algorithm.js'
import { Decision } from './decision.js'
import { LATEST_US, smaller } from './internal/arithmetic.js'
import { Gcra } from './internal/gcra.js'
import { endOf, moveEndBack, permitsToUnits, unitsOf } from './internal/gcra-bigint.js'
import { ZeroLimit } from './internal/zero-limit.js'

/*
 * Leaky bucket
 *
 * The bucket as a queue (Turner 1986; the traffic shaper of the textbooks): requests go in at the top and leave at the
 * bottom one interval (window / limit) apart, however they arrived. A granted request waits for its turn; a request that
 * finds the bucket full is refused. Promise: single permits leave evenly spaced, in any span W at most
 * W * limit / window + 1. A fresh key has an empty bucket: the first request leaves at once, `capacity` more may wait.
 *
 * limit 2 per second, so one every 500 ms, and capacity 2:
 *
 *      at    leaves at
 *       0        0        and occupies the outlet until 500
 *       0      500
 *       0     1000
 *       0    refused:     two are waiting already
 *     600     1500        one is waiting (for 1000)
 *
 * A request of cost c leaves at its turn, occupies the outlet for c intervals, and needs room for c permits: it is granted
 * while the line in front of it is at most capacity + 1 - c intervals long. So in any span W at most W * limit / window
 * permits and one request leave.
 *
 * A queue is made to wait: by default a limiter with it waits up to capacity * window / limit, also in HTTP. Without a
 * wait (`tryAcquire`) it grants one permit per interval. The other leaky bucket of the literature, the meter, is
 * `tokenBucket` with `burst` = capacity.
 *
 * A cancelled booking gives back its whole cost while no other booking follows it. Otherwise it gives back nothing: the
 * booking that follows leaves where this one ends, and a new request in the gap would leave together with another one.
 *
 * Lanes 0 and 1 are the instant at which the outlet is free, as exact as the line of the token bucket (see gcra.ts). Lane
 * 2 is when the newest request leaves: a request is waiting while that is ahead of now.
 */

/** Options of `leakyBucket`. */
export interface LeakyBucketOptions {
  /** Permits that leave per `window`, evenly spaced: a whole number; 0 refuses everything. */
  readonly limit: number
  /** The time in which `limit` permits leave. */
  readonly window: Duration
  /** Permits that may wait for their turn: a whole number. */
  readonly capacity: number
}

/**
 * A leaky bucket as a queue: one permit leaves every `window / limit`, up to `capacity` permits wait for their turn, more
 * are refused. Exact for every whole limit.
 *
 * `limit` and `capacity` are whole permits (limit 0 refuses everything, capacity 0 allows no wait), `window` is a
 * duration of whole microseconds. Its default `maxWait` is capacity * window / limit. Throws a TypeError for a wrong type
 * or an unknown option, a RangeError for a value out of range or too large to stay exact; both carry `code` and `option`.
 *
 * @example
 * const limiter = createLimiter(leakyBucket({ limit: 10, window: '1s', capacity: 50 }))
 * await limiter.acquire('printer') // at once, or 100 ms after the one before it
 */
export function leakyBucket(options: LeakyBucketOptions): Algorithm {
  checkOptions('leakyBucket', options, ['limit', 'window', 'capacity'])
  const limit = wholeNumber('limit', options.limit)
  const windowUs = spanToUs('window', options.window)
  const capacity = wholeNumber('capacity', options.capacity)
  if (limit === 0) return new ZeroLimit(NAME, [limit, windowUs, capacity], LANES)
  return new LeakyBucket(limit, windowUs, capacity)
}

const NAME = 'leaky-bucket'
const LANES = 3

/** The constants of `leakyBucket` with these args; none for a limit of 0. */
export function leakyBucketConstants(args: readonly number[]): readonly number[] {
  const [limit = 0, windowUs = 0, capacity = 0] = args
  return limit === 0 ? [] : new LeakyBucket(limit, windowUs, capacity).constants
}

class LeakyBucket extends Gcra implements Algorithm {
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

  cancel(state: Float64Array, at: number, nowUs: number, booking: Booking): number {
    return nowUs > booking.actUs ? 0 : this.refund(state, at, nowUs, booking.cost, booking)
  }

  /** Gives back nothing while a request waits whose turn it would change. */
  refund(state: Float64Array, at: number, nowUs: number, permits: number, booking?: Booking): number {
    const now = unitsOf(this, nowUs)
    const free = endOf(this, state, at)
    const end = booking === undefined ? now : endOf(this, booking.mark, 0)
    const isWaitedFor = (state[at + 2] as number) > nowUs
    if (isWaitedFor && free > end) return 0
    const notRefilled = (booking === undefined ? free : end) - now
    return moveEndBack(this, state, at, nowUs, smaller(permitsToUnits(this, permits), notRefilled))
  }

  /** Until the line in front is short enough for the cost to fit in behind it; 0 or less when it is short enough now. */
  private untilRoomUs(lagUs: number, lagPart: number, cost: number): number {
    const room = this.capacity + 1 - cost
    const part = room * this.intervalPart
    const carry = Math.floor(part / this.denominator)
    const tooLongUs = lagUs - (room * this.intervalUs + carry)
    return tooLongUs + (lagPart > part - carry * this.denominator ? 1 : 0)
  }
}
