import { invalid } from './errors.js'

type ShortUnit = 'ms' | 's' | 'm' | 'h' | 'd' | 'w'
type LongUnit = 'millisecond' | 'second' | 'minute' | 'hour' | 'day' | 'week'
type Unit = ShortUnit | LongUnit | `${LongUnit}s`

/**
 * A length of time: a number of milliseconds, or a number with a unit such as `'250ms'`, `'1.5s'`, `'1m'`, `'12h'`,
 * `'30d'`, `'1 minute'`. A string without a unit is not a duration: `'500'` could be anything.
 */
export type Duration = number | `${number}${Unit}` | `${number} ${Unit}`

/**
 * Milliseconds of a duration.
 *
 * Accepts any string, so that a value from a configuration file or the environment can be passed. Throws a RangeError for
 * a string that is not a number with a unit and for a negative number, a TypeError for any other type.
 *
 * @example
 * parseDuration('1.5s') // 1500
 * parseDuration(process.env.RATE_WINDOW ?? '1m')
 */
export function parseDuration(duration: Duration | (string & {}), option = 'duration'): number {
  const ms = typeof duration === 'string' ? millisecondsOf(duration) : duration
  if (typeof ms !== 'number') throw invalid(TypeError, option, EXPECTED, duration)
  if (Number.isNaN(ms) || ms < 0) throw invalid(RangeError, option, EXPECTED, duration)
  return ms
}

/** Whole microseconds of a window or another span that must be positive, finite and exact. */
export function spanToUs(option: string, duration: unknown): number {
  const ms = parseDuration(duration as Duration, option)
  const us = Math.round(ms * 1000)
  const exact = Math.abs(ms * 1000 - us) <= us * Number.EPSILON * 4
  if (us < 1 || us > MAX_SPAN_US || !exact)
    throw invalid(RangeError, option, 'a duration of whole microseconds, 1 us to 200 years', duration)
  return us
}

/** Whole microseconds of a wait, which may be 0 or Infinity. */
export function waitToUs(option: string, duration: unknown): number {
  return Math.round(parseDuration(duration as Duration, option) * 1000)
}

/** The longest span. A time until the year 2050 plus this span stays within 2^53 microseconds. */
export const MAX_SPAN_US = 200 * 365.25 * 86_400_000_000

const EXPECTED = "milliseconds or a number with a unit such as '30s'"

const UNIT_MS = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000, w: 604_800_000 }

function millisecondsOf(duration: string): number {
  const match = /^(\d+(?:\.\d+)?) ?(?:(ms|[smhdw])|(millisecond|second|minute|hour|day|week)s?)$/.exec(
    duration.trim(),
  )
  if (match === null) return Number.NaN
  const [, count, short, long] = match
  const unit = short ?? (long === 'millisecond' ? 'ms' : long?.[0])
  return Number(count) * UNIT_MS[unit as keyof typeof UNIT_MS]
}
