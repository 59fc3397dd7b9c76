import { type Duration, spanToUs, waitToUs } from '../shared/duration.js'
import { invalid } from '../shared/errors.js'
import { checkOptions, wholeNumber } from '../shared/validate.js'
import { warnOnce } from '../shared/warnings.js'
import type { Algorithm, Booking, Policy } from './algorithm.js'
import { SMOOTH_LANES, Smooth, type Start } from './internal/smooth.js'
import { Closed } from './internal/zero-limit.js'

/*
 * Smooth bursty
 *
 * Permits are spaced one interval (window / limit) apart, and idle time is saved up as permits that cost nothing, at most
 * those of `maxBurst`. The next caller pays: an ask of any size goes as soon as the one before has been paid for, and
 * whoever comes after it waits for as long as it was worth.
 *
 *     limit 2 per second, maxBurst 1 s, idle for long, so that 2 are stored
 *      at 0  ask 5    goes at 0: 2 are stored, 3 are owed, and the next may go at 1500
 *      at 0  ask 1    goes at 1500, the next at 2000
 *
 * Promise: in any span W at most maxBurst * rate + W / interval (truncated to whole microseconds) + one ask; an ask that is
 * paid for in part from the store may cost up to a microsecond less. Above a million per second an interval truncates to
 * nothing, so that there is no bound; a warning says so. A fresh key
 * counts as a limiter of Guava that was created when ours was: nothing is stored in the first moment, and the first ask
 * goes at once.
 *
 * After SmoothRateLimiter.SmoothBursty of Guava (31.1): RateLimiter.create(permitsPerSecond), and setRate, which is
 * `update`. Every wait equals Guava's in whole microseconds. Deliberate differences: permits can be given back, a debt
 * that leaves 2^53 microseconds is refused, an ask of 0 passes, and rates are `limit` per `window`. With
 * an infinite rate (`unlimited()`) nothing is kept, so that a finite one after it starts afresh, not with a full store.
 */

/** Options of `smoothBursty`. */
export interface SmoothBurstyOptions {
  /** Permits per `window` in steady state: a whole number; 0 refuses everything. */
  readonly limit: number
  /** The time in which `limit` permits pass in steady state. */
  readonly window: Duration
  /** How much idle time is saved up, 0 for none; default `'1s'`. */
  readonly maxBurst?: Duration | undefined
}

/**
 * Guava's RateLimiter: evenly spaced permits with a burst after idleness; an ask of any size goes at once when nothing
 * is owed, and the next caller pays for it.
 *
 * `limit` is whole permits, `window` a duration of whole microseconds, `maxBurst` a duration (default one second). Throws a
 * TypeError for a wrong type or an unknown option, a RangeError for a value out of range; both carry `code` and `option`.
 * Warns (SLUICE_NO_BOUND) above 1,000,000 per second.
 *
 * @example
 * const limiter = createLimiter(smoothBursty({ limit: 5, window: '1s' }))
 * await limiter.acquire('upstream', { cost: 20 }) // at once
 * await limiter.acquire('upstream') // four seconds later
 */
export function smoothBursty(options: SmoothBurstyOptions): Algorithm {
  checkOptions('smoothBursty', options, ['limit', 'window', 'maxBurst'])
  const limit = wholeNumber('limit', options.limit)
  const windowUs = spanToUs('window', options.window)
  const maxBurstUs = waitToUs('maxBurst', options.maxBurst === undefined ? '1s' : options.maxBurst)
  const args = [limit, windowUs, maxBurstUs]
  if (limit === 0) return new Closed(NAME, args, SMOOTH_LANES)
  if (!Number.isSafeInteger(Math.ceil((maxBurstUs / windowUs) * limit)))
    throw invalid(RangeError, 'maxBurst', 'a burst of at most 2^53 permits', options.maxBurst)
  if (limit > windowUs)
    warnOnce(
      'SLUICE_NO_BOUND',
      'smoothBursty: above 1,000,000 permits per second an interval is less than the microsecond that waits are ' +
        'counted in, and nothing is ever refused. Use tokenBucket, which is exact.',
    )
  return new SmoothBursty(limit, windowUs, maxBurstUs, 0)
}

const NAME = 'smooth-bursty'

class SmoothBursty extends Smooth implements Algorithm {
  readonly name = NAME
  readonly args: readonly number[]
  readonly policy: Policy
  readonly limit: number
  protected readonly maxStored: number
  protected readonly storeUs: number
  protected readonly fresh: Start

  constructor(limit: number, windowUs: number, maxBurstUs: number, sinceUs: number) {
    super(limit, windowUs)
    this.args = [limit, windowUs, maxBurstUs]
    this.maxStored = (maxBurstUs * limit) / windowUs
    this.storeUs = this.intervalUs
    this.fresh = { freeUs: sinceUs, stored: 0 }
    this.limit = Math.floor(this.maxStored) + 1
    this.policy = { limit: this.limit, windowMs: (this.limit * this.intervalUs) / 1000, smooth: true }
  }

  begin(nowUs: number, previous?: Algorithm): Algorithm {
    const sinceUs = previous instanceof SmoothBursty ? previous.fresh.freeUs : nowUs
    const [limit, windowUs, maxBurstUs] = this.args as [number, number, number]
    return new SmoothBursty(limit, windowUs, maxBurstUs, sinceUs)
  }

  /** What is owed is given back first, then what was stored. */
  refund(state: Float64Array, at: number, nowUs: number, permits: number, booking?: Booking): number {
    const freeUs = state[at] as number
    const owedUs = Math.max(freeUs - nowUs, 0)
    const stored = this.storedAfter(state[at + 1] as number, nowUs - freeUs)
    let wanted = permits
    if (booking === undefined) wanted = this.someoneWaits(state, at, nowUs) ? 0 : permits
    else if (this.someoneIsBehind(state, at, nowUs, booking)) wanted = 0
    else {
      const [markFreeUs, markStored] = booking.mark as unknown as [number, number]
      wanted = Math.min(permits, this.maxStored - markStored + (markFreeUs - nowUs) / this.intervalUs)
    }
    if (wanted <= 0) return 0
    const givenUs = Math.min(owedUs, Math.trunc(wanted * this.intervalUs))
    const rest = givenUs < owedUs ? 0 : Math.max(0, wanted - givenUs / this.intervalUs)
    const restored = Math.min(rest, this.maxStored - stored)
    const given = Math.min(permits, givenUs / this.intervalUs + restored)
    if (given <= 0) return 0
    state[at] = nowUs + owedUs - givenUs
    state[at + 1] = stored + restored
    return given
  }

  remaining(untilFreeUs: number, stored: number): number {
    return untilFreeUs > 0 ? 0 : Math.floor(this.storedAfter(stored, -untilFreeUs)) + 1
  }

  refillAfterUs(untilFreeUs: number, stored: number): number {
    if (untilFreeUs > 0) return untilFreeUs
    const next = this.remaining(untilFreeUs, stored)
    return next >= this.limit ? 0 : untilFreeUs + this.idleUsUntil(stored, next)
  }

  protected spendingUs(): number {
    return 0
  }

  protected storedFor(balance: number): number {
    return Math.max(0, Math.min(balance, this.maxStored))
  }

  protected permitsIn(stored: number): number {
    return stored + 1
  }
}
