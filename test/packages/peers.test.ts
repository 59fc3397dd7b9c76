import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, inject, onTestFinished, test } from 'vitest'
import { dependenciesOn, readManifest, writeManifest } from '../support/install-packages.js'
import { run } from '../support/process.js'

/*
 * Installs the published packages with npm, which checks peer dependencies. The other suites install with pnpm.
 */

const { tarballs } = inject('installed')

const APPS = [
  ['4', ['@sluice/core', '@sluice/express'], {}],
  ['5', Object.keys(tarballs), { koa: '^3.0.0', fastify: '^5.0.0' }],
] as const

test.each(APPS)(
  'npm installs the adapter for Express beside Express %s without a peer conflict (S63, express-rate-limit/express-rate-limit#415)',
  async (version, names, frameworks) => {
    const app = await mkdtemp(join(tmpdir(), `sluice-express-${version}-`))
    onTestFinished(() => rm(app, { recursive: true, force: true }))
    const packed = dependenciesOn(Object.fromEntries(names.map(name => [name, tarballs[name] as string])))
    await writeManifest(app, { ...packed, ...frameworks, express: `^${version}.0.0` })
    await run('npm', ['install', '--no-audit', '--no-fund', '--prefer-offline', '--strict-peer-deps'], app)
    expect((await readManifest(join(app, 'node_modules/express'))).version).toMatch(`${version}.`)
  },
  60_000,
)
