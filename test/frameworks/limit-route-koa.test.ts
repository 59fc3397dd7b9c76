import { createServer } from 'node:http'
import { Readable } from 'node:stream'
import { createLimiter, tokenBucket } from '@sluice/core'
import * as onKoa from '@sluice/koa'
import Koa, { type Middleware } from 'koa'
import request from 'supertest'
import { describe, expect, it, vi } from 'vitest'
import { clock, listening } from '../support/each-test.js'
import { Koa2 } from '../support/servers/koa.js'
import { answerOf, fail, guards, limit, teapot } from './support.js'

/*
 * A handler of Koa inside limitRoute answers as it does without a limit, in whatever way it answers.
 */

describe.each([
  ['koa', Koa],
  ['koa2', Koa2],
] as const)('on %s', (_, Framework) => {
  const { limitRoute } = onKoa

  function appOf(...middleware: Middleware[]) {
    const app = new Framework()
    const errors: unknown[] = []
    app.on('error', error => errors.push(error))
    for (const each of middleware) app.use(each)
    app.use(ctx => {
      ctx.body = 'the next one'
    })
    return { app: app.callback(), errors }
  }

  const ok: Middleware = ctx => {
    ctx.body = 'ok'
  }

  const handlers: readonly (readonly [string, Middleware])[] = [
    ['sets a body', ok],
    ['is async', async ctx => ok(ctx as never, async () => {})],
    [
      'sets a status',
      ctx => {
        ctx.status = 204
      },
    ],
    ['sets nothing', () => {}],
    ['redirects', ctx => ctx.redirect('/elsewhere')],
    ['goes on', (_ctx, next) => next()],
    [
      'goes on and changes what comes back',
      async (ctx, next) => {
        await next()
        ctx.body = `${ctx.body}, changed`
      },
    ],
    [
      'streams',
      ctx => {
        ctx.body = Readable.from(['a', 'b'])
      },
    ],
    [
      'answers past Koa',
      ctx => {
        ctx.respond = false
        setImmediate(() => ctx.res.end('raw'))
      },
    ],
    ['throws', () => fail()],
    ['rejects', async () => fail(teapot())],
    ['throws by the context', ctx => ctx.throw(409, 'taken')],
    ['asserts', ctx => ctx.assert(false, 403, 'no')],
  ]

  describe.each(guards)('decided %s', (_, guard) => {
    it.each(handlers)('a handler that %s does as it did', async (_, handler) => {
      const bare = appOf(handler)
      const limited = appOf(limitRoute(guard())(handler))
      expect(await answerOf(limited.app)).toEqual(await answerOf(bare.app))
      const told = (errors: unknown[]) =>
        errors.map(error => [String(error), (error as { status?: number }).status])
      expect(told(limited.errors)).toEqual(told(bare.errors))
    })

    it('the handler is given what it was, on what it was, and returns what it did', async () => {
      const seen = vi.fn((_ctx: Koa.Context, _next: Koa.Next) => 'a result')
      const self = { seen: limitRoute(guard())(seen) as Middleware }
      const exchange: unknown[] = []
      let returned: unknown
      const { app } = appOf((ctx, next) => {
        exchange.push(ctx, next)
        returned = self.seen(ctx, next)
        return returned
      })
      await answerOf(app)
      expect(seen.mock.contexts[0]).toBe(self)
      const given = seen.mock.calls[0] as unknown[]
      expect(given).toHaveLength(2)
      for (const [index, argument] of given.entries()) expect(argument).toBe(exchange[index])
      expect(await returned).toBe('a result')
    })

    it('without `next` a handler may be called', async () => {
      const limited = limitRoute(guard())(ok) as (ctx: unknown) => unknown
      expect(await answerOf(appOf(ctx => limited(ctx) as Promise<void>).app)).toMatchObject({ text: 'ok' })
    })
  })

  it('an error of the handler keeps the fields', async () => {
    const { app } = appOf(limitRoute(limit(5))(ctx => ctx.throw(404)))
    await request(await listening(createServer(app)))
      .get('/')
      .expect(404)
      .expect('RateLimit', '"default";r=4;t=48')
  })

  it('what a refused handler would have returned is nothing', async () => {
    let returned: unknown = 'unset'
    const limited = limitRoute(limit(0))(() => 'a result') as Middleware
    const { app } = appOf(async (ctx, next) => {
      returned = await limited(ctx, next)
    })
    expect(await answerOf(app)).toMatchObject({ status: 429 })
    expect(returned).toBeUndefined()
  })

  it('a limiter of the app counts once around a handler', async () => {
    const limiter = createLimiter(tokenBucket({ limit: 9, window: '1m' }), { clock })
    const { app } = appOf(onKoa.rateLimit({ limiter }), limitRoute({ limiter })(ok))
    expect(await answerOf(app)).toMatchObject({ text: 'ok' })
    expect(limiter.peek('127.0.0.1').remaining).toBe(8)
  })
})
