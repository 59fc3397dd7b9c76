import { BODY_HEADERS, type Field, type Refusal, refusedError } from '@sluice/core/http'
import type { Context } from 'koa'

/** Throws a refusal as an HttpError of Koa. */
export function throwRefusal(ctx: Context, refusal: Refusal, fields: readonly Field[]): never {
  return ctx.throw(refusal.status, refusal.problem.title, { ...refusedError(refusal, fields, ctx.res) })
}

/** Calls `onRefused`. Unless it sets a body or a status, or responds without Koa, sets the default body. */
export function answerWith(onRefused: ((ctx: Context, refusal: Refusal) => unknown) | undefined) {
  return async (ctx: Context, refusal: Refusal): Promise<void> => {
    ctx.status = refusal.status
    const { body } = ctx
    try {
      await onRefused?.(ctx, refusal)
    } catch (error) {
      // If `onRefused` fails, that is an error of the server.
      ctx.status = 500
      throw error
    }
    if (ctx.body !== body || ctx.status !== refusal.status || ctx.headerSent || ctx.respond === false) return
    for (const name of BODY_HEADERS) ctx.remove(name)
    ctx.set('Content-Type', refusal.body.type)
    ctx.body = refusal.body.text
  }
}
