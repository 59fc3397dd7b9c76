import { coded, invalid } from './errors.js'

/** Names other limiters use for an option of ours, so that the error can say which. */
const FOREIGN_NAMES: Record<string, string> = {
  capacity: 'burst',
  duration: 'window',
  errorHandler: 'onRefused',
  generateKey: 'key',
  handler: 'onRefused',
  id: 'key',
  identifier: 'name',
  interval: 'window',
  keyGenerator: 'key',
  limitReached: 'onRefused',
  max: 'limit',
  onLimitReached: 'onRefused',
  onExceeded: 'onRefused',
  period: 'window',
  points: 'limit',
  rate: 'limit',
  skip: 'key',
  standardHeaders: 'headers',
  throttle: 'onRefused',
  timeWindow: 'window',
  tokens: 'cost',
  weight: 'cost',
}

/**
 * Checks that `options` is an object whose every property is one of `known`; a misspelt or foreign option would
 * otherwise be a limit that silently does not apply.
 */
export function checkOptions(owner: string, options: unknown, known: readonly string[]): void {
  if (typeof options !== 'object' || options === null || Array.isArray(options))
    throw invalid(TypeError, `${owner} options`, 'an object', options)
  for (const name of Object.keys(options)) {
    if (known.includes(name)) continue
    const nearest = nearestOption(name, known)
    const hint = nearest === undefined ? `the options are ${known.join(', ')}` : `did you mean '${nearest}'?`
    throw coded(
      new TypeError(`${owner}: unknown option ${JSON.stringify(name)}; ${hint}`),
      'SLUICE_UNKNOWN_OPTION',
      name,
    )
  }
}

/** A whole number of permits from 0 to 2^53 - 1. */
export function wholeNumber(option: string, value: unknown): number {
  if (typeof value !== 'number') throw invalid(TypeError, option, 'a whole number', value)
  if (!Number.isSafeInteger(value) || value < 0)
    throw invalid(RangeError, option, 'a whole number from 0 to 2^53 - 1', value)
  return value
}

/** The name of a policy, which becomes a quoted string in a header. */
export function policyName(option: string, value: unknown): string {
  if (typeof value !== 'string') throw invalid(TypeError, option, 'a string', value)
  if (!/^[\x20-\x7e]{1,64}$/.test(value))
    throw invalid(RangeError, option, '1 to 64 printable ASCII characters', value)
  return value
}

export function callable(option: string, value: unknown): void {
  if (typeof value !== 'function') throw invalid(TypeError, option, 'a function', value)
}

function nearestOption(name: string, known: readonly string[]): string | undefined {
  const foreign = Object.hasOwn(FOREIGN_NAMES, name) ? FOREIGN_NAMES[name] : undefined
  if (foreign !== undefined && known.includes(foreign)) return foreign
  const wanted = name.toLowerCase()
  let nearest: string | undefined
  let least = Math.max(2, Math.floor(name.length / 2))
  for (const candidate of known) {
    const distance = editDistance(wanted, candidate.toLowerCase())
    if (distance <= least && (nearest === undefined || distance < least)) {
      nearest = candidate
      least = distance
    }
  }
  return nearest
}

/** Levenshtein's distance, one row at a time. */
function editDistance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, column) => column)
  for (let i = 1; i <= a.length; i++) {
    const next = [i]
    for (let j = 1; j <= b.length; j++) {
      const substituted = (row[j - 1] as number) + (a[i - 1] === b[j - 1] ? 0 : 1)
      next.push(Math.min(substituted, (row[j] as number) + 1, (next[j - 1] as number) + 1))
    }
    row = next
  }
  return row[b.length] as number
}
