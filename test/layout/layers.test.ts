import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { cycles, sourceFiles } from './imports.js'

/*
 * The folders are the architecture: a folder imports itself and what lies below it, never what lies above. The order is
 * written down here once, from the top to the bottom.
 */

const PACKAGES = join(import.meta.dirname, '../../packages')
const core = sourceFiles(join(PACKAGES, 'core/src'))

/** A layer is a folder, or files by name; files of one layer may import each other. */
const CORE_LAYERS = [
  'index.ts',
  'testing/',
  'http/index.ts',
  ['http/node.ts', 'http/middleware.ts', 'http/handler.ts'],
  'http/guard.ts',
  'http/resolve-options.ts',
  'http/response/',
  'http/lifecycle/',
  'http/request/',
  'http/',
  'limiter/',
  'store/index.ts',
  'store/counter-store.ts',
  'store/memory/',
  'store/',
  'algorithms/index.ts',
  'algorithms/',
  'shared/',
]

function layerOf(path: string): number {
  return CORE_LAYERS.findIndex(layer =>
    [layer].flat().some(name => (name.endsWith('/') ? path.startsWith(name) : path === name)),
  )
}

describe('core', () => {
  test('has no file outside the layers', () => {
    expect(core.length).toBeGreaterThan(60)
    expect(core.filter(({ path }) => layerOf(path) === -1).map(({ path }) => path)).toEqual([])
  })

  test('imports only downwards', () => {
    const upwards = core.flatMap(({ path, imports }) =>
      imports.filter(to => layerOf(to) < layerOf(path)).map(to => `${path} -> ${to}`),
    )
    expect(upwards).toEqual([])
  })

  test('needs algorithms for nothing but arithmetic: they import their own folder and shared', () => {
    const elsewhere = core
      .filter(({ path }) => path.startsWith('algorithms/'))
      .flatMap(({ path, imports }) =>
        imports.filter(to => !/^(algorithms|shared)\//.test(to)).map(to => `${path} -> ${to}`),
      )
    expect(elsewhere).toEqual([])
  })

  test('imports no module of Node and no package, so that it runs anywhere', () => {
    expect(core.flatMap(({ path, modules }) => modules.map(module => `${path} -> ${module}`))).toEqual([])
  })
})

describe.each(['core', 'redis', 'express', 'koa', 'fastify'])('%s', name => {
  test('has no import cycle, of types neither', () => {
    const files = sourceFiles(join(PACKAGES, name, 'src'))
    expect(
      files.flatMap(({ imports }) => imports).filter(to => !files.some(({ path }) => path === to)),
    ).toEqual([])
    expect(cycles(files).map(cycle => [...cycle, cycle[0]].join(' -> '))).toEqual([])
  })
})

test('the scripts of redis import only scripts', () => {
  const scripts = sourceFiles(join(PACKAGES, 'redis/src')).filter(({ path }) => path.startsWith('scripts/'))
  expect(scripts.length).toBeGreaterThan(10)
  expect(scripts.flatMap(({ imports }) => imports).filter(to => !to.startsWith('scripts/'))).toEqual([])
})
