import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { run } from '../support/process.js'

const TEST = join(import.meta.dirname, '..')

/** The folder for temporary modules, from where they can import the packages of the tests. */
let files: string
beforeAll(async () => {
  files = await mkdtemp(join(TEST, 'node_modules/.warnings-'))
})
afterAll(() => rm(files, { recursive: true }))

const LIMITERS = `
  import { createLimiter, createRegistry, memoryStore, tokenBucket, unlimited } from '@sluice/core'
  import { manualClock } from '@sluice/core/testing'
  import { asynchronous } from './support/async-store.ts'
  process.on('warning', ({ name, code }) => { if (name === 'SluiceWarning') console.log(code) })
  const bucket = tokenBucket({ limit: 10, window: '1m' })
  const clock = manualClock()
`

/** Runs a module in its own process, and returns the codes of its Sluice warnings. */
async function warningsOf(code: string): Promise<string[]> {
  const output = await run(
    'node',
    ['--import', 'tsx', '--input-type=module', '--eval', LIMITERS + code],
    TEST,
  )
  return output.split('\n').slice(0, -1)
}

test('a warning is a process warning whose message says what to do', async () => {
  const output = await run(
    'node',
    [
      ...['--import', 'tsx', '--input-type=module', '--eval'],
      `import { createLimiter, memoryStore, tokenBucket } from '@sluice/core'
      process.on('warning', ({ name, message }) => console.log(name + ': ' + message))
      const store = memoryStore({ maxKeys: 1 })
      const limiter = createLimiter(tokenBucket({ limit: 10, window: '1m' }), { store })
      for (const key of ['ann', 'bob']) limiter.tryAcquire(key)`,
    ],
    TEST,
  )
  expect(output).toMatch(/^SluiceWarning: .*maxKeys 1.*Raise maxKeys/)
  expect(output).not.toMatch(/ann|bob/)
})

describe('SLUICE_FORGOT_KEY', () => {
  const FULL = `
    const limiter = createLimiter(bucket, { clock, store: memoryStore({ maxKeys: 3 }) })
    for (const key of ['ann', 'bob', 'cem']) limiter.tryAcquire(key)
  `

  test('is given once when keys are forgotten before they are full again', async () => {
    const warnings = await warningsOf(`${FULL}
      for (const key of ['dan', 'eve', 'fay']) limiter.tryAcquire(key)
      const another = createLimiter(bucket, { clock, store: memoryStore({ maxKeys: 1 }) })
      for (const key of ['ann', 'bob']) another.tryAcquire(key)`)
    expect(warnings).toEqual(['SLUICE_FORGOT_KEY'])
  })

  test('is not given while the store has room', async () => {
    expect(await warningsOf(`${FULL} limiter.peek('dan'); limiter.tryAcquire('ann')`)).toEqual([])
  })

  test('is not given for keys that are full again', async () => {
    expect(await warningsOf(`${FULL} clock.advance('1m'); limiter.tryAcquire('dan')`)).toEqual([])
  })
})

describe('SLUICE_MEMORY_IN_CLUSTER', () => {
  /** Runs a module in one worker of a cluster, and returns the codes of its Sluice warnings. */
  async function warningsInWorker(name: string, code: string): Promise<string[]> {
    const file = join(files, `${name}.mjs`)
    const module = LIMITERS.replace('./support', join(TEST, 'support'))
    await writeFile(
      file,
      `import cluster from 'node:cluster'
      ${module}
      if (cluster.isPrimary) {
        createLimiter(bucket)
        cluster.fork().on('exit', code => { process.exitCode = code })
      } else {
        ${code}
        setImmediate(() => cluster.worker.disconnect())
      }`,
    )
    return (await run('node', ['--import', 'tsx', file], TEST)).split('\n').slice(0, -1)
  }

  test('is given once in a cluster worker, and not in the primary process', async () => {
    const warnings = await warningsInWorker(
      'memory',
      `createLimiter(bucket).tryAcquire('ann')
      createLimiter(bucket, { store: memoryStore() })`,
    )
    expect(warnings).toEqual(['SLUICE_MEMORY_IN_CLUSTER'])
  })

  test('is not given for limiters on a shared store', async () => {
    const warnings = await warningsInWorker(
      'shared',
      `createLimiter(bucket, { store: asynchronous({ async: false, open: () => ({}) }) })`,
    )
    expect(warnings).toEqual([])
  })

  test('is not given for a registry on a shared store', async () => {
    const warnings = await warningsInWorker(
      'registry',
      `createRegistry({ store: asynchronous({ async: false, open: () => ({}) }) }).get('search', bucket)`,
    )
    expect(warnings).toEqual([])
  })
})

