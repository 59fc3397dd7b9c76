import { describe, inject, test } from 'vitest'
import { run } from '../support/process.js'

/*
 * The exports of each entry of the published packages, by `require` and by `import`, each in its own process.
 */

const ENTRIES = {
  '@sluice/core': [
    'createLimiter',
    'memoryStore',
    'parseDuration',
    'RateLimitedError',
    'tokenBucket',
    'unlimited',
  ],
  '@sluice/core/http': ['createGuard', 'limitRoute', 'writeFields'],
  '@sluice/core/store': ['blockedElsewhere', 'convertSince', 'counterStore', 'guarded'],
  '@sluice/core/testing': ['algorithmContract', 'manualClock', 'storeContract'],
  '@sluice/express': ['limitRoute', 'rateLimit'],
  '@sluice/koa': ['limitRoute', 'rateLimit'],
  '@sluice/fastify': ['limitRoute', 'rateLimit'],
  '@sluice/redis': ['redisStore'],
}

const { consumer } = inject('installed')
const runScript = (script: string) => run(process.execPath, ['-e', script], consumer)
const runModule = (script: string) => run(process.execPath, ['--input-type=module', '-e', script], consumer)

describe.each(Object.entries(ENTRIES))('the published %s', (entry, names) => {
  const check = `for (const name of ${JSON.stringify(names)}) if (typeof it[name] !== 'function') throw new Error(name)`

  test('can be required', async () => {
    await runScript(`const it = require('${entry}'); ${check}`)
  })

  test('can be imported', async () => {
    await runModule(`import * as it from '${entry}'; ${check}`)
  })
})

describe.each(['express', 'koa', 'fastify'])('the adapter for %s', name => {
  const check = `if (typeof it !== 'function') throw new Error(typeof it)`

  test('is also the default export (S60, express-rate-limit/express-rate-limit#275)', async () => {
    const entry = `@sluice/${name}`
    await runModule(`import it from '${entry}'; ${check}`)
    await runScript(`const it = require('${entry}').default; ${check}`)
  })
})
