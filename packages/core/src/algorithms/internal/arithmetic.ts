/** The latest instant that is exact. A grant that would have to wait for longer is refused. */
export const LATEST_US = Number.MAX_SAFE_INTEGER

/** Share of a limit in use: 1 exactly when nothing is left. */
export function shareOf(used: number, limit: number): number {
  return used >= limit ? 1 : used / limit
}

export function greatestCommonDivisor(a: number, b: number): number {
  while (b > 0) [a, b] = [b, a % b]
  return a
}

export function smaller(a: bigint, b: bigint): bigint {
  return a > b ? b : a
}

export function larger(a: bigint, b: bigint): bigint {
  return a > b ? a : b
}

/** The quotient, rounded down also below 0. */
export function floorDivide(numerator: bigint, denominator: bigint): bigint {
  const quotient = numerator / denominator
  return numerator < 0n && quotient * denominator !== numerator ? quotient - 1n : quotient
}

/** The quotient of positive numbers, rounded up. */
export function ceilDivide(numerator: bigint, denominator: bigint): bigint {
  return (numerator + denominator - 1n) / denominator
}
