/*
 * A twin is an algorithm of core in Lua: the same steps in the same order, so that Redis decides as memory does, to the
 * microsecond. (Lua's numbers are JavaScript's doubles.) The functions of a twin take
 *
 *     a       the parameters: the args of the algorithm, then its constants
 *     s       the state: lanes s[1], s[2] and so on, all 0 for a key never seen
 *     now     the time in whole microseconds
 *     b       a booking: b.act (when its holder may act), b.cost, and b.mark (the lanes right after the grant)
 *
 * They can use `huge` (infinity), `floor`, `ceil`, `abs`, `min`, `max`, `LATEST`, and the functions for limits of 0 in
 * parts/prelude.lua.ts.
 *
 * Scripts are sent to the server as they are, so their comments stand in TypeScript.
 */

/** An algorithm in Lua. */
export interface Twin {
  /** The algorithm's name in core. */
  readonly name: string
  /** How many args it has. */
  readonly args: number
  /** How many lanes it has: a Lua expression of `a`. */
  readonly lanes: string
  /** The `constants` of the algorithm in core with other args, for a state that was written under them. */
  constants(args: readonly number[]): readonly number[]
  /**
   * `step(a, s, now, cost, maxWait, commit)` returns the wait, retryAfter, and the two or three figures that the algorithm's
   * `read` takes. With `commit`, a grant of a cost above 0 changes the lanes. `restsAt(a, s)` returns when the key rests.
   */
  readonly step: string
  /** `shift(a, s, by)` moves all times of a state back, for a clock that has jumped. */
  readonly shift: string
  /** `adopt(a, s, now, before)` converts a state that was written under the parameters `before`. */
  readonly adopt: string
  /**
   * `cancel(a, s, now, b)` and `refund(a, s, now, permits, b)`, where b is nil for a release. Both return the permits given
   * back.
   */
  readonly giveBack: string
  /** A suffix for the keys of states that are not of the usual length. */
  variant?(args: readonly number[]): string
  /** Whether its figures are whole numbers. */
  readonly hasWholeFigures?: boolean
  /** How its states are stored, if not as the lanes alone; see parts/state.lua.ts. */
  readonly storage?: { readonly read: string; readonly save: string; readonly fields: string }
}
