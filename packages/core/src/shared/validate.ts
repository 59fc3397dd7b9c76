import { coded, invalid } from './errors.js'

/**
 * Checks that `options` is an object whose every property is one of `known`; a misspelt or foreign option would
 * otherwise be a limit that silently does not apply.
 */
export function checkOptions(owner: string, options: unknown, known: readonly string[]): void {
  if (typeof options !== 'object' || options === null || Array.isArray(options))
    throw invalid(TypeError, `${owner} options`, 'an object', options)
  for (const name of Object.keys(options)) {
    if (known.includes(name)) continue
    const nearest = nearestOf(name, known)
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

/** Checks that a value is of a kind that is known by one of its methods. */
export function having(method: string, option: string, value: unknown, expected: string): void {
  const candidate = value as Record<string, unknown> | null | undefined
  if (typeof candidate?.[method] !== 'function') throw invalid(TypeError, option, expected, value)
}

export function callable(option: string, value: unknown): void {
  if (typeof value !== 'function') throw invalid(TypeError, option, 'a function', value)
}

/** What others call an option of ours. */
const FOREIGN_NAMES: Readonly<Record<string, string>> = {
  algorithm: 'limiter',
  ban: 'block',
  blacklist: 'deny',
  blockDuration: 'block',
  burst: 'limiter',
  capacity: 'burst',
  continueExceeding: 'block',
  count: 'limit',
  disableHeader: 'headers',
  duration: 'window',
  enableDraftSpec: 'headers',
  errorMessage: 'body',
  errorResponseBuilder: 'body',
  exponentialBackoff: 'block',
  generateKey: 'key',
  global: 'limiter',
  handler: 'onRefused',
  id: 'key',
  identifier: 'name',
  interval: 'window',
  ipv6Subnet: 'ipv6Prefix',
  keyGenerator: 'key',
  keyPrefix: 'name',
  limitReached: 'onRefused',
  max: 'limit',
  message: 'body',
  onExceeded: 'onRefused',
  onLimited: 'onRefused',
  onLimitReached: 'onRefused',
  period: 'window',
  points: 'limit',
  rate: 'limit',
  requests: 'limit',
  requestWasSuccessful: 'refund',
  skip: 'key',
  skipFailedRequests: 'refund',
  skipOnError: 'onStoreError',
  skipSuccessfulRequests: 'refund',
  standardHeaders: 'headers',
  timeWindow: 'window',
  tokens: 'limit',
  weight: 'cost',
  whitelist: 'allow',
}

/** The option that is meant: by another's name for it, or spelt most alike. */
function nearestOf(name: string, known: readonly string[]): string | undefined {
  const ours = Object.hasOwn(FOREIGN_NAMES, name) ? FOREIGN_NAMES[name] : undefined
  if (ours !== undefined && known.includes(ours)) return ours
  const distances = known.map(option => editDistance(name.toLowerCase(), option.toLowerCase()))
  const least = Math.min(...distances)
  return least > Math.max(2, name.length / 2) ? undefined : known[distances.indexOf(least)]
}

/** Levenshtein's distance, one row at a time. */
function editDistance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, column) => column)
  for (const [i, letter] of [...a].entries()) {
    const next = [i + 1]
    for (const [j, other] of [...b].entries())
      next.push(
        Math.min(
          (row[j] as number) + (letter === other ? 0 : 1),
          (row[j + 1] as number) + 1,
          (next[j] as number) + 1,
        ),
      )
    row = next
  }
  return row.at(-1) as number
}
