import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { Agent, createServer, get, type RequestListener } from 'node:http'
import * as http2 from 'node:http2'
import { createRequire } from 'node:module'
import { type AddressInfo, connect } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { Router as KoaRouter } from '@koa/router'
import { createLimiter, type Decision, tokenBucket } from '@sluice/core'
import * as onNode from '@sluice/core/http'
import * as onExpress from '@sluice/express'
import * as onFastify from '@sluice/fastify'
import * as onKoa from '@sluice/koa'
import express, { type ErrorRequestHandler, type RequestHandler } from 'express'
import { type FastifyInstance, type FastifyServerOptions, fastify, type InjectOptions } from 'fastify'
import Koa, { type Context, type Middleware } from 'koa'
import request from 'supertest'
import { describe, expect, it, vi } from 'vitest'
import { clock, closing, listening } from '../support/each-test.js'
import { Koa2 } from '../support/servers/koa.js'

/*
 * What apps of each framework are made of, and a limit in each place of it.
 */

const require = createRequire(import.meta.url)
/** Express 4 in the types of Express 5, whose part that is used here is the same. */
const express4 = require('express4') as typeof express

type Options = onExpress.RateLimitOptions & onKoa.RateLimitOptions & onFastify.RouteLimitOptions

const limit = (limit: number, options: object = {}): Options =>
  ({ limit, window: '1m', clock, ...options }) as Options

const limiterOf = (limit: number, name?: string) =>
  createLimiter(tokenBucket({ limit, window: '1m' }), { clock, name })

const until = (expectation: () => void) => vi.waitFor(expectation, { timeout: 4000, interval: 5 })

