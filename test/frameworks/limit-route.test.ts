import { createServer, get, type RequestListener } from 'node:http'
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
  fastify,
  type RouteHandlerMethod,
} from 'fastify'
import Koa, { type Middleware } from 'koa'
import request from 'supertest'
import { describe, expect, it, vi } from 'vitest'
import { asynchronous } from '../support/async-store.js'
import { clock, listening } from '../support/each-test.js'
import { express4 } from '../support/servers/express.js'
import { Koa2 } from '../support/servers/koa.js'
import {
  decorate,
  errorOf,
  fail,
  type Handler,
  type Limiting,
  limit,
  type Options,
  until,
} from './support.js'

/*
 * Limits of single handlers, on every framework: around a function, before a method, and as hooks of Fastify.
 */

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

    it('leaves the decision on the request', async () => {
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

    it('throws a refusal, with throws: true', async () => {
      const site = await serve({ limit: limit(1, { key, throws: true }) })
      await ask(site).expect(200)
      await ask(site).expect(429).expect('Retry-After', '60').expect('RateLimit', '"default";r=0;t=60')
      expect(site.errors).toMatchObject([
        { status: 429, code: 'SLUICE_RATE_LIMITED', retryAfter: 60, headers: { 'Retry-After': '60' } },
      ])
      expect(site.handled).toEqual(['/'])
    })

    it('passes what onRefused throws to the error handling', async () => {
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

    it('makes a request wait for its permit', async () => {
      const site = await serve({ limit: limit(1, { key, maxWait: '60s' }) })
      await ask(site).expect(200)
      const held = ask(site).expect(200).then()
      await until(() => expect(clock.alarms).toBe(1))
      expect(site.handled).toEqual(['/'])
      clock.advance('60s')
      expect((await held).headers.ratelimit).toBe('"default";r=0;t=60')
      expect(site.handled).toEqual(['/', '/'])
    })

    it('never runs the handler of a client that disconnects while it waits', async () => {
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
  ])('passes what a key has %s to the error handling, and does not run', async (_, key) => {
    const site = await serve({ limit: limit(1, { key }) })
    await ask(site).expect(500)
    expect(site.errors).toEqual([noUser])
    expect(site.errors[0]).toBe(noUser)
    expect(site.handled).toEqual([])
  })

  it.each([
    ['thrown', () => fail(undefined)],
    ['rejected', async () => fail(undefined)],
  ])('reports a key that has %s undefined as an error', async (_, key) => {
    const site = await serve({ limit: limit(1, { key }) })
    await ask(site).expect(500)
    expect(site.errors).toMatchObject([{ code: 'SLUICE_CALLBACK_FAILED' }])
    expect(site.handled).toEqual([])
  })

  it('does not limit a request without a key', async () => {
    const site = await serve({ limit: limit(0, { key: () => null }), handle: decision => decision ?? 'none' })
    const { text, headers } = await ask(site).expect(200)
    expect(text).toContain('none')
    expect(headers).not.toHaveProperty('ratelimit')
  })

  it("answers 503 while the store fails, with onStoreError 'refuse'", async () => {
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

  it('counts the handlers of one limit together', async () => {
    const site = await serve({ limit: limit(2), paths: ['/a', '/b'] })
    await ask(site, '/a').expect(200)
    await ask(site, '/b').expect(200)
    await ask(site, '/a').expect(429)
    await ask(site, '/b').expect(429)
    expect(site.handled).toEqual(['/a', '/b'])
  })

  it('counts handlers that share a limiter together', async () => {
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

  it.runIf(framework !== nodeFramework)("counts only failed requests, with count: 'after'", async () => {
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
    ['a callback that is not a function', { limit: 1, window: '1m', onRefused: 'no' }],
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

  it('is named in the error message', () => {
    expect(() => limitRoute(limit(1))(undefined as never)).toThrow(/^limitRoute: expected a handler/)
  })

  it.runIf(name !== 'node')('knows no onError', () => {
    expect(() => limitRoute(limit(1, { onError() {} }))).toThrow(
      expect.objectContaining({ code: 'SLUICE_UNKNOWN_OPTION', option: 'onError' }),
    )
  })
})
