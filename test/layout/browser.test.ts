import { createContext, runInContext } from 'node:vm'
import { expect, test } from 'vitest'
import { bundle } from '../../bench/bundle.js'

const ENTRY = "export { createLimiter, memoryStore, tokenBucket } from '@sluice/core'"

test('a limiter is bundled for a browser and makes a decision there, without any module of Node', async () => {
  const code = await bundle(ENTRY, { platform: 'browser', format: 'iife' })
  expect(code).not.toMatch(/require\(|from ?["']node:/)

  // What browsers and workers have, and nothing of Node.
  const browser = createContext({ performance, setTimeout, clearTimeout, queueMicrotask, TextEncoder })
  runInContext(code, browser)
  const answers = runInContext(
    `const { createLimiter, memoryStore, tokenBucket } = bundled
    const limiter = createLimiter(tokenBucket({ limit: 1, window: '1h' }), { store: memoryStore() })
    const long = 'k'.repeat(1000)
    JSON.stringify(['ann', 'ann', 'bob', long, long].map(key => limiter.tryAcquire(key).allowed))`,
    browser,
  )
  expect(JSON.parse(answers)).toEqual([true, false, true, true, false])
})
