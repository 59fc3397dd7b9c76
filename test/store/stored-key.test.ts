import { createHash } from 'node:crypto'
import fc from 'fast-check'
import { afterEach, describe, expect, test, vi } from 'vitest'
import { storedKeyOf } from '../../packages/core/src/store/memory/stored-key.js'

afterEach(() => {
  vi.restoreAllMocks()
})

const keys = fc.oneof(
  fc.string({ maxLength: 200, unit: 'binary', size: 'max' }),
  fc
    .array(fc.constantFrom('a', 'é', '€', '😀', '\ud800', '\udc00'), { maxLength: 200, size: 'max' })
    .map(list => list.join('')),
)

describe('a key is stored', () => {
  test('unchanged up to 128 bytes of UTF-8, and as its SHA-256 hash above', () => {
    const lengths = { short: 0, long: 0 }
    fc.assert(
      fc.property(keys, key => {
        const isLong = Buffer.byteLength(key) > 128
        lengths[isLong ? 'long' : 'short']++
        const hash = `\0${createHash('sha256').update(key, 'utf16le').digest('base64url')}`
        const looksLikeHash = key.startsWith('\0') && key.length > 42
        expect(storedKeyOf(key)).toBe(isLong || looksLikeHash ? hash : key)
      }),
      { numRuns: 2000 },
    )
    const runs = lengths.short + lengths.long
    expect(Math.min(lengths.short, lengths.long)).toBeGreaterThan(runs / 10)
  })

  test('differently from the hash of a long key', () => {
    const hash = storedKeyOf('x'.repeat(129))
    expect(storedKeyOf(hash)).not.toBe(hash)
  })

  test('unchanged without node:crypto', () => {
    vi.spyOn(process, 'getBuiltinModule').mockReturnValue(undefined as never)
    const long = 'x'.repeat(10_000)
    for (const key of ['ann', long, `\0${'y'.repeat(43)}`]) expect(storedKeyOf(key)).toBe(key)
  })
})
