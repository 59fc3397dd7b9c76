import { routeLimit } from '@sluice/core/http'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { type Limiting, limiting } from './limiting.js'
import type { RouteLimitOptions } from './options.js'

// biome-ignore lint/suspicious/noExplicitAny: a handler of any route.
type Handled = [request: FastifyRequest<any>, reply: FastifyReply<any>]

/** The limit of a route: use it as a hook of the route, or call it with the route's handler. */
export interface RouteLimit {
  // biome-ignore lint/suspicious/noExplicitAny: a handler may be a method of any class.
  <Handler extends (this: any, ...args: Handled) => unknown>(
    handler: Handler,
    context?: ClassMethodDecoratorContext,
  ): Alike<Handler>
  // biome-ignore lint/suspicious/noExplicitAny: a hook of any route.
  (request: FastifyRequest<any>, reply: FastifyReply<any>, next: (error?: Error) => void): void
}

/** The type of a handler, spelled out: Fastify takes a function that may return anything for an asynchronous hook. */
type Alike<Handler extends (...args: never) => unknown> = (
  this: ThisParameterType<Handler>,
  ...args: Parameters<Handler>
) => ReturnType<Handler>

/**
 * Limits one route, with the options of `rateLimit`. Call the result with a handler, use it as a standard decorator of a
 * method, or use it as a hook of the route, which decides before the body is read. It works without the plugin, but then
 * requests that wait for permits go on waiting when the server closes; `app.rateLimit` ends their wait.
 *
 * @example
 * app.get('/search', limitRoute({ limit: 10, window: '1m', name: 'search' })(search))
 * app.get('/items', { onRequest: limitRoute({ limit: 10, window: '1m', name: 'items' }) }, items)
 *
 * class Items {
 *   @limitRoute({ limit: 10, window: '1m', name: 'search' })
 *   async search(request: FastifyRequest, reply: FastifyReply) {}
 * }
 */
export function limitRoute(options: RouteLimitOptions): RouteLimit {
  return limitOf(limiting(options))
}

/** One function for both uses of a limit: called with a request it is a hook, otherwise it wraps a handler. */
export function limitOf({ limit, around }: Limiting): RouteLimit {
  const decorate = routeLimit<Handled>(([request, reply], handle) => around(request, reply, handle))
  const hookOrHandler = (first: unknown, ...others: [never, never]) =>
    isRequest(first) ? limit(first, ...others) : decorate(first as never, others[0])
  return hookOrHandler as RouteLimit
}

function isRequest(value: unknown): value is FastifyRequest {
  return typeof value === 'object' && value !== null && 'raw' in value
}
