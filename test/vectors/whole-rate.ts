/** A rate as a limit and a window: whole permits per whole microseconds. */
export interface WholeRate {
  readonly limit: number
  /** In milliseconds. */
  readonly window: number
}

const LARGEST_LIMIT = 1_000_000

/**
 * Returns the simplest fraction with the same interval between permits as a double, or the closest one with a limit up
 * to a million: a convergent of the continued fraction. A value that is not a rate is returned unchanged.
 */
export function wholeRate(perSecond: number, secondMs = 1000): WholeRate {
  if (!(perSecond > 0 && perSecond < Infinity)) return { limit: perSecond, window: secondMs }
  const intervalUs = (secondMs * 1000) / perSecond
  let rest = intervalUs % 1
  let [windowUs, limit] = [Math.floor(intervalUs), 1]
  let [windowBeforeUs, limitBefore] = [1, 0]
  while (windowUs / limit !== intervalUs) {
    const term = Math.floor(1 / rest)
    rest = (1 / rest) % 1
    const nextLimit = term * limit + limitBefore
    if (nextLimit > LARGEST_LIMIT) break
    ;[windowUs, windowBeforeUs] = [term * windowUs + windowBeforeUs, windowUs]
    ;[limit, limitBefore] = [nextLimit, limit]
  }
  return { limit, window: windowUs / 1000 }
}
