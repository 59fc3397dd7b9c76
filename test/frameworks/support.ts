import { createServer, type RequestListener } from 'node:http'
import { runInThisContext } from 'node:vm'
import { createLimiter, memoryStore, tokenBucket } from '@sluice/core'
import type * as onNode from '@sluice/core/http'
import type * as onExpress from '@sluice/express'
import type * as onFastify from '@sluice/fastify'
import type * as onKoa from '@sluice/koa'
import request from 'supertest'
import typescript from 'typescript5'
import { vi } from 'vitest'
import { asynchronous } from '../support/async-store.js'
import { clock, listening } from '../support/each-test.js'

/*
 * What the suites of the frameworks share: limits with options that fit all of them, and handlers to put limits around.
 */

/** Options that fit every framework. */
export type Options = onExpress.RateLimitOptions &
  onKoa.RateLimitOptions &
  onFastify.RouteLimitOptions &
  onNode.NodeOptions

/** So many requests a minute, on the clock of the test. */
export const limit = (limit: number, options: object = {}): Options =>
  ({ limit, window: '1m', clock, ...options }) as Options

export const limiterOf = (limit: number, name?: string) =>
  createLimiter(tokenBucket({ limit, window: '1m' }), { clock, name })

/** Waits for what sockets do on their own; the clock stands still meanwhile. */
export const until = (expectation: () => void) => vi.waitFor(expectation, { timeout: 4000, interval: 5 })

export type Handler = (this: unknown, ...args: never[]) => unknown
export type Limiting = <H extends Handler>(handler: H, context?: ClassMethodDecoratorContext) => H

export interface Controller {
  readonly handler: Handler
  search: Handler
}

/** Decorates as tsc compiles it; vitest would leave decorators as they are, and Node does not know them. */
export const decorate: (limit: unknown) => new (handler: Handler) => Controller = runInThisContext(
  typescript.transpile(
    `(limit => class Controller {
      constructor(handler) {
        this.handler = handler
      }
      @limit
      search(...args) {
        return this.handler(...args)
      }
    })`,
    { target: typescript.ScriptTarget.ES2022 },
  ),
)

/** The same to every app, which may print it and write to it. */
export const errorOf = (message: string, properties: object = {}) =>
  Object.assign(new Error(message), { stack: message }, properties)

export function fail(...errors: unknown[]): never {
  throw errors.length > 0 ? errors[0] : errorOf('no user')
}

export const teapot = () => errorOf('a teapot', { status: 418, statusCode: 418 })

/** Limits that decide at different times, and let the request pass. */
export const guards: readonly (readonly [string, () => Options])[] = [
  ['at once', () => limit(100)],
  ['after an async key', () => limit(100, { key: async () => 'all' })],
  ['after a slow key', () => limit(100, { key: () => new Promise(known => setImmediate(known, 'all')) })],
  ['after an async store', () => limit(100, { name: 'stored', store: asynchronous(memoryStore()) })],
]

/** What an app answers. */
export async function answerOf(app: RequestListener, path = '/') {
  const url = await listening(createServer(app))
  const { status, text, headers } = await request(url).get(path).redirects(0)
  return { status, text, type: headers['content-type'], location: headers.location }
}
