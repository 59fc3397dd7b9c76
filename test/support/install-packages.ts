import { cp, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { TestProject } from 'vitest/node'
import { run } from './process.js'

/*
 * Runs once before the suites about published packages. Packs every package as for publishing, copies every example out
 * of the workspace, and installs all of it in one go. Each example gets the packages that its package.json names and no
 * others, because pnpm does not hoist them.
 */

declare module 'vitest' {
  interface ProvidedContext {
    readonly installed: Installed
  }
}

export interface Installed {
  /** A project that depends on every package, on each framework, and on their types. */
  readonly consumer: string
  /** The examples, one folder each. */
  readonly examples: string
  /** The tarball of each package, by the name of the package. */
  readonly tarballs: Readonly<Record<string, string>>
}

const ROOT = join(import.meta.dirname, '../..')

const FRAMEWORKS = {
  express: '^5.0.0',
  koa: '^3.0.0',
  fastify: '^5.0.0',
  '@types/express': '^5.0.0',
  '@types/koa': '^3.0.0',
  '@types/node': '^20.0.0',
}

export async function setup(project: TestProject): Promise<() => Promise<void>> {
  const folder = await mkdtemp(join(tmpdir(), 'sluice-installed-'))
  const remove = () => rm(folder, { recursive: true, force: true })
  try {
    project.provide('installed', await install(folder))
  } catch (error) {
    await remove()
    throw error
  }
  return remove
}

async function install(folder: string): Promise<Installed> {
  const consumer = join(folder, 'consumer')
  const examples = join(folder, 'examples')
  const { packageManager } = await readManifest(ROOT)
  const pnpm = (args: readonly string[], cwd: string) => run('npx', ['--yes', packageManager, ...args], cwd)

  await run(process.execPath, ['node_modules/typescript/bin/tsc', '--build'], ROOT)
  await pnpm(['--recursive', '--filter', './packages/*', 'pack', '--pack-destination', folder], ROOT)
  const tarballs = await tarballsIn(folder)

  await cp(join(ROOT, 'examples'), examples, {
    recursive: true,
    filter: source => !source.includes('node_modules'),
  })
  await writeManifest(consumer, { ...dependenciesOn(tarballs), ...FRAMEWORKS })
  await writeManifest(folder, {})
  // YAML is a superset of JSON.
  const workspace = { packages: ['consumer', 'examples/*'], overrides: dependenciesOn(tarballs) }
  await writeFile(join(folder, 'pnpm-workspace.yaml'), JSON.stringify(workspace))
  await pnpm(['install', '--prefer-offline', '--strict-peer-dependencies'], folder)
  return { consumer, examples, tarballs }
}

async function tarballsIn(folder: string): Promise<Record<string, string>> {
  const tarballs: Record<string, string> = {}
  for (const directory of await readdir(join(ROOT, 'packages'))) {
    const { name, version } = await readManifest(join(ROOT, 'packages', directory))
    tarballs[name] = join(folder, `${name.replace('@', '').replace('/', '-')}-${version}.tgz`)
  }
  return tarballs
}

/** Dependencies on tarballs, as a package.json names them. */
export function dependenciesOn(tarballs: Readonly<Record<string, string>>): Record<string, string> {
  return Object.fromEntries(Object.entries(tarballs).map(([name, path]) => [name, `file:${path}`]))
}

export async function readManifest(folder: string) {
  return JSON.parse(await readFile(join(folder, 'package.json'), 'utf8'))
}

export async function writeManifest(folder: string, dependencies: Record<string, string>): Promise<void> {
  await mkdir(folder, { recursive: true })
  await writeFile(join(folder, 'package.json'), JSON.stringify({ private: true, dependencies }))
}
