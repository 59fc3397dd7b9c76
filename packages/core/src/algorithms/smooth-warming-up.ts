import { type Duration, spanToUs, waitToUs } from '../shared/duration.js'
import { invalid } from '../shared/errors.js'
import { checkOptions, wholeNumber } from '../shared/validate.js'
import type { Algorithm, Booking, Policy } from './algorithm.js'
import { SMOOTH_LANES, Smooth } from './internal/smooth.js'
import { ZeroLimit } from './internal/zero-limit.js'

/*
 * Smooth warming up
 *
 * For a server that is slow after idle time (cold caches, new connections). Idle time makes the limiter cold, and a cold
 * limiter spaces permits `coldFactor` intervals apart. In use it warms up within `warmup`, to one permit per interval
 * (window / limit). Idle time is kept as stored permits, which here cost more than fresh ones:
 *
 *      interval
 *      cold  |                  /        stored permits are spent from the right: the first ones after idle
 *            |                /          time cost most. The area under the line is the time that they cost:
 *    stable  |_______________/           the slope has the area `warmup`, the flat part half of that.
 *            0         threshold    max stored
 *
 * limit 2 per second, warmup 4 s, coldFactor 3, one request after the other: they wait 0, 1.375, 1.125, 0.875, 0.625,
 * 0.5, 0.5 s and so on.
 *
 * The next caller pays, as in smoothBursty. Promise: once warm, in any span W at most rate * W permits and one request,
 * and less before. (Truncation to whole microseconds may give up to three of them per request.) A fresh key is cold. A
 * client that asks more slowly than the rate lets the limiter cool down between requests and may never see it warm.
 *
 * After SmoothRateLimiter.SmoothWarmingUp of Guava (31.1): RateLimiter.create(permitsPerSecond, warmup), and setRate, which
 * is `update`. Every wait equals Guava's in whole microseconds. Deliberate differences: with a `warmup` of 0 no permit is
 * stored (there the limiter stops limiting); permits can be given back; a debt that exceeds 2^53 microseconds is refused;
 * a cost of 0 passes; rates are `limit` per `window`.
 */

/** Options of `smoothWarmingUp`. */
export interface SmoothWarmingUpOptions {
  /** Permits per `window` once warm: a whole number; 0 refuses everything. */
  readonly limit: number
  /** The time in which `limit` permits pass once warm. */
  readonly window: Duration
  /** The time that it takes to warm up and also to cool down; 0 for a limiter that is always warm. */
  readonly warmup: Duration
  /** How many times longer an interval is when cold: a number from 1, by default 3. */
  readonly coldFactor?: number | undefined
}

/**
 * Guava's RateLimiter with a warm-up: evenly spaced permits, further apart after idle time. The next caller pays for a
 * request.
 *
 * `limit` is whole permits, `window` a duration of whole microseconds, `warmup` a duration, `coldFactor` a number from 1
 * (default 3). Throws a TypeError for a wrong type or an unknown option, a RangeError for a value out of range; both
 * carry `code` and `option`.
 *
 * @example
 * const warm = createLimiter(smoothWarmingUp({ limit: 5, window: '1s', warmup: '3s' }))
 * await warm.acquire('import') // the first calls are 600 ms apart, after three seconds of use 200 ms
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
  if (limit === 0) return new ZeroLimit(NAME, [limit, windowUs, warmupUs, coldFactor], SMOOTH_LANES)
  return new SmoothWarmingUp(limit, windowUs, warmupUs, coldFactor)
}

const NAME = 'smooth-warming-up'

/** The constants of `smoothWarmingUp` with these args; none for a limit of 0. */
export function smoothWarmingUpConstants(args: readonly number[]): readonly number[] {
  const [limit = 0, windowUs = 0, warmupUs = 0, coldFactor = 0] = args
  return limit === 0 ? [] : constantsOf(limit, windowUs, warmupUs, coldFactor)
}

type WarmingUpConstants = readonly [
  intervalUs: number,
  maxStored: number,
  storeUs: number,
  freshStored: number,
  threshold: number,
  slopeUs: number,
]

function constantsOf(
  limit: number,
  windowUs: number,
  warmupUs: number,
  coldFactor: number,
): WarmingUpConstants {
  const intervalUs = windowUs / limit
  const coldUs = intervalUs * coldFactor
  const threshold = (0.5 * warmupUs) / intervalUs
  const maxStored = threshold + (2 * warmupUs) / (intervalUs + coldUs)
  const slopeUs = warmupUs === 0 ? 0 : (coldUs - intervalUs) / (maxStored - threshold)
  const storeUs = warmupUs === 0 ? 0 : warmupUs / maxStored
  return [intervalUs, maxStored, storeUs, maxStored, threshold, slopeUs]
}

class SmoothWarmingUp extends Smooth implements Algorithm {
  readonly name = NAME
  readonly args: readonly number[]
  readonly policy: Policy
  readonly limit = 1
  /** Stored permits up to here cost no more than fresh ones. */
  private readonly threshold: number
  /** Microseconds by which each permit beyond the threshold costs more than the one before it. */
  private readonly slopeUs: number

  constructor(limit: number, windowUs: number, warmupUs: number, coldFactor: number) {
    const constants = constantsOf(limit, windowUs, warmupUs, coldFactor)
    super(constants, 0)
    this.args = [limit, windowUs, warmupUs, coldFactor]
    this.threshold = constants[4]
    this.slopeUs = constants[5]
    this.policy = { limit: 1, windowMs: this.intervalUs / 1000, smooth: true }
  }

  /** Gives back what has not passed yet of the time that the permits cost. */
  refund(state: Float64Array, at: number, nowUs: number, permits: number, booking?: Booking): number {
    const debtUs = (state[at] as number) - nowUs
    if (booking !== undefined) {
      if (this.isFollowed(state, at, nowUs, booking)) return 0
      const notPassedUs = Math.min((booking.mark[0] as number) - nowUs, debtUs)
      return this.giveShare(state, at, booking, permits / booking.cost, notPassedUs)
    }
    const cost = state[at + 4] as number
    if (cost === 0 || this.isWaitedFor(state, at, nowUs)) return 0
    const newest = {
      atUs: nowUs,
      actUs: state[at + 3] as number,
      cost,
      mark: state.slice(at, at + this.lanes),
    }
    return Math.min(permits, this.giveShare(state, at, newest, Math.min(1, permits / cost), debtUs))
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
    const longestUs = this.intervalUs + above * this.slopeUs
    const shortestUs = this.intervalUs + (above - spentAbove) * this.slopeUs
    const aboveUs = Math.trunc((spentAbove * (longestUs + shortestUs)) / 2)
    return aboveUs + Math.trunc(this.intervalUs * (spent - spentAbove))
  }

  /** A balance does not say how warm the limiter was, so it starts cold. */
  protected storedFor(): number {
    return this.maxStored
  }

  protected permitsIn(): number {
    return 1
  }
}
