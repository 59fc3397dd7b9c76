import { type Duration, spanToUs } from '../shared/duration.js'
import { invalid } from '../shared/errors.js'
import { checkOptions, wholeNumber } from '../shared/validate.js'
import type { Algorithm, Booking, Policy } from './algorithm.js'
import { Decision, FixedGauge } from './decision.js'
import { shareOf } from './internal/arithmetic.js'
import { blockOf, LogPages, PAGE_BYTES, RUNS } from './internal/log-pages.js'

/*
 * Sliding log
 *
 * Every grant is remembered until exactly one window after it was made. Promise: at most `limit` permits in any half-open
 * span of one window, exact: no request is granted that the rule forbids, and none is refused that it allows. A permit
 * comes back, to the microsecond, one window after it was granted. A fresh key may take `limit` at once.
 *
 *     limit 3 per second:  0 +1   400 +2   999 refused, wait 1   1000 +1 (the first one is back)   1400 two more are back
 *
 * The price is memory: about 21 bytes for every time at which permits were granted that still count (permits granted in
 * one microsecond are one run), where other algorithms need none. So the log is bounded: at `maxBytes` no grant that
 * counts is forgotten, and a grant that would need more memory is refused with the code SLUICE_LOG_FULL.
 *
 * After Redisson's RRateLimiter (4.7), which keeps the log in Redis. Deliberate differences: a wait is exact (there 3 ms
 * are added to the age of the oldest grant, even when that is not enough); a cost above the limit is refused and not an
 * error; a grant that is given back leaves the log, so that it is not credited again when it expires.
 *
 * Runs lie in blocks of the limiter's pages (log-pages.ts). Lanes: 0 and 1 the places of the oldest and the newest run, 2
 * the permits of all runs between them, 3 the time of the newest run, 4 the time from which runs count whatever the window
 * (set when the window changes), 5 the serial number of the newest run's block.
 *
 * A run that no longer counts is dead. The next grant drops the dead runs, whole blocks at a time. So a decision costs the
 * same however many permits a key holds, and a few steps more for each block of dead runs.
 */

/** Options of `slidingLog`. */
export interface SlidingLogOptions {
  /** Permits in any window: a whole number; 0 refuses everything. */
  readonly limit: number
  /** The length of the window. */
  readonly window: Duration
  /** The most bytes for the logs of all keys of a limiter: 64 kB to 16 GB, by default 64 MB. */
  readonly maxBytes?: number | undefined
}

/**
 * A sliding log: at most `limit` permits in any `window`, exact. It remembers every grant that still counts.
 *
 * `limit` is whole permits, `window` a duration of whole microseconds, `maxBytes` bytes (default 67,108,864, in steps of
 * 65,536; `update` does not change it). A grant that needs more bytes is refused with `decision.code` SLUICE_LOG_FULL; it
 * waits until the key's own log has room again, or for one window. Throws a TypeError for a wrong type or an unknown
 * option, a RangeError for a value out of range; both carry `code` and `option`. `reserve` throws on it unless `maxWait`
 * is 0.
 *
 * @example
 * const sms = createLimiter(slidingLog({ limit: 5, window: '1h' }))
 * sms.tryAcquire('+49 30 123456').allowed // never more than 5 in any hour
 */
export function slidingLog(options: SlidingLogOptions): Algorithm {
  checkOptions('slidingLog', options, ['limit', 'window', 'maxBytes'])
  const { maxBytes = 2 ** 26 } = options
  wholeNumber('maxBytes', maxBytes)
  if (maxBytes < PAGE_BYTES || maxBytes > 2 ** 34)
    throw invalid(RangeError, 'maxBytes', '65,536 to 2^34 bytes', maxBytes)
  const limit = wholeNumber('limit', options.limit)
  return new SlidingLog(limit, spanToUs('window', options.window), maxBytes, new LogPages(maxBytes))
}

const OLDEST = 0
const NEWEST = 1
const PERMITS = 2
const NEWEST_TIME = 3
const COUNTS_FROM = 4
const SERIAL = 5

