/** What other limiters may do with a room. */
export interface Room {
  readonly occupied: number
  rebook(): void
  close(): void
}

/** How a combination tells its members that calls wait for them. */
export interface SharedWaitHooks {
  /** Called when the first call comes to wait, and when the last one has left. */
  onOccupied(room: Room, isOccupied: boolean): void
  /** Called when a call joins or leaves the line of a key. */
  onStanding(key: string, change: 1 | -1): void
  /** Whether too many calls wait for the key in other rooms. */
  isCrowded(key: string): boolean
}
