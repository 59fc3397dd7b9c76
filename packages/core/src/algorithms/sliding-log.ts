import { type Duration, spanToUs } from '../shared/duration.js'
import { invalid } from '../shared/errors.js'
import { checkOptions, wholeNumber } from '../shared/validate.js'
import type { Algorithm, Booking, Policy } from './algorithm.js'
import { Decision, FixedGauge } from './decision.js'
import { shareOf } from './fixed-window.js'
import { blockOf, LogBlocks, PAGE_BYTES, RUNS } from './internal/log-pages.js'

/*
 * Sliding log
 *
 * Every grant is remembered until exactly one window after it was made. Promise: in any half-open span of one window at
 * most `limit` permits, exact: nothing is granted that the rule forbids and nothing refused that it allows. Who asks pays
 * at once; a permit comes back, to the microsecond, one window after it was granted. A fresh key may take `limit` at once.
 *
 *     limit 3 per second:  0 +1   400 +2   999 refused, wait 1   1000 +1 (the first one is back)   1400 two more are back
 *
 * The price is memory: 21 bytes or so for every time at which something was granted and still counts (permits granted in
 * one microsecond are one run), against nothing for the other algorithms. So it is bounded: at `maxBytes` live grants are
 * still never forgotten, and a grant that would need more room is refused with the code SLUICE_LOG_FULL.
 *
 * After Redisson's RRateLimiter (4.7), which keeps the log in Redis. Deliberate differences: a wait is exact (there 3 ms
 * are added to the age of the oldest grant, even when that is not enough), an ask above the limit is refused and not an
 * error, and a grant that is given back leaves the log, so that it is not credited again when it expires.
 *
 * Lanes: places of the oldest and the newest run, permits of all runs from the one to the other, time of the newest
 * run, time from which runs count whatever the window (set when the window changes), serial of the newest run's block.
 * The runs lie in blocks that belong to the limiter. Dead runs are dropped by the next grant, whole blocks at a time, so a
 * decision costs the same however many permits a key holds, and a few steps for each block that an ask has to look past.
 */

/** Options of `slidingLog`. */
export interface SlidingLogOptions {
  /** Permits in any window: a whole number; 0 refuses everything. */
  readonly limit: number
  /** The length of the window. */
  readonly window: Duration
  /** The most bytes the logs of all keys of a limiter may take: 64 kB to 16 GB, by default 64 MB. */
  readonly maxBytes?: number | undefined
}

