import { createServer } from 'node:http'
import * as onExpress from '@sluice/express'
import express, { type ErrorRequestHandler, type RequestHandler } from 'express'
import request from 'supertest'
import { describe, expect, it } from 'vitest'
import { clock, listening } from '../support/each-test.js'
import { express4 } from '../support/servers/express.js'
import { limit, limiterOf } from './support.js'

/*
 * Apps of Express, with a limit in each place of them.
 */

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

  it('a limiter that a request passes twice in mounted apps counts once', async () => {
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
