import { createServer, get, type RequestListener } from 'node:http'
import { createRequire } from 'node:module'
import { Readable } from 'node:stream'
import { runInThisContext } from 'node:vm'
import Router from '@koa/router'
import { createLimiter, type Decision, memoryStore, tokenBucket } from '@sluice/core'
import * as onNode from '@sluice/core/http'
import * as onExpress from '@sluice/express'
import * as onFastify from '@sluice/fastify'
import * as onKoa from '@sluice/koa'
import express, { type ErrorRequestHandler, type RequestHandler } from 'express'
import {
  type FastifyInstance,
  type FastifyReply,
  type FastifyRequest,
  type FastifyServerOptions,
  fastify,
  type InjectOptions,
  type RouteHandlerMethod,
} from 'fastify'
import Koa, { type Middleware } from 'koa'
import request from 'supertest'
import typescript from 'typescript5'
import { describe, expect, it, vi } from 'vitest'
import { asynchronous } from '../support/async-store.js'
import { clock, closing, listening } from '../support/each-test.js'
import { Koa2 } from '../support/servers/koa.js'

/*
 * Limits of single handlers: around a function, before a method, and as hooks of Fastify.
 */

const require = createRequire(import.meta.url)
/** Express 4 in the types of Express 5, whose part that is used here is the same. */
const express4 = require('express4') as typeof express

/** Options that fit every framework. */
type Options = onExpress.RateLimitOptions &
  onKoa.RateLimitOptions &
  onFastify.RouteLimitOptions &
  onNode.NodeOptions

const limit = (limit: number, options: object = {}): Options =>
  ({ limit, window: '1m', clock, ...options }) as Options

/** Waits for what sockets do on their own; the clock stands still meanwhile. */
const until = (expectation: () => void) => vi.waitFor(expectation, { timeout: 4000, interval: 5 })

/*
 * The ways to limit a handler.
 */

type Handler = (this: unknown, ...args: never[]) => unknown
type Limiting = <H extends Handler>(handler: H, context?: ClassMethodDecoratorContext) => H

interface Controller {
  readonly handler: Handler
  search: Handler
}

/** Decorates as tsc compiles it; vitest would leave decorators as they are, and Node does not know them. */
const decorate: (limit: unknown) => new (handler: Handler) => Controller = runInThisContext(
  typescript.transpile(
    `(limit => class Controller {
      constructor(handler) {
        this.handler = handler
      }
      @limit
      search(...args) {
        return this.handler(...args)
      }
    })`,
    { target: typescript.ScriptTarget.ES2022 },
  ),
)

type Use = (limit: Limiting, handler: Handler) => Handler

const uses: readonly (readonly [name: string, use: Use])[] = [
  ['around a handler', (limit, handler) => limit(handler)],
  [
    'as a method decorator',
    (limit, handler) => {
      const controller = new (decorate(limit))(handler)
      return (...args) => controller.search(...args)
    },
  ],
]

/*
 * The frameworks.
 */

/** Handlers at paths, those of one entry limited by one and the same limit. */
interface Entry {
  readonly limit: Options
  readonly paths?: readonly string[]
  readonly handle?: (decision: Decision | undefined) => unknown
}

interface Site {
  readonly url: string
  /** The paths whose handlers have run, and the errors that have reached the framework. */
  readonly handled: readonly string[]
  readonly errors: readonly unknown[]
}

interface Framework {
  readonly name: string
  limitRoute(options: Options): unknown
  start(entries: readonly Entry[], use: Use): Promise<Site>
}

/** Sets up what every framework records; `mount` puts a handler at a path. */
function site(
  entries: readonly Entry[],
  use: Use,
  limitRoute: (options: Options) => unknown,
  mount: (path: string, handler: Handler) => void,
  decisionOf: (...args: never[]) => Decision | undefined,
  answer: (body: unknown, ...args: never[]) => unknown,
) {
  const handled: string[] = []
  for (const { limit, paths = ['/'], handle } of entries) {
    const limiting = limitRoute(limit) as Limiting
    for (const path of paths) {
      const handler: Handler = (...args) => {
        handled.push(path)
        const decision = decisionOf(...args)
        return answer(handle === undefined ? { path } : handle(decision), ...args)
      }
      mount(path, use(limiting, handler))
    }
  }
  return handled
}