/**
 * A sliding log: at most `limit` permits in any `window`, exact, for the price of remembering every grant that counts.
 *
 * `limit` is whole permits, `window` a duration of whole microseconds, `maxBytes` bytes (default 67,108,864, in steps of
 * 65,536; it stays what it was when `update` changes the limit or the window). A grant beyond it is refused with
 * `decision.code` SLUICE_LOG_FULL; its wait is until the key's own log makes room, or one window. Throws a TypeError for a
 * wrong type or an unknown option, a RangeError for a value out of range; both carry `code` and `option`. `reserve` throws
 * on it unless `maxWait` is 0.
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
  return new SlidingLog(limit, spanToUs('window', options.window), maxBytes, new LogBlocks(maxBytes))
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
  private readonly blocks: LogBlocks
  /** What `look` has seen: the oldest run that counts, and the permits from there on. */
  private oldest = 0
  private used = 0

  constructor(limit: number, windowUs: number, maxBytes: number, blocks: LogBlocks) {
    this.args = [limit, windowUs, maxBytes]
    this.policy = { limit, windowMs: windowUs / 1000, smooth: false }
    this.limit = limit
    this.windowUs = windowUs
    this.maxBytes = maxBytes
    this.blocks = blocks
  }

  /** Every limiter has blocks of its own, and keeps them when its options change. */
  begin(_nowUs: number, previous?: Algorithm): Algorithm {
    const { limit, windowUs, maxBytes } = this
    if (previous instanceof SlidingLog)
      return new SlidingLog(limit, windowUs, previous.maxBytes, previous.blocks)
    return new SlidingLog(limit, windowUs, maxBytes, new LogBlocks(maxBytes))
  }

  step(state: Float64Array, at: number, nowUs: number, cost: number, _maxWaitUs: number, commit: boolean) {
    const timeUs = Math.max(nowUs, state[at + NEWEST_TIME] as number)
    this.look(state, at, timeUs)
    if (cost > 0 && this.used + cost > this.limit) {
      const missing = this.used + cost - this.limit
      return this.decision(
        state,
        at,
        nowUs,
        cost > this.limit ? Infinity : this.freesAtUs(state[at + NEWEST] as number, missing) - nowUs,
      )
    }
    if (cost > 0 && !this.hasRoom(state, at, timeUs))
      return this.noRoom(this.roomAtUs(state, at, timeUs) - nowUs)
    if (cost > 0 && commit) {
      this.dropDead(state, at)
      this.append(state, at, timeUs, cost)
      this.look(state, at, timeUs)
    }
    return this.decision(state, at, nowUs, 0)
  }

  read(waitUs: number, retryAfterUs: number, figures: readonly number[]): Decision {
    const [balance = 0, refillAfterUs = 0, resetAfterUs = 0] = figures
    const gauge = new FixedGauge({ limit: this.limit, balance, refillAfterUs, resetAfterUs })
    return new Decision(gauge, waitUs, retryAfterUs, 0, 0)
  }

  cancel(state: Float64Array, at: number, nowUs: number, booking: Booking): number {
    return nowUs > booking.actUs ? 0 : this.refund(state, at, nowUs, booking.cost, booking)
  }

  /** A booking only gives back to its own run, while that counts; otherwise the newest runs come first. */
  refund(state: Float64Array, at: number, nowUs: number, permits: number, booking?: Booking): number {
    const { blocks } = this
    const deadUs = this.deadUntilUs(state, at, Math.max(nowUs, state[at + NEWEST_TIME] as number))
    if (booking !== undefined) {
      const place = booking.mark[NEWEST] as number
      const bookedUs = booking.mark[NEWEST_TIME] as number
      const isGone = bookedUs <= deadUs || blocks.serial(blockOf(place)) !== booking.mark[SERIAL]
      return isGone || blocks.time(place) !== bookedUs ? 0 : this.take(state, at, place, permits)
    }
    let given = 0
    while (given < permits && state[at + NEWEST] !== 0 && (state[at + NEWEST_TIME] as number) > deadUs)
      given += this.take(state, at, state[at + NEWEST] as number, permits - given)
    return given
  }

  /** Grants that count go on to count, by the new window; those that did not stay dead. */
  adopt(state: Float64Array, at: number, nowUs: number, previous: Algorithm): void {
    const timeUs = Math.max(nowUs, state[at + NEWEST_TIME] as number)
    state[at + COUNTS_FROM] = (previous as SlidingLog).deadUntilUs(state, at, timeUs) + 1
  }

  restsAt(state: Float64Array, at: number): number {
    return state[at + PERMITS] === 0 ? 0 : (state[at + NEWEST_TIME] as number) + this.windowUs
  }

  load(state: Float64Array, at: number, nowUs: number): number {
    this.look(state, at, Math.max(nowUs, state[at + NEWEST_TIME] as number))
    return shareOf(this.used, this.limit)
  }

  forget(state: Float64Array, at: number): void {
    let place = state[at + OLDEST] as number
    while (place !== 0) {
      const next = this.blocks.next(blockOf(place))
      this.blocks.giveBack(blockOf(place))
      place = next
    }
  }

  /** Finds the oldest run that counts, and how many permits count. */
  private look(state: Float64Array, at: number, timeUs: number): void {
    const { blocks } = this
    const deadUs = this.deadUntilUs(state, at, timeUs)
    const newest = state[at + NEWEST] as number
    let place = state[at + OLDEST] as number
    let used = state[at + PERMITS] as number
    if ((state[at + NEWEST_TIME] as number) <= deadUs) place = used = 0
    while (place !== 0 && blocks.time(place) <= deadUs) {
      const block = blockOf(place)
      if (block !== blockOf(newest) && blocks.time(block + RUNS - 1) <= deadUs) {
        used -= blocks.sum(block)
        place = blocks.next(block)
      } else {
        used -= blocks.permits(place)
        place = this.placeAfter(place)
      }
    }
    this.oldest = place
    this.used = used
  }

  /** When so many permits will no longer count, Infinity for more than there are; after `look`. */
  private freesAtUs(newest: number, permits: number): number {
    const { blocks } = this
    let place = this.oldest
    let missing = permits
    while (place !== 0) {
      const block = blockOf(place)
      const skips = place === block && block !== blockOf(newest) && blocks.sum(block) < missing
      missing -= skips ? blocks.sum(block) : blocks.permits(place)
      if (missing <= 0) return blocks.time(place) + this.windowUs
      if (place === newest) break
      place = skips ? blocks.next(block) : this.placeAfter(place)
    }
    return Infinity
  }

  /** Whether one more run fits, once what is dead is dropped; after `look`. */
  private hasRoom(state: Float64Array, at: number, timeUs: number): boolean {
    const newest = state[at + NEWEST] as number
    const needsBlock = newest === 0 || (isLast(newest) && this.blocks.time(newest) !== timeUs)
    const freesBlock = newest !== 0 && blockOf(this.oldest) !== blockOf(state[at + OLDEST] as number)
    return !needsBlock || freesBlock || this.blocks.hasRoom
  }

  /** When the oldest block of a key's own log is dropped; for a key without one, when everything that counts now is dead. */
  private roomAtUs(state: Float64Array, at: number, timeUs: number): number {
    const oldest = blockOf(state[at + OLDEST] as number)
    if (oldest === 0) return timeUs + this.windowUs
    const isNewest = oldest === blockOf(state[at + NEWEST] as number)
    const lastUs = isNewest ? (state[at + NEWEST_TIME] as number) : this.blocks.time(oldest + RUNS - 1)
    return lastUs + this.windowUs
  }

  /** Drops what `look` has passed over. */
  private dropDead(state: Float64Array, at: number): void {
    const { blocks } = this
    let place = state[at + OLDEST] as number
    while (place !== 0 && blockOf(place) !== blockOf(this.oldest)) {
      const next = blocks.next(blockOf(place))
      blocks.giveBack(blockOf(place))
      place = next
    }
    for (; place < this.oldest; place++) blocks.change(place, -blocks.permits(place))
    if (this.oldest === 0) state.fill(0, at, at + this.lanes)
    state[at + OLDEST] = this.oldest
    state[at + PERMITS] = this.used
  }

  private append(state: Float64Array, at: number, timeUs: number, permits: number): void {
    const { blocks } = this
    const newest = state[at + NEWEST] as number
    let place = newest
    if (newest !== 0 && blocks.time(newest) === timeUs) blocks.change(newest, permits)
    else {
      if (newest === 0) place = blocks.take(0)
      else place = isLast(newest) ? blocks.take(blockOf(newest)) : newest + 1
      blocks.append(place, timeUs, permits)
    }
    if (newest === 0) state[at + OLDEST] = place
    state[at + NEWEST] = place
    state[at + NEWEST_TIME] = timeUs
    state[at + PERMITS] = (state[at + PERMITS] as number) + permits
    state[at + SERIAL] = blocks.serial(blockOf(place))
  }

  /** Takes permits from a run, and what is empty then from the end of the log. */
  private take(state: Float64Array, at: number, place: number, wanted: number): number {
    const { blocks } = this
    const block = blockOf(place)
    const given = Math.min(wanted, blocks.permits(place))
    blocks.change(place, -given)
    state[at + PERMITS] = (state[at + PERMITS] as number) - given
    if (blocks.sum(block) === 0) {
      const next = blocks.next(block)
      const previous = blocks.previous(block)
      blocks.giveBack(block)
      if (next === 0 && previous === 0) {
        state.fill(0, at, at + this.lanes)
        return given
      }
      if (previous === 0) state[at + OLDEST] = next
      if (next === 0) state[at + NEWEST] = previous + RUNS - 1
    }
    // No run without permits is the newest, or it would put off the rest of the key.
    let newest = state[at + NEWEST] as number
    while (blocks.permits(newest) === 0 && newest !== state[at + OLDEST]) newest = this.placeBefore(newest)
    state[at + NEWEST] = newest
    state[at + NEWEST_TIME] = blocks.time(newest)
    state[at + SERIAL] = blocks.serial(blockOf(newest))
    return given
  }

  private placeAfter(place: number): number {
    return isLast(place) ? this.blocks.next(blockOf(place)) : place + 1
  }

  private placeBefore(place: number): number {
    const previous = this.blocks.previous(blockOf(place))
    if (place !== blockOf(place)) return place - 1
    return previous === 0 ? 0 : previous + RUNS - 1
  }

  private deadUntilUs(state: Float64Array, at: number, timeUs: number): number {
    return Math.max(timeUs - this.windowUs, (state[at + COUNTS_FROM] as number) - 1)
  }

  private decision(state: Float64Array, at: number, nowUs: number, waitUs: number): Decision {
    const { limit, used } = this
    const newest = state[at + NEWEST] as number
    const timeUs = Math.max(nowUs, state[at + NEWEST_TIME] as number)
    const isFull = used < limit && !this.hasRoom(state, at, timeUs)
    let refillAfterUs = limit === 0 ? Infinity : 0
    if (isFull) refillAfterUs = this.roomAtUs(state, at, timeUs) - nowUs
    else if (used > 0) refillAfterUs = this.freesAtUs(newest, Math.max(used - limit, 0) + 1) - nowUs
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
