/*
 * A twin is an algorithm of core once more, in Lua: the same steps in the same order, so that Redis decides as memory does,
 * to the microsecond. Lua's numbers are the doubles of JavaScript. Its functions are given
 *
 *     a       the terms: the algorithm's args, then what `constants` has made of them
 *     s       the state: lanes s[1], s[2] and so on, all zeros for a key never seen
 *     now     the time in whole microseconds
 *     b       a booking: b.act, b.cost and b.mark, which is the lanes right after the grant
 *
 * and find `huge` (Infinity), `floor`, `ceil`, `abs`, `min`, `max`, `LATEST` and what prelude.lua.ts has for limits of 0.
 */

/** An algorithm in Lua. */
export interface Twin {
  /** The algorithm's name in core. */
  readonly name: string
  /** How many args it has, and how many lanes, by an expression of `a`. */
  readonly args: number
  readonly lanes: string
  /** What can be computed once from the args; it follows them in `a`. */
  constants(args: readonly number[]): readonly number[]
  /**
   * `step(a, s, now, cost, maxWait, commit)` returns wait, retryAfter and the two or three figures that `read` of the
   * algorithm takes, and with `commit` changes the lanes on a grant of more than 0. `restsAt(a, s)`.
   */
  readonly step: string
  /** `shift(a, s, by)` moves all times in a state back, for a clock that has jumped. */
  readonly shift: string
  /** `adopt(a, s, now, before)`, with the terms of the algorithm that has written the state. */
  readonly adopt: string
  /** `cancel(a, s, now, b)` and `refund(a, s, now, permits, b)`, without b for a release; both return permits. */
  readonly giveBack: string
  /** What the keys of states end with that are not of the usual length. */
  variant?(args: readonly number[]): string
  /** Whether its figures are whole numbers. */
  readonly hasWholeFigures?: boolean
  /** `open`, `save`, and `argsOf` and `lanesOf`, of a state that is more than its lanes; see access.lua.ts. */
  readonly access?: { readonly open: string; readonly save: string; readonly parts: string }
}
