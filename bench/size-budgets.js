const CORE = ['@sluice/core']

/**
 * The largest allowed size of each entry point, minified and gzipped. Each is measured separately with its imports.
 *
 * @type {readonly { name: string, contents: string, external?: readonly string[], bytes: number }[]}
 */
export const BUDGETS = [
  {
    name: 'createLimiter + tokenBucket',
    contents: "export { createLimiter, tokenBucket } from '@sluice/core'",
    bytes: 11_500,
  },
  { name: 'tokenBucket alone', contents: "export { tokenBucket } from '@sluice/core'", bytes: 3500 },
  { name: 'memoryStore alone', contents: "export { memoryStore } from '@sluice/core'", bytes: 5500 },
  { name: '@sluice/core, everything', contents: "export * from '@sluice/core'", bytes: 23_000 },
  {
    name: 'rateLimit of @sluice/express, core included',
    contents: "export { rateLimit } from '@sluice/express'",
    bytes: 24_000,
  },
  ...['express', 'koa', 'fastify'].map(name => ({
    name: `@sluice/${name}, without core`,
    contents: `export * from '@sluice/${name}'`,
    external: CORE,
    bytes: 2000,
  })),
  {
    name: '@sluice/redis, without core',
    contents: "export * from '@sluice/redis'",
    external: CORE,
    bytes: 16_000,
  },
]