describe('SLUICE_MADE_PER_REQUEST, for a limiter function', () => {
  const ASK = `
    import fastify from 'fastify'
    import { rateLimit } from '@sluice/fastify'
    /** Sends requests to an app that uses a number of limiters in turn. */
    async function ask(requests, choices, answer = limiter => limiter) {
      const limiters = Array.from({ length: choices }, () => createLimiter(bucket))
      let asked = 0
      const app = fastify()
      await app.register(rateLimit, { limiter: () => answer(limiters[asked++ % choices]) })
      app.get('/', () => 'ok')
      for (let request = 0; request < requests; request++) await app.inject('/')
    }
  `

  test('is given once when it has returned more than 1,000 limiters', async () => {
    expect(await warningsOf(`${ASK} await ask(1001, 1001)`)).toEqual(['SLUICE_MADE_PER_REQUEST'])
    expect(await warningsOf(`${ASK} await ask(1100, 1100); await ask(1100, 1100)`)).toEqual([
      'SLUICE_MADE_PER_REQUEST',
    ])
  })

  test('is given if the function returns promises', async () => {
    const warnings = await warningsOf(`${ASK} await ask(1001, 1001, async limiter => limiter)`)
    expect(warnings).toEqual(['SLUICE_MADE_PER_REQUEST'])
  })

  test('is not given for 1,000 limiters, nor for a few among many requests', async () => {
    expect(await warningsOf(`${ASK} await ask(2000, 1000); await ask(2000, 3)`)).toEqual([])
  })

  test('is not given when several functions return more than 1,000 together', async () => {
    expect(await warningsOf(`${ASK} await ask(600, 600); await ask(600, 600)`)).toEqual([])
  })
})

describe('SLUICE_MADE_PER_REQUEST, for middleware', () => {
  const EXPRESS = `
    import express from 'express'
    import { rateLimit } from '@sluice/express'
    /** Twenty requests over loopback to an app. */
    async function ask(app) {
      const server = app.get('/', (req, res) => { res.end() }).listen(0, '127.0.0.1')
      await new Promise(resolve => server.once('listening', resolve))
      for (let request = 0; request < 20; request++)
        await (await fetch('http://127.0.0.1:' + server.address().port)).text()
      server.close()
      server.closeAllConnections()
    }
    const door = { limit: 100, window: '1m' }
  `

  test('is given once when rateLimit() is called while requests run', async () => {
    const warnings = await warningsOf(`${EXPRESS}
      const app = express()
      app.use((req, res, next) => rateLimit(door)(req, res, next))
      await ask(app)`)
    expect(warnings).toEqual(['SLUICE_MADE_PER_REQUEST'])
  })

  test('is given even if the request had to wait first', async () => {
    const warnings = await warningsOf(`${EXPRESS}
      const app = express()
      app.use(async (req, res, next) => {
        await new Promise(setImmediate)
        rateLimit(door)(req, res, next)
      })
      await ask(app)`)
    expect(warnings).toEqual(['SLUICE_MADE_PER_REQUEST'])
  })

  test('is not given for middleware created before the requests', async () => {
    const warnings = await warningsOf(`${EXPRESS}
      const app = express()
      for (let mounted = 0; mounted < 20; mounted++) app.use(rateLimit(door))
      await ask(app)`)
    expect(warnings).toEqual([])
  })

  /** Creates apps and calls each at once, without a turn of the event loop in between. */
  const askAtOnce = (apps: number) => `
    import fastify from 'fastify'
    import { rateLimit } from '@sluice/fastify'
    for (let made = 0; made < ${apps}; made++) {
      const app = fastify()
      await app.register(rateLimit, { limit: 100, window: '1m' })
      app.get('/', () => 'ok')
      await app.inject('/')
      await app.close()
    }`

  test('is not given for an app that is called right after its creation', async () => {
    expect(await warningsOf(askAtOnce(1))).toEqual([])
  })

  test('is not given for many apps that are each called right after their creation, as in tests', async () => {
    expect(await warningsOf(askAtOnce(20))).toEqual([])
  })
})