function expressOf(name: string, framework: typeof express): Framework {
  return {
    name,
    limitRoute: onExpress.limitRoute,
    async start(entries, use) {
      const app = framework()
      app.set('env', 'test')
      const errors: unknown[] = []
      const handled = site(
        entries,
        use,
        onExpress.limitRoute,
        (path, handler) => app.get(path, handler as RequestHandler),
        (req: express.Request) => req.rateLimit,
        (body, _req: never, res: express.Response) => res.json(body),
      )
      const record: ErrorRequestHandler = (error, _req, _res, next) => {
        errors.push(error)
        next(error)
      }
      app.use(record)
      return { url: await listening(createServer(app)), handled, errors }
    },
  }
}

function koaOf(name: string, Framework: typeof Koa): Framework {
  return {
    name,
    limitRoute: onKoa.limitRoute,
    async start(entries, use) {
      const app = new Framework()
      const errors: unknown[] = []
      app.on('error', error => errors.push(error))
      const router = new Router()
      const handled = site(
        entries,
        use,
        onKoa.limitRoute,
        (path, handler) => router.get(path, handler as Middleware),
        (ctx: Koa.Context) => ctx.state.rateLimit,
        (body, ctx: Koa.Context) => {
          ctx.body = body
        },
      )
      app.use(router.routes())
      return { url: await listening(createServer(app.callback())), handled, errors }
    },
  }
}

function fastifyOf(
  name: string,
  limitRouteOf: (app: FastifyInstance) => (options: Options) => onFastify.RouteLimit,
  mount = (app: FastifyInstance, path: string, limited: Handler) => {
    app.get(path, limited as RouteHandlerMethod)
  },
): Framework {
  return {
    name,
    limitRoute: onFastify.limitRoute,
    async start(entries, use) {
      const app = fastify()
      const errors: unknown[] = []
      app.setErrorHandler((error, _request, reply) => {
        errors.push(error)
        reply.send(error)
      })
      await app.register(onFastify.rateLimit, { limiter: () => null })
      const handled = site(
        entries,
        use,
        limitRouteOf(app),
        (path, handler) => mount(app, path, handler),
        (request: FastifyRequest) => request.rateLimit,
        (body, _request: never, reply: FastifyReply) => reply.send(body),
      )
      await app.ready()
      return { url: await listening(app.server), handled, errors }
    },
  }
}

const nodeFramework: Framework = {
  name: 'node',
  limitRoute: onNode.limitRoute,
  async start(entries, use) {
    const errors: unknown[] = []
    const routes = new Map<string, Handler>()
    const onError: onNode.NodeOptions['onError'] = (error, _request, response) => {
      errors.push(error)
      response.statusCode = (error as { status?: number }).status ?? 500
      response.end()
    }
    const handled = site(
      entries,
      use,
      options => onNode.limitRoute({ ...options, onError } as Options),
      (path, handler) => routes.set(path, handler),
      (request: onNode.LimitedMessage) => request.rateLimit,
      (body, _request: never, response: { end(text: string): unknown }) => response.end(JSON.stringify(body)),
    )
    const server = createServer((request, response) => {
      const handler = routes.get(request.url as string) as RequestListener
      handler(request, response)
    })
    return { url: await listening(server), handled, errors }
  },
}

const frameworks: readonly Framework[] = [
  expressOf('express', express),
  expressOf('express4', express4),
  koaOf('koa', Koa),
  koaOf('koa2', Koa2),
  fastifyOf('fastify', () => onFastify.limitRoute),
  fastifyOf('fastify, of the app', app => app.rateLimit.bind(app) as never),
  nodeFramework,
]

