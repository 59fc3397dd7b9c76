import { type Duration, spanToUs, waitToUs } from '../shared/duration.js'
import { invalid } from '../shared/errors.js'
import { checkOptions, wholeNumber } from '../shared/validate.js'
import type { Algorithm, AlgorithmWarning, Booking, Policy } from './algorithm.js'
import { SMOOTH_LANES, Smooth, type SmoothConstants } from './internal/smooth.js'
import { ZeroLimit } from './internal/zero-limit.js'

/*
 * Smooth bursty
 *
 * Permits are spaced one interval (window / limit) apart. Idle time is saved up, at most `maxBurst` of it, as stored
 * permits that cost nothing. The next caller pays: a request of any cost is granted as soon as the request before it is
 * paid off, and the request after it waits for as long as its cost is worth.
 *
 *     limit 2 per second, maxBurst 1 s, idle for long, so that 2 permits are stored
 *      at 0  cost 5   granted at 0: 2 permits are stored, 3 are a debt, and the next request is granted at 1500
 *      at 0  cost 1   granted at 1500, the next at 2000
 *
 * Promise: in any span W at most maxBurst * rate + W / interval (truncated to whole microseconds) permits and one request.
 * A request that spends a fraction of a stored permit may cost up to a microsecond less than it is worth. Above a million
 * permits per second an interval truncates to nothing, so that there is no bound; a warning says so. A fresh key behaves
 * like a limiter of Guava that was created when the limiter was: no permit is stored in the first moment, and the first
 * request is granted at once.
 *
 * After SmoothRateLimiter.SmoothBursty of Guava (31.1): RateLimiter.create(permitsPerSecond), and setRate, which is
 * `update`. Every wait equals Guava's in whole microseconds. Deliberate differences: permits can be given back; a debt
 * that exceeds 2^53 microseconds is refused; a cost of 0 passes; rates are `limit` per `window`. With an infinite rate
 * (`unlimited()`) no state is kept, so that a finite rate after it starts with fresh keys, not with a full store.
 */

/** Options of `smoothBursty`. */
export interface SmoothBurstyOptions {
  /** Permits per `window` in steady state: a whole number; 0 refuses everything. */
  readonly limit: number
  /** The time in which `limit` permits pass in steady state. */
  readonly window: Duration
  /** The most idle time that is saved up, 0 for none; default `'1s'`. */
  readonly maxBurst?: Duration | undefined
}

/**
 * Guava's RateLimiter: evenly spaced permits with a burst after idle time. A request of any cost is granted at once when
 * the one before it is paid off, and the next caller pays for it.
 *
 * `limit` is whole permits, `window` a duration of whole microseconds, `maxBurst` a duration (default one second). Throws a
 * TypeError for a wrong type or an unknown option, a RangeError for a value out of range; both carry `code` and `option`.
 * A limiter with more than 1,000,000 permits per second warns (SLUICE_NO_BOUND).
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
  if (limit === 0) return new ZeroLimit(NAME, args, SMOOTH_LANES)
  if (!Number.isSafeInteger(Math.ceil((maxBurstUs / windowUs) * limit)))
    throw invalid(RangeError, 'maxBurst', 'a burst of at most 2^53 permits', options.maxBurst)
  return new SmoothBursty(limit, windowUs, maxBurstUs, 0)
}

const NAME = 'smooth-bursty'

const NO_BOUND: AlgorithmWarning = {
  code: 'SLUICE_NO_BOUND',
  text:
    'smoothBursty: above 1,000,000 permits per second the time between two permits is less than a microsecond, the ' +
    'unit of waits, and no request is ever refused. Use tokenBucket, which is exact.',
}

/** The constants of `smoothBursty` with these args; none for a limit of 0. */
export function smoothBurstyConstants(args: readonly number[]): readonly number[] {
  const [limit = 0, windowUs = 0, maxBurstUs = 0] = args
  return limit === 0 ? [] : constantsOf(limit, windowUs, maxBurstUs)
}

function constantsOf(limit: number, windowUs: number, maxBurstUs: number): SmoothConstants {
  const intervalUs = windowUs / limit
  return [intervalUs, (maxBurstUs * limit) / windowUs, intervalUs, 0]
}

class SmoothBursty extends Smooth implements Algorithm {
  readonly name = NAME
  readonly args: readonly number[]
  readonly policy: Policy
  readonly warning: AlgorithmWarning | undefined
  readonly limit: number

  constructor(limit: number, windowUs: number, maxBurstUs: number, sinceUs: number) {
    super(constantsOf(limit, windowUs, maxBurstUs), sinceUs)
    this.args = [limit, windowUs, maxBurstUs]
    this.warning = limit > windowUs ? NO_BOUND : undefined
    this.limit = Math.floor(this.maxStored) + 1
    this.policy = { limit: this.limit, windowMs: (this.limit * this.intervalUs) / 1000, smooth: true }
  }

  begin(nowUs: number, previous?: Algorithm): Algorithm {
    const sinceUs = previous instanceof SmoothBursty ? previous.freshUs : nowUs
    const [limit, windowUs, maxBurstUs] = this.args as [number, number, number]
    return new SmoothBursty(limit, windowUs, maxBurstUs, sinceUs)
  }

  /** Gives back the debt first, then stored permits. */
  refund(state: Float64Array, at: number, nowUs: number, permits: number, booking?: Booking): number {
    const freeUs = state[at] as number
    const debtUs = Math.max(freeUs - nowUs, 0)
    const stored = this.storedAfter(state[at + 1] as number, nowUs - freeUs)
    let wanted = permits
    if (booking === undefined) wanted = this.isWaitedFor(state, at, nowUs) ? 0 : permits
    else if (this.isFollowed(state, at, nowUs, booking)) wanted = 0
    else {
      const [markFreeUs, markStored] = booking.mark as unknown as [number, number]
      wanted = Math.min(permits, this.maxStored - markStored + (markFreeUs - nowUs) / this.intervalUs)
    }
    if (wanted <= 0) return 0
    const givenUs = Math.min(debtUs, Math.trunc(wanted * this.intervalUs))
    const rest = givenUs < debtUs ? 0 : Math.max(0, wanted - givenUs / this.intervalUs)
    const restored = Math.min(rest, this.maxStored - stored)
    const given = Math.min(permits, givenUs / this.intervalUs + restored)
    if (given <= 0) return 0
    state[at] = nowUs + debtUs - givenUs
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
