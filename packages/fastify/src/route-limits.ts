import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { list, onClosing } from './context.js'
import { type Hooked, hooked, type Limiting } from './limiting.js'
import type { HOOKS, RateLimitOptions } from './options.js'

type Hook = (typeof HOOKS)[number]

/** Marks the config of a route whose own limit is one of its hooks. */
const LIMITED = Symbol('limited')

/**
 * Adds a hook to each route that has a limit of its own. Returns a hook for routes that were declared before the plugin was
 * loaded, because the app did not await `register`.
 */
export function limitByRoute(app: FastifyInstance) {
  const known = new WeakMap<object, Map<string, Limiting & Hooked>>()
  const made = new Set<Limiting>()
  onClosing(app, () => {
    for (const { close } of made) close()
  })
  let anyEarlyPreHandler = false

  /** One limit for each route, even if routes share an options object. A HEAD route shares that of its GET route. */
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
    // Before the route's other hooks, or after those that identify the user.
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
