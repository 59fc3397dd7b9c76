import { cp, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { publint } from 'publint'
import { formatMessage } from 'publint/utils'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { Running, run } from '../support/process.js'

const ROOT = join(import.meta.dirname, '../..')
/** A TypeScript that still knows every way of resolving modules. */
const TSC = createRequire(import.meta.url).resolve('typescript5/bin/tsc')
const PACKAGES = ['core', 'express', 'koa', 'fastify', 'redis']
const PEERS = ['express@5', 'koa@3', 'fastify@5', '@types/express@5', '@types/koa@3', '@types/node@20']
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
  '@sluice/core/store': ['blockedElsewhere', 'convertSince'],
  '@sluice/core/testing': ['manualClock'],
  '@sluice/express': ['limitRoute', 'rateLimit'],
  '@sluice/koa': ['limitRoute', 'rateLimit'],
  '@sluice/fastify': ['limitRoute', 'rateLimit'],
  '@sluice/redis': ['redisStore'],
}

let folder: string
const tarballs: Record<string, string> = {}

/** Packs every package as it would be published and installs the tarballs in a folder outside the workspace. */
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'sluice-packed-'))
  await run('npx', ['tsc', '--build', ...PACKAGES.map(name => `packages/${name}`)], ROOT)
  const { packageManager } = JSON.parse(await readFile(join(ROOT, 'package.json'), 'utf8'))
  for (const name of PACKAGES) {
    const tarball = join(folder, `sluice-${name}.tgz`)
    await run('npx', ['--yes', packageManager, 'pack', '--out', tarball], join(ROOT, 'packages', name))
    tarballs[`@sluice/${name}`] = `file:${tarball}`
  }
  await writeFile(join(folder, 'package.json'), JSON.stringify({ private: true, dependencies: tarballs }))
  await run('npm', ['install', '--no-audit', '--no-fund', '--prefer-offline', ...PEERS], folder)
}, 120_000)

afterAll(() => rm(folder, { recursive: true, force: true }))

describe.each(Object.entries(ENTRIES))('%s, packed and installed', (entry, names) => {
  const check = `for (const name of ${JSON.stringify(names)}) if (typeof it[name] !== 'function') throw new Error(name)`

  test('can be required', async () => {
    await run('node', ['-e', `const it = require('${entry}'); ${check}`], folder)
  })

  test('can be imported', async () => {
    await run('node', ['--input-type=module', '-e', `import * as it from '${entry}'; ${check}`], folder)
  })
})

describe.each(['express', 'koa', 'fastify'])('the adapter for %s', name => {
  const check = `if (typeof it !== 'function') throw new Error(typeof it)`

  test('is the default export too (S60, express-rate-limit/express-rate-limit#275)', async () => {
    const entry = `@sluice/${name}`
    await run('node', ['--input-type=module', '-e', `import it from '${entry}'; ${check}`], folder)
    await run('node', ['-e', `const it = require('${entry}').default; ${check}`], folder)
  })
})

describe('types', () => {
  const CONSUMER = `
    import { createLimiter, tokenBucket, type Decision, type Duration } from '@sluice/core'
    import { createGuard } from '@sluice/core/http'
    import { manualClock } from '@sluice/core/testing'
    import express, { rateLimit } from '@sluice/express'
    import { rateLimit as koa } from '@sluice/koa'
    import { rateLimit as fastify } from '@sluice/fastify'
    const window: Duration = '1m'
    const clock = manualClock()
    const decision: Decision = createLimiter(tokenBucket({ limit: 1, window }), { clock }).tryAcquire('key')
    export const used = [createGuard, express({ limit: 1, window }), rateLimit({ limit: 1, window }), koa, fastify, decision]
  `

  test.each([
    ['commonjs', 'node10', 'commonjs', []],
    ['commonjs', 'node10', 'commonjs', ['--esModuleInterop']],
    ['node16', 'node16', 'module', []],
    ['nodenext', 'nodenext', 'module', []],
    ['nodenext', 'nodenext', 'commonjs', []],
    ['esnext', 'bundler', 'module', []],
  ])(
    'resolve with module %s, moduleResolution %s, in a package of type %s %j (S61, fastify/fastify-rate-limit)',
    async (module, moduleResolution, type, flags) => {
      const project = join(folder, 'consumers', `${module}-${moduleResolution}-${type}${flags.join('')}`)
      await mkdir(project, { recursive: true })
      await writeFile(join(project, 'package.json'), JSON.stringify({ type }))
      await writeFile(join(project, 'consumer.ts'), CONSUMER)
      const options = [
        '--module',
        module,
        '--moduleResolution',
        moduleResolution,
        '--target',
        'es2022',
        ...flags,
      ]
      const strictness = ['--strict', '--noEmit', '--exactOptionalPropertyTypes', '--skipLibCheck']
      const types = ['--types', 'node', '--typeRoots', join(folder, 'node_modules/@types')]
      await run('node', [TSC, ...options, ...strictness, ...types, join(project, 'consumer.ts')], project)
    },
    60_000,
  )
})

