import { createServer } from 'node:http'
import { createRequire } from 'node:module'
import { Router as KoaRouter } from '@koa/router'
import type { Decision } from '@sluice/core'
import * as onKoa from '@sluice/koa'
import Koa, { type Context, type Middleware } from 'koa'
import request from 'supertest'
import { describe, expect, it } from 'vitest'
import { clock, listening } from '../support/each-test.js'
import { Koa2 } from '../support/servers/koa.js'
import { limit, limiterOf } from './support.js'

/*
 * Apps of Koa, with a limit in each place of them.
 */

const require = createRequire(import.meta.url)

describe.each([
  ['koa', Koa],
  ['koa2', Koa2],
] as const)('on %s', (_, Framework) => {
  const { rateLimit, limitRoute } = onKoa
  const compose: (middleware: readonly Middleware[]) => Middleware = createRequire(
    require.resolve(Framework === Koa ? 'koa' : 'koa2'),
  )('koa-compose')

  async function serve(...middleware: Middleware[]) {
    const app = new Framework()
    const errors: unknown[] = []
    app.on('error', error => errors.push(error))
    for (const each of middleware) app.use(each)
    const url = await listening(createServer(app.callback()))
    return { ask: (path: string) => request(url).get(path), errors, app }
  }

  const ok: Middleware = ctx => {
    ctx.body = 'ok'
  }

  const routesOf = (router: KoaRouter) => router.routes() as unknown as Middleware

  it('limits compose', async () => {
    const both = compose([rateLimit(limit(5, { name: 'a' })), rateLimit(limit(1, { name: 'b' }))])
    const { ask } = await serve(both, ok)
    await ask('/').expect(200, 'ok').expect('RateLimit', '"a";r=4;t=48, "b";r=0;t=60')
    await ask('/').expect(429)
  })

  it('limits that are composed go on to nothing when nothing follows', async () => {
    const alone = compose([rateLimit(limit(1))])
    const { ask } = await serve(alone)
    await ask('/').expect(404).expect('RateLimit', '"default";r=0;t=60')
    await ask('/').expect(429)
  })

  it('a limiter that is composed twice counts once', async () => {
    const limiter = limiterOf(9)
    const { ask } = await serve(compose([rateLimit({ limiter }), rateLimit({ limiter })]), ok)
    await ask('/').expect(200)
    expect(limiter.peek('127.0.0.1').remaining).toBe(8)
  })

  it('router.use limits the routes of a router, by prefix and by path', async () => {
    const router = new KoaRouter({ prefix: '/api' })
    router.use(rateLimit(limit(5, { name: 'api' })))
    router.use('/admin', rateLimit(limit(1, { name: 'admin' })))
    router.get('/admin/users', ok).get('/items', ok)
    const { ask } = await serve(routesOf(router))
    await ask('/api/admin/users').expect(200).expect('RateLimit', '"api";r=4;t=48, "admin";r=0;t=60')
    await ask('/api/admin/users').expect(429)
    await ask('/api/items').expect(200).expect('RateLimit', '"api";r=2;t=24')
    const { headers } = await ask('/items').expect(404)
    expect(headers).not.toHaveProperty('ratelimit')
  })

  it('the routes of a router may have a limit around them', async () => {
    const router = new KoaRouter().get('/items', ok)
    const { ask } = await serve(limitRoute(limit(1))(routesOf(router)), ok)
    await ask('/items').expect(200, 'ok')
    await ask('/items').expect(429)
    clock.advance('1m')
    await ask('/none').expect(200, 'ok').expect('RateLimit', '"default";r=0;t=60')
  })

  it('routers nest, each with a limit of its own', async () => {
    const users = new KoaRouter()
    users.use(rateLimit(limit(1, { name: 'users' }))).get('/:id', ok)
    const api = new KoaRouter({ prefix: '/v1' })
    api.use(rateLimit(limit(5, { name: 'v1' })))
    api.use('/users', users.routes(), users.allowedMethods())
    const { ask } = await serve(routesOf(api))
    await ask('/v1/users/ann').expect(200).expect('RateLimit', '"v1";r=4;t=48, "users";r=0;t=60')
    await ask('/v1/users/bob').expect(429)
  })

  it('a key sees what router.param has found', async () => {
    const router = new KoaRouter()
    router.param('user', (id, ctx, next) => {
      ctx.state.user = { id: `user-${id}` }
      return next()
    })
    const key = (ctx: Context) => ctx.state.user.id
    router.get('/:user', rateLimit(limit(1, { key })), ok)
    const { ask } = await serve(routesOf(router))
    await ask('/ann').expect(200)
    await ask('/ann').expect(429)
    await ask('/bob').expect(200)
  })

  it('a key sees the parameters of the route around a handler', async () => {
    const router = new KoaRouter()
    const byId = limitRoute(limit(1, { key: (ctx: Context) => ctx.params.id }))
    router.get(
      '/users/:id',
      byId(ctx => {
        ctx.body = ctx.params.id
      }),
    )
    const { ask } = await serve(routesOf(router))
    await ask('/users/ann').expect(200, 'ann')
    await ask('/users/ann').expect(429)
    await ask('/users/bob').expect(200, 'bob')
  })

  it('a key sees the state, and what follows sees the decision in it', async () => {
    const decisions: (Decision | undefined)[] = []
    const { ask } = await serve(
      (ctx, next) => {
        ctx.state.user = { id: ctx.get('x-user') }
        return next()
      },
      rateLimit(limit(2, { key: (ctx: Context) => ctx.state.user.id })),
      ctx => {
        decisions.push(ctx.state.rateLimit)
        ctx.body = ctx.state.user
      },
    )
    await ask('/').set('X-User', 'ann').expect(200, { id: 'ann' })
    await ask('/').set('X-User', 'bob').expect(200, { id: 'bob' })
    expect(decisions).toMatchObject([{ remaining: 1 }, { remaining: 1 }])
  })

  it('an error of the app has the fields, and is reported once', async () => {
    const { ask, errors } = await serve(rateLimit(limit(5)), ctx => ctx.throw(502, 'upstream'))
    await ask('/').expect(502).expect('RateLimit', '"default";r=4;t=48')
    expect(errors).toHaveLength(1)
    expect(errors).toMatchObject([{ status: 502 }])
  })

  it('app.on("error") gets a thrown refusal, as an HttpError that is exposed', async () => {
    const { ask, errors } = await serve(rateLimit(limit(0, { throws: true })), ok)
    await ask('/').expect(429, 'Quota Exceeded')
    expect(errors).toMatchObject([
      { name: 'TooManyRequestsError', status: 429, expose: true, code: 'SLUICE_RATE_LIMITED' },
    ])
    expect(errors[0]).toBeInstanceOf((Framework as unknown as { HttpError: typeof Error }).HttpError)
  })

  it('a refusal that is thrown is caught by middleware above, which answers with every field', async () => {
    const { ask, errors } = await serve(
      async (ctx, next) => {
        try {
          await next()
        } catch (error) {
          const { status, message } = error as onKoa.RefusedError
          ctx.status = status
          ctx.body = { error: message }
        }
      },
      rateLimit(limit(0, { throws: true })),
      ok,
    )
    await ask('/')
      .expect(429, { error: 'Quota Exceeded' })
      .expect('RateLimit', '"default";r=0')
      .expect('Cache-Control', 'no-store')
    expect(errors).toEqual([])
  })

  it('a refusal that is thrown by a router around a handler is the same', async () => {
    const router = new KoaRouter()
    router.get('/', limitRoute(limit(0, { throws: true }))(ok))
    const { ask, errors } = await serve(routesOf(router))
    await ask('/').expect(429, 'Quota Exceeded').expect('RateLimit', '"default";r=0')
    expect(errors).toHaveLength(1)
  })

  it('a route that matches twice counts a limiter once', async () => {
    const limiter = limiterOf(9)
    const router = new KoaRouter()
    router.get('/items', rateLimit({ limiter }), (_ctx, next) => next())
    router.get('/:any', rateLimit({ limiter }), ok)
    const { ask } = await serve(routesOf(router))
    await ask('/items').expect(200, 'ok')
    expect(limiter.peek('127.0.0.1').remaining).toBe(8)
  })

  it('allowedMethods answers what no route does, behind the limit of the app', async () => {
    const router = new KoaRouter()
    router.get('/items', ok)
    const { ask, app } = await serve(
      rateLimit(limit(5)),
      routesOf(router),
      router.allowedMethods() as Middleware,
    )
    await request(app.callback()).post('/items').expect(405).expect('RateLimit', '"default";r=4;t=48')
    await ask('/items').expect(200)
  })

  it('an app in an app is limited by both', async () => {
    const inner = new Framework()
    inner.use(rateLimit(limit(1, { name: 'inner' }))).use(ok)
    const mounted = compose(inner.middleware as Middleware[])
    const { ask } = await serve(rateLimit(limit(5, { name: 'outer' })), mounted)
    await ask('/').expect(200).expect('RateLimit', '"outer";r=4;t=48, "inner";r=0;t=60')
    await ask('/').expect(429)
  })
})
