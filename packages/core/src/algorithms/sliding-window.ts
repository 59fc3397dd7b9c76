import { type Duration, spanToUs } from '../shared/duration.js'
import { invalid } from '../shared/errors.js'
import { checkOptions, wholeNumber } from '../shared/validate.js'
import type { Algorithm, Booking, Policy } from './algorithm.js'
import { Decision, FixedGauge } from './decision.js'
import { shareOf } from './internal/arithmetic.js'

/*
 * Sliding window
 *
 * At most `limit` permits in any window, proven, in a state of fixed size. A window is cut into `slices`. All grants of a
 * slice are kept as one segment: their permits, and the time of the newest grant. A segment counts until exactly one window
 * after its newest grant. No grant is forgotten early, so the promise is that of the exact log: in any half-open span of
 * one window at most `limit`. Some are forgotten late, by less than a slice, because they wait for the newest grant of
 * their segment. Grants that came together, or more than a slice apart, are forgotten exactly in time.
 *
 *     window 1 s, 4 slices     |..a..b|......|....c.|......|
 *     a and b count as two until one second after b, c until one second after c
 *
 * A fresh key may take `limit` at once. A client that paces itself at exactly `limit` per window loses about one permit in
 * slices + 1; where that matters, use more slices or the log. The two-counter sliding window estimates what was used from
 * the assumption that the last window was used evenly. So it refuses clients that did not (a limit of 1 may refuse for
 * ever), and grants too much to clients that used the window late. Here nothing is estimated.
 *
 * From no system in particular: segments are those of every ring of counters, the times of their newest grants are
 * Sluice's. Lanes: a ring of slices + 1 segments, each (permits, time of the newest grant); no more can count at once. A
 * clock that goes back is read as the time of the newest grant.
 */

/** Options of `slidingWindow`. */
export interface SlidingWindowOptions {
  /** Permits in any window: a whole number; 0 refuses everything. */
  readonly limit: number
  /** The length of the window. */
  readonly window: Duration
  /** Slices of a window: 1 to 1,000, by default 10. More are more exact, but need more memory and time. */
  readonly slices?: number | undefined
}

/**
 * A sliding window: at most `limit` permits in any `window`, in a state of fixed size; a permit comes back after
 * `window`, or later by less than window / slices.
 *
 * `limit` is whole permits, `window` a duration of whole microseconds, `slices` a whole number (default 10). Throws a
 * TypeError for a wrong type or an unknown option, a RangeError for a value out of range; both carry `code` and `option`.
 * `reserve` throws on it unless `maxWait` is 0. When `update` changes the slices, every key starts fresh.
 *
 * @example
 * const limiter = createLimiter(slidingWindow({ limit: 100, window: '1m' }))
 * limiter.tryAcquire('ann').remaining // 99
 */
export function slidingWindow(options: SlidingWindowOptions): Algorithm {
  checkOptions('slidingWindow', options, ['limit', 'window', 'slices'])
  const slices = options.slices === undefined ? 10 : wholeNumber('slices', options.slices)
  if (slices < 1 || slices > 1000) throw invalid(RangeError, 'slices', '1 to 1,000', slices)
  return new SlidingWindow(wholeNumber('limit', options.limit), spanToUs('window', options.window), slices)
}

/** The constants of `slidingWindow` with these args. */
export function slidingWindowConstants(args: readonly number[]): readonly number[] {
  const [limit = 0, windowUs = 0, slices = 0] = args
  return new SlidingWindow(limit, windowUs, slices).constants
}

class SlidingWindow implements Algorithm {
  readonly name = 'sliding-window'
  readonly args: readonly number[]
  readonly constants: readonly number[]
  readonly policy: Policy
  readonly lanes: number
  readonly bookable = false

  private readonly limit: number
  private readonly windowUs: number
  private readonly sliceUs: number
  private readonly segments: number

  constructor(limit: number, windowUs: number, slices: number) {
    this.args = [limit, windowUs, slices]
    this.policy = { limit, windowMs: windowUs / 1000, smooth: false }
    this.sliceUs = Math.ceil(windowUs / slices)
    this.segments = slices + 1
    this.constants = [this.sliceUs, this.segments]
    this.lanes = 2 * this.segments
    this.limit = limit
    this.windowUs = windowUs
  }

  step(state: Float64Array, at: number, nowUs: number, cost: number, _maxWaitUs: number, commit: boolean) {
    const newestUs = this.newestOf(state, at)
    const timeUs = Math.max(nowUs, newestUs)
    const end = at + this.lanes
    let used = 0
    let oldestUs = Infinity
    for (let segment = at; segment < end; segment += 2) {
      const stampUs = state[segment + 1] as number
      if (stampUs + this.windowUs <= timeUs || state[segment] === 0) continue
      used += state[segment] as number
      if (stampUs < oldestUs) oldestUs = stampUs
    }
    if (cost > 0 && used + cost > this.limit) {
      const missing = used + cost - this.limit
      const waitUs = cost > this.limit ? Infinity : this.freesAtUs(state, at, timeUs, missing) - nowUs
      return this.decision(state, at, nowUs, waitUs, used, oldestUs, newestUs)
    }
    if (cost === 0 || !commit) return this.decision(state, at, nowUs, 0, used, oldestUs, newestUs)

    const segment = this.segmentAt(at, timeUs)
    const joins = (state[segment + 1] as number) + this.windowUs > timeUs
    const before = joins ? (state[segment] as number) : 0
    state[segment] = before + cost
    state[segment + 1] = timeUs
    // The grant has moved the time of its segment. A segment that was the oldest is then the only one.
    if (used === before) oldestUs = timeUs
    return this.decision(state, at, nowUs, 0, used + cost, oldestUs, timeUs)
  }

