import type { Decision, Limiter } from '@sluice/core'
import { coded } from '@sluice/core/http'
import type { FastifyInstance, FastifyPluginCallback } from 'fastify'
import fastifyPlugin from 'fastify-plugin'
import { decorate, list, onClosing } from './context.js'
import { type Hooked, hooked } from './limiting.js'
import { HOOKS, type RateLimitOptions, type RouteLimitOptions } from './options.js'
import type { RouteLimit } from './route.js'
import { limitByRoute } from './route-limits.js'

export type { Ending, Refusal, RefusedError } from '@sluice/core/http'
export type { RateLimitOptions, RouteLimitOptions } from './options.js'
export { limitRoute, type RouteLimit } from './route.js'

declare module 'fastify' {
  interface FastifyInstance {
    /** Makes the limit of a route, for use as a hook or around a handler; see `limitRoute`. */
    rateLimit(options: RouteLimitOptions): RouteLimit
    /**
     * The limiters of the outermost context with a limit and of all contexts inside it, by name, for example to reset or
     * unblock a key. Limiters that a function chooses for each request are not included. If two have the same name, the
     * second one has `-2` appended.
     */
    readonly limiters: ReadonlyMap<string, Limiter>
  }
  interface FastifyRequest {
    /** The decision about this request, of the last limit if there are several; undefined if it was not limited. */
    rateLimit?: Decision | undefined
  }
  interface FastifyContextConfig {
    /** A limit for this route alone, which replaces those of its context; false for no limit. */
    rateLimit?: RateLimitOptions | false | undefined
  }
}

/**
 * Plugin that limits requests to every route of its context, and of contexts that are registered in it later, including
 * requests that match no route, on Fastify 5. Registering it again, in the same context or in one inside, adds a limit.
 *
 * Takes `{ limit, window }` (`limit` requests at once per client, then one every `window / limit`), `{ limiter }` or
 * `{ policies }`. A request within the limit continues, with `request.rateLimit` and the RateLimit header fields set. A
 * request over the limit gets status 429, Retry-After and a problem+json body, or the response of `onRefused`. Errors of
 * callbacks go to the error handler.
 *
 * A route's `config: { rateLimit: options }` replaces the limits of its context with a limit that counts this route alone
 * and inherits no option; `config: { rateLimit: false }` removes them.
 *
 * For an option that is unknown, of the wrong type or out of range, `register` rejects with a TypeError or RangeError that
 * has `code` and `option`; declaring a route with such an option throws it.
 *
 * @example
 * await app.register(rateLimit, { limit: 100, window: '1m' })
 * app.post('/login', { config: { rateLimit: { limit: 5, window: '15m', name: 'login' } } }, login)
 */
export const rateLimit: FastifyPluginCallback<RateLimitOptions> = fastifyPlugin(
  (app: FastifyInstance, options: RateLimitOptions, done: (error?: Error) => void) => {
    if (typeof app?.addHook !== 'function') throw notRegistered()
    try {
      limitContext(app, options)
    } catch (error) {
      // A thrown error would end the process.
      return done(error as Error)
    }
    done()
  },
  { name: '@sluice/fastify', fastify: '5.x' },
)

export default rateLimit

/** Adds a limit to a context, and lets its routes have limits of their own. */
function limitContext(app: FastifyInstance, options: RateLimitOptions): void {
  const { hook, limit, limiters, close } = hooked(options)
  onClosing(app, close)
  // A context inside a limited one inherits the decorators and the limits of routes.
  const isFirst = !app.hasRequestDecorator('rateLimit')
  if (isFirst) decorate(app)
  const early = isFirst ? limitByRoute(app) : undefined
  list(app, limiters)

  app.addHook(hook, (request, reply, next) => {
    const { config } = request.routeOptions
    if (config.rateLimit === undefined) limit(request, reply, next)
    else if (early !== undefined) early(hook, request, reply, next)
    else next()
  })
  if (early === undefined) return
  for (const other of HOOKS as readonly Hooked['hook'][])
    if (other !== hook) app.addHook(other, (request, reply, next) => early(other, request, reply, next))
}

function notRegistered(): Error {
  return coded(
    new TypeError(
      'rateLimit: this is a plugin, not a hook. Call await app.register(rateLimit, { limit, window }), or limit one route by ' +
        'config.rateLimit, app.rateLimit(options) or limitRoute(options)',
    ),
    'SLUICE_NOT_REGISTERED',
    'rateLimit',
  )
}
