import { type Duration, spanToUs } from '../shared/duration.js'
import { invalid } from '../shared/errors.js'
import { checkOptions, wholeNumber } from '../shared/validate.js'
import type { Algorithm, Booking, Policy } from './algorithm.js'
import { Decision, type Gauge } from './decision.js'
import { shareOf } from './internal/arithmetic.js'

/*
 * Fixed window
 *
 * Time is cut into windows, and each grants `limit` permits. Promise: at most `limit` in each window, and so at most
 * 2 * limit in any span as long as a window: the end of one window and the start of the next. Used permits come back all
 * together when the window ends. A fresh key has a whole window before it.
 *
 *     limit 3 per second        ....xxx|xxx......      six within a moment, around the edge of two windows
 *
 * With `align: 'first'` a key's window starts with its first permit. Keys end at different times, and no client can aim at
 * the edge of a window without having started it. With `align: 'epoch'` all windows start at multiples of `window` since
 * 1970-01-01T00:00Z ("per calendar day, UTC"), and all refused clients come back at the same moment.
 *
 * The oldest limiter, from no system in particular: a counter and the time at which it starts again. Deliberate
 * differences from the usual one: a refusal is not counted; a permit that is given back after its window has ended takes
 * nothing off the next window; a clock that goes back does not open a new window.
 *
 * Lane 0 is the start of the window, lane 1 the permits used in it.
 */

/** Options of `fixedWindow`. */
export interface FixedWindowOptions {
  /** Permits per window: a whole number; 0 refuses everything. */
  readonly limit: number
  /** The length of a window. */
  readonly window: Duration
  /** When a window starts: with the first permit of a key (`'first'`, the default), or at multiples of `window` since the epoch. */
  readonly align?: 'first' | 'epoch' | undefined
}

/**
 * A fixed window: `limit` permits in each window, all back when it ends; up to 2 * limit around the edge of two windows.
 *
 * `limit` is whole permits, `window` a duration of whole microseconds, `align` is `'first'` (default) or `'epoch'`. Throws
 * a TypeError for a wrong type or an unknown option, a RangeError for a value out of range; both carry `code` and `option`.
 * `reserve` throws on it unless `maxWait` is 0, because a permit of the next window cannot be promised.
 *
 * @example
 * const perDay = createLimiter(fixedWindow({ limit: 1000, window: '1d', align: 'epoch' }))
 * perDay.tryAcquire('ann').resetAfterMs // until midnight UTC
 */
export function fixedWindow(options: FixedWindowOptions): Algorithm {
  checkOptions('fixedWindow', options, ['limit', 'window', 'align'])
  const { align = 'first' } = options
  if (align !== 'first' && align !== 'epoch')
    throw invalid(typeof align === 'string' ? RangeError : TypeError, 'align', "'first' or 'epoch'", align)
  return new FixedWindow(
    wholeNumber('limit', options.limit),
    spanToUs('window', options.window),
    align === 'epoch',
  )
}

class FixedWindow implements Algorithm, Gauge {
  readonly name = 'fixed-window'
  readonly args: readonly number[]
  readonly policy: Policy
  readonly lanes = 2
  readonly bookable = false
  readonly limit: number

  private readonly windowUs: number
  private readonly aligned: boolean

  constructor(limit: number, windowUs: number, aligned: boolean) {
    this.args = [limit, windowUs, aligned ? 1 : 0]
    this.policy = { limit, windowMs: windowUs / 1000, smooth: false }
    this.limit = limit
    this.windowUs = windowUs
    this.aligned = aligned
  }

  step(state: Float64Array, at: number, nowUs: number, cost: number, _maxWaitUs: number, commit: boolean) {
    let startUs = state[at] as number
    let used = state[at + 1] as number
    if (used === 0 || nowUs >= startUs + this.windowUs) {
      startUs = this.startOf(nowUs)
      used = 0
    }
    const endsInUs = startUs + this.windowUs - nowUs
    let waitUs = 0
    if (cost > 0 && used + cost > this.limit) {
      waitUs = cost > this.limit ? Infinity : endsInUs
    } else if (commit && cost > 0) {
      used += cost
      state[at] = startUs
      state[at + 1] = used
    }
    return new Decision(this, waitUs, waitUs, used, endsInUs)
  }

  read(waitUs: number, retryAfterUs: number, [used = 0, endsInUs = 0]: readonly number[]): Decision {
    return new Decision(this, waitUs, retryAfterUs, used, endsInUs)
  }

  cancel(state: Float64Array, at: number, nowUs: number, booking: Booking): number {
    return nowUs > booking.actUs ? 0 : this.refund(state, at, nowUs, booking.cost, booking)
  }

  refund(state: Float64Array, at: number, nowUs: number, permits: number, booking?: Booking): number {
    const startUs = state[at] as number
    const isOver = nowUs >= startUs + this.windowUs
    const isAnother = booking !== undefined && booking.mark[0] !== startUs
    if (isOver || isAnother) return 0
    const used = state[at + 1] as number
    const given = Math.min(permits, used)
    state[at + 1] = used - given
    if (used === given) state[at] = 0
    return given
  }

  /** Used permits stay used until the window ends, by the new length. */
  adopt(state: Float64Array, at: number, nowUs: number, previous: Algorithm): void {
    const startUs = state[at] as number
    const ended = nowUs >= startUs + (previous as FixedWindow).windowUs
    if (ended || state[at + 1] === 0) state[at] = state[at + 1] = 0
    else if (this.aligned) state[at] = Math.max(this.startOf(nowUs), this.startOf(startUs))
  }

  restsAt(state: Float64Array, at: number): number {
    return state[at + 1] === 0 ? 0 : (state[at] as number) + this.windowUs
  }

  load(state: Float64Array, at: number, nowUs: number): number {
    const isOver = nowUs >= (state[at] as number) + this.windowUs
    return shareOf(isOver ? 0 : (state[at + 1] as number), this.limit)
  }

  remaining(used: number): number {
    return Math.max(0, this.limit - used)
  }

  balance(used: number): number {
    return this.limit - used
  }

  refillAfterUs(used: number, endsInUs: number): number {
    if (this.limit === 0) return Infinity
    return used === 0 ? 0 : endsInUs
  }

  resetAfterUs(used: number, endsInUs: number): number {
    return used === 0 ? 0 : endsInUs
  }

  private startOf(nowUs: number): number {
    return this.aligned ? Math.floor(nowUs / this.windowUs) * this.windowUs : nowUs
  }
}
