import type { Decision } from '@sluice/core'
import {
  asError,
  createGuard,
  dropOnRedirect,
  FOREIGN,
  type Host,
  type Refusal,
  writeFields,
} from '@sluice/core/http'
import type { Context, Middleware } from 'koa'
import { keepFields, throwRefusal } from './errors.js'
import { coreOptions, type RateLimitOptions } from './options.js'

export type { Refusal } from '@sluice/core/http'
export type { RefusedError } from './errors.js'
export type { RateLimitOptions } from './options.js'

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
  const guard = createGuard(coreOptions(options), host)
  const refuse = options.throws === true ? throwRefusal : answerWith(options.onRefused)

  return async (ctx, next) => {
    if (ctx.headerSent) return ctx.res.writableEnded ? undefined : next()
    const verdict = await failing(() => guard(ctx, ctx.res))
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
      await (verdict.outcome === 'allowed' ? next() : failing(() => refuse(ctx, verdict.refusal)))
    } catch (error) {
      keepFields(verdict.fields, ctx.res, error)
      throw error
    }
  }
}

export default rateLimit

const host: Host<Context> = {
  address: ctx => ctx.ip || undefined,
  message: ctx => ctx.req,
  trusts: ({ app }) => {
    if (!app.proxy) return 'nobody'
    return app.maxIpsCount > 0 ? 'some' : 'anybody'
  },
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
  ctx.respond = false
  ctx.res.destroy()
}
