import type { Decision, Limiter } from '@sluice/core'
import { coded } from '@sluice/core/http'
import type { FastifyInstance, FastifyPluginCallback, FastifyReply, FastifyRequest } from 'fastify'
import fastifyPlugin from 'fastify-plugin'
import {
  HOOKS,
  type Hooked,
  hooked,
  type Limiting,
  limiting,
  type RateLimitOptions,
  type RouteLimitOptions,
} from './limiting.js'
import { limitOf, type RouteLimit } from './route.js'

export type { Ending, Refusal, RefusedError } from '@sluice/core/http'
export type { RateLimitOptions, RouteLimitOptions } from './limiting.js'
export { limitRoute, type RouteLimit } from './route.js'

declare module 'fastify' {
  interface FastifyInstance {
    /** Makes the limit of a route, as a hook or to be put around a handler; see `limitRoute`. */
    rateLimit(options: RouteLimitOptions): RouteLimit
    /**
     * The limiters of the outermost context with a limit and of all inside it by name, to peek, reset or unblock with; those
     * that are chosen for each request are not here. A second one of a name has `-2` appended.
     */
    readonly limiters: ReadonlyMap<string, Limiter>
  }
  interface FastifyRequest {
    /** What the limiter decided over this request, the last if there are several; undefined where none has. */
    rateLimit?: Decision | undefined
  }
  interface FastifyContextConfig {
    /** The limit of this route alone, in place of those of its context; false for no limit. */
    rateLimit?: RateLimitOptions | false | undefined
  }
}

/**
 * Plugin that limits requests to every route of the context it is registered in, and of contexts in it that are
 * registered later, 404s included, on Fastify 5. Registered again, there or in a context inside, it adds a limit.
 *
 * Takes `{ limit, window }` (that many requests at once per client, then one every window / limit) or `{ limiter }`. A
 * request within the limit goes on, with `request.rateLimit` and the RateLimit fields set; one beyond it is answered
 * with 429, Retry-After and a problem+json body, or by `onRefused`. Errors of callbacks go to the error handler.
 *
 * A route's `config: { rateLimit: options }` replaces the limits of its context by one of its own, which counts by
 * itself and inherits no option; `config: { rateLimit: false }` switches them off.
 *
 * Throws a TypeError or RangeError (with `code` and `option`) for options that are unknown, of a wrong type or out of
 * range: `register` rejects, and a route with a bad limit of its own throws where it is declared.
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
      // Thrown, it would end the process.
      return done(error as Error)
    }
    done()
  },
  { name: '@sluice/fastify', fastify: '5.x' },
)

export default rateLimit

/** Gives a context its limit, and its routes those of their own. */
function limitContext(app: FastifyInstance, options: RateLimitOptions): void {
  const { hook, limit, limiters, close } = hooked(options)
  onClosing(app, close)
  // A context inside one that is limited has inherited the rest.
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

function decorate(app: FastifyInstance): void {
  app.decorateRequest('rateLimit', undefined)
  app.decorate('limiters', new Map<string, Limiter>())
  app.decorate('rateLimit', function (this: FastifyInstance, options: RouteLimitOptions) {
    const limit = limiting(options)
    onClosing(this, limit.close)
    list(this, limit.limiters)
    return limitOf(limit)
  })
}

/** Adds limiters to those that a context shows. */
function list({ limiters }: FastifyInstance, added: readonly Limiter[]): void {
  for (const limiter of added) {
    let name = limiter.name
    for (let number = 2; limiters.has(name) && limiters.get(name) !== limiter; number++)
      name = `${limiter.name}-${number}`
    const listed = limiters as Map<string, Limiter>
    listed.set(name, limiter)
  }
}

function notRegistered(): Error {
  return coded(
    new TypeError(
      'rateLimit: a plugin, not a hook: await app.register(rateLimit, { limit, window }) first, and limit a route by ' +
        'its config.rateLimit, or with app.rateLimit(options) or limitRoute(options)',
    ),
    'SLUICE_NOT_REGISTERED',
    'rateLimit',
  )
}

/** Ends what a limit holds when the server begins to close. */
function onClosing(app: FastifyInstance, close: () => void): void {
  app.addHook('preClose', done => {
    close()
    done()
  })
}

type Hook = (typeof HOOKS)[number]

/** In the config of a route that has its own limit among its hooks. */
const LIMITED = Symbol('limited')

/**
 * Gives routes the limits of their own. The answer is a hook for those that were declared before the plugin was loaded, as
 * they are when nobody awaits it.
 */
function limitByRoute(app: FastifyInstance) {
  const known = new WeakMap<object, Map<string, Limiting & Hooked>>()
  const made = new Set<Limiting>()
  onClosing(app, () => {
    for (const { close } of made) close()
  })
  let anyEarlyPreHandler = false

  /** One for each route, also where routes share the options; HEAD counts with the GET it comes from. */
  function own(options: RateLimitOptions, method: unknown, url = ''): Limiting & Hooked {
    const route = `${method === 'HEAD' ? 'GET' : method} ${url.replace(/\/$/, '')}`
    const limits = known.get(options) ?? new Map<string, Limiting & Hooked>()
    const found = limits.get(route) ?? hooked(options)
    if (!made.has(found)) list(app, found.limiters)
    made.add(found)
    known.set(options, limits.set(route, found))
    return found
  }

  app.addHook('onRoute', route => {
    const options = route.config?.rateLimit
    if (options === undefined || options === false) return
    const { hook, limit } = own(options, route.method, route.url)
    const others = [route[hook] ?? []].flat()
    // Before the route does any work, or when it has found out who the user is.
    route[hook] = options.hook === 'preHandler' ? [...others, limit] : [limit, ...others]
    route.config = Object.assign({}, route.config, { [LIMITED]: true })
  })

  return (at: Hook, request: FastifyRequest, reply: FastifyReply, next: (error?: Error) => void): void => {
    const limiting = at === 'preHandler' && !anyEarlyPreHandler ? undefined : earlyLimit(at, request)
    if (limiting === undefined) next()
    else limiting.limit(request, reply, next)
  }

  function earlyLimit(at: Hook, request: FastifyRequest): (Limiting & Hooked) | undefined {
    const { config, method, url } = request.routeOptions
    const { rateLimit: options } = config
    if (options === undefined || options === false || LIMITED in config) return undefined
    const early = own(options, method, url)
    if ((early.hook as Hook) === 'preHandler') anyEarlyPreHandler = true
    return early.hook === at ? early : undefined
  }
}
