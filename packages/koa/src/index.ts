import type { Decision } from '@sluice/core'
import {
  asError,
  createGuard,
  dropOnRedirect,
  type Host,
  type HttpOptions,
  type RouteLimit,
  routeLimit,
  writeFields,
} from '@sluice/core/http'
import type { Context, Middleware, Next, ParameterizedContext } from 'koa'
import { keepFields } from './errors.js'
import { answerWith, throwRefusal } from './refuse.js'

export type { Ending, Refusal, RefusedError } from '@sluice/core/http'

/** Options of `rateLimit` and `limitRoute` on Koa. */
export type RateLimitOptions = HttpOptions<[ctx: Context]>

declare module 'koa' {
  interface DefaultState {
    /** The limiter's decision about this request; undefined if it was not limited. */
    rateLimit?: Decision | undefined
  }
}

/**
 * Middleware that limits requests, for an app, a router or a route, on Koa 2 and 3.
 *
 * Takes `{ limit, window }` (`limit` requests at once per client, then one every `window / limit`), `{ limiter }` or
 * `{ policies }`. A request within the limit continues, with `ctx.state.rateLimit` and the RateLimit header fields set. A
 * request over the limit gets status 429, Retry-After and a problem+json body, or the response of `onRefused`. Errors of
 * callbacks are thrown, and with `throws: true` refusals too.
 *
 * Throws a TypeError or RangeError, with `code` and `option`, for an option that is unknown, of the wrong type or out of
 * range.
 *
 * @example
 * app.use(rateLimit({ limit: 100, window: '1m' }))
 * router.post('/login', rateLimit({ limit: 5, window: '15m', name: 'login' }), login)
 */
export function rateLimit(options: RateLimitOptions): Middleware {
  const guard = createGuard(options, host)
  const answer = answerWith(options.onRefused)

  return async (ctx, next) => {
    if (ctx.headerSent) return ctx.res.writableEnded ? undefined : next()
    const verdict = await failing(() => guard(ctx))
    if (verdict.outcome === 'skipped') return next()
    if (verdict.outcome === 'abandoned') return leave(ctx)

    ctx.state.rateLimit = verdict.decision
    if (ctx.headerSent) {
      // Other code began the response during an asynchronous decision: too late for header fields and for a refusal.
      if (ctx.res.writableEnded) return
      return verdict.outcome === 'allowed' ? next() : leave(ctx)
    }
    writeFields(verdict.fields, ctx.res)
    dropOnRedirect(verdict.dropsOnRedirect, ctx.res)
    try {
      if (verdict.outcome === 'allowed') return await next()
      if (options.throws) throwRefusal(ctx, verdict.refusal, verdict.fields)
      await failing(() => answer(ctx, verdict.refusal))
    } catch (error) {
      keepFields(verdict.fields, ctx.res, error)
      throw error
    }
  }
}

export default rateLimit

// biome-ignore lint/suspicious/noExplicitAny: a handler of any state, context and body.
type Handled = [ctx: ParameterizedContext<any, any, any>, next: Next]

/**
 * Limits one handler, with the options of `rateLimit`; also works as a standard decorator of a method.
 *
 * @example
 * router.get('/search', limitRoute({ limit: 10, window: '1m', name: 'search' })(ctx => { ctx.body = [] }))
 *
 * class Items {
 *   @limitRoute({ limit: 10, window: '1m', name: 'search' })
 *   search(ctx: Context) {}
 * }
 */
export function limitRoute(
  options: RateLimitOptions,
): RouteLimit<[ctx: Context, next: Next]> & RouteLimit<Handled> {
  const middleware = rateLimit(options)
  return routeLimit<Handled>(([ctx], handle) => middleware(ctx, async () => handle()))
}

const host: Host<[Context]> = {
  address: ctx => ctx.ip || undefined,
  message: ctx => ctx.req,
  response: ctx => ctx.res,
  trusts: ({ app }) => {
    if (!app.proxy) return 'nobody'
    return app.maxIpsCount > 0 ? 'some' : 'anybody'
  },
}

/** Turns a thrown value that Koa would not take for an error, such as undefined, into one. */
async function failing<T>(act: () => T | PromiseLike<T>): Promise<T> {
  try {
    return await act()
  } catch (error) {
    throw asError(error)
  }
}

/** Closes the connection of a request that cannot get a response. */
function leave(ctx: Context): void {
  if (ctx.res.writableEnded) return
  ctx.respond = false
  ctx.res.destroy()
}
