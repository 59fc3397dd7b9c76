/**
 * The codes of the errors that Sluice throws. Messages may improve between versions; codes do not change. Options are
 * checked at construction. Keys, costs and limiters that a callback returns are checked on each request.
 */
export type SluiceErrorCode =
  | 'SLUICE_CLOSED'
  | 'SLUICE_INVALID_OPTION'
  | 'SLUICE_UNKNOWN_OPTION'
  | 'SLUICE_INVALID_KEY'
  | 'SLUICE_INVALID_COST'
  | 'SLUICE_INVALID_LIMITER'
  | 'SLUICE_INVALID_BODY'
  | 'SLUICE_NAME_TAKEN'
  | 'SLUICE_STORE_ERROR'
  | 'SLUICE_CALLBACK_FAILED'
  | 'SLUICE_NOT_BOOKABLE'
  | 'SLUICE_NOT_REGISTERED'
  | 'SLUICE_NO_CLIENT_ADDRESS'
  | 'SLUICE_RATE_LIMITED'

/** The properties of every error of Sluice. */
export interface SluiceError extends Error {
  readonly code: SluiceErrorCode
  /** The option, argument or callback at fault, as the caller spells it. */
  readonly option: string
}

type ErrorClass = new (message: string) => Error

/**
 * An error such as `window: expected a duration, got true`. Use a TypeError for a wrong type, a RangeError for a wrong
 * value.
 */
export function invalid(
  ErrorType: ErrorClass,
  option: string,
  expected: string,
  got: unknown,
  code: SluiceErrorCode = 'SLUICE_INVALID_OPTION',
): SluiceError {
  return coded(new ErrorType(`${option}: expected ${expected}, got ${describe(got)}`), code, option)
}

/** Like `invalid`, for values that may hold personal data: the message has the type of the value, never the value. */
export function invalidPrivately(
  ErrorType: ErrorClass,
  option: string,
  expected: string,
  got: unknown,
  code: SluiceErrorCode,
): SluiceError {
  return coded(new ErrorType(`${option}: expected ${expected}, got ${kindOf(got)}`), code, option)
}

/** Gives an error its code, and the option or argument at fault. */
export function coded(error: Error, code: SluiceErrorCode, option: string): SluiceError {
  return Object.assign(error, { code, option })
}

function describe(value: unknown): string {
  if (typeof value === 'string') return `'${shortened(value)}' (a string)`
  if (typeof value === 'bigint') return `${value}n (a bigint)`
  if (typeof value === 'number' || typeof value === 'boolean') return String(value)
  return kindOf(value)
}

function kindOf(value: unknown): string {
  if (value === null || value === undefined) return String(value)
  if (value === '') return 'an empty string'
  if (Array.isArray(value)) return 'an array'
  if (typeof value === 'number' && !Number.isFinite(value)) return String(value)
  return `${typeof value === 'object' ? 'an' : 'a'} ${typeof value}`
}

function shortened(text: string): string {
  const printable = JSON.stringify(text).slice(1, -1)
  return printable.length > 40 ? `${printable.slice(0, 40)}...` : printable
}