class SlidingLog implements Algorithm {
  readonly name = 'sliding-log'
  readonly args: readonly number[]
  readonly policy: Policy
  readonly lanes = 6
  readonly bookable = false

  private readonly limit: number
  private readonly windowUs: number
  private readonly maxBytes: number
  private readonly pages: LogPages

  constructor(limit: number, windowUs: number, maxBytes: number, pages: LogPages) {
    this.args = [limit, windowUs, maxBytes]
    this.policy = { limit, windowMs: windowUs / 1000, smooth: false }
    this.limit = limit
    this.windowUs = windowUs
    this.maxBytes = maxBytes
    this.pages = pages
  }

  /** Every limiter has pages of its own, and keeps them when its options change. */
  begin(_nowUs: number, previous?: Algorithm): Algorithm {
    const { limit, windowUs, maxBytes } = this
    if (previous instanceof SlidingLog)
      return new SlidingLog(limit, windowUs, previous.maxBytes, previous.pages)
    return new SlidingLog(limit, windowUs, maxBytes, new LogPages(maxBytes))
  }

  step(state: Float64Array, at: number, nowUs: number, cost: number, _maxWaitUs: number, commit: boolean) {
    const timeUs = Math.max(nowUs, state[at + NEWEST_TIME] as number)
    const oldest = this.oldestCounting(state, at, timeUs)
    const used = this.permitsFrom(state, at, oldest)
    if (cost === 0) return this.decision(state, at, nowUs, 0, oldest, used)
    const missing = used + cost - this.limit
    if (missing > 0) {
      const waitUs = cost > this.limit ? Infinity : this.freesAtUs(state, at, oldest, missing) - nowUs
      return this.decision(state, at, nowUs, waitUs, oldest, used)
    }
    if (!this.hasRoom(state, at, timeUs, oldest)) return this.noRoom(this.roomAtUs(state, at, timeUs) - nowUs)
    if (!commit) return this.decision(state, at, nowUs, 0, oldest, used)

    this.dropDead(state, at, oldest, used)
    this.append(state, at, timeUs, cost)
    // After a change of the window a clock that goes back appends a run that does not count.
    if (timeUs < (state[at + COUNTS_FROM] as number)) return this.decision(state, at, nowUs, 0, 0, 0)
    return this.decision(state, at, nowUs, 0, state[at + OLDEST] as number, state[at + PERMITS] as number)
  }

  read(waitUs: number, retryAfterUs: number, figures: readonly number[]): Decision {
    const [balance = 0, refillAfterUs = 0, resetAfterUs = 0] = figures
    const gauge = new FixedGauge({ limit: this.limit, balance, refillAfterUs, resetAfterUs })
    return new Decision(gauge, waitUs, retryAfterUs, 0, 0)
  }

  cancel(state: Float64Array, at: number, nowUs: number, booking: Booking): number {
    return nowUs > booking.actUs ? 0 : this.refund(state, at, nowUs, booking.cost, booking)
  }

  /** A booking gives back only to its own run, while that counts. Without a booking the newest runs come first. */
  refund(state: Float64Array, at: number, nowUs: number, permits: number, booking?: Booking): number {
    const { pages } = this
    const deadUs = this.deadUntilUs(state, at, Math.max(nowUs, state[at + NEWEST_TIME] as number))
    if (booking !== undefined) {
      const place = booking.mark[NEWEST] as number
      const bookedUs = booking.mark[NEWEST_TIME] as number
      const isGone = bookedUs <= deadUs || pages.serial(blockOf(place)) !== booking.mark[SERIAL]
      return isGone || pages.time(place) !== bookedUs ? 0 : this.take(state, at, place, permits)
    }
    let given = 0
    while (given < permits && state[at + NEWEST] !== 0 && (state[at + NEWEST_TIME] as number) > deadUs)
      given += this.take(state, at, state[at + NEWEST] as number, permits - given)
    return given
  }

  /** Runs that count keep counting, for the new window. Dead runs stay dead. */
  adopt(state: Float64Array, at: number, nowUs: number, previous: Algorithm): void {
    const timeUs = Math.max(nowUs, state[at + NEWEST_TIME] as number)
    state[at + COUNTS_FROM] = (previous as SlidingLog).deadUntilUs(state, at, timeUs) + 1
  }

