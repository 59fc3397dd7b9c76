import { gzipSync } from 'node:zlib'
import { build } from 'esbuild'

/**
 * Bundles an entry point as a user's bundler would, into one minified file.
 *
 * @param {string} contents the module to bundle
 * @param {{ platform?: 'node' | 'browser', external?: readonly string[], format?: 'esm' | 'iife' }} [options]
 */
export async function bundle(contents, { platform = 'node', external = [], format = 'esm' } = {}) {
  const { outputFiles } = await build({
    stdin: { contents, resolveDir: import.meta.dirname },
    bundle: true,
    minify: true,
    write: false,
    format,
    ...(format === 'iife' ? { globalName: 'bundled' } : {}),
    platform,
    external: [...external, 'express', 'koa', 'fastify', 'fastify-plugin'],
    logLevel: 'silent',
  })
  return outputFiles[0]?.text ?? ''
}

/** @param {string} code */
export function gzipBytes(code) {
  return gzipSync(code).length
}
