// What a bundler makes of it, minified and gzipped.
import { gzipSync } from 'node:zlib'
import { build } from 'esbuild'
import { table } from './rounds.js'

table([
  ['size', 'min B', 'gzip B', 'goal'],
  await measure(
    'createLimiter + tokenBucket',
    "export { createLimiter, tokenBucket } from '@sluice/core'",
    '< 4000',
  ),
  await measure('@sluice/core, all of it', "export * from '@sluice/core'", '< 12000'),
  await adapter('express'),
  await adapter('koa'),
  await adapter('fastify'),
])

/** @param {string} name */
function adapter(name) {
  return measure(`@sluice/${name}, without core`, `export * from '@sluice/${name}'`, '< 2000', [
    '@sluice/core',
  ])
}

/**
 * @param {string} name
 * @param {string} contents
 * @param {string} goal
 * @param {string[]} external
 */
async function measure(name, contents, goal, external = []) {
  const { outputFiles } = await build({
    stdin: { contents, resolveDir: import.meta.dirname },
    bundle: true,
    minify: true,
    write: false,
    format: 'esm',
    platform: 'node',
    conditions: ['built'],
    external: [...external, 'express', 'koa', 'fastify', 'fastify-plugin'],
  })
  const code = outputFiles[0]?.contents ?? new Uint8Array()
  return [name, code.length, gzipSync(code).length, goal]
}
