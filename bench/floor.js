/**
 * The simplest possible limiter: a fixed window in a Map of `{ count, reset }`, by the system clock. When `maxKeys` is
 * reached, the oldest key makes room for a new one.
 */
export class Floor {
  /** @type {Map<string, { count: number, reset: number }>} */
  map = new Map()
  /** The keys in order of insertion, as a ring. @type {string[]} */
  order = []
  oldest = 0

  /**
   * @param {number} limit
   * @param {number} windowMs
   * @param {number} maxKeys
   */
  constructor(limit, windowMs, maxKeys = 0) {
    this.limit = limit
    this.windowMs = windowMs
    this.maxKeys = maxKeys
  }

  /** @param {string} key */
  allows(key) {
    const now = Date.now()
    const entry = this.map.get(key)
    if (entry === undefined || entry.reset <= now) {
      if (entry === undefined && this.maxKeys > 0) this.makeRoom(key)
      this.map.set(key, { count: 1, reset: now + this.windowMs })
      return true
    }
    if (entry.count >= this.limit) return false
    entry.count++
    return true
  }

  /** @param {string} key */
  makeRoom(key) {
    if (this.order.length < this.maxKeys) {
      this.order.push(key)
      return
    }
    this.map.delete(/** @type {string} */ (this.order[this.oldest]))
    this.order[this.oldest] = key
    this.oldest = (this.oldest + 1) % this.maxKeys
  }
}
