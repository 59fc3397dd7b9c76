import { ceilDivide, larger, smaller } from './arithmetic.js'
import type { Balance } from './balance.js'

/*
 * The rare operations of GCRA (cancel, refund, a change of options), whose products may exceed 2^53. Here an instant, a
 * span or a number of permits is one bigint, in units of 1 / denominator microseconds.
 */

/** What the arithmetic needs to know about a line; see gcra.ts. */
export interface GcraScale {
  readonly denominator: number
  /** The length of an interval in units. */
  readonly intervalUnits: number
  readonly atOnce: number
}

export function unitsOf({ denominator }: GcraScale, us: number, part = 0): bigint {
  return BigInt(us) * BigInt(denominator) + BigInt(part)
}

export function permitsToUnits({ intervalUnits }: GcraScale, permits: number): bigint {
  return BigInt(permits) * BigInt(intervalUnits)
}

/** The end of a line. */
export function endOf(scale: GcraScale, state: Float64Array, at: number): bigint {
  return unitsOf(scale, Math.abs(state[at] as number), state[at + 1] as number)
}

export function isCut(state: Float64Array, at: number): boolean {
  return (state[at] as number) < 0
}

/** Moves the end of a line back by `wanted`, but not into the past. Returns the permits given back. */
export function moveEndBack(
  scale: GcraScale,
  state: Float64Array,
  at: number,
  nowUs: number,
  wanted: bigint,
  cuts = false,
): number {
  const end = endOf(scale, state, at)
  const given = larger(smaller(wanted, end - unitsOf(scale, nowUs)), 0n)
  if (given > 0n) writeEnd(scale, state, at, end - given, cuts || isCut(state, at))
  return Number(given) / scale.intervalUnits
}

/** The balance of a line; undefined when its end is not after now. */
export function balanceFrom(
  scale: GcraScale,
  state: Float64Array,
  at: number,
  nowUs: number,
): Balance | undefined {
  const lag = endOf(scale, state, at) - unitsOf(scale, nowUs)
  if (lag <= 0n) return undefined
  return {
    permits: permitsToUnits(scale, scale.atOnce) - lag,
    scale: BigInt(scale.intervalUnits),
    isCut: isCut(state, at),
  }
}

/** Writes the line that has a balance to a state of zeros, which stay for a balance of `atOnce` or more. */
export function writeBalance(
  scale: GcraScale,
  state: Float64Array,
  at: number,
  nowUs: number,
  balance: Balance,
): void {
  const missing = BigInt(scale.atOnce) * balance.scale - balance.permits
  if (missing <= 0n) return
  const lag = ceilDivide(missing * BigInt(scale.intervalUnits), balance.scale)
  writeEnd(scale, state, at, unitsOf(scale, nowUs) + lag, balance.isCut === true)
}

function writeEnd(
  { denominator }: GcraScale,
  state: Float64Array,
  at: number,
  end: bigint,
  cut: boolean,
): void {
  const per = BigInt(denominator)
  state[at] = Number(end / per) * (cut ? -1 : 1)
  state[at + 1] = Number(end % per)
}