/** A hook is put before the handler of its route. */
const hooks: readonly Framework[] = (['onRequest', 'preValidation', 'preHandler'] as const).map(hook =>
  fastifyOf(
    hook,
    app => app.rateLimit.bind(app) as never,
    (app, path, hooked) => {
      const { hook: limited, handler } = hooked as unknown as Record<'hook' | 'handler', never>
      app.get(path, { [hook]: limited }, handler)
    },
  ),
)
const asHook: Use = (limit, handler) => ({ hook: limit, handler }) as never

const every: readonly (readonly [string, string, Framework, Use])[] = [
  ...frameworks.flatMap(framework =>
    uses.map(([name, use]) => [framework.name, name, framework, use] as const),
  ),
  ...hooks.map(
    framework => [`fastify, ${framework.name}`, 'as a hook of the app', framework, asHook] as const,
  ),
]

describe.each(every)('on %s, %s', (_, __, framework, use) => {
  const serve = (...entries: Entry[]) => framework.start(entries, use)
  const ask = (site: Site, path = '/') => request(site.url).get(path)

  /** Keys that are known at once, and later. */
  const keys = [
    ['at once', () => 'all'],
    ['later', async () => 'all'],
  ] as const

  describe.each(keys)('with a key that is known %s', (_, key) => {
    it('lets the limit through, and answers the rest', async () => {
      const site = await serve({ limit: limit(2, { key, name: 'search' }) })
      for (const left of ['"search";r=1', '"search";r=0']) {
        const { status, headers, text } = await ask(site)
        expect([status, JSON.parse(text)]).toEqual([200, { path: '/' }])
        expect(headers.ratelimit).toContain(left)
        expect(headers).toMatchObject({ 'ratelimit-policy': '"search";q=2;w=60' })
        expect(headers).not.toHaveProperty('retry-after')
      }
      const { status, headers, text } = await ask(site)
      expect(status).toBe(429)
      expect(JSON.parse(text)).toEqual({
        type: 'https://iana.org/assignments/http-problem-types#quota-exceeded',
        title: 'Quota Exceeded',
        status: 429,
        'violated-policies': ['search'],
      })
      expect(headers).toMatchObject({
        'content-type': 'application/problem+json',
        'retry-after': '30',
        ratelimit: '"search";r=0;t=30',
        'ratelimit-policy': '"search";q=2;w=60',
        'cache-control': 'no-store',
      })
      expect(site.handled).toEqual(['/', '/'])
      expect(site.errors).toEqual([])
      clock.advance('30s')
      await ask(site).expect(200)
    })

    it('leaves the decision where the handler looks', async () => {
      const site = await serve({ limit: limit(3, { key }), handle: decision => decision?.remaining })
      expect((await ask(site)).text).toBe('2')
      expect((await ask(site)).text).toBe('1')
    })

    it('lets onRefused answer, with the status', async () => {
      const onRefused = vi.fn()
      const site = await serve({ limit: limit(0, { key, onRefused, status: 503 }) })
      await ask(site).expect(503).expect('Content-Type', 'application/problem+json')
      expect(onRefused.mock.lastCall?.at(-1)).toMatchObject({ status: 503, retryAfter: undefined })
      expect(site.handled).toEqual([])
    })

    it('throws a refusal, if it is to', async () => {
      const site = await serve({ limit: limit(1, { key, throws: true }) })
      await ask(site).expect(200)
      await ask(site).expect(429).expect('Retry-After', '60').expect('RateLimit', '"default";r=0;t=60')
      expect(site.errors).toMatchObject([
        { status: 429, code: 'SLUICE_RATE_LIMITED', retryAfter: 60, headers: { 'Retry-After': '60' } },
      ])
      expect(site.handled).toEqual(['/'])
    })

    it('hands on what onRefused throws, as an error of ours', async () => {
      const failure = new Error('no answer')
      const onRefused = () => {
        throw failure
      }
      const site = await serve({ limit: limit(0, { key, onRefused }) })
      await ask(site).expect(500)
      expect(site.errors).toEqual([failure])
      expect(site.errors[0]).toBe(failure)
      expect(site.handled).toEqual([])
    })

    it('holds a request until its permit is there', async () => {
      const site = await serve({ limit: limit(1, { key, maxWait: '60s' }) })
      await ask(site).expect(200)
      const held = ask(site).expect(200).then()
      await until(() => expect(clock.alarms).toBe(1))
      expect(site.handled).toEqual(['/'])
      clock.advance('60s')
      expect((await held).headers.ratelimit).toBe('"default";r=0;t=60')
      expect(site.handled).toEqual(['/', '/'])
    })

    it('never runs the handler of a client that hangs up while it is held', async () => {
      const limiter = createLimiter(tokenBucket({ limit: 1, window: '1m' }), { clock })
      const site = await serve({ limit: { limiter, key, maxWait: '60s' } as Options })
      await ask(site).expect(200)
      const client = get(site.url).on('error', () => {})
      await until(() => expect(limiter.peek('all').balance).toBe(-1))
      client.destroy()
      await until(() => expect(limiter.peek('all').balance).toBe(0))
      clock.advance('60s')
      await ask(site).expect(200)
      expect(site.handled).toEqual(['/', '/'])
      expect(site.errors).toEqual([])
    })
  })

  const noUser = errorOf('no user')

  it.each([
    ['thrown', () => fail(noUser)],
    ['rejected', async () => fail(noUser)],
  ])('hands on what a key has %s, and does not run', async (_, key) => {
    const site = await serve({ limit: limit(1, { key }) })
    await ask(site).expect(500)
    expect(site.errors).toEqual([noUser])
    expect(site.errors[0]).toBe(noUser)
    expect(site.handled).toEqual([])
  })

  it.each([
    ['thrown', () => fail(undefined)],
    ['rejected', async () => fail(undefined)],
  ])('takes nothing at all, %s, for an error', async (_, key) => {
    const site = await serve({ limit: limit(1, { key }) })
    await ask(site).expect(500)
    expect(site.errors).toMatchObject([{ code: 'SLUICE_CALLBACK_FAILED' }])
    expect(site.handled).toEqual([])
  })

  it('leaves a request alone that has no key', async () => {
    const site = await serve({ limit: limit(0, { key: () => null }), handle: decision => decision ?? 'none' })
    const { text, headers } = await ask(site).expect(200)
    expect(text).toContain('none')
    expect(headers).not.toHaveProperty('ratelimit')
  })

  it('refuses while a store has failed, if it is to', async () => {
    const store = asynchronous(memoryStore())
    const site = await serve({ limit: limit(1, { name: 'stored', store, onStoreError: 'refuse' }) })
    store.failWith(new Error('down'))
    await ask(site).expect(503)
    expect(site.handled).toEqual([])
  })

  it('counts each limit by itself', async () => {
    const site = await serve({ limit: limit(1), paths: ['/a'] }, { limit: limit(1), paths: ['/b'] })
    await ask(site, '/a').expect(200)
    await ask(site, '/b').expect(200)
    await ask(site, '/a').expect(429)
    expect(site.handled).toEqual(['/a', '/b'])
  })

  it('counts together what one limit is put around', async () => {
    const site = await serve({ limit: limit(2), paths: ['/a', '/b'] })
    await ask(site, '/a').expect(200)
    await ask(site, '/b').expect(200)
    await ask(site, '/a').expect(429)
    await ask(site, '/b').expect(429)
    expect(site.handled).toEqual(['/a', '/b'])
  })

  it('counts together what shares a limiter', async () => {
    const limiter = createLimiter(tokenBucket({ limit: 2, window: '1m' }), { clock })
    const shared = () => ({ limiter }) as Options
    const site = await serve({ limit: shared(), paths: ['/a'] }, { limit: shared(), paths: ['/b'] })
    await ask(site, '/a').expect(200)
    await ask(site, '/b').expect(200)
    await ask(site, '/a').expect(429)
    expect(limiter.peek('127.0.0.1').remaining).toBe(0)
  })

  it('takes policies', async () => {
    const policies = [
      { limit: 1, window: '1s', name: 'burst', clock },
      { limit: 5, window: '1m', name: 'sustained', clock },
    ]
    const site = await serve({ limit: { policies } as unknown as Options })
    await ask(site).expect(200).expect('RateLimit', '"burst";r=0;t=1, "sustained";r=4;t=48')
    await ask(site).expect(429).expect('Retry-After', '1')
    expect(site.handled).toEqual(['/'])
  })

  it.runIf(framework !== nodeFramework)('counts what has failed only, after the handler', async () => {
    let status = 200
    const site = await serve({
      limit: limit(1, { count: 'after', refund: { ifSuccessful: true } }),
      handle: () => {
        if (status !== 200) throw Object.assign(new Error('bad'), { status, statusCode: status })
        return 'good'
      },
    })
    for (let good = 0; good < 3; good++) await ask(site).expect(200)
    status = 400
    await ask(site).expect(400)
    await ask(site).expect(429)
  })
})