  restsAt(state: Float64Array, at: number): number {
    return state[at + PERMITS] === 0 ? 0 : (state[at + NEWEST_TIME] as number) + this.windowUs
  }

  load(state: Float64Array, at: number, nowUs: number): number {
    const oldest = this.oldestCounting(state, at, Math.max(nowUs, state[at + NEWEST_TIME] as number))
    return shareOf(this.permitsFrom(state, at, oldest), this.limit)
  }

  forget(state: Float64Array, at: number): void {
    let place = state[at + OLDEST] as number
    while (place !== 0) {
      const next = this.pages.next(blockOf(place))
      this.pages.giveBack(blockOf(place))
      place = next
    }
  }

  /** The place of the oldest run that counts; 0 when none does. */
  private oldestCounting(state: Float64Array, at: number, timeUs: number): number {
    const { pages } = this
    const deadUs = this.deadUntilUs(state, at, timeUs)
    if ((state[at + NEWEST_TIME] as number) <= deadUs) return 0
    let place = state[at + OLDEST] as number
    while (place !== 0 && pages.time(place) <= deadUs) {
      const block = blockOf(place)
      const isDead = block !== blockOf(state[at + NEWEST] as number) && pages.time(block + RUNS - 1) <= deadUs
      place = isDead ? pages.next(block) : this.placeAfter(place)
    }
    return place
  }

  /** The permits of a run and of all newer ones. */
  private permitsFrom(state: Float64Array, at: number, run: number): number {
    const { pages } = this
    if (run === 0) return 0
    let permits = state[at + PERMITS] as number
    let place = state[at + OLDEST] as number
    while (blockOf(place) !== blockOf(run)) {
      permits -= pages.sum(blockOf(place))
      place = pages.next(blockOf(place))
    }
    for (; place < run; place++) permits -= pages.permits(place)
    return permits
  }

  /** When so many permits, counted from the run at `oldest`, are dead; Infinity for more permits than there are. */
  private freesAtUs(state: Float64Array, at: number, oldest: number, permits: number): number {
    const { pages } = this
    const newest = state[at + NEWEST] as number
    let place = oldest
    let missing = permits
    while (place !== 0) {
      const block = blockOf(place)
      const skips = place === block && block !== blockOf(newest) && pages.sum(block) < missing
      missing -= skips ? pages.sum(block) : pages.permits(place)
      if (missing <= 0) return pages.time(place) + this.windowUs
      if (place === newest) break
      place = skips ? pages.next(block) : this.placeAfter(place)
    }
    return Infinity
  }

  /** Whether one more run fits once the runs before `oldest` are dropped. */
  private hasRoom(state: Float64Array, at: number, timeUs: number, oldest: number): boolean {
    const newest = state[at + NEWEST] as number
    const needsBlock = newest === 0 || (isLast(newest) && this.pages.time(newest) !== timeUs)
    const freesBlock = newest !== 0 && blockOf(oldest) !== blockOf(state[at + OLDEST] as number)
    return !needsBlock || freesBlock || this.pages.hasRoom
  }

  /** When the oldest block of the key's own log is dead; for a key without a log, when all that counts now is dead. */
  private roomAtUs(state: Float64Array, at: number, timeUs: number): number {
    const block = blockOf(state[at + OLDEST] as number)
    if (block === 0) return timeUs + this.windowUs
    const isNewest = block === blockOf(state[at + NEWEST] as number)
    const lastUs = isNewest ? (state[at + NEWEST_TIME] as number) : this.pages.time(block + RUNS - 1)
    return lastUs + this.windowUs
  }

  /** Drops the runs before `oldest`, which leaves `used` permits. */
  private dropDead(state: Float64Array, at: number, oldest: number, used: number): void {
    const { pages } = this
    let place = state[at + OLDEST] as number
    while (place !== 0 && blockOf(place) !== blockOf(oldest)) {
      const next = pages.next(blockOf(place))
      pages.giveBack(blockOf(place))
      place = next
    }
    for (; place < oldest; place++) pages.change(place, -pages.permits(place))
    if (oldest === 0) state.fill(0, at, at + this.lanes)
    state[at + OLDEST] = oldest
    state[at + PERMITS] = used
  }

