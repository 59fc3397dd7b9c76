import * as onFastify from '@sluice/fastify'
import { type FastifyInstance, type FastifyServerOptions, fastify, type InjectOptions } from 'fastify'
import { describe, expect, it } from 'vitest'
import { closing } from '../support/each-test.js'
import { limit, limiterOf } from './support.js'

/*
 * Apps of Fastify, with a limit in each place of them.
 */

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

  it('setNotFoundHandler with a limit in its own hook limits only requests that match no route', async () => {
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

  it('routes declared before a plugin that is not awaited have its limits or their own', async () => {
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

  it('setErrorHandler of a context gets the refusals of its limit', async () => {
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

  it('trustProxy decides which address is the client', async () => {
    const limiter = limiterOf(9)
    const app = make({ trustProxy: 'loopback' })
    app.get('/', limitRoute({ limiter })(ok))
    await app.inject({ url: '/', headers: { 'x-forwarded-for': '192.0.2.1' } })
    expect(limiter.peek('192.0.2.1').remaining).toBe(8)
  })
})