describe.each([
  ['express', express],
  ['express4', express4],
] as const)('on %s', (_, framework) => {
  const { rateLimit, limitRoute } = onExpress

  async function serve(build: (app: express.Express) => void, onError?: ErrorRequestHandler) {
    const app = framework().set('env', 'test')
    const errors: unknown[] = []
    build(app)
    const record: ErrorRequestHandler = (error, _req, _res, next) => {
      errors.push(error)
      next(error)
    }
    app.use(record)
    if (onError !== undefined) app.use(onError)
    const url = await listening(createServer(app))
    const ask = (path: string, method: 'get' | 'post' = 'get') => request(url)[method](path)
    return { ask, errors, app }
  }

  const ok: RequestHandler = (_req, res) => void res.send('ok')

  it('routers nest, each with a limit of its own and those of all above it', async () => {
    const { ask } = await serve(app => {
      const [v1, users] = [framework.Router(), framework.Router()]
      users.use(rateLimit(limit(2, { name: 'users' }))).get('/', ok)
      v1.use(rateLimit(limit(3, { name: 'v1' })))
        .get('/', ok)
        .use('/users', users)
      app.use(rateLimit(limit(9, { name: 'app' }))).use('/v1', v1)
    })
    const policies = '"app";q=9;w=60, "v1";q=3;w=60, "users";q=2;w=60'
    await ask('/v1/users').expect(200).expect('RateLimit-Policy', policies)
    await ask('/v1/users').expect(200)
    await ask('/v1/users').expect(429)
    // A refused one was counted by those that let it through.
    await ask('/v1').expect(429)
    await ask('/').expect(404).expect('RateLimit', '"app";r=4;t=27')
  })

  it('a whole router, or an app, may have a limit around it', async () => {
    const { ask } = await serve(app => {
      app.use('/router', limitRoute(limit(1))(framework.Router().get('/items', ok)))
      app.use('/app', limitRoute(limit(1))(framework().get('/items', ok) as RequestHandler))
    })
    for (const path of ['/router', '/app']) {
      await ask(`${path}/none`).expect(404)
      await ask(`${path}/items`).expect(429)
    }
    clock.advance('1m')
    for (const path of ['/router', '/app']) await ask(`${path}/items`).expect(200, 'ok')
  })

  it('a router that is mounted twice is one limit', async () => {
    const { ask } = await serve(app => {
      const router = framework
        .Router()
        .use(rateLimit(limit(2)))
        .get('/', ok)
      app.use('/a', router).use('/b', router)
    })
    await ask('/a').expect(200)
    await ask('/b').expect(200)
    await ask('/a').expect(429)
  })

  it('a limiter that is met twice on the way through mounted apps counts once', async () => {
    const limiter = limiterOf(9)
    const { ask } = await serve(app => {
      const [outer, inner] = [framework(), framework()]
      for (const each of [app, outer, inner]) each.use(rateLimit({ limiter }))
      inner.get('/items', rateLimit({ limiter }), limitRoute({ limiter })(ok))
      app.use('/outer', outer.use('/inner', inner))
    })
    await ask('/outer/inner/items').expect(200, 'ok').expect('RateLimit', '"default";r=8;t=54')
    expect(limiter.peek('127.0.0.1').remaining).toBe(8)
  })

  it('a mounted app that is asked by two paths counts once for each request', async () => {
    const limiter = limiterOf(9)
    const { ask } = await serve(app => {
      const sub = framework().use(rateLimit({ limiter }), (_req, _res, next) => next())
      app.use('/a', sub).use('/a', sub).get('/a', ok)
    })
    await ask('/a').expect(200, 'ok')
    expect(limiter.peek('127.0.0.1').remaining).toBe(8)
  })

  it('a mounted app trusts its proxies as its parent does', async () => {
    const limiter = limiterOf(9)
    const { ask } = await serve(app => {
      app.set('trust proxy', 'loopback')
      app.use('/sub', framework().use(rateLimit({ limiter })).get('/', ok))
    })
    await ask('/sub').set('X-Forwarded-For', '192.0.2.1').expect(200)
    expect(limiter.peek('192.0.2.1').remaining).toBe(8)
  })

  it('app.route takes a limit for all methods, and for one', async () => {
    const { ask } = await serve(app => {
      app
        .route('/items')
        .all(rateLimit(limit(3, { name: 'items' })))
        .get(ok)
        .post(rateLimit(limit(1, { name: 'writes' })), ok)
    })
    await ask('/items', 'post').expect(200)
    await ask('/items', 'post').expect(429)
    await ask('/items').expect(200).expect('RateLimit', '"items";r=0;t=20')
    await ask('/items').expect(429)
  })

  it('one middleware on two routes is one limit, and two are two', async () => {
    const { ask } = await serve(app => {
      const shared = rateLimit(limit(1))
      app.get('/a', shared, ok).get('/b', shared, ok)
      app.get('/c', rateLimit(limit(1)), ok).get('/d', rateLimit(limit(1)), ok)
    })
    await ask('/a').expect(200)
    await ask('/b').expect(429)
    await ask('/c').expect(200)
    await ask('/d').expect(200)
  })

  it('limits may be handed over in a list', async () => {
    const { ask } = await serve(app => {
      app.get('/', [rateLimit(limit(5, { name: 'a' })), rateLimit(limit(1, { name: 'b' }))], ok)
    })
    await ask('/').expect(200).expect('RateLimit', '"a";r=4;t=48, "b";r=0;t=60')
    await ask('/').expect(429)
  })

  it('a key sees what app.param and the handlers before have found', async () => {
    const { ask } = await serve(app => {
      app.param('user', (req, _res, next, id) => {
        Object.assign(req, { user: { id: `user-${id}` } })
        next()
      })
      const key = (req: express.Request) => (req as { user?: { id: string } }).user?.id ?? 'nobody'
      app.get('/:user', rateLimit(limit(1, { key })), (req, res) => void res.send(key(req)))
    })
    await ask('/ann').expect(200, 'user-ann')
    await ask('/ann').expect(429)
    await ask('/bob').expect(200, 'user-bob')
  })

  it('a key sees the parameters of the route', async () => {
    const { ask } = await serve(app => {
      const key = (req: express.Request) => String(req.params.id)
      app.get('/users/:id', limitRoute(limit(1, { key }))(ok))
    })
    await ask('/users/ann').expect(200)
    await ask('/users/ann').expect(429)
    await ask('/users/bob').expect(200)
  })

  it('a key sees a body that was parsed before', async () => {
    const { ask } = await serve(app => {
      app.use(framework.json())
      app.post('/', rateLimit(limit(1, { key: (req: express.Request) => req.body.user })), ok)
    })
    for (const [user, status] of [
      ['ann', 200],
      ['ann', 429],
      ['bob', 200],
    ])
      await ask('/', 'post')
        .send({ user })
        .expect(status as number)
  })

  it("an app.param that is called for a refused route is the app's business", async () => {
    let found = 0
    const { ask } = await serve(app => {
      app.param('id', (_req, _res, next) => {
        found++
        next()
      })
      app.use('/users', rateLimit(limit(1)))
      app.get('/users/:id', ok)
    })
    await ask('/users/ann').expect(200)
    await ask('/users/ann').expect(429)
    expect(found).toBe(1)
  })

  it('an error handler answers a refusal that is thrown, by its status', async () => {
    const { ask, errors } = await serve(
      app => app.get('/', rateLimit(limit(1, { throws: true })), ok),
      (error, _req, res, _next) => void res.status(error.status).json({ error: error.message }),
    )
    await ask('/').expect(200)
    await ask('/')
      .expect(429, { error: 'Quota Exceeded' })
      .expect('Retry-After', '60')
      .expect('RateLimit', '"default";r=0;t=60')
      .expect('Cache-Control', 'no-store')
    expect(errors).toMatchObject([{ status: 429, statusCode: 429, decision: { retryAfterMs: 60_000 } }])
  })

  it("Express's own answer to a refusal that is thrown has every field", async () => {
    const { ask } = await serve(app => {
      const router = framework
        .Router()
        .use(rateLimit(limit(0, { throws: true, status: 503 })))
        .get('/', ok)
      app.use('/api', router)
    })
    await ask('/api')
      .expect(503)
      .expect('Content-Type', /text\/html/)
      .expect('RateLimit', '"default";r=0')
  })

  it('an error handler of the router comes before that of the app', async () => {
    const { ask, errors } = await serve(app => {
      const router = framework.Router().use(rateLimit(limit(0, { throws: true })))
      const answer: ErrorRequestHandler = (error, _req, res, _next) =>
        void res.status(error.statusCode).send('router')
      app.use('/api', router.use(answer))
    })
    await ask('/api').expect(429, 'router')
    expect(errors).toEqual([])
  })

  it('an error handler may let a refused request go on', async () => {
    const { ask } = await serve(app => {
      const forgive: ErrorRequestHandler = (_error, _req, res, next) => {
        res.status(200)
        next()
      }
      app.get('/', rateLimit(limit(0, { throws: true })), ok, forgive, ok)
    })
    await ask('/').expect(200, 'ok')
  })

  it('an error of a key with a status is that status', async () => {
    const key = () => {
      throw Object.assign(new Error('who are you?'), { status: 401 })
    }
    const { ask } = await serve(app => app.use(rateLimit(limit(1, { key }))))
    await ask('/').expect(401)
  })

  it('a limit with next("route") in a list skips what follows', async () => {
    const { ask } = await serve(app => {
      const skip: RequestHandler = (_req, _res, next) => next('route')
      app.get('/', skip, rateLimit(limit(0)), ok)
      app.get('/', (_req, res) => void res.send('next'))
    })
    await ask('/').expect(200, 'next')
  })

  it('a refused request is not seen by what follows, and a 404 is limited', async () => {
    const seen: string[] = []
    const { ask } = await serve(app => {
      app.use(rateLimit(limit(1)))
      app.use((req, _res, next) => {
        seen.push(req.path)
        next()
      })
    })
    await ask('/none').expect(404).expect('RateLimit', '"default";r=0;t=60')
    await ask('/none').expect(429)
    expect(seen).toEqual(['/none'])
  })

  it('static files are limited behind a limit', async () => {
    const { ask } = await serve(app => {
      app.use('/files', rateLimit(limit(1)), framework.static(import.meta.dirname))
    })
    await ask('/files/express.test.ts').expect(200)
    await ask('/files/express.test.ts').expect(429)
  })
})

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

  it('router.param is the place to find who it is', async () => {
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

  it('an error of the app has the fields, and is heard of once', async () => {
    const { ask, errors } = await serve(rateLimit(limit(5)), ctx => ctx.throw(502, 'upstream'))
    await ask('/').expect(502).expect('RateLimit', '"default";r=4;t=48')
    expect(errors).toHaveLength(1)
    expect(errors).toMatchObject([{ status: 502 }])
  })

  it('a refusal that is thrown is heard of by app.on("error"), as an HttpError that is exposed', async () => {
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

describe('on fastify', () => {
  const { rateLimit, limitRoute } = onFastify

  function make(options: FastifyServerOptions = {}): FastifyInstance {
    const app = fastify(options)
    closing.push(() => app.close())
    return app
  }

  async function statuses(app: FastifyInstance, url: string, times: number, options: InjectOptions = {}) {
    const all: number[] = []
    for (let time = 0; time < times; time++)
      all.push((await app.inject({ method: 'GET', url, ...options })).statusCode)
    return all
  }

  const limitOf = async (app: FastifyInstance, url: string) => (await app.inject(url)).headers.ratelimit

  const ok = () => 'ok'

  it('a context with a prefix limits its routes, and what it does not find', async () => {
    const app = make()
    app.register(
      async api => {
        await api.register(rateLimit, limit(2))
        api.setNotFoundHandler((_request, reply) => reply.code(404).send('nothing of ours'))
        api.get('/items', ok)
      },
      { prefix: '/api' },
    )
    app.get('/free', ok)
    expect(await statuses(app, '/api/items', 1)).toEqual([200])
    expect(await statuses(app, '/free', 3)).toEqual([200, 200, 200])
    expect(await statuses(app, '/none', 2)).toEqual([404, 404])
  })

  it('setNotFoundHandler with a limit in a hook of its own limits what is not found alone', async () => {
    const app = make()
    await app.register(rateLimit, { limiter: () => null })
    app.setNotFoundHandler({ preHandler: app.rateLimit(limit(1)) }, (_request, reply) => {
      reply.code(404).send('nothing')
    })
    app.get('/', ok)
    expect(await statuses(app, '/none', 2)).toEqual([404, 429])
    expect(await statuses(app, '/', 2)).toEqual([200, 200])
  })

  it('registered twice it is two limits, in the order of their registration', async () => {
    const app = make()
    await app.register(rateLimit, limit(5, { name: 'a' }))
    await app.register(rateLimit, limit(1, { name: 'b' }))
    app.get('/', ok)
    expect(await limitOf(app, '/')).toBe('"a";r=4;t=48, "b";r=0;t=60')
    expect(await statuses(app, '/', 1)).toEqual([429])
    expect([...app.limiters.keys()]).toEqual(['a', 'b'])
  })

  it('registered twice with one limiter it counts once', async () => {
    const limiter = limiterOf(9)
    const app = make()
    await app.register(rateLimit, { limiter })
    app.register(async api => {
      await api.register(rateLimit, { limiter })
      api.get('/', ok)
    })
    await app.inject('/')
    expect(limiter.peek('127.0.0.1').remaining).toBe(8)
  })

  it('registered in a plugin of the app that breaks encapsulation, it is of the context above', async () => {
    const app = make()
    const plugin = Object.assign(
      async (inner: FastifyInstance) => {
        await inner.register(rateLimit, limit(1))
      },
      { [Symbol.for('skip-override')]: true },
    )
    await app.register(plugin)
    app.get('/', ok)
    app.get('/own', app.rateLimit(limit(9, { name: 'own' }))(ok))
    expect(await statuses(app, '/', 2)).toEqual([200, 429])
    expect([...app.limiters.keys()]).toEqual(['default', 'own'])
  })

  it('hooks run in their order, and preHandler sees whom an earlier one has found', async () => {
    const app = make()
    const order: string[] = []
    const user = (request: object) => (request as { user?: string }).user ?? 'nobody'
    app.decorateRequest('user', undefined)
    app.addHook('onRequest', async () => void order.push('onRequest'))
    app.addHook('preHandler', async request => {
      Object.assign(request, { user: String(request.headers['x-user']) })
      order.push('authenticated')
    })
    await app.register(rateLimit, {
      ...limit(1),
      hook: 'preHandler',
      key: request => {
        order.push(`limited ${user(request)}`)
        return user(request)
      },
    })
    app.addHook('preHandler', async () => void order.push('after'))
    app.get('/', () => {
      order.push('handler')
      return 'ok'
    })
    const ann: InjectOptions = { headers: { 'x-user': 'ann' } }
    expect(await statuses(app, '/', 1, ann)).toEqual([200])
    expect(order.splice(0)).toEqual(['onRequest', 'authenticated', 'limited ann', 'after', 'handler'])
    expect(await statuses(app, '/', 1, ann)).toEqual([429])
    expect(order).toEqual(['onRequest', 'authenticated', 'limited ann'])
  })

  it('a route may have its limit behind hooks that it has in a list', async () => {
    const app = make()
    await app.register(rateLimit, { limiter: () => null })
    const users = new WeakMap<object, string>()
    const key = (request: object) => users.get(request) ?? 'nobody'
    app.get(
      '/',
      {
        preHandler: [
          async request => void users.set(request, String(request.headers['x-user'])),
          app.rateLimit(limit(1, { key })),
        ],
      },
      ok,
    )
    expect(await statuses(app, '/', 2, { headers: { 'x-user': 'ann' } })).toEqual([200, 429])
    expect(await statuses(app, '/', 2, { headers: { 'x-user': 'bob' } })).toEqual([200, 429])
  })

  it('routes declared before a plugin that nobody awaits have limits and their own', async () => {
    const app = make()
    app.get('/own', { config: { rateLimit: limit(2) } }, ok)
    app.get('/off', { config: { rateLimit: false } }, ok)
    app.register(rateLimit, limit(1))
    app.get('/', ok)
    app.get('/other', { config: { rateLimit: limit(3) } }, ok)
    expect(await statuses(app, '/own', 3)).toEqual([200, 200, 429])
    expect(await statuses(app, '/off', 3)).toEqual([200, 200, 200])
    expect(await statuses(app, '/', 2)).toEqual([200, 429])
    expect(await statuses(app, '/other', 4)).toEqual([200, 200, 200, 429])
  })

  it('in app.after the plugin is there, without being awaited', async () => {
    const app = make()
    app.register(rateLimit, limit(9))
    app.after(() => {
      app.get('/', { onRequest: app.rateLimit(limit(1)) }, ok)
    })
    expect(await statuses(app, '/', 2)).toEqual([200, 429])
  })

  it('setErrorHandler answers a refusal that is thrown', async () => {
    const app = make()
    const errors: unknown[] = []
    app.setErrorHandler((error: Error, _request, reply) => {
      errors.push(error)
      return reply.send({ error: error.message })
    })
    await app.register(rateLimit, limit(0, { throws: true }))
    app.get('/', ok)
    const { statusCode, headers, body } = await app.inject('/')
    expect([statusCode, JSON.parse(body)]).toEqual([429, { error: 'Quota Exceeded' }])
    expect(headers).toMatchObject({ ratelimit: '"default";r=0', 'cache-control': 'no-store' })
    expect(errors).toMatchObject([{ statusCode: 429, code: 'SLUICE_RATE_LIMITED' }])
  })

  it("setErrorHandler of a context hears of its limit's refusals", async () => {
    const app = make()
    app.setErrorHandler((_error, _request, reply) => reply.send('outer'))
    app.register(
      async api => {
        api.setErrorHandler((_error, _request, reply) => reply.send('inner'))
        await api.register(rateLimit, limit(0, { throws: true }))
        api.get('/', ok)
      },
      { prefix: '/api' },
    )
    expect(await app.inject('/api')).toMatchObject({ statusCode: 429, body: 'inner' })
  })

  it("Fastify's own answer to a refusal that is thrown has its code and every field", async () => {
    const app = make()
    app.get('/', limitRoute(limit(0, { throws: true }))(ok))
    const { statusCode, headers, body } = await app.inject('/')
    expect(statusCode).toBe(429)
    expect(JSON.parse(body)).toEqual({
      statusCode: 429,
      code: 'SLUICE_RATE_LIMITED',
      error: 'Too Many Requests',
      message: 'Quota Exceeded',
    })
    expect(headers).toMatchObject({ ratelimit: '"default";r=0', 'cache-control': 'no-store' })
  })

  it('typed routes are limited as they are', async () => {
    const app = make()
    await app.register(rateLimit, { limiter: () => null })
    interface User {
      Params: { id: string }
      Querystring: { page?: string }
    }
    app.get<User>('/users/:id', { onRequest: app.rateLimit(limit(9)) }, async request => request.params.id)
    app.get<User>(
      '/pages/:id',
      limitRoute(limit(9))(async request => ({ ...(request.params as User['Params']) })),
    )
    expect((await app.inject('/users/ann')).body).toBe('ann')
    expect((await app.inject('/pages/1')).json()).toEqual({ id: '1' })
  })

  it('schemas check and serialize as they did around a limited handler', async () => {
    const app = make()
    const schema = {
      querystring: { type: 'object', properties: { n: { type: 'integer' } }, required: ['n'] },
      response: { 200: { type: 'object', properties: { n: { type: 'integer' } } } },
    }
    const key = async () => 'all'
    app.get(
      '/',
      { schema },
      limitRoute(limit(9, { key }))(request => ({ ...(request.query as object), secret: 1 })),
    )
    expect((await app.inject('/?n=5')).json()).toEqual({ n: 5 })
    expect((await app.inject('/?n=five')).statusCode).toBe(400)
  })

  it('a redirection keeps no field that says nothing is left', async () => {
    const app = make()
    app.get(
      '/',
      limitRoute(limit(1))((_request, reply) => reply.redirect('/elsewhere')),
    )
    const { statusCode, headers } = await app.inject('/')
    expect(statusCode).toBe(302)
    expect(headers).not.toHaveProperty('ratelimit')
  })

  it('trustProxy says who the client is', async () => {
    const limiter = limiterOf(9)
    const app = make({ trustProxy: 'loopback' })
    app.get('/', limitRoute({ limiter })(ok))
    await app.inject({ url: '/', headers: { 'x-forwarded-for': '192.0.2.1' } })
    expect(limiter.peek('192.0.2.1').remaining).toBe(8)
  })
})

describe('on node:http', () => {
  const { limitRoute } = onNode
  const nodeLimit = (most: number, options: object = {}) => limit(most, options) as onNode.NodeOptions
  const ok: RequestListener = (_request, response) => void response.end('ok')

  it('one connection is kept over requests that pass and that are refused', async () => {
    const server = createServer(limitRoute(nodeLimit(1))(ok))
    let connections = 0
    server.on('connection', () => connections++)
    const url = await listening(server)
    const agent = new Agent({ keepAlive: true, maxSockets: 1 })
    closing.push(() => agent.destroy())
    const seen: unknown[] = []
    for (let time = 0; time < 4; time++)
      seen.push(
        await new Promise(resolve => {
          get(url, { agent }, response => {
            response.resume().on('end', () => resolve([response.statusCode, response.headers.connection]))
          })
        }),
      )
    expect(seen).toEqual([200, 429, 429, 429].map(status => [status, 'keep-alive']))
    expect(connections).toBe(1)
  })

  it('a POST that is refused leaves its connection usable', async () => {
    const url = new URL(await listening(createServer(limitRoute(nodeLimit(0))(ok))))
    const socket = connect(Number(url.port), url.hostname)
    const post = 'POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello'
    socket.end(`${post}${post.replace('Host: a', 'Host: a\r\nConnection: close')}`)
    const statuses = (await text(socket)).match(/HTTP\/1\.1 \d+/g)
    expect(statuses).toEqual(['HTTP/1.1 429', 'HTTP/1.1 429'])
  })

  it.each([
    ['at once', () => 'all'],
    ['later', async () => 'all'],
  ])('requests in a pipeline are counted and answered in their order, decided %s', async (_, key) => {
    const handled: unknown[] = []
    const handler = limitRoute(nodeLimit(2, { key }))((request, response) => {
      handled.push(request.url)
      response.end(request.url)
    })
    const url = new URL(await listening(createServer(handler)))
    const socket = connect(Number(url.port), url.hostname)
    const requests = ['/a', '/b', '/c'].map(path => `GET ${path} HTTP/1.1\r\nHost: a\r\n`)
    socket.end(`${requests.join('\r\n')}Connection: close\r\n\r\n`)
    const answer = await text(socket)
    expect(answer.match(/HTTP\/1\.1 \d+/g)).toEqual(['HTTP/1.1 200', 'HTTP/1.1 200', 'HTTP/1.1 429'])
    expect(handled).toEqual(['/a', '/b'])
  })

  it('on a Unix socket there is no address, and the error says to set a key', async () => {
    const directory = await mkdtemp(join(tmpdir(), 'sluice-'))
    closing.push(() => rm(directory, { recursive: true }))
    const socketPath = join(directory, 'socket')
    const errors: unknown[] = []
    const onError: onNode.NodeOptions['onError'] = (error, _request, response) => {
      errors.push(error)
      response.writeHead(500).end()
    }
    const routes: Record<string, RequestListener> = {
      '/none': limitRoute(nodeLimit(1, { onError }))(ok),
      '/keyed': limitRoute(nodeLimit(1, { onError, key: () => 'all' }))(ok),
      '/trusted': limitRoute(nodeLimit(1, { onError, hops: 1 }))(ok),
    }
    const server = createServer((request, response) => routes[request.url as string]?.(request, response))
    server.listen(socketPath)
    await once(server, 'listening')
    closing.push(() => new Promise(resolve => server.close(resolve)))
    const statusOf = (path: string) =>
      new Promise(resolve => {
        const headers = path === '/trusted' ? { 'x-forwarded-for': '192.0.2.1' } : {}
        get({ socketPath, path, headers, agent: false }, response => {
          resolve(response.resume().statusCode)
        })
      })
    expect([await statusOf('/keyed'), await statusOf('/keyed')]).toEqual([200, 429])
    expect([await statusOf('/trusted'), await statusOf('/trusted')]).toEqual([200, 429])
    expect(errors).toEqual([])
    expect(await statusOf('/none')).toBe(500)
    expect(errors).toMatchObject([
      { code: 'SLUICE_NO_CLIENT_ADDRESS', message: expect.stringContaining('set the key option') },
    ])
  })

  it('trustedProxies say who the client is', async () => {
    const limiter = limiterOf(9)
    const handler = limitRoute({ limiter, trustedProxies: ['127.0.0.0/8', '10.0.0.0/8'] })(ok)
    const url = await listening(createServer(handler))
    await request(url).get('/').set('X-Forwarded-For', '198.51.100.9, 192.0.2.1, 10.1.2.3').expect(200)
    expect(limiter.peek('192.0.2.1').remaining).toBe(8)
    await request(url).get('/').expect(200)
    expect(limiter.peek('127.0.0.1').remaining).toBe(8)
  })

  it('a server that gets its handler later is limited too', async () => {
    const server = createServer({ keepAliveTimeout: 1000 })
    server.on('request', limitRoute(nodeLimit(1))(ok))
    const url = await listening(server)
    await request(url).get('/').expect(200)
    await request(url).get('/').expect(429)
  })

  it('a refusal is known before the body is asked for', async () => {
    const handler = limitRoute(nodeLimit(0))(ok)
    const server = createServer(ok).on('checkContinue', handler)
    const url = new URL(await listening(server))
    const socket = connect(Number(url.port), url.hostname)
    socket.write(
      'POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\nConnection: close\r\n\r\n',
    )
    expect(await text(socket)).toMatch(/^HTTP\/1\.1 429/)
  })
})

/*
 * HTTP/2 by the same handlers. Its requests and responses only look like those of HTTP/1.
 */

type AnyListener = (request: never, response: never) => unknown

/** Answers with a status, or with 0 not at all. */
const onHttp2: readonly (readonly [string, (options: Options, status: () => number) => AnyListener])[] = [
  [
    'node:http2',
    (options, status) =>
      onNode.limitRoute(options as onNode.NodeOptions)((_request, response) => {
        if (status() > 0) response.writeHead(status()).end('ok')
      }),
  ],
  [
    'koa',
    (options, status) => {
      const app = new Koa().use(onKoa.rateLimit(options)).use(ctx => {
        ctx.respond = status() > 0
        if (!ctx.respond) return
        ctx.status = status()
        ctx.body = 'ok'
      })
      return app.callback()
    },
  ],
]

describe.each(onHttp2)('over HTTP/2, on %s', (_, listenerOf) => {
  async function serve(options: Options) {
    let status = 200
    const server = http2.createServer(listenerOf(options, () => status) as never)
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    closing.push(() => new Promise<void>(resolve => server.close(() => resolve())))
    const client = http2.connect(`http://127.0.0.1:${(server.address() as AddressInfo).port}`)
    closing.push(() => client.destroy())
    const open = (wanted = 200) => {
      status = wanted
      return client.request({ ':path': '/' })
    }
    const ask = async (wanted = 200) => {
      const stream = open(wanted)
      const [headers] = (await once(stream, 'response')) as [http2.IncomingHttpHeaders]
      return { status: headers[':status'], limit: headers.ratelimit, body: await text(stream) }
    }
    return { ask, open }
  }

  it('requests are limited', async () => {
    const { ask } = await serve(limit(1))
    expect(await ask()).toEqual({ status: 200, limit: '"default";r=0;t=60', body: 'ok' })
    expect(await ask()).toMatchObject({ status: 429, limit: '"default";r=0;t=60' })
  })

  it.each(['before', 'after'] as const)('what is counted %s is counted and given back once', async count => {
    const limiter = limiterOf(9)
    const { ask } = await serve({ limiter, count, refund: { ifFailed: true } } as Options)
    await ask()
    await until(() => expect(limiter.peek('127.0.0.1').remaining).toBe(8))
    await ask(500)
    await ask()
    await until(() => expect(limiter.peek('127.0.0.1').remaining).toBe(7))
  })

  it('a stream that is reset before it is answered has failed, and one that is answered has not', async () => {
    const limiter = limiterOf(9)
    const endings: unknown[] = []
    const refund = (...args: unknown[]) => {
      endings.push(args.at(-1))
      return false
    }
    const { ask, open } = await serve({ limiter, refund } as Options)
    await ask()
    await until(() => expect(endings).toEqual([{ status: 200, aborted: false }]))
    await ask(404)
    await until(() => expect(endings.slice(1)).toEqual([{ status: 404, aborted: false }]))
    const silent = open(0).on('error', () => {})
    await until(() => expect(limiter.peek('127.0.0.1').remaining).toBe(6))
    silent.close(http2.constants.NGHTTP2_CANCEL)
    await until(() => expect(endings.slice(2)).toMatchObject([{ aborted: true }]))
  })

  it('a stream that is reset while it is held gives its permit back', async () => {
    const limiter = limiterOf(1)
    const { ask, open } = await serve({ limiter, maxWait: '60s' } as Options)
    expect(await ask()).toMatchObject({ status: 200 })
    const held = open().on('error', () => {})
    await until(() => expect(limiter.peek('127.0.0.1').balance).toBe(-1))
    held.close(http2.constants.NGHTTP2_CANCEL)
    await until(() => expect(limiter.peek('127.0.0.1').balance).toBe(0))
  })

  it('as many listeners are left as there were', async () => {
    const warnings: unknown[] = []
    const listen = (warning: unknown) => warnings.push(warning)
    process.on('warning', listen)
    closing.push(() => process.off('warning', listen))
    const { ask } = await serve(limit(99, { refund: { ifFailed: true } }))
    for (let time = 0; time < 15; time++) await ask()
    expect(warnings).toEqual([])
  })
})

it('over HTTP/2, on fastify, what is counted after is counted once', async () => {
  const limiter = limiterOf(9)
  const app = fastify({ http2: true })
  closing.push(() => app.close())
  await app.register(onFastify.rateLimit, { limiter, count: 'after', refund: { ifFailed: true } } as never)
  app.get('/', () => 'ok')
  const client = http2.connect(await app.listen({ port: 0, host: '127.0.0.1' }))
  closing.push(() => client.destroy())
  for (const left of [8, 7]) {
    const stream = client.request({ ':path': '/' })
    expect(await text(stream)).toBe('ok')
    await until(() => expect(limiter.peek('127.0.0.1').remaining).toBe(left))
  }
})
