import { type RouteLimit as HandlerLimit, routeLimit } from '@sluice/core/http'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { type Limiting, limiting, type RouteLimitOptions } from './limiting.js'

// biome-ignore lint/suspicious/noExplicitAny: a handler of whatever route.
type Handled = [request: FastifyRequest<any>, reply: FastifyReply<any>]

/** A limit of a route: a hook for its options, or a function to be put around its handler. */
export interface RouteLimit extends HandlerLimit<Handled> {
  // biome-ignore lint/suspicious/noExplicitAny: hooks of whatever route.
  (request: FastifyRequest<any>, reply: FastifyReply<any>, next: (error?: Error) => void): void
}

/**
 * Limits one route, with the options of `rateLimit`: around a handler, before a controller's method as a standard method
 * decorator, or as a hook of the route, which decides before the body is read. Needs no plugin.
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
    typeof first === 'function' ? decorate(first as never) : limit(first as FastifyRequest, ...others)
  return hookOrHandler as RouteLimit
}
