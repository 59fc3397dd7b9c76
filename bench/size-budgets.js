const CORE = ['@sluice/core']

/**
 * What each entry point may weigh, minified and gzipped. What is not imported costs nothing, so each is measured by itself.
 * `goal` is where a larger entry point is going.
 *
 * @type {readonly { name: string, contents: string, external?: readonly string[], bytes: number, goal?: number }[]}
 */
export const BUDGETS = [
  {
    name: 'createLimiter + tokenBucket',
    contents: "export { createLimiter, tokenBucket } from '@sluice/core'",
    bytes: 11_700,
    goal: 10_000,
  },
  { name: 'tokenBucket alone', contents: "export { tokenBucket } from '@sluice/core'", bytes: 3200 },
  { name: 'memoryStore alone', contents: "export { memoryStore } from '@sluice/core'", bytes: 5300 },
  { name: '@sluice/core, everything', contents: "export * from '@sluice/core'", bytes: 21_500 },
  {
    name: 'rateLimit of @sluice/express, core included',
    contents: "export { rateLimit } from '@sluice/express'",
    bytes: 25_600,
    goal: 20_000,
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
