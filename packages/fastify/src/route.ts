import { routeLimit } from '@sluice/core/http'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { type Limiting, limiting, type RouteLimitOptions } from './limiting.js'

// biome-ignore lint/suspicious/noExplicitAny: a handler of whatever route.
type Handled = [request: FastifyRequest<any>, reply: FastifyReply<any>]

/** A limit of a route: a hook for its options, or a function to be put around its handler. */
export interface RouteLimit {
  // biome-ignore lint/suspicious/noExplicitAny: a handler may be a method of anything.
  <Handler extends (this: any, ...args: Handled) => unknown>(
    handler: Handler,
    context?: ClassMethodDecoratorContext,
  ): Alike<Handler>
  // biome-ignore lint/suspicious/noExplicitAny: hooks of whatever route.
  (request: FastifyRequest<any>, reply: FastifyReply<any>, next: (error?: Error) => void): void
}

/** Spelt out, because Fastify takes what might return anything for a hook that returns a promise. */
type Alike<Handler extends (...args: never) => unknown> = (
  this: ThisParameterType<Handler>,
  ...args: Parameters<Handler>
) => ReturnType<Handler>

/**
 * Limits one route, with the options of `rateLimit`: around a handler, before a controller's method as a standard method
 * decorator, or as a hook of the route, which decides before the body is read. Needs no plugin, and does not hear of the
 * server's end: what it holds then ends with its own wait.
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

/** Either use of a limit, told apart by what it is called with. */
export function limitOf({ limit, around }: Limiting): RouteLimit {
  const decorate = routeLimit<Handled>(([request, reply], handle) => around(request, reply, handle))
  const hookOrHandler = (first: unknown, ...others: [never, never]) =>
    isRequest(first) ? limit(first, ...others) : decorate(first as never, others[0])
  return hookOrHandler as RouteLimit
}

function isRequest(value: unknown): value is FastifyRequest {
  return typeof value === 'object' && value !== null && 'raw' in value
}
