import { parseDictionary, parseList, serializeDictionary, serializeList } from 'structured-headers'
import { expect } from 'vitest'

/** Every field a limiter may send, by its name on the wire. */
const NAMES = [
  'RateLimit-Policy',
  'RateLimit',
  'RateLimit-Limit',
  'RateLimit-Remaining',
  'RateLimit-Reset',
  'X-RateLimit-Limit',
  'X-RateLimit-Remaining',
  'X-RateLimit-Reset',
  'Retry-After',
] as const

/** The rate-limit fields of a response and no others; each has been read back. */
export function limitsOf(response: { readonly headers: Record<string, string> }): Record<string, string> {
  const fields: Record<string, string> = {}
  for (const name of NAMES) {
    const value = response.headers[name.toLowerCase()]
    if (value !== undefined) fields[name] = value
  }
  readBack(fields)
  return fields
}

/** Reads fields back by an independent parser; what it has read must be the same text again, and every number whole. */
export function readBack(fields: Readonly<Record<string, string>>): void {
  for (const [name, value] of Object.entries(fields)) {
    if (name === 'RateLimit' && value.startsWith('limit=')) {
      expect(serializeDictionary(parseDictionary(value))).toBe(value)
      expect(value).toMatch(/^limit=\d{1,15}, remaining=\d{1,15}, reset=\d{1,10}$/)
    } else if (name === 'RateLimit' || name === 'RateLimit-Policy') {
      const members = parseList(value)
      expect(serializeList(members)).toBe(value)
      for (const member of members) expectWhole(serializeList([member]), name)
    } else {
      expect(value, name).toMatch(/^\d{1,15}$/)
    }
  }
}

/** A parser takes `5.0` for `5` and the last of two parameters of one name, so the text is looked at as well. */
function expectWhole(member: string, name: string): void {
  if (name === 'RateLimit') {
    expect(member).toMatch(/;r=\d{1,15}(;|,|$)/)
    expect(member).toMatch(/^"(?:[^"\\]|\\.)*";r=\d{1,15}(?:;t=\d{1,10})?(?:;pk=:[^:]+:)?$/)
  } else {
    expect(member).toMatch(
      /^(?:"(?:[^"\\]|\\.)*";q=\d{1,15}(?:;qu="[a-z-]+")?(?:;w=[1-9]\d{0,9})?(?:;pk=:[^:]+:)?|\d{1,15};w=[1-9]\d{0,9})$/,
    )
  }
}
