import type { HttpOptions } from '@sluice/core/http'
import type { FastifyReply, FastifyRequest } from 'fastify'

/** Options of `limitRoute` and `app.rateLimit`. */
export type RouteLimitOptions = HttpOptions<[request: FastifyRequest, reply: FastifyReply]>

/** Options of `rateLimit` on Fastify, and of a route's `config.rateLimit`. */
export type RateLimitOptions = RouteLimitOptions & {
  /**
   * When to decide: `'onRequest'`, the default, before the body is read, or `'preHandler'`, after it, for keys that an
   * earlier hook sets, such as `request.user`.
   */
  readonly hook?: 'onRequest' | 'preHandler' | undefined
}

/** The values of the `hook` option. */
export const HOOKS = ['onRequest', 'preHandler'] as const