  read(waitUs: number, retryAfterUs: number, figures: readonly number[]): Decision {
    const [balance = 0, refillAfterUs = 0, resetAfterUs = 0] = figures
    const gauge = new FixedGauge({ limit: this.limit, balance, refillAfterUs, resetAfterUs })
    return new Decision(gauge, waitUs, retryAfterUs, 0, 0)
  }

  cancel(state: Float64Array, at: number, nowUs: number, booking: Booking): number {
    return nowUs > booking.actUs ? 0 : this.refund(state, at, nowUs, booking.cost, booking)
  }

  /** A booking gives back only to its own segment, while that counts. */
  refund(state: Float64Array, at: number, nowUs: number, permits: number, booking?: Booking): number {
    const timeUs = Math.max(nowUs, this.newestOf(state, at))
    const bookedUs = booking === undefined ? timeUs : this.newestOf(booking.mark, 0)
    const bookedSlice = Math.floor(bookedUs / this.sliceUs)
    let given = 0
    for (let age = 0; age < (booking === undefined ? this.segments : 1); age++) {
      const segment = this.segmentAt(at, Math.max(0, bookedUs - age * this.sliceUs))
      const stampUs = state[segment + 1] as number
      const isAnother = Math.floor(stampUs / this.sliceUs) !== bookedSlice - age
      if (isAnother || stampUs + this.windowUs <= timeUs) continue
      const held = state[segment] as number
      const taken = Math.min(permits - given, held)
      state[segment] = held - taken
      if (held === taken) state[segment + 1] = 0
      given += taken
    }
    return given
  }

  /** Segments that still count keep counting, for the new window. Segments that fall in the same new slice become one. */
  adopt(state: Float64Array, at: number, nowUs: number, previous: Algorithm): void {
    const { windowUs } = previous as SlidingWindow
    const timeUs = Math.max(nowUs, this.newestOf(state, at))
    const kept: { readonly permits: number; readonly stampUs: number }[] = []
    for (let segment = at; segment < at + this.lanes; segment += 2) {
      const stampUs = state[segment + 1] as number
      if (stampUs + Math.min(windowUs, this.windowUs) > timeUs)
        kept.push({ permits: state[segment] as number, stampUs })
    }
    state.fill(0, at, at + this.lanes)
    for (const { permits, stampUs } of kept) {
      const segment = this.segmentAt(at, stampUs)
      state[segment] = (state[segment] as number) + permits
      state[segment + 1] = Math.max(state[segment + 1] as number, stampUs)
    }
  }

  restsAt(state: Float64Array, at: number): number {
    let restsAtUs = 0
    for (let segment = at; segment < at + this.lanes; segment += 2)
      if (state[segment] !== 0)
        restsAtUs = Math.max(restsAtUs, (state[segment + 1] as number) + this.windowUs)
    return restsAtUs
  }

  load(state: Float64Array, at: number, nowUs: number): number {
    return shareOf(this.limit - this.step(state, at, nowUs, 0, 0, false).balance, this.limit)
  }

  /** The lane at which the segment of a time starts. */
  private segmentAt(at: number, timeUs: number): number {
    const slice = Math.floor(timeUs / this.sliceUs)
    return at + 2 * (slice - Math.floor(slice / this.segments) * this.segments)
  }

  private newestOf(state: Float64Array, at: number): number {
    let newestUs = 0
    for (let segment = at; segment < at + this.lanes; segment += 2) {
      const stampUs = state[segment + 1] as number
      if (stampUs > newestUs) newestUs = stampUs
    }
    return newestUs
  }

  /** When so many permits will have stopped counting, the oldest segments first. */
  private freesAtUs(state: Float64Array, at: number, timeUs: number, permits: number): number {
    let missing = permits
    for (let ahead = 1; ahead <= this.segments; ahead++) {
      const segment = this.segmentAt(at, timeUs + ahead * this.sliceUs)
      const endsUs = (state[segment + 1] as number) + this.windowUs
      if (endsUs <= timeUs) continue
      missing -= state[segment] as number
      if (missing <= 0) return endsUs
    }
    return Infinity
  }

  private decision(
    state: Float64Array,
    at: number,
    nowUs: number,
    waitUs: number,
    used: number,
    oldestUs: number,
    newestUs: number,
  ): Decision {
    const balance = this.limit - used
    let refillAfterUs = this.limit === 0 ? Infinity : 0
    if (balance < 0) refillAfterUs = this.freesAtUs(state, at, Math.max(nowUs, newestUs), 1 - balance) - nowUs
    else if (used > 0) refillAfterUs = oldestUs + this.windowUs - nowUs
    const resetAfterUs = used > 0 ? newestUs + this.windowUs - nowUs : 0
    const gauge = new FixedGauge({ limit: this.limit, balance, refillAfterUs, resetAfterUs })
    return new Decision(gauge, waitUs, waitUs, 0, 0)
  }
}
