import { Readable } from 'node:stream'
import { createLimiter, tokenBucket } from '@sluice/core'
import * as onFastify from '@sluice/fastify'
import {
  type FastifyInstance,
  type FastifyServerOptions,
  fastify,
  type InjectOptions,
  type RouteHandlerMethod,
} from 'fastify'
import request from 'supertest'
import { describe, expect, it } from 'vitest'
import { clock, closing } from '../support/each-test.js'
import { decorate, fail, guards, limit, type Options, teapot, until } from './support.js'

/*
 * A handler of Fastify with a limit around it, or with a limit as its hook, answers as it does without a limit.
 */

describe('on fastify', () => {
  const { limitRoute, rateLimit } = onFastify

  function make(options: FastifyServerOptions = {}): FastifyInstance {
    const app = fastify(options)
    closing.push(() => app.close())
    return app
  }

  async function limitedApp(options: onFastify.RateLimitOptions = { limiter: () => null }) {
    const app = make()
    await app.register(rateLimit, options)
    return app
  }

  async function statuses(app: FastifyInstance, url: string, times: number, options: InjectOptions = {}) {
    const all: number[] = []
    for (let time = 0; time < times; time++)
      all.push((await app.inject({ method: 'GET', url, ...options })).statusCode)
    return all
  }

  const ok = () => 'ok'

  /** Ways to put a limit before a handler. */
  const places: readonly (readonly [
    string,
    (app: FastifyInstance, options: Options, h: RouteHandlerMethod) => void,
  ])[] = [
    ['limitRoute around it', (app, o, handler) => app.get('/', limitRoute(o)(handler))],
    ['app.rateLimit around it', (app, o, handler) => app.get('/', app.rateLimit(o)(handler))],
    ['limitRoute in onRequest', (app, o, handler) => app.get('/', { onRequest: limitRoute(o) }, handler)],
    [
      'app.rateLimit in preHandler',
      (app, o, handler) => app.get('/', { preHandler: [app.rateLimit(o)] }, handler),
    ],
    ['config.rateLimit', (app, o, handler) => app.get('/', { config: { rateLimit: o } }, handler)],
  ]

  /** Ways to answer for limits that are hooks, which Fastify runs before it looks at the handler. */
  const BASIC = [
    'returns an object',
    'resolves later',
    'sends later',
    'answers past Fastify',
    'throws',
    'rejects',
  ]

  const handlers: readonly (readonly [string, RouteHandlerMethod])[] = [
    ['returns an object', () => ({ a: 1 })],
    ['returns a text', () => 'text'],
    ['returns an empty text', () => ''],
    ['returns null', () => null],
    ['returns 0', () => 0],
    ['resolves', async () => ({ a: 1 })],
    ['resolves later', () => new Promise(resolve => setImmediate(resolve, 'later'))],
    ['resolves with null', async () => null],
    ['resolves with nothing', async () => {}],
    ['resolves with no content', async (_request, reply) => void reply.code(204)],
    ['sends', (_request, reply) => void reply.send('sent')],
    ['sends nothing', (_request, reply) => void reply.send()],
    ['returns what it sends', (_request, reply) => reply.send('sent')],
    ['sends later', (_request, reply) => void setImmediate(() => reply.send('later'))],
    [
      'sends later and returns the reply',
      (_request, reply) => {
        setImmediate(() => reply.send('later'))
        return reply
      },
    ],
    [
      'sends later and resolves with the reply',
      async (_request, reply) => {
        setImmediate(() => reply.send('later'))
        return reply
      },
    ],
    ['sends in a promise', async (_request, reply) => void reply.send('sent')],
    ['resolves with what it sends', async (_request, reply) => reply.code(201).send({ made: true })],
    ['redirects', (_request, reply) => reply.redirect('/elsewhere', 303)],
    ['streams', (_request, reply) => reply.send(Readable.from(['a', 'b']))],
    ['returns a stream', () => Readable.from(['a', 'b'])],
    [
      'answers past Fastify',
      (_request, reply) => {
        reply.hijack()
        setImmediate(() => reply.raw.end('raw'))
      },
    ],
    ['finds nothing', (_request, reply) => reply.callNotFound()],
    ['throws', () => fail()],
    ['throws with a status', () => fail(teapot())],
    ['rejects', async () => fail()],
    ['rejects with a status', async () => fail(teapot())],
    [
      'throws behind a status of its own',
      (_request, reply) => {
        reply.code(409)
        return fail()
      },
    ],
    [
      'rejects behind a status of its own',
      async (_request, reply) => {
        reply.code(409)
        fail()
      },
    ],
    ['sends an error', (_request, reply) => reply.send(teapot())],
  ]

  describe.each(guards)('decided %s', (_, guard) => {
    describe.each(places)('by %s', (name, place) => {
      const rows =
        name === 'limitRoute around it' ? handlers : handlers.filter(([how]) => BASIC.includes(how))

      async function outcomeOf(
        handler: RouteHandlerMethod,
        mount: (app: FastifyInstance, options: Options, h: RouteHandlerMethod) => void,
      ) {
        const app = await limitedApp()
        const [errors, lines]: [unknown[], string[]] = [[], []]
        app.setErrorHandler((error, _request, reply) => {
          errors.push(error)
          reply.send(error)
        })
        app.addHook('onResponse', async (request, reply) => {
          lines.push(`${request.url} ${reply.statusCode}`)
        })
        mount(app, guard(), handler)
        const { statusCode, body, headers } = await app.inject('/')
        return { statusCode, body, type: headers['content-type'], at: headers.location, errors, lines }
      }

      it.each(rows)('a handler that %s does as it did', async (_, handler) => {
        const bare = await outcomeOf(handler, (app, _options, handler) => app.get('/', handler))
        expect(await outcomeOf(handler, place)).toEqual(bare)
      })

      it('nothing is logged of answers that were given elsewhere', async () => {
        const lines: { level: number; msg: string }[] = []
        const app = make({
          logger: { level: 'warn', stream: { write: (line: string) => lines.push(JSON.parse(line)) } },
        })
        await app.register(rateLimit, { limiter: () => null })
        const silent = { ...guard(), limit: 1 } as Options
        place(app, silent, (_request, reply) => void setImmediate(() => reply.send('later')))
        expect(await statuses(app, '/', 2)).toEqual([200, 429])
        expect(lines).toEqual([])
      })

      it('`this` is the server, as it was', async () => {
        const app = await limitedApp()
        const contexts: unknown[] = []
        place(app, guard(), function () {
          contexts.push(this)
          return 'ok'
        })
        expect(await statuses(app, '/', 1)).toEqual([200])
        expect(contexts[0]).toBe(app)
      })
    })

    it('a method keeps its object', async () => {
      const app = make()
      const controller = new (decorate(limitRoute(guard())))(() => 'mine')
      app.get('/', (request, reply) => controller.search(request as never, reply as never))
      expect((await app.inject('/')).body).toBe('mine')
    })
  })

  it('limitRoute needs no plugin', async () => {
    const app = make()
    app.get('/', limitRoute(limit(1))(ok))
    app.get('/hook', { onRequest: limitRoute(limit(1)) }, ok)
    expect(await statuses(app, '/', 2)).toEqual([200, 429])
    expect(await statuses(app, '/hook', 2)).toEqual([200, 429])
    expect(app.limiters).toBeUndefined()
  })

  it('limitRoute without the plugin leaves its decision all the same', async () => {
    const app = make()
    app.get(
      '/',
      limitRoute(limit(3))(request => ({ left: request.rateLimit?.remaining })),
    )
    expect((await app.inject('/')).json()).toEqual({ left: 2 })
  })

  it('limitRoute is a hook of a whole context', async () => {
    const app = make()
    app.addHook('onRequest', limitRoute(limit(2)))
    app.get('/a', ok)
    app.get('/b', ok)
    expect(await statuses(app, '/a', 1)).toEqual([200])
    expect(await statuses(app, '/b', 2)).toEqual([200, 429])
    expect(await statuses(app, '/none', 1)).toEqual([429])
  })

  it('a limit adds to those of its context, and to config.rateLimit', async () => {
    const app = await limitedApp(limit(5, { name: 'context' }))
    app.get('/', app.rateLimit(limit(3, { name: 'route' }))(ok))
    const config = { rateLimit: limit(4, { name: 'config' }) }
    app.get('/config', { config, onRequest: app.rateLimit(limit(3, { name: 'route' })) }, ok)
    expect((await app.inject('/')).headers.ratelimit).toBe('"context";r=4;t=48, "route";r=2;t=40')
    expect((await app.inject('/config')).headers.ratelimit).toBe('"config";r=3;t=45, "route";r=2;t=40')
  })

  it('a limiter of the context counts once', async () => {
    const limiter = createLimiter(tokenBucket({ limit: 9, window: '1m' }), { clock })
    const app = await limitedApp({ limiter })
    app.get('/', { onRequest: app.rateLimit({ limiter }) }, limitRoute({ limiter })(ok))
    await app.inject('/')
    expect(limiter.peek('127.0.0.1').remaining).toBe(8)
  })

  it.each(['onRequest', 'preHandler'] as const)('a refusal in %s stops what comes after it', async hook => {
    const app = await limitedApp()
    const seen: string[] = []
    const see = (name: string) => async () => void seen.push(name)
    app.get(
      '/',
      {
        onRequest: hook === 'onRequest' ? [see('before'), app.rateLimit(limit(0)), see('after')] : [],
        preHandler: hook === 'preHandler' ? [see('before'), app.rateLimit(limit(0)), see('after')] : [],
        onResponse: see('response'),
      },
      () => {
        seen.push('handler')
        return 'ok'
      },
    )
    expect(await statuses(app, '/', 1)).toEqual([429])
    await until(() => expect(seen).toEqual(['before', 'response']))
  })

  it('onRequest decides before a body is read, and around a handler after it', async () => {
    const app = await limitedApp()
    let parsed = 0
    app.addContentTypeParser('text/plain', { parseAs: 'string' }, (_request, body, done) => {
      parsed++
      done(null, body)
    })
    app.post('/hook', { onRequest: app.rateLimit(limit(0)) }, ok)
    app.post('/around', app.rateLimit(limit(0))(ok))
    const post: InjectOptions = { method: 'POST', payload: 'a', headers: { 'content-type': 'text/plain' } }
    expect(await statuses(app, '/hook', 1, post)).toEqual([429])
    expect(parsed).toBe(0)
    expect(await statuses(app, '/around', 1, post)).toEqual([429])
    expect(parsed).toBe(1)
  })

  describe('app.limiters', () => {
    const names = (app: FastifyInstance) => [...app.limiters.keys()]

    it('has those of the context and its routes, by name', async () => {
      const app = await limitedApp(limit(5))
      app.get('/a', { config: { rateLimit: limit(5, { name: 'config' }) } }, ok)
      app.get('/b', { onRequest: app.rateLimit(limit(5, { name: 'hook' })) }, ok)
      app.get('/c', app.rateLimit(limit(5, { name: 'around' }))(ok))
      await app.ready()
      expect(names(app)).toEqual(['default', 'config', 'hook', 'around'])
    })

    it('names a second one of a name apart', async () => {
      const app = await limitedApp(limit(5))
      app.get('/a', { config: { rateLimit: limit(6) } }, ok)
      app.get('/b', app.rateLimit(limit(7))(ok))
      expect([...app.limiters].map(([name, { policy }]) => [name, policy.limit])).toEqual([
        ['default', 5],
        ['default-2', 6],
        ['default-3', 7],
      ])
    })

    it('has one that is used twice once', async () => {
      const limiter = createLimiter(tokenBucket({ limit: 5, window: '1m' }), { clock, name: 'shared' })
      const app = await limitedApp({ limiter })
      app.get('/a', { config: { rateLimit: { limiter } } }, ok)
      app.get('/b', app.rateLimit({ limiter })(ok))
      expect([...app.limiters]).toEqual([['shared', limiter]])
    })

    it('has every policy, and nothing that is chosen for each request', async () => {
      const chosen = createLimiter(tokenBucket({ limit: 5, window: '1m' }), { clock, name: 'chosen' })
      const app = await limitedApp({
        policies: [
          { limit: 1, window: '1s', name: 'burst', clock },
          { limit: 5, window: '1m', name: 'sustained', clock },
          { limiter: () => chosen },
        ],
      })
      expect(names(app)).toEqual(['burst', 'sustained'])
    })

    it('has a GET and its HEAD once', async () => {
      const app = await limitedApp(limit(5))
      app.get('/a', { config: { rateLimit: limit(5, { name: 'a' }) } }, ok)
      await app.ready()
      expect(names(app)).toEqual(['default', 'a'])
    })

    it('has those of contexts inside, and is one map with them', async () => {
      const app = await limitedApp(limit(5, { name: 'outer' }))
      let inner: FastifyInstance | undefined
      app.register(async api => {
        inner = api
        await api.register(rateLimit, limit(5, { name: 'inner' }))
        api.get('/a', { config: { rateLimit: limit(5, { name: 'route' }) } }, ok)
      })
      await app.ready()
      expect(names(app)).toEqual(['outer', 'inner', 'route'])
      expect(inner?.limiters).toBe(app.limiters)
    })

    it('of contexts beside each other are their own', async () => {
      const app = make()
      const found: Record<string, string[]> = {}
      for (const name of ['a', 'b'])
        app.register(async api => {
          await api.register(rateLimit, limit(5, { name }))
          api.get(`/${name}`, { config: { rateLimit: limit(5, { name: `route-${name}` }) } }, ok)
          found[name] = names(api)
        })
      await app.ready()
      expect(found).toEqual({ a: ['a', 'route-a'], b: ['b', 'route-b'] })
      expect(app.limiters).toBeUndefined()
    })

    it('are there to peek, reset and unblock with', async () => {
      const app = await limitedApp()
      app.get('/', app.rateLimit(limit(1, { name: 'search', block: { after: 1, for: '1h' } }))(ok))
      expect(await statuses(app, '/', 2)).toEqual([200, 429])
      const search = app.limiters.get('search')
      expect(await search?.peek('127.0.0.1')).toMatchObject({ code: 'SLUICE_BLOCKED', allowed: false })
      await search?.unblock('127.0.0.1')
      await search?.reset('127.0.0.1')
      expect(await statuses(app, '/', 1)).toEqual([200])
    })

    it('have those of routes that were declared before, once a request has come', async () => {
      const app = make()
      app.register(rateLimit, limit(5))
      app.get('/', { config: { rateLimit: limit(5, { name: 'early' }) } }, ok)
      await app.ready()
      expect(await statuses(app, '/', 1)).toEqual([200])
      expect(names(app)).toEqual(['default', 'early'])
    })
  })

  describe('app.rateLimit', () => {
    it.each([
      [undefined, 'rateLimit options'],
      [{ limit: -1, window: '1m' }, 'limit'],
      [{ max: 1, timeWindow: '1m' }, 'max'],
      [{ limit: 1, window: '1m', hook: 'onSend' }, 'hook'],
      [{ limit: 1, window: '1m', hook: 'preHandler' }, 'hook'],
    ])('throws at once for %o', async (options, option) => {
      const app = await limitedApp()
      expect(() => app.rateLimit(options as never)).toThrow(
        expect.objectContaining({ code: expect.stringMatching(/^SLUICE_/), option }),
      )
    })

    it('is there in contexts inside, and not outside', async () => {
      const app = make()
      app.register(async api => {
        await api.register(rateLimit, { limiter: () => null })
        api.register(async inside => {
          inside.get('/inside', inside.rateLimit(limit(1))(ok))
        })
      })
      await app.ready()
      expect(app.rateLimit).toBeUndefined()
      expect(await statuses(app, '/inside', 2)).toEqual([200, 429])
    })

    it('is not there before the plugin is loaded', () => {
      const app = make()
      app.register(rateLimit, limit(1))
      expect(() => app.rateLimit(limit(1))).toThrow(TypeError)
    })

    it('takes no plugin for granted when it is taken from the app', async () => {
      const app = await limitedApp()
      const { rateLimit: limiting } = app
      app.get('/', limiting.call(app, limit(1))(ok))
      expect(await statuses(app, '/', 2)).toEqual([200, 429])
    })

    it.each(['around', 'onRequest', 'preHandler'])(
      'a limit %s ends what it holds with the server',
      async at => {
        const limiter = createLimiter(tokenBucket({ limit: 1, window: '1m' }), { clock })
        const app = await limitedApp()
        app.register(async inside => {
          const held = inside.rateLimit({ limiter, key: () => 'all', maxWait: '60s' })
          if (at === 'around') inside.get('/', held(ok))
          else inside.get('/', { [at]: held }, ok)
        })
        const url = await app.listen({ port: 0, host: '127.0.0.1' })
        await request(url).get('/').expect(200)
        const waiting = request(url).get('/').expect(503).then()
        await until(() => expect(clock.alarms).toBe(1))
        await app.close()
        await waiting
        expect(clock.alarms).toBe(0)
      },
    )
  })

  describe('the plugin in the place of a hook or a handler', () => {
    const notRegistered = { name: 'TypeError', code: 'SLUICE_NOT_REGISTERED', option: 'rateLimit' }
    const plugin = rateLimit as unknown as (...args: unknown[]) => unknown

    it.each([
      ['options', [{ limit: 1, window: '1m' }]],
      ['nothing', []],
      ['null', [null]],
      ['options and a handler', [{ limit: 1, window: '1m' }, () => {}]],
    ])('called with %s throws, and names the ways', (_, args) => {
      const call = () => plugin(...args)
      expect(call).toThrow(expect.objectContaining(notRegistered))
      expect(call).toThrow(/app\.register\(rateLimit.*config\.rateLimit.*app\.rateLimit.*limitRoute/)
    })

    it.each(['onRequest', 'preHandler', 'handler'])('as %s is an error of each request', async place => {
      const app = make()
      const errors: unknown[] = []
      app.setErrorHandler((error, _request, reply) => {
        errors.push(error)
        reply.send(error)
      })
      app.route({ method: 'GET', url: '/', handler: ok, [place]: plugin })
      expect(await statuses(app, '/', 1)).toEqual([500])
      expect(errors).toMatchObject([{ code: 'SLUICE_NOT_REGISTERED' }])
    })

    it('as a hook of an app is an error of each request', async () => {
      const app = make()
      app.addHook('onRequest', plugin as never)
      app.get('/', ok)
      const { statusCode, body } = await app.inject('/')
      expect([statusCode, JSON.parse(body).code]).toEqual([500, 'SLUICE_NOT_REGISTERED'])
    })
  })
})
