import { type Duration, spanToUs, waitToUs } from '../shared/duration.js'
import { invalid } from '../shared/errors.js'
import { checkOptions, wholeNumber } from '../shared/validate.js'
import type { Algorithm, Booking, Policy } from './algorithm.js'
import { SMOOTH_LANES, Smooth, type Start } from './internal/smooth.js'
import { Closed } from './internal/zero-limit.js'

/*
 * Smooth warming up
 *
 * For a server that is slow after idleness (cold caches, new connections): idle time makes the limiter cold, and a cold
 * limiter spaces permits `coldFactor` intervals apart. In use it warms up within `warmup`, to one permit per interval
 * (window / limit). Idle time is kept as stored permits, which here cost more than fresh ones:
 *
 *      interval
 *      cold  |                  /        permits are spent from the right: the first ones after idleness
 *            |                /          are the dearest, and the area under the line is the time they cost;
 *    stable  |_______________/           the slope has the area `warmup`, the flat part half of that
 *            0         threshold    max stored
 *
 * limit 2 per second, warmup 4 s, coldFactor 3, one ask after the other: they wait 0, 1.375, 1.125, 0.875, 0.625, 0.5,
 * 0.5 s and so on.
 *
 * The next caller pays, as in smoothBursty. Promise: in any span W at most rate * W and one ask, once warm, and less
 * before. (Truncation to whole microseconds may give up to three of them per ask.) A fresh key is cold. Who asks more
 * slowly than the rate cools the limiter down between asks and may never see it warm.
 *
 * After SmoothRateLimiter.SmoothWarmingUp of Guava (31.1): RateLimiter.create(permitsPerSecond, warmup), and setRate, which
 * is `update`. Every wait equals Guava's in whole microseconds. Deliberate differences: with a `warmup` of 0 nothing is
 * stored (there the limiter stops limiting), permits can be given back, a debt that leaves 2^53 microseconds is refused,
 * an ask of 0 passes, and rates are `limit` per `window`.
 */

/** Options of `smoothWarmingUp`. */
export interface SmoothWarmingUpOptions {
  /** Permits per `window` once warm: a whole number; 0 refuses everything. */
  readonly limit: number
  /** The time in which `limit` permits pass once warm. */
  readonly window: Duration
  /** How long it takes to warm up, and as long to cool down; 0 for neither. */
  readonly warmup: Duration
  /** How many times longer an interval is when cold: a number from 1, by default 3. */
  readonly coldFactor?: number | undefined
}

/**
 * Guava's RateLimiter with a warm-up: evenly spaced permits, further apart after idleness; the next caller pays for an ask.
 *
 * `limit` is whole permits, `window` a duration of whole microseconds, `warmup` a duration, `coldFactor` a number from 1
 * (default 3). Throws a TypeError for a wrong type or an unknown option, a RangeError for a value out of range; both
 * carry `code` and `option`.
 *
 * @example
 * const warm = createLimiter(smoothWarmingUp({ limit: 5, window: '1s', warmup: '3s' }))
 * await warm.acquire('import') // the first ones 600 ms apart, after three seconds of use 200 ms
 */
export function smoothWarmingUp(options: SmoothWarmingUpOptions): Algorithm {
  checkOptions('smoothWarmingUp', options, ['limit', 'window', 'warmup', 'coldFactor'])
  const limit = wholeNumber('limit', options.limit)
  const windowUs = spanToUs('window', options.window)
  const warmupUs = waitToUs('warmup', options.warmup)
  if (!Number.isSafeInteger(warmupUs))
    throw invalid(RangeError, 'warmup', 'a finite duration', options.warmup)
  const { coldFactor = 3 } = options
  if (typeof coldFactor !== 'number') throw invalid(TypeError, 'coldFactor', 'a number', coldFactor)
  if (!(coldFactor >= 1 && coldFactor <= 1e6))
    throw invalid(RangeError, 'coldFactor', 'a number from 1 to 1,000,000', coldFactor)
  if (limit === 0) return new Closed(NAME, [limit, windowUs, warmupUs, coldFactor], SMOOTH_LANES)
  return new SmoothWarmingUp(limit, windowUs, warmupUs, coldFactor)
}

const NAME = 'smooth-warming-up'

class SmoothWarmingUp extends Smooth implements Algorithm {
  readonly name = NAME
  readonly args: readonly number[]
  readonly policy: Policy
  readonly limit = 1
  protected readonly maxStored: number
  protected readonly storeUs: number
  protected readonly fresh: Start
  /** Stored permits up to here cost no more than fresh ones. */
  private readonly threshold: number
  /** Microseconds by which each permit beyond the threshold is dearer than the one before. */
  private readonly slopeUs: number

  constructor(limit: number, windowUs: number, warmupUs: number, coldFactor: number) {
    super(limit, windowUs)
    this.args = [limit, windowUs, warmupUs, coldFactor]
    const coldUs = this.intervalUs * coldFactor
    this.threshold = (0.5 * warmupUs) / this.intervalUs
    this.maxStored = this.threshold + (2 * warmupUs) / (this.intervalUs + coldUs)
    this.slopeUs = warmupUs === 0 ? 0 : (coldUs - this.intervalUs) / (this.maxStored - this.threshold)
    this.storeUs = warmupUs === 0 ? 0 : warmupUs / this.maxStored
    this.fresh = { freeUs: 0, stored: this.maxStored }
    this.policy = { limit: 1, windowMs: this.intervalUs / 1000, smooth: true }
  }

  /** Permits are time here: what has not passed yet of the time they cost. */
  refund(state: Float64Array, at: number, nowUs: number, permits: number, booking?: Booking): number {
    const owedUs = (state[at] as number) - nowUs
    if (booking !== undefined) {
      if (this.someoneIsBehind(state, at, nowUs, booking)) return 0
      const notPassedUs = Math.min((booking.mark[0] as number) - nowUs, owedUs)
      return this.giveShare(state, at, booking, permits / booking.cost, notPassedUs)
    }
    const cost = state[at + 4] as number
    if (cost === 0 || this.someoneWaits(state, at, nowUs)) return 0
    const newest = {
      atUs: nowUs,
      actUs: state[at + 3] as number,
      cost,
      mark: state.slice(at, at + this.lanes),
    }
    return Math.min(permits, this.giveShare(state, at, newest, Math.min(1, permits / cost), owedUs))
  }

  remaining(untilFreeUs: number): number {
    return untilFreeUs > 0 ? 0 : 1
  }

  refillAfterUs(untilFreeUs: number): number {
    return Math.max(0, untilFreeUs)
  }

  protected spendingUs(stored: number, spent: number): number {
    const above = stored - this.threshold
    if (above <= 0) return Math.trunc(this.intervalUs * spent)
    const spentAbove = Math.min(above, spent)
    const dearest = this.intervalUs + above * this.slopeUs
    const cheapest = this.intervalUs + (above - spentAbove) * this.slopeUs
    const aboveUs = Math.trunc((spentAbove * (dearest + cheapest)) / 2)
    return aboveUs + Math.trunc(this.intervalUs * (spent - spentAbove))
  }

  /** Cold: how warm it was is not in its balance. */
  protected storedFor(): number {
    return this.maxStored
  }

  protected permitsIn(): number {
    return 1
  }
}
