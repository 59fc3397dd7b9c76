import { createHash } from 'node:crypto'
import { invalid } from '@sluice/core/store'

/*
 * The names of keys on the server. A subject is what the limiter was called with:
 *
 *     <prefix>:{<subject>}:<name of the limiter>:<algorithm>      the state. A slidingWindow with other than 10 slices adds
 *                                                                 .<slices>, because its states have another length
 *     <prefix>:{<subject>}:<name of the limiter>:penalty          its block, and its place on a ladder
 *     <prefix>:{<subject>}:<name of the limiter>:given:<id>       the note that a booking has been given back
 *
 * The braces put all keys of a subject into one slot of a cluster; braces of the subject itself are escaped. A subject of more
 * than 128 bytes is replaced by its hash.
 */

/** Checks a prefix, and adds a colon at its end. */
export function prefixOf(prefix: unknown): string {
  if (prefix === undefined) return 'sluice:'
  if (typeof prefix !== 'string') throw invalid(TypeError, 'prefix', 'a string', prefix)
  if (!/^[A-Za-z0-9_.:-]{0,64}$/.test(prefix))
    throw invalid(RangeError, 'prefix', "at most 64 letters, digits and '_', '.', ':', '-'", prefix)
  return prefix === '' || prefix.endsWith(':') ? prefix : `${prefix}:`
}

/** A subject as it stands between the braces. */
export function escaped(subject: string): string {
  if (subject.length <= MAX_BYTES && PLAIN.test(subject)) return subject
  if (Buffer.byteLength(subject) > MAX_BYTES || LONE_SURROGATE.test(subject)) return hashed(subject)
  return subject.replace(/[%{}]/g, letter => ESCAPES[letter] as string)
}

/** The subject of what stands between the braces; undefined for a hash. */
export function unescaped(text: string): string | undefined {
  if (text.startsWith(HASH_MARK)) return undefined
  return text.replace(/%(25|7B|7D)/g, (_, code) => String.fromCharCode(Number.parseInt(code, 16)))
}

/** A glob pattern of Redis that matches this string only. */
export function globEscaped(text: string): string {
  return text.replace(/[\\*?[\]^-]/g, '\\$&')
}

/** ASCII without characters to escape, so that its length is its bytes. */
const PLAIN = /^[^%{}\u0080-\uffff]*$/
const LONE_SURROGATE = /\p{Cs}/u
const MAX_BYTES = 128
const ESCAPES: Readonly<Record<string, string>> = { '%': '%25', '{': '%7B', '}': '%7D' }
/** No escaped subject begins like this. */
const HASH_MARK = '%23'

function hashed(subject: string): string {
  // Not UTF-8, which encodes every lone surrogate as the same three bytes.
  return `${HASH_MARK}${createHash('sha256').update(subject, 'utf16le').digest('base64url')}`
}
