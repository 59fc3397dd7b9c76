import type { Decision } from './decision.js'

/**
 * Decides over the state of one key at a given time. The state is `lanes` numbers at `state[at]`; all zeros is a key never
 * seen. Times are whole microseconds since the epoch, costs whole permits. An algorithm uses no clock, no map, no promise
 * and no I/O, so that any store can run it.
 *
 * An algorithm of your own is an object with this interface. It makes its decisions with `createDecision`, and a limiter
 * over `memoryStore()` runs it with every verb. (Redis runs the algorithms of `@sluice/core` only.)
 *
 * @example
 * // At most `limit` permits in each minute of the clock.
 * function perMinute(limit: number): Algorithm {
 *   const minuteUs = 60_000_000
 *   // Lanes: the minute of the newest grant, and the permits used in it.
 *   const minuteAt = (state: Float64Array, at: number, nowUs: number) =>
 *     Math.max(Math.floor(nowUs / minuteUs), state[at])
 *   const usedIn = (state: Float64Array, at: number, minute: number) => (state[at] === minute ? state[at + 1] : 0)
 *
 *   return {
 *     name: 'per-minute',
 *     args: [limit],
 *     policy: { limit, windowMs: 60_000, smooth: false },
 *     lanes: 2,
 *     bookable: false,
 *     step(state, at, nowUs, cost, maxWaitUs, commit) {
 *       const minute = minuteAt(state, at, nowUs)
 *       const endsInUs = (minute + 1) * minuteUs - nowUs
 *       let used = usedIn(state, at, minute)
 *       let retryAfterUs = 0
 *       if (cost > 0 && used + cost > limit) retryAfterUs = cost > limit ? Infinity : endsInUs
 *       else if (commit && cost > 0) {
 *         used += cost
 *         state[at] = minute
 *         state[at + 1] = used
 *       }
 *       const refillAfterUs = used === 0 ? 0 : endsInUs
 *       return createDecision({
 *         limit, balance: limit - used, retryAfterUs, refillAfterUs, resetAfterUs: refillAfterUs,
 *       })
 *     },
 *     cancel(state, at, nowUs, booking) {
 *       return nowUs > booking.actUs ? 0 : this.refund(state, at, nowUs, booking.cost, booking)
 *     },
 *     refund(state, at, nowUs, permits, booking) {
 *       const minute = minuteAt(state, at, nowUs)
 *       if (booking !== undefined && booking.mark[0] !== minute) return 0
 *       const used = usedIn(state, at, minute)
 *       const given = Math.min(permits, used)
 *       if (given > 0) state[at + 1] = used - given
 *       return given
 *     },
 *     adopt() {}, // permits that were used stay used
 *     restsAt: (state, at) => (state[at + 1] === 0 ? 0 : (state[at] + 1) * minuteUs),
 *     load: (state, at, nowUs) => Math.min(1, usedIn(state, at, minuteAt(state, at, nowUs)) / limit),
 *   }
 * }
 *
 * const limiter = createLimiter(perMinute(100))
 */
export interface Algorithm {
  /** The kind of algorithm, such as `token-bucket`. */
  readonly name: string
  /** The options as numbers. Two algorithms with the same name and equal args decide alike. */
  readonly args: readonly number[]
  /** What a limiter with this algorithm advertises. */
  readonly policy: Policy
  /** How many float64 numbers the state of a key has. */
  readonly lanes: number
  /** Whether a permit of the future can be booked now. */
  readonly bookable: boolean
  /** Numbers computed once from `args`. A store that runs the algorithm elsewhere sends them along with the args. */
  readonly constants?: readonly number[] | undefined
  /** A process warning for options that are likely a mistake. It is emitted once, when a limiter gets this algorithm. */
  readonly warning?: AlgorithmWarning | undefined

  /**
   * Grants `cost` permits if the wait is at most `maxWaitUs`, otherwise refuses them. Writes to the state only for a grant
   * with `commit` and a cost above 0. A cost of 0 is always granted.
   */
  step(
    state: Float64Array,
    at: number,
    nowUs: number,
    cost: number,
    maxWaitUs: number,
    commit: boolean,
  ): Decision

  /**
   * Cancels a booking before its instant. Gives back its cost less what was booked after it, so that the instants of later
   * bookings stay what they are. Returns the permits given back; 0 after the booking's instant.
   */
  cancel(state: Float64Array, at: number, nowUs: number, booking: Booking): number

  /**
   * Gives back up to `permits` that were taken, as far as they have not refilled by themselves. Without a booking it gives
   * back the newest ones, and none while a request waits for its instant. Returns the permits given back.
   */
  refund(state: Float64Array, at: number, nowUs: number, permits: number, booking?: Booking): number

  /**
   * Converts, as of `nowUs`, a state that was written by `previous`, an algorithm of the same name with other args. The
   * new state must not hold more permits than the old one.
   */
  adopt(state: Float64Array, at: number, nowUs: number, previous: Algorithm): void

  /** The instant from which the key decides like one never seen; Infinity when time alone does not bring it there. */
  restsAt(state: Float64Array, at: number): number

  /** The share of the limit in use, from 0 to 1; 1 exactly while a cost of 1 would be refused. */
  load(state: Float64Array, at: number, nowUs: number): number

  /**
   * Returns the algorithm that a limiter uses in the place of this one. A store in memory calls it once for each limiter,
   * and again for new options, then with the `previous` algorithm that it returned. Needed where fresh keys depend on when
   * the limiter was made, or where a state is larger than its lanes.
   */
  begin?(nowUs: number, previous?: Algorithm): Algorithm

  /** A decision that was made elsewhere, by a store that runs this algorithm there, from its waits and its figures. */
  read?(waitUs: number, retryAfterUs: number, figures: readonly number[]): Decision

  /** Frees what belongs to a state besides its lanes. A store calls it before it gives up the lanes of a key. */
  forget?(state: Float64Array, at: number): void
}

/** Whether two algorithms with the same name decide alike. */
export function sameArgs(a: Pick<Algorithm, 'args'>, b: Pick<Algorithm, 'args'>): boolean {
  return a.args.length === b.args.length && a.args.every((arg, index) => arg === b.args[index])
}

/** What a limiter advertises. */
export interface Policy {
  /** The most permits that a rested key grants at once, one by one; Infinity for no limit. */
  readonly limit: number
  /** The time in which a used-up limit is whole again. */
  readonly windowMs?: number
  /** Whether permits come back one by one rather than all at the end of a window. */
  readonly smooth: boolean
  /** The default `maxWait` of a limiter, for an algorithm that is a queue. */
  readonly maxWaitMs?: number
}

export interface AlgorithmWarning {
  /** A stable code. */
  readonly code: string
  readonly text: string
}

/** What a grant took, kept to give it back. */
export interface Booking {
  /** The time of the request. */
  readonly atUs: number
  /** The booking's instant: when the caller may act. */
  readonly actUs: number
  /** The permits taken. */
  readonly cost: number
  /** The lanes of the key right after the grant. */
  readonly mark: Float64Array
}
