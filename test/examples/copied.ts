import { cp, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, vi } from 'vitest'
import { Running, run } from '../support/process.js'

const ROOT = join(import.meta.dirname, '../..')

/**
 * Copies an example out of the workspace and installs it there as a stranger would, with the packages of this repository
 * packed as they would be published. Returns what starts its server for the time of a visit.
 */
export function copied(example: string) {
  vi.setConfig({ testTimeout: 30_000 })
  let folder: string

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), `sluice-${example}-`))
    const filter = (source: string) => !source.includes('node_modules')
    await cp(join(ROOT, 'examples', example), folder, { recursive: true, filter })
    const manifest = await readManifest(folder)
    const named = Object.keys(manifest.dependencies).filter(name => name.startsWith('@sluice/'))
    // All of them stand on core, whether an example names it or not.
    const names = new Set(['core', ...named.map(name => name.replace('@sluice/', ''))])
    const tarballs = await packed([...names])
    manifest.dependencies = { ...manifest.dependencies, ...tarballs }
    await writeFile(join(folder, 'package.json'), JSON.stringify(manifest))
    await run('npm', ['install', '--no-audit', '--no-fund', '--prefer-offline'], folder)
  }, 120_000)

  afterAll(() => rm(folder, { recursive: true, force: true }))

  async function packed(packages: readonly string[]): Promise<Record<string, string>> {
    await run('npx', ['tsc', '--build', ...packages.map(name => `packages/${name}`)], ROOT)
    const { packageManager } = await readManifest(ROOT)
    const tarballs = packages.map(async name => {
      const tarball = join(folder, `sluice-${name}.tgz`)
      await run('npx', ['--yes', packageManager, 'pack', '--out', tarball], join(ROOT, 'packages', name))
      return [`@sluice/${name}`, `file:${tarball}`]
    })
    return Object.fromEntries(await Promise.all(tarballs))
  }

  return async function withServer(visit: (url: string) => Promise<void>, env: Record<string, string> = {}) {
    const server = new Running(['server.js'], folder, { PORT: '0', ...env })
    try {
      const [, url] = (await server.printed(/^listening on (\S+)$/m)) as unknown as [string, string]
      await visit(url)
    } finally {
      await server.stop()
    }
  }
}

async function readManifest(folder: string) {
  return JSON.parse(await readFile(join(folder, 'package.json'), 'utf8'))
}
