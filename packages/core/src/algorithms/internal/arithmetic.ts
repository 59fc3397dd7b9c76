/** What is booked for later than this would not be exact, and is refused. */
export const LATEST_US = Number.MAX_SAFE_INTEGER