/** The same to every app, which may print it and write to it. */
const errorOf = (message: string, properties: object = {}) =>
  Object.assign(new Error(message), { stack: message }, properties)

function fail(...errors: unknown[]): never {
  throw errors.length > 0 ? errors[0] : errorOf('no user')
}

/*
 * What a limit is made of, in the same words everywhere.
 */

describe.each(
  [...frameworks.filter(({ name }) => name !== 'fastify, of the app')].map(
    ({ name, limitRoute }) => [name, limitRoute as (options: unknown) => Limiting] as const,
  ),
)('limitRoute of %s', (name, limitRoute) => {
  it('keeps the name', () => {
    function search() {}
    expect(limitRoute(limit(1))(search).name).toBe('search')
    const { prototype } = decorate(limitRoute(limit(1)))
    expect(prototype.search.name).toBe('search')
  })

  it.each([
    ['nothing', undefined],
    ['a number', 5],
    ['an unknown option', { limit: 1, window: '1m', max: 5 }],
    ['a bad limit', { limit: -1, window: '1m' }],
    [
      'two doors',
      { limit: 1, window: '1m', limiter: createLimiter(tokenBucket({ limit: 1, window: '1m' })) },
    ],
    ['throws beside onRefused', { limit: 1, window: '1m', throws: true, onRefused() {} }],
    ['a callback that is none', { limit: 1, window: '1m', onRefused: 'no' }],
    ['a hook, which is for the plugin', { limit: 1, window: '1m', hook: 'preHandler' }],
  ])('throws at once for %s', (_, options) => {
    expect(() => limitRoute(options)).toThrow(
      expect.objectContaining({ code: expect.stringMatching(/^SLUICE_/), option: expect.any(String) }),
    )
  })

  const misused = expect.objectContaining({
    name: 'TypeError',
    code: 'SLUICE_INVALID_OPTION',
    option: 'limitRoute',
  })

  it.each([
    ['nothing', [undefined]],
    ['a text', ['search']],
    ['an object', [{ search() {} }]],
    ['a field, as a standard decorator', [undefined, { kind: 'field', name: 'search' }]],
    ['a method, as a decorator of old', [{ search() {} }, 'search', { value() {} }]],
    ['a static method, as a decorator of old', [class {}, 'search', { value() {} }]],
    ['a class, as a standard decorator', [class {}, { kind: 'class', name: 'Items' }]],
    ['a getter, as a standard decorator', [() => 5, { kind: 'getter', name: 'size' }]],
  ])('is not to be put around %s', (_, args) => {
    const limiting = limitRoute(limit(1)) as (...args: unknown[]) => unknown
    expect(() => limiting(...args)).toThrow(misused)
  })

  it('is told of by itself in the message', () => {
    expect(() => limitRoute(limit(1))(undefined as never)).toThrow(/^limitRoute: expected a handler/)
  })

  it.runIf(name !== 'node')('knows no onError', () => {
    expect(() => limitRoute(limit(1, { onError() {} }))).toThrow(
      expect.objectContaining({ code: 'SLUICE_UNKNOWN_OPTION', option: 'onError' }),
    )
  })
})

