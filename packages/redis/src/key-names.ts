import { createHash } from 'node:crypto'
import { invalid } from '@sluice/core/store'

/*
 * What keys are called on the server:
 *
 *     <prefix>:{<subject>}:<name of the limiter>:<algorithm>      the state of a subject; a slidingWindow of other than 10
 *                                                                 slices ends with .<slices>, as its states differ in length
 *     <prefix>:{<subject>}:<name of the limiter>:penalty          what is held against it
 *     <prefix>:{<subject>}:<name of the limiter>:given:<id>       that a booking has been given back
 *
 * The braces make all keys of a subject lie in one slot of a cluster; those of the subject itself are escaped. A subject of
 * more than 128 bytes is replaced by its hash.
 */

/** Checks a prefix; a colon at its end is that of the format. */
export function prefixOf(prefix: unknown): string {
  if (prefix === undefined) return 'sluice:'
  if (typeof prefix !== 'string') throw invalid(TypeError, 'prefix', 'a string', prefix)
  if (!/^[A-Za-z0-9_.:-]{0,64}$/.test(prefix))
    throw invalid(RangeError, 'prefix', "at most 64 letters, digits and '_', '.', ':', '-'", prefix)
  return prefix === '' || prefix.endsWith(':') ? prefix : `${prefix}:`
}

/** A subject as it stands between the braces. */
export function escaped(subject: string): string {
  if (subject.length <= SURELY_SHORT && PLAIN.test(subject)) return subject
  if (Buffer.byteLength(subject) > MAX_BYTES || LONE_SURROGATE.test(subject)) return hashed(subject)
  return subject.replace(/[%{}]/g, letter => ESCAPES[letter] as string)
}

/** The subject of what stands between the braces; undefined for a hash, of which it is not known. */
export function unescaped(text: string): string | undefined {
  if (text.startsWith(HASH_MARK)) return undefined
  return text.replace(/%(25|7B|7D)/g, (_, code) => String.fromCharCode(Number.parseInt(code, 16)))
}

/** A text in which no letter means anything to the glob patterns of Redis. */
export function globEscaped(text: string): string {
  return text.replace(/[\\*?[\]^-]/g, '\\$&')
}

const PLAIN = /^[^%{}\u0080-\uffff]*$/
const LONE_SURROGATE = /\p{Cs}/u
const MAX_BYTES = 128
const SURELY_SHORT = 128
const ESCAPES: Readonly<Record<string, string>> = { '%': '%25', '{': '%7B', '}': '%7D' }
/** No escaped subject begins like this. */
const HASH_MARK = '%23'

function hashed(subject: string): string {
  // UTF-16, because UTF-8 would make all lone surrogates one.
  return `${HASH_MARK}${createHash('sha256').update(subject, 'utf16le').digest('base64url')}`
}