  private append(state: Float64Array, at: number, timeUs: number, permits: number): void {
    const { pages } = this
    const newest = state[at + NEWEST] as number
    let place = newest
    if (newest !== 0 && pages.time(newest) === timeUs) pages.change(newest, permits)
    else {
      if (newest === 0) place = pages.take(0)
      else place = isLast(newest) ? pages.take(blockOf(newest)) : newest + 1
      pages.append(place, timeUs, permits)
    }
    if (newest === 0) state[at + OLDEST] = place
    state[at + NEWEST] = place
    state[at + NEWEST_TIME] = timeUs
    state[at + PERMITS] = (state[at + PERMITS] as number) + permits
    state[at + SERIAL] = pages.serial(blockOf(place))
  }

  /** Takes up to `wanted` permits out of a run, and empty runs off the end of the log. Returns the permits. */
  private take(state: Float64Array, at: number, place: number, wanted: number): number {
    const { pages } = this
    const block = blockOf(place)
    const given = Math.min(wanted, pages.permits(place))
    pages.change(place, -given)
    state[at + PERMITS] = (state[at + PERMITS] as number) - given
    if (pages.sum(block) === 0) {
      const next = pages.next(block)
      const previous = pages.previous(block)
      pages.giveBack(block)
      if (next === 0 && previous === 0) {
        state.fill(0, at, at + this.lanes)
        return given
      }
      if (previous === 0) state[at + OLDEST] = next
      if (next === 0) state[at + NEWEST] = previous + RUNS - 1
    }
    // An empty run must not be the newest one, or the key would rest too late.
    let newest = state[at + NEWEST] as number
    while (pages.permits(newest) === 0 && newest !== state[at + OLDEST]) newest = this.placeBefore(newest)
    state[at + NEWEST] = newest
    state[at + NEWEST_TIME] = pages.time(newest)
    state[at + SERIAL] = pages.serial(blockOf(newest))
    return given
  }

  private placeAfter(place: number): number {
    return isLast(place) ? this.pages.next(blockOf(place)) : place + 1
  }

  private placeBefore(place: number): number {
    const previous = this.pages.previous(blockOf(place))
    if (place !== blockOf(place)) return place - 1
    return previous === 0 ? 0 : previous + RUNS - 1
  }

  private deadUntilUs(state: Float64Array, at: number, timeUs: number): number {
    return Math.max(timeUs - this.windowUs, (state[at + COUNTS_FROM] as number) - 1)
  }

  private decision(
    state: Float64Array,
    at: number,
    nowUs: number,
    waitUs: number,
    oldest: number,
    used: number,
  ): Decision {
    const { limit } = this
    const timeUs = Math.max(nowUs, state[at + NEWEST_TIME] as number)
    const isFull = used < limit && !this.hasRoom(state, at, timeUs, oldest)
    let refillAfterUs = limit === 0 ? Infinity : 0
    if (isFull) refillAfterUs = this.roomAtUs(state, at, timeUs) - nowUs
    else if (used > 0)
      refillAfterUs = this.freesAtUs(state, at, oldest, Math.max(used - limit, 0) + 1) - nowUs
    const gauge = new FixedGauge({
      code: isFull && waitUs === 0 ? 'SLUICE_LOG_FULL' : undefined,
      limit,
      balance: isFull ? 0 : limit - used,
      refillAfterUs,
      resetAfterUs: used === 0 ? 0 : (state[at + NEWEST_TIME] as number) + this.windowUs - nowUs,
    })
    return new Decision(gauge, waitUs, waitUs, 0, 0)
  }

  private noRoom(waitUs: number): Decision {
    const gauge = new FixedGauge({
      code: 'SLUICE_LOG_FULL',
      limit: this.limit,
      balance: 0,
      refillAfterUs: waitUs,
      resetAfterUs: waitUs,
    })
    return new Decision(gauge, waitUs, waitUs, 0, 0)
  }
}

function isLast(place: number): boolean {
  return place - blockOf(place) === RUNS - 1
}
