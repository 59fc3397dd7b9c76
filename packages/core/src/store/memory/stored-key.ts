import { createHash } from 'node:crypto'

/*
 * A key as the store holds it: a flat copy of at most 128 bytes. A key is often cut out of a longer text, and V8 would
 * keep that whole text alive for as long as a piece of it is in a Map; a long key is replaced by its hash.
 */

/** What a key is looked up as: itself, or its hash when it is longer than 128 bytes of UTF-8. */
export function subjectOf(key: string): string {
  return key.length <= SURELY_SHORT ? key : subjectOfLong(key)
}

/** A copy that shares no memory with the text it was cut from. Lossless, lone surrogates included. */
export function flatCopy(subject: string): string {
  return subject.length < SHORTEST_SLICE ? subject : JSON.parse(JSON.stringify(subject))
}

const MAX_BYTES = 128
/** A UTF-16 code unit is at most three bytes of UTF-8. */
const SURELY_SHORT = Math.floor(MAX_BYTES / 3)
/** V8 copies shorter substrings by itself. */
const SHORTEST_SLICE = 13
/**
 * Hashes start with NUL and are not surely short; a key like that is hashed again, so that none can be spelt like
 * another's hash.
 */
const HASH_MARK = 0

function subjectOfLong(key: string): string {
  if (Buffer.byteLength(key) <= MAX_BYTES && key.charCodeAt(0) !== HASH_MARK) return key
  // UTF-16, because UTF-8 would make all lone surrogates one.
  return `\0${createHash('sha256').update(key, 'utf16le').digest('base64url')}`
}