/*
 * A limited handler answers as it does without a limit, whatever its way to answer.
 */

/** When the guard decides. */
const guards: readonly (readonly [string, () => Options])[] = [
  ['at once', () => limit(100)],
  ['after an async key', () => limit(100, { key: async () => 'all' })],
  ['after a slow key', () => limit(100, { key: () => new Promise(known => setImmediate(known, 'all')) })],
  ['after an async store', () => limit(100, { name: 'stored', store: asynchronous(memoryStore()) })],
]

async function answerOf(app: RequestListener, path = '/') {
  const url = await listening(createServer(app))
  const { status, text, headers } = await request(url).get(path).redirects(0)
  return { status, text, type: headers['content-type'], location: headers.location }
}

const teapot = () => errorOf('a teapot', { status: 418, statusCode: 418 })

describe.each([
  ['express', express],
  ['express4', express4],
] as const)('on %s', (name, framework) => {
  const { limitRoute } = onExpress

  function appOf(...handlers: RequestHandler[]) {
    const errors: unknown[] = []
    const app = framework().set('env', 'test')
    app.get('/', ...handlers)
    app.get('/', (_req, res) => res.send('the next route'))
    const record: ErrorRequestHandler = (error, _req, _res, next) => {
      errors.push(error)
      next(error)
    }
    return { app: app.use(record), errors }
  }

  /** The second group is not looked at by Express 4 as it is. */
  const handlers: readonly (readonly [string, RequestHandler])[] = [
    ['sends', (_req, res) => void res.send('sent')],
    ['returns the response', (_req, res) => res.status(201).json({ made: true })],
    ['answers later', (_req, res) => void setImmediate(() => res.send('later'))],
    ['is async', async (_req, res) => void res.send('async')],
    ['goes on', (_req, _res, next) => next()],
    ['goes on later', (_req, _res, next) => void setImmediate(next)],
    ['goes on to the next route', (_req, _res, next) => next('route')],
    ['hands on an error', (_req, _res, next) => next(teapot())],
    ['redirects', (_req, res) => res.redirect(303, '/elsewhere')],
    ['throws', () => fail()],
    ['throws with a status', () => fail(teapot())],
    [
      'throws behind a status of its own',
      (_req, res) => {
        res.status(409)
        fail()
      },
    ],
  ]
  const rejecting: readonly (readonly [string, RequestHandler])[] = [
    ['rejects', async () => fail()],
    ['rejects with a status', async () => fail(teapot())],
    ['rejects with the next route', () => Promise.reject('route')],
    [
      'rejects behind a status of its own',
      async (_req, res) => {
        res.status(409)
        fail()
      },
    ],
  ]

  describe.each(guards)('decided %s', (when, guard) => {
    it.each([...handlers, ...(name === 'express' ? rejecting : [])])(
      'a handler that %s does as it did',
      async (_, handler) => {
        const bare = appOf(handler)
        const limited = appOf(limitRoute(guard())(handler))
        expect(await answerOf(limited.app)).toEqual(await answerOf(bare.app))
        expect(limited.errors).toEqual(bare.errors)
      },
    )

    it.runIf(name === 'express4' && when !== 'at once')(
      'the error handler hears of what a handler rejects with',
      async () => {
        const { app, errors } = appOf(limitRoute(guard())(async () => fail(teapot())))
        expect(await answerOf(app)).toMatchObject({ status: 418 })
        expect(errors).toMatchObject([{ status: 418 }])
      },
    )

    it('the handler is given what it was, on what it was', async () => {
      const seen = vi.fn((_req: express.Request, res: express.Response, _next: express.NextFunction) =>
        res.send('ok'),
      )
      const self = { seen: limitRoute(guard())(seen) as RequestHandler }
      const exchange: unknown[] = []
      const { app } = appOf((req, res, next) => {
        exchange.push(req, res, next)
        return self.seen(req, res, next)
      })
      await answerOf(app)
      expect(seen.mock.contexts[0]).toBe(self)
      expect(seen.mock.calls).toHaveLength(1)
      for (const [index, argument] of (seen.mock.calls[0] as unknown[]).entries())
        expect(argument).toBe(exchange[index])
    })

    it('what a handler returns is returned', async () => {
      const promise = Promise.resolve('a result')
      const returned: unknown[] = []
      for (const result of ['a result', promise]) {
        const limited = limitRoute(guard())((_req, res) => {
          res.end()
          return result
        }) as RequestHandler
        const { app } = appOf((req, res, next) => {
          returned.push(limited(req, res, next))
        })
        await answerOf(app)
      }
      if (when === 'at once') expect(returned).toEqual(['a result', promise])
      expect(await Promise.all(returned)).toEqual(['a result', 'a result'])
    })

    it('a handler may be called without `next`, and its errors reach the app', async () => {
      const send: RequestHandler = (_req, res) => void res.send('ok')
      const limited = limitRoute(guard())(send) as (...args: unknown[]) => unknown
      expect(await answerOf(appOf((req, res) => void limited(req, res)).app)).toMatchObject({ text: 'ok' })

      const failing = limitRoute(guard())(() => fail(teapot())) as typeof limited
      const { app, errors } = appOf((req, res) => void failing(req, res))
      expect(await answerOf(app)).toMatchObject({ status: 418 })
      expect(errors).toEqual([teapot()])
    })
  })

  it.each([
    ['throws', () => fail()],
    ['rejects with', async () => fail()],
  ])('what a key %s reaches the app from a handler that is called without `next`', async (_, key) => {
    const limited = limitRoute(limit(1, { key }))(() => {}) as (...args: unknown[]) => unknown
    const { app, errors } = appOf((req, res) => void limited(req, res))
    expect(await answerOf(app)).toMatchObject({ status: 500 })
    expect(errors).toEqual([errorOf('no user')])
  })

  it('a limiter of the app counts once around a handler', async () => {
    const limiter = createLimiter(tokenBucket({ limit: 9, window: '1m' }), { clock })
    const app = framework().use(onExpress.rateLimit({ limiter }))
    app.get(
      '/',
      limitRoute({ limiter })((_req, res) => void res.send('ok')),
    )
    await answerOf(app)
    expect(limiter.peek('127.0.0.1').remaining).toBe(8)
  })

  it('limits nest, and all of them are told of', async () => {
    const handler = limitRoute(limit(5, { name: 'outer' }))(
      limitRoute(limit(1, { name: 'inner' }))((req, res) => void res.json(req.rateLimit?.remaining)),
    )
    const url = await listening(createServer(appOf(handler).app))
    await request(url).get('/').expect(200, '0').expect('RateLimit', '"outer";r=4;t=48, "inner";r=0;t=60')
    await request(url).get('/').expect(429)
  })

  it('a response that has begun is left alone', async () => {
    const { app } = appOf(
      (_req, res, next) => {
        res.write('begun, ')
        next()
      },
      limitRoute(limit(0))((_req, res) => void res.end('done')),
    )
    expect(await answerOf(app)).toMatchObject({ status: 200, text: 'begun, done' })
  })
})

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

