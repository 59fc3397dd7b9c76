/** The least a limiter can do: a fixed window in a Map of `{ count, reset }`, by the wall clock. */
export class Floor {
  /** @type {Map<string, { count: number, reset: number }>} */
  map = new Map()

  /**
   * @param {number} limit
   * @param {number} windowMs
   * @param {number} maxKeys when it is reached, all keys are dropped
   */
  constructor(limit, windowMs, maxKeys = Infinity) {
    this.limit = limit
    this.windowMs = windowMs
    this.maxKeys = maxKeys
  }

  /** @param {string} key */
  allows(key) {
    const now = Date.now()
    const entry = this.map.get(key)
    if (entry === undefined || entry.reset <= now) {
      if (entry === undefined && this.map.size >= this.maxKeys) this.map = new Map()
      this.map.set(key, { count: 1, reset: now + this.windowMs })
      return true
    }
    if (entry.count >= this.limit) return false
    entry.count++
    return true
  }
}
