import { builtin } from '../../shared/node-module.js'

/*
 * A key as the store holds it: a flat copy of at most 128 bytes. A key is often cut out of a longer string, and V8 would
 * keep the whole string alive for as long as a piece of it is in a Map. A longer key is replaced by its hash, or kept as
 * it is where node:crypto is missing.
 */

/** What a key is looked up as: the key itself, or its hash if it has more than 128 bytes of UTF-8. */
export function storedKeyOf(key: string): string {
  return key.length <= SURELY_SHORT ? key : storedKeyOfLong(key)
}

/** A copy that shares no memory with the string it was cut from. Lossless, lone surrogates included. */
export function flatCopy(key: string): string {
  return key.length < SHORTEST_SLICE ? key : JSON.parse(JSON.stringify(key))
}

const MAX_BYTES = 128
/** A UTF-16 code unit is at most three bytes of UTF-8. */
const SURELY_SHORT = Math.floor(MAX_BYTES / 3)
/** V8 itself copies shorter substrings. */
const SHORTEST_SLICE = 13
/**
 * A hash begins with NUL and has more than SURELY_SHORT characters. A key that looks like that is hashed too, so that no
 * key equals the hash of another.
 */
const HASH_MARK = '\0'

const bytes = /* @__PURE__ */ new Uint8Array(MAX_BYTES)
const utf8 = /* @__PURE__ */ new TextEncoder()

function storedKeyOfLong(key: string): string {
  const isLong = key.length > MAX_BYTES || utf8.encodeInto(key, bytes).read < key.length
  return isLong || key.startsWith(HASH_MARK) ? hashOf(key) : key
}

/** The part of node:crypto that is used here. */
interface Crypto {
  createHash(algorithm: 'sha256'): {
    update(text: string, encoding: 'utf16le'): { digest(encoding: 'base64url'): string }
  }
}

function hashOf(key: string): string {
  const crypto = builtin<Crypto>('node:crypto')
  // UTF-16, because UTF-8 would make all lone surrogates one.
  return crypto ? HASH_MARK + crypto.createHash('sha256').update(key, 'utf16le').digest('base64url') : key
}