describe('on node:http', () => {
  const { limitRoute } = onNode

  const handlers: readonly (readonly [string, RequestListener])[] = [
    ['ends', (_request, response) => void response.end('ended')],
    ['answers later', (_request, response) => void setImmediate(() => response.end('later'))],
    ['is async', async (_request, response) => void response.end('async')],
    ['writes its head', (_request, response) => void response.writeHead(201, { 'X-A': 'b' }).end('made')],
    ['redirects', (_request, response) => void response.writeHead(303, { Location: '/elsewhere' }).end()],
  ]

  describe.each(guards)('decided %s', (when, guard) => {
    it.each(handlers)('a handler that %s does as it did', async (_, handler) => {
      expect(await answerOf(limitRoute(guard())(handler))).toEqual(await answerOf(handler))
    })

    it('the handler is given what it was, on what it was, and returns what it did', async () => {
      const seen = vi.fn((_request, response) => {
        response.end('ok')
        return 'a result'
      })
      const self = { seen: limitRoute(guard())(seen) as (...args: unknown[]) => unknown }
      const exchange: unknown[] = []
      let returned: unknown
      await answerOf((request, response) => {
        exchange.push(request, response)
        returned = self.seen(request, response)
      })
      expect(seen.mock.contexts[0]).toBe(self)
      for (const [index, argument] of (seen.mock.calls[0] as unknown[]).entries())
        expect(argument).toBe(exchange[index])
      if (when === 'at once') expect(returned).toBe('a result')
      expect(await returned).toBe('a result')
    })
  })

  it('onError is given the request and the response', async () => {
    const onError = vi.fn<NonNullable<onNode.NodeOptions['onError']>>((_error, _request, response) => {
      response.writeHead(400).end('mine')
    })
    const noUser = errorOf('no user')
    const handler = limitRoute(limit(1, { key: () => fail(noUser), onError }))((_request, _response) => {})
    const exchange: unknown[] = []
    expect(
      await answerOf((request, response) => {
        exchange.push(request, response)
        handler(request, response)
      }),
    ).toMatchObject({ status: 400, text: 'mine' })
    expect(onError.mock.calls).toHaveLength(1)
    expect(onError.mock.calls[0]?.[0]).toBe(noUser)
    expect(onError.mock.calls[0]?.[1]).toBe(exchange[0])
    expect(onError.mock.calls[0]?.[2]).toBe(exchange[1])
  })

  describe('without onError', () => {
    async function warnedOf(options: object) {
      const warn = vi.spyOn(process, 'emitWarning').mockImplementation(() => {})
      closing.push(() => warn.mockRestore())
      const answer = await answerOf(limitRoute(limit(0, options))(() => {}))
      return { ...answer, warnings: warn.mock.calls.map(([warning]) => warning) }
    }

    it.each([
      ['thrown', () => fail()],
      ['rejected', async () => fail()],
    ])('an error that is %s is a 500 and a warning', async (_, key) => {
      expect(await warnedOf({ key })).toMatchObject({
        status: 500,
        text: 'Internal Server Error',
        warnings: [errorOf('no user')],
      })
    })

    it('an error with a status is that status', async () => {
      expect(await warnedOf({ key: () => fail(teapot()) })).toMatchObject({ status: 418 })
    })

    it.each([200, 399, 600, 'none', Number.NaN])('an error with a status of %o is a 500', async status => {
      const key = () => fail(Object.assign(new Error('odd'), { status }))
      expect(await warnedOf({ key })).toMatchObject({ status: 500 })
    })

    it('a refusal that is thrown is its status, with every field, and no warning', async () => {
      const answer = await warnedOf({ throws: true })
      expect(answer).toMatchObject({ status: 429, text: 'Too Many Requests', warnings: [] })
    })
  })

  it.each([5, 'log', null, {}])('an onError of %o is refused at construction', onError => {
    expect(() => limitRoute(limit(1, { onError }))).toThrow(
      expect.objectContaining({ name: 'TypeError', code: 'SLUICE_INVALID_OPTION', option: 'onError' }),
    )
  })

  it('a limiter counts once around a handler that it limits already', async () => {
    const limiter = createLimiter(tokenBucket({ limit: 9, window: '1m' }), { clock })
    const once = limitRoute({ limiter })
    await answerOf(once(once((_request, response) => void response.end('ok'))))
    expect(limiter.peek('127.0.0.1').remaining).toBe(8)
  })
})

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
