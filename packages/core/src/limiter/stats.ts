/** What a limiter has done since it was made. There are no keys in it, so it may be logged. */
export interface LimiterStats {
  /** The limiter's name. */
  readonly name: string
  /** Requests for permits that were granted. */
  readonly granted: number
  /** Requests for permits that were refused. */
  readonly refused: number
  /** Calls of `acquire` that were granted after a wait. */
  readonly waited: number
  /** Calls that are waiting now, for this limiter alone or for several together. */
  readonly waiting: number
  /** Keys held now; undefined if the store does not count them. */
  readonly keys: number | undefined
  /** Keys that a full store has forgotten before they were at rest; undefined if the store does not count them. */
  readonly forgotten: number | undefined
  /** Calls to an asynchronous store that failed. */
  readonly storeErrors: number
}