test.each(['4', '5'])(
  'the adapter for Express installs beside Express %s without a peer conflict (S63, express-rate-limit/express-rate-limit#415)',
  async version => {
    const app = join(folder, `express-${version}`)
    await mkdir(app)
    const { '@sluice/core': core, '@sluice/express': adapter } = tarballs
    const dependencies = { '@sluice/core': core, '@sluice/express': adapter, express: `^${version}.0.0` }
    await writeFile(join(app, 'package.json'), JSON.stringify({ private: true, dependencies }))
    await run('npm', ['install', '--no-audit', '--no-fund', '--prefer-offline', '--strict-peer-deps'], app)
    const { version: installed } = JSON.parse(
      await readFile(join(app, 'node_modules/express/package.json'), 'utf8'),
    )
    expect(installed.split('.')[0]).toBe(version)
  },
  60_000,
)

describe.each(PACKAGES)('the package of %s', name => {
  test('has nothing publint objects to', async () => {
    const pkgDir = join(folder, 'node_modules/@sluice', name)
    const { messages, pkg } = await publint({ pkgDir, level: 'warning', strict: true })
    expect(messages.map(message => formatMessage(message, pkg ?? {}))).toEqual([])
  })

  test('has types that resolve', async () => {
    const tarball = join(folder, `sluice-${name}.tgz`)
    await run('npx', ['attw', tarball, '--profile', 'esm-only', '--format', 'ascii'], join(ROOT, 'test'))
  })

  test('ships no build state and names no workspace', async () => {
    const files = await run('tar', ['-tzf', join(folder, `sluice-${name}.tgz`)], folder)
    expect(files).toMatch(/package\/LICENSE/)
    expect(files).not.toMatch(/tsbuildinfo/)
    const manifest = await readFile(join(folder, 'node_modules/@sluice', name, 'package.json'), 'utf8')
    expect(manifest).not.toMatch(/workspace:|src\/index\.ts/)
  })
})

test('core has no runtime dependency', async () => {
  const manifest = JSON.parse(await readFile(join(folder, 'node_modules/@sluice/core/package.json'), 'utf8'))
  expect(manifest.dependencies ?? {}).toEqual({})
})

describe.each(['express', 'koa', 'fastify'])('examples/%s, copied out of the workspace', name => {
  let copy: string

  beforeAll(async () => {
    copy = join(folder, `example-${name}`)
    await cp(join(ROOT, 'examples', name), copy, {
      recursive: true,
      filter: source => !source.includes('node_modules'),
    })
    const manifest = JSON.parse(await readFile(join(copy, 'package.json'), 'utf8'))
    const packed = Object.entries(tarballs).filter(([dependency]) => dependency in manifest.dependencies)
    manifest.dependencies = { ...manifest.dependencies, ...Object.fromEntries(packed) }
    await writeFile(join(copy, 'package.json'), JSON.stringify(manifest))
    await run('npm', ['install', '--no-audit', '--no-fund', '--prefer-offline'], copy)
  }, 120_000)

  async function withServer(env: Record<string, string>, visit: (url: string) => Promise<void>) {
    const server = new Running(['server.js'], copy, { PORT: '0', ...env })
    try {
      const [, url] = (await server.printed(/listening on (\S+)/)) as unknown as [string, string]
      await visit(url)
    } finally {
      await server.stop()
    }
  }

  test('is short enough to copy', async () => {
    const lines = (await readFile(join(copy, 'server.js'), 'utf8')).trimEnd().split('\n')
    expect(lines.length).toBeLessThan(40)
  })

  test('limits the app: 200 with the last permit, then 429 with Retry-After', async () => {
    await withServer({ LIMIT: '1' }, async url => {
      const first = await fetch(url)
      expect([first.status, await first.text()]).toEqual([200, 'Hello\n'])
      expect(first.headers.get('RateLimit')).toMatch(/^"default";r=0;t=\d+$/)
      expect(first.headers.get('RateLimit-Policy')).toBe('"default";q=1;w=60')

      const second = await fetch(url)
      expect(second.status).toBe(429)
      expect(Number(second.headers.get('Retry-After'))).toBeGreaterThanOrEqual(1)
      expect(second.headers.get('Cache-Control')).toBe('no-store')
      expect(second.headers.get('Content-Type')).toBe('application/problem+json')
      expect(await second.json()).toMatchObject({ title: 'Quota Exceeded', 'violated-policies': ['default'] })
    })
  })

  if (name === 'express')
    test('limits a route by a limiter of its own, with a cost', async () => {
      await withServer({}, async url => {
        const search = await fetch(`${url}/search?export=1`)
        expect(await search.json()).toEqual({ found: [], remaining: 0 })
        expect((await fetch(`${url}/search`)).status).toBe(429)
      })
    })
  else
    test('holds a request until its permit is there', async () => {
      await withServer({}, async url => {
        expect(await (await fetch(`${url}/report`)).json()).toEqual({ waitedMs: 0 })
        const held = await fetch(`${url}/report`)
        expect(held.status).toBe(200)
        const { waitedMs } = (await held.json()) as { waitedMs: number }
        expect(waitedMs).toBeGreaterThan(0)
        expect(waitedMs).toBeLessThanOrEqual(2000)
      })
    })
})
