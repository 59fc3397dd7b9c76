import { type Duration, spanToUs, waitToUs } from '../shared/duration.js'
import { invalid } from '../shared/errors.js'
import { checkOptions, isRecord, wholeNumber } from '../shared/validate.js'
import type { Ladder } from '../store/store.js'
import type { BlockOptions, Exchange, Refund } from './options.js'
import type { Refunds } from './types.js'

/*
 * One checker for each option that needs more than its type. Each returns the value to work with, or throws an error that
 * names the option.
 */

/** The longest that a request may wait: it keeps a connection open, and proxies and browsers give up soon after. */
export const LONGEST_WAIT_MS = 60_000

export function checkMaxWait(duration: Duration): number {
  const ms = waitToUs('maxWait', duration) / 1000
  if (ms > LONGEST_WAIT_MS) throw invalid(RangeError, 'maxWait', 'at most 60 seconds', duration)
  return ms
}

/** The `refund` option as a function; undefined for a rule that refunds nothing. */
export function checkRefund<X extends Exchange>(refund: Refund<X>): Refunds<X> | undefined {
  if (typeof refund === 'function') return (exchange, ending) => refund(...exchange, ending)
  if (!isRecord(refund))
    throw invalid(TypeError, 'refund', 'a function, or an object such as { ifFailed: true }', refund)
  checkOptions('refund', refund, ['ifSuccessful', 'ifFailed'])
  const ifSuccessful = checkFlag('ifSuccessful', refund.ifSuccessful)
  const ifFailed = checkFlag('ifFailed', refund.ifFailed)
  if (!ifSuccessful && !ifFailed) return undefined
  return (_, { status, aborted }) => (aborted || status >= 400 ? ifFailed : ifSuccessful)
}

/** The `block` option as a ladder. */
export function checkBlock(block: BlockOptions): Ladder {
  if (!isRecord(block))
    throw invalid(TypeError, 'block', "an object such as { after: 20, for: '10m' }", block)
  checkOptions('block', block, ['after', 'for'])
  const after = wholeNumber('after', block.after)
  if (after < 1) throw invalid(RangeError, 'after', 'at least 1 refusal', after)
  const steps = Array.isArray(block.for) ? block.for : [block.for]
  if (steps.length === 0)
    throw invalid(RangeError, 'for', "a duration, or a list such as ['1m', '10m']", steps)
  return { after, stepsUs: steps.map(step => spanToUs('for', step)) }
}

export function checkStatus(status: unknown): number {
  if (status === undefined) return 429
  const code = wholeNumber('status', status)
  if (code < 400 || code > 599) throw invalid(RangeError, 'status', 'a status from 400 to 599', status)
  return code
}

export function checkIpv6Prefix(prefix: unknown): number {
  if (prefix === undefined) return 56
  const bits = wholeNumber('ipv6Prefix', prefix)
  if (bits < 32 || bits > 128) throw invalid(RangeError, 'ipv6Prefix', '32 to 128 bits', prefix)
  return bits
}

/** False by default. */
export function checkFlag(option: string, value: unknown): boolean {
  if (value === undefined) return false
  if (typeof value !== 'boolean') throw invalid(TypeError, option, 'true or false', value)
  return value
}

/** One of some strings, by default the first. */
export function checkOneOf<T extends string>(
  option: string,
  value: unknown,
  strings: readonly [T, ...T[]],
  others = '',
): T {
  if (value === undefined) return strings[0]
  if ((strings as readonly unknown[]).includes(value)) return value as T
  const listed = strings.map(string => `'${string}'`).join(', ')
  throw invalid(TypeError, option, listed + others, value)
}

/** One of some strings, or undefined for false. */
export function checkOneOfOrFalse<T extends string>(
  option: string,
  value: unknown,
  strings: readonly [T, ...T[]],
  byDefault: T | undefined,
): T | undefined {
  if (value === undefined) return byDefault
  return value === false ? undefined : checkOneOf(option, value, strings, ' or false')
}
