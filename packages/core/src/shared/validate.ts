import { coded, invalid, invalidPrivately, type SluiceErrorCode } from './errors.js'

/**
 * Checks that `options` is an object whose every property is one of `known`. Without this check a misspelt option would
 * be a limit that silently does not apply. `foreign` maps the names of other libraries to ours, for the error's hint.
 */
export function checkOptions(
  owner: string,
  options: unknown,
  known: readonly string[],
  foreign: Readonly<Record<string, string>> = COMMON_NAMES,
): void {
  if (!isRecord(options)) throw invalid(TypeError, `${owner} options`, 'an object', options)
  for (const name of Object.keys(options)) {
    if (known.includes(name)) continue
    const translated = foreign[name] as string
    const nearest = known.includes(translated) ? translated : nearestOf(name, known)
    const hint = nearest === undefined ? `the options are ${known.join(', ')}` : `did you mean '${nearest}'?`
    throw coded(
      new TypeError(`${owner}: unknown option ${JSON.stringify(name)}; ${hint}`),
      'SLUICE_UNKNOWN_OPTION',
      name,
    )
  }
}

/** Whether a value is an object that is not an array. */
export function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

const COMMON_NAMES = { max: 'limit' }

/** The known name that shares the most pairs of neighbouring letters with `name`; undefined if all share few. */
function nearestOf(name: string, known: readonly string[]): string | undefined {
  const pairs = pairsOf(name)
  const likenessTo = (option: string) => {
    const others = pairsOf(option)
    return others.filter(pair => pairs.includes(pair)).length / Math.max(pairs.length, others.length)
  }
  const likeness = known.map(likenessTo)
  const most = Math.max(...likeness)
  return most < 0.4 ? undefined : known[likeness.indexOf(most)]
}

function pairsOf(name: string): string[] {
  return Array.from(` ${name.toLowerCase()}`, (letter, index) => letter + name.charAt(index).toLowerCase())
}

/** A key: any string but the empty one. */
export function checkKey(key: unknown): void {
  if (typeof key !== 'string' || key === '')
    throw invalidPrivately(TypeError, 'key', 'a non-empty string', key, 'SLUICE_INVALID_KEY')
}

/** What a call costs: a whole number of permits, 0 included. */
export function checkCost(cost: unknown): number {
  return wholeNumber('cost', cost, 'SLUICE_INVALID_COST')
}

/** A whole number from 0 to 2^53 - 1. */
export function wholeNumber(option: string, value: unknown, code?: SluiceErrorCode): number {
  if (Number.isSafeInteger(value) && (value as number) >= 0) return value as number
  throw invalid(
    typeof value === 'number' ? RangeError : TypeError,
    option,
    'a whole number from 0 to 2^53 - 1',
    value,
    code,
  )
}

/** The name of a policy, which becomes a quoted string in a header. */
export function policyName(option: string, value: unknown): string {
  if (typeof value !== 'string') throw invalid(TypeError, option, 'a string', value)
  if (!/^[\x20-\x7e]{1,64}$/.test(value))
    throw invalid(RangeError, option, '1 to 64 printable ASCII characters', value)
  return value
}

/** Checks that a value is an object with a method of this name. */
export function having(method: string, option: string, value: unknown, expected: string): void {
  const candidate = value as Record<string, unknown> | null | undefined
  if (typeof candidate?.[method] !== 'function') throw invalid(TypeError, option, expected, value)
}

/** Checks that a value is a function. */
export function callable(option: string, value: unknown): void {
  if (typeof value !== 'function') throw invalid(TypeError, option, 'a function', value)
}
