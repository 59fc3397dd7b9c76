/** What a limiter has done since it was made. There are no keys in it, so it may be shown to anybody. */
export interface LimiterStats {
  /** The limiter's name. */
  readonly name: string
  /** Asks that were granted. */
  readonly granted: number
  /** Asks that were refused. */
  readonly refused: number
  /** Those of `acquire` that were granted after a wait. */
  readonly waited: number
  /** How many wait now, for this limiter alone or for several at once. */
  readonly waiting: number
  /** Keys held now; undefined where the store does not count them. */
  readonly keys: number | undefined
  /** Keys that were forgotten before they rested, because the store was full; undefined where the store does not count. */
  readonly forgotten: number | undefined
  /** Calls to an asynchronous store that failed. */
  readonly storeErrors: number
}
