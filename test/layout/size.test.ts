import { expect, test } from 'vitest'
import { bundle, gzipBytes } from '../../bench/bundle.js'
import { BUDGETS } from '../../bench/size-budgets.js'

/** Bundlers and gzip of other versions differ by a few bytes. */
const ROOM = 1.01

test.each(BUDGETS)(
  '$name stays within its budget of $bytes bytes, gzipped',
  async ({ contents, external, bytes }) => {
    const code = await bundle(contents, external === undefined ? {} : { external })
    expect(gzipBytes(code)).toBeGreaterThan(100)
    expect(gzipBytes(code)).toBeLessThanOrEqual(bytes * ROOM)
  },
)
