import type { Decision } from '@sluice/core'
import {
  asError,
  createGuard,
  dropOnRedirect,
  type Field,
  FOREIGN,
  type Host,
  type HttpOptions,
  type Refusal,
  type RouteLimit,
  refusedError,
  routeLimit,
  writeFields,
} from '@sluice/core/http'
import type { Context, Middleware, Next, ParameterizedContext } from 'koa'
import { keepFields } from './errors.js'

export type { Ending, Refusal, RefusedError } from '@sluice/core/http'

/** Options of `rateLimit` and `limitRoute` on Koa. */
export type RateLimitOptions = HttpOptions<[ctx: Context]>

declare module 'koa' {
  interface DefaultState {
    /** What the limiter decided over this request; undefined where none has. */
    rateLimit?: Decision | undefined
  }
}

/**
 * Middleware that limits requests, for an app, a router or a route, on Koa 2 and 3.
 *
 * Takes `{ limit, window }` (that many requests at once per client, then one every window / limit) or `{ limiter }`. A
 * request within the limit goes on, with `ctx.state.rateLimit` and the RateLimit fields set; one beyond it is answered
 * with 429, Retry-After and a problem+json body, or by `onRefused`, or thrown. Errors of callbacks are thrown.
 *
 * Throws a TypeError or RangeError (with `code` and `option`) for options that are unknown, of a wrong type or out of
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
      // Somebody began to answer while the key was looked for: no field can be said any more, and no refusal.
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

// biome-ignore lint/suspicious/noExplicitAny: a handler of whatever state, context and body.
type Handled = [ctx: ParameterizedContext<any, any, any>, next: Next]

/**
 * Limits one handler, with the options of `rateLimit`; also as a standard method decorator on a controller's method.
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

/** As an HttpError of Koa's. */
function throwRefusal(ctx: Context, refusal: Refusal, fields: readonly Field[]): never {
  return ctx.throw(refusal.status, refusal.problem.title, { ...refusedError(refusal, fields, ctx.res) })
}

/** To Koa nothing at all, thrown by a callback, is no error. */
async function failing<T>(act: () => T | PromiseLike<T>): Promise<T> {
  try {
    return await act()
  } catch (error) {
    throw asError(error)
  }
}

/** Answers by `onRefused`, and with the problem unless that has set a body or a status, or answers past Koa. */
function answerWith(onRefused: RateLimitOptions['onRefused']) {
  return async (ctx: Context, refusal: Refusal): Promise<void> => {
    ctx.status = refusal.status
    const { body } = ctx
    try {
      await onRefused?.(ctx, refusal)
    } catch (error) {
      // A refusal whose answer fails is an error of ours, not of the client.
      ctx.status = 500
      throw error
    }
    if (ctx.body !== body || ctx.status !== refusal.status || ctx.headerSent || ctx.respond === false) return
    // An earlier middleware may have described a body of its own.
    for (const name of FOREIGN) ctx.remove(name)
    ctx.set('Content-Type', refusal.body.type)
    ctx.body = refusal.body.text
  }
}

/** Ends a request that nobody can be answered. */
function leave(ctx: Context): void {
  if (ctx.res.writableEnded) return
  ctx.respond = false
  ctx.res.destroy()
}
