import type { Decision } from './decision.js'

/**
 * The kernel: an algorithm decides over the state of one key, a few float64 lanes at `state[at]`, at a time it is
 * given. It knows no clock, no map, no promise and no I/O, so that any store can run it.
 *
 * Every state of all zeros is a key never seen. Times are whole microseconds since the epoch, costs whole permits.
 */
export interface Algorithm {
  /** Kind of algorithm, such as `token-bucket`. */
  readonly name: string
  /** The options as numbers: two algorithms of one name and equal args decide alike. */
  readonly args: readonly number[]
  /** What a limiter with it advertises. */
  readonly policy: Policy
  /** Float64 numbers of state per key. */
  readonly lanes: number
  /** Whether a permit of the future can be promised now. */
  readonly bookable: boolean

  /**
   * Grants `cost` permits if the wait is at most `maxWaitUs`. Only a grant with `commit` and a cost above 0 writes to
   * the state; everything else only reads it.
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
   * Gives up a booking before its instant: the cost less what was booked after it, so that nobody else's slot moves.
   * Returns the permits given back; 0 once its instant has passed.
   */
  cancel(state: Float64Array, at: number, nowUs: number, booking: Booking): number

  /**
   * Gives back up to `permits` afterwards, as far as they have not refilled by themselves; without a booking the newest
   * ones, and nothing while somebody waits. Returns the permits given back.
   */
  refund(state: Float64Array, at: number, nowUs: number, permits: number, booking?: Booking): number

  /** Converts a state that `previous`, an algorithm of the same name, has written, as of `nowUs`. Never mints permits. */
  adopt(state: Float64Array, at: number, nowUs: number, previous: Algorithm): void

  /** The instant at which the key is indistinguishable from one never seen; Infinity when time alone does not get there. */
  restsAt(state: Float64Array, at: number): number

  /**
   * Where a limiter makes a difference: called by a store in memory once for each limiter, and again when its options
   * change, with what it had begun before. What it returns is used in the place of this algorithm. For an algorithm whose
   * fresh keys depend on when the limiter was made, or whose state outgrows its lanes.
   */
  begin?(nowUs: number, previous?: Algorithm): Algorithm

  /**
   * A decision of this algorithm that was made elsewhere, by a store that runs it in another place: its waits, and the
   * numbers that its figures are read off.
   */
  read?(waitUs: number, retryAfterUs: number, figures: readonly number[]): Decision

  /** Called before the lanes of a key are given up, for an algorithm whose state outgrows its lanes. */
  forget?(state: Float64Array, at: number): void

  /** Share of the limit in use, 0 to 1; 1 exactly while a single permit would be refused. */
  load(state: Float64Array, at: number, nowUs: number): number
}

/** Whether two algorithms of one name decide alike. */
export function sameArgs(a: Pick<Algorithm, 'args'>, b: Pick<Algorithm, 'args'>): boolean {
  return a.args.length === b.args.length && a.args.every((arg, index) => arg === b.args[index])
}

/** What a limiter advertises. */
export interface Policy {
  /** The most single permits that a rested key passes at once; Infinity for no limit. */
  readonly limit: number
  /** The time in which a spent limit is whole again. */
  readonly windowMs?: number
  /** Whether permits come back one by one rather than with the end of a window. */
  readonly smooth: boolean
  /** How long who asks is to wait for its turn unless told otherwise, for an algorithm that is a queue. */
  readonly maxWaitMs?: number
}

/** What a grant took, kept to give it back. */
export interface Booking {
  /** When it was asked for. */
  readonly atUs: number
  /** When its holder may act. */
  readonly actUs: number
  /** Permits taken. */
  readonly cost: number
  /** The state right after the grant: where the line of bookings ended then. */
  readonly mark: Float64Array
}
