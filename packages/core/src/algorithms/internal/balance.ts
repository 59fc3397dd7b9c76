/**
 * What an algorithm hands over when its options change between a limit of 0 and another one, or from one limit to
 * another: the permits of a key, whatever its lanes look like.
 */
export interface HoldsBalance {
  /** The balance of a key; undefined for a key at rest. */
  balanceOf(state: Float64Array, at: number, nowUs: number): Balance | undefined
}

/** A balance as the exact fraction `permits / scale`; negative while permits of the future are booked. */
export interface Balance {
  readonly permits: bigint
  readonly scale: bigint
  /** Whether a booking in the middle of a line was cancelled; see gcra.ts. */
  readonly isCut?: boolean
}
