import { createServer, type Server } from 'node:http'
import { createRequire } from 'node:module'
import Router from '@koa/router'
import { createLimiter, type Decision, tokenBucket } from '@sluice/core'
import { manualClock } from '@sluice/core/testing'
import { type RateLimitOptions, type RefusedError, rateLimit } from '@sluice/koa'
import Koa, { type Context, type Middleware } from 'koa'
import request from 'supertest'
import { beforeEach, describe, expect, expectTypeOf, it } from 'vitest'
import { Koa2 } from '../support/servers/koa.js'

/*
 * What is Koa's own, beside the contract: its error path, which drops every header but those of the error, and the
 * ways its middleware nests.
 */

const POLICY = '"default";q=100;w=60'
const PROBLEM = {
  type: 'https://iana.org/assignments/http-problem-types#quota-exceeded',
  title: 'Quota Exceeded',
  status: 429,
  'violated-policies': ['default'],
}

let clock = manualClock()

beforeEach(() => {
  clock = manualClock()
})

/** `limit` requests a minute, on the clock of the test. */
const perMinute = (limit: number, options: Partial<RateLimitOptions> = {}): RateLimitOptions =>
  ({ limit, window: '1m', clock, ...options }) as RateLimitOptions

describe.each([
  { name: 'koa', Framework: Koa },
  { name: 'koa2', Framework: Koa2 },
])('on $name', ({ Framework }) => {
  /** An app of the middleware, and what has reached Koa's error path. */
  function appOf(...middleware: Middleware[]): {
    server: Server
    errors: unknown[]
  } {
    const app = new Framework()
    const errors: unknown[] = []
    app.on('error', error => errors.push(error))
    for (const each of middleware) app.use(each)
    return { server: createServer(app.callback()), errors }
  }

  const ok: Middleware = ctx => {
    ctx.body = 'ok'
  }
  const throwing =
    (error: unknown): Middleware =>
    () => {
      throw error
    }

  // koajs/ratelimit#56
  it('never lets more than the limit through, nor says less than 0 is left (S57)', async () => {
    const { server } = appOf(rateLimit(perMinute(2)), ok)
    const seen = []
    for (let i = 0; i < 4; i++) {
      const { status, headers } = await request(server).get('/')
      seen.push([status, /;r=(\d+)/.exec(headers.ratelimit as string)?.[1]])
    }
    expect(seen).toEqual([
      [200, '1'],
      [200, '0'],
      [429, '0'],
      [429, '0'],
    ])
  })

  describe('an error downstream', () => {
    it.each([404, 500, 503])('thrown by ctx.throw(%d) keeps our fields and its own', async status => {
      const { server } = appOf(rateLimit(perMinute(100)), ctx =>
        ctx.throw(status, 'no', { headers: { 'Retry-After': '7', 'X-Reason': 'upkeep' } }),
      )
      await request(server)
        .get('/')
        .expect(status)
        .expect('RateLimit-Policy', POLICY)
        .expect('RateLimit', '"default";r=99;t=60')
        .expect('Retry-After', '7')
        .expect('X-Reason', 'upkeep')
    })

    it('reaches the error path as it is, and has no Retry-After or Cache-Control of ours', async () => {
      const failure = new Error('no')
      const { server, errors } = appOf(rateLimit(perMinute(100)), throwing(failure))
      const { headers } = await request(server).get('/').expect(500)
      expect(headers).not.toHaveProperty('retry-after')
      expect(headers).not.toHaveProperty('cache-control')
      expect(errors).toEqual([failure])
      expect(errors[0]).toBe(failure)
    })

    it('keeps the fields of every limiter it passes, and of the gateway, once each', async () => {
      const { server } = appOf(
        (ctx, next) => {
          ctx.set('RateLimit', '"edge";r=1;t=1')
          return next()
        },
        rateLimit(perMinute(100, { name: 'outer' })),
        rateLimit(perMinute(10, { name: 'inner' })),
        ctx => ctx.throw(404),
      )
      await request(server)
        .get('/')
        .expect(404)
        .expect('RateLimit', '"edge";r=1;t=1, "outer";r=99;t=60, "inner";r=9;t=54')
        .expect('RateLimit-Policy', '"outer";q=100;w=60, "inner";q=10;w=60')
    })

    it('may say RateLimit itself, in any case, and its headers are not written to', async () => {
      const headers = Object.freeze({ ratelimit: '"own";r=1;t=1' })
      const { server } = appOf(rateLimit(perMinute(100)), ctx => ctx.throw(503, { headers }))
      await request(server)
        .get('/')
        .expect(503)
        .expect('RateLimit', '"own";r=1;t=1')
        .expect('RateLimit-Policy', POLICY)
      expect(headers).toEqual({ ratelimit: '"own";r=1;t=1' })
    })

    it('that is the same for every request says the figures of each', async () => {
      const failure = Object.assign(new Error('no'), { status: 503, headers: { 'X-Reason': 'upkeep' } })
      const { server } = appOf(rateLimit(perMinute(100)), rateLimit(perMinute(10)), throwing(failure))
      for (const [outer, inner] of [
        ['"default";r=99;t=60', '"default-2";r=9;t=54'],
        ['"default";r=98;t=59', '"default-2";r=8;t=48'],
      ])
        await request(server)
          .get('/')
          .expect(503)
          .expect('RateLimit', `${outer}, ${inner}`)
          .expect('X-Reason', 'upkeep')
    })

    it.each([
      ['a text', 'no'],
      ['a number', 42],
      ['nothing', undefined],
      ['an object', { status: 400 }],
      ['a frozen error', Object.freeze(new Error('no'))],
      ['an error with headers that are none', Object.assign(new Error('no'), { headers: null })],
      ['a Headers object', Object.assign(new Error('no'), { headers: new Headers({ a: 'b' }) })],
    ])('that is %s is passed on', async (_, thrown) => {
      const caught: unknown[] = []
      const { server, errors } = appOf(
        async (ctx, next) => {
          await next().catch(error => caught.push(error))
          ctx.body = 'caught'
        },
        rateLimit(perMinute(100)),
        throwing(thrown),
      )
      const { headers } = await request(server).get('/').expect(200, 'caught')
      expect(headers.ratelimit).toBe('"default";r=99;t=60')
      expect(caught).toEqual([thrown])
      expect(caught[0]).toBe(thrown)
      expect(errors).toEqual([])
    })

    it('after the answer has begun is passed on', async () => {
      const failure = new Error('no')
      const { server, errors } = appOf(rateLimit(perMinute(100)), ctx => {
        ctx.res.statusCode = 200
        ctx.res.end('early')
        throw failure
      })
      await request(server).get('/').expect(200)
      expect(errors).toEqual([failure])
      expect(failure).not.toHaveProperty('headers')
    })

    it('has no fields of a request that is not limited', async () => {
      const { server } = appOf(rateLimit(perMinute(1, { key: () => null })), ctx => ctx.throw(404))
      const { headers } = await request(server).get('/').expect(404)
      expect(headers).not.toHaveProperty('ratelimit')
    })
  })

  describe('throws: true', () => {
    // koajs/ratelimit#63
    it("is answered by Koa's error path with every field (S14)", async () => {
      const { server, errors } = appOf(rateLimit(perMinute(1, { throws: true })), ok)
      await request(server).get('/').expect(200, 'ok').expect('RateLimit', '"default";r=0;t=60')
      await request(server)
        .get('/')
        .expect(429, 'Quota Exceeded')
        .expect('Retry-After', '60')
        .expect('RateLimit', '"default";r=0;t=60')
        .expect('RateLimit-Policy', '"default";q=1;w=60')
        .expect('Cache-Control', 'no-store')
      expect(errors).toHaveLength(1)
    })

    it('throws an HttpError with code, decision and headers', async () => {
      const { server, errors } = appOf(rateLimit(perMinute(0, { throws: true })), ok)
      await request(server).get('/').expect(429)
      expect(errors[0]).toBeInstanceOf(Framework.HttpError)
      expect(errors[0]).toMatchObject({
        code: 'SLUICE_RATE_LIMITED',
        status: 429,
        statusCode: 429,
        expose: true,
        message: 'Quota Exceeded',
        decision: { allowed: false, limit: 0, remaining: 0 },
        retryAfter: undefined,
        problem: PROBLEM,
        headers: {
          'RateLimit-Policy': '"default";q=0;w=60',
          RateLimit: '"default";r=0',
          'Cache-Control': 'no-store',
        },
      })
      expect((errors[0] as RefusedError).headers).not.toHaveProperty('Retry-After')
    })

    it('lets a central handler answer, which has the fields without doing anything for them', async () => {
      const central: Middleware = async (ctx, next) => {
        try {
          await next()
        } catch (error) {
          const refused = error as RefusedError
          if (refused.code !== 'SLUICE_RATE_LIMITED') throw error
          ctx.status = refused.status
          ctx.body = { slow: 'down', wait: refused.retryAfter, left: refused.decision.remaining }
        }
      }
      const { server, errors } = appOf(central, rateLimit(perMinute(1, { throws: true })), ok)
      await request(server).get('/').expect(200)
      await request(server)
        .get('/')
        .expect(429, { slow: 'down', wait: 60, left: 0 })
        .expect('Content-Type', /^application\/json/)
        .expect('Retry-After', '60')
        .expect('RateLimit', '"default";r=0;t=60')
        .expect('Cache-Control', 'no-store')
      expect(errors).toEqual([])
    })

    it('says what the limiters before it have said, once', async () => {
      const { server } = appOf(
        rateLimit(perMinute(100, { name: 'outer' })),
        rateLimit(perMinute(0, { name: 'inner', throws: true })),
        ok,
      )
      await request(server)
        .get('/')
        .expect(429)
        .expect('RateLimit', '"outer";r=99;t=60, "inner";r=0')
        .expect('RateLimit-Policy', '"outer";q=100;w=60, "inner";q=0;w=60')
    })

    it.each(['yes', 1, null, {}])('%o instead is refused at construction', throws => {
      const make = () => rateLimit({ ...perMinute(1), throws } as unknown as RateLimitOptions)
      expect(make).toThrow(TypeError)
      expect(make).toThrow(/^throws: expected true or false, got ('yes' \(a string\)|1|null|an object)$/)
      expect(make).toThrow(expect.objectContaining({ code: 'SLUICE_INVALID_OPTION', option: 'throws' }))
    })

    it('with onRefused is refused at construction', () => {
      const make = () => rateLimit(perMinute(1, { throws: true, onRefused: () => {} }))
      expect(make).toThrow(TypeError)
      expect(make).toThrow(/throws: .*'onRefused'/)
      expect(make).toThrow(expect.objectContaining({ code: 'SLUICE_INVALID_OPTION', option: 'throws' }))
    })

    it.each([false, undefined])('%o instead answers', async throws => {
      const { server, errors } = appOf(rateLimit(perMinute(0, { throws, onRefused: undefined })), ok)
      await request(server).get('/').expect(429).expect('Content-Type', 'application/problem+json')
      expect(errors).toEqual([])
    })
  })

  describe('a refusal', () => {
    const refusing = (onRefused?: RateLimitOptions['onRefused']) => rateLimit(perMinute(0, { onRefused }))

    it('is a body that middleware before it can see and replace', async () => {
      const seen: unknown[] = []
      const { server } = appOf(async (ctx, next) => {
        await next()
        seen.push(ctx.status, JSON.parse(ctx.body as string), ctx.length)
        ctx.body = { slow: 'down' }
      }, refusing())
      await request(server).get('/').expect(429, { slow: 'down' })
      expect(seen).toEqual([429, PROBLEM, JSON.stringify(PROBLEM).length])
    })

    it('takes the place of a body set before, and of its description', async () => {
      const { server } = appOf((ctx, next) => {
        ctx.body = 'welcome'
        ctx.set('Content-Encoding', 'identity')
        ctx.etag = 'welcome'
        return next()
      }, refusing())
      const { headers, body } = await request(server).get('/').expect(429)
      expect(body).toEqual(PROBLEM)
      expect(headers['content-type']).toBe('application/problem+json')
      expect(headers['content-length']).toBe(String(JSON.stringify(PROBLEM).length))
      expect(headers).not.toHaveProperty('content-encoding')
      expect(headers).not.toHaveProperty('etag')
    })

    it.each<[string, (ctx: Context) => unknown, number, string]>([
      ['a text', ctx => (ctx.body = 'wait'), 429, 'wait'],
      ['a status', ctx => (ctx.status = 503), 503, 'Service Unavailable'],
      ['a redirect', ctx => ctx.redirect('/wait'), 302, 'Redirecting to /wait.'],
      ['no content', ctx => (ctx.body = null), 204, ''],
      ['the response itself', ctx => ctx.res.end('raw'), 429, 'raw'],
      [
        'the response itself, later',
        ctx => {
          ctx.respond = false
          setImmediate(() => ctx.res.end('raw'))
        },
        429,
        'raw',
      ],
    ])('may be answered by onRefused with %s', async (_, onRefused, status, text) => {
      const { server, errors } = appOf(refusing(onRefused), ok)
      const response = await request(server).get('/').redirects(0).set('Accept', 'text/plain')
      expect([response.status, response.text]).toEqual([status, text])
      // A client that reads of nothing being left might not follow.
      expect(response.headers.ratelimit).toBe(status === 302 ? undefined : '"default";r=0')
      expect(response.headers['cache-control']).toBe('no-store')
      expect(errors).toEqual([])
    })

    it('may be thrown by onRefused, and keeps every field', async () => {
      const limiter = rateLimit(perMinute(1, { onRefused: ctx => ctx.throw(429, 'slow down') }))
      const { server } = appOf(limiter, ok)
      await request(server).get('/').expect(200)
      await request(server)
        .get('/')
        .expect(429, 'slow down')
        .expect('Retry-After', '60')
        .expect('RateLimit', '"default";r=0;t=60')
        .expect('Cache-Control', 'no-store')
    })

    it('whose onRefused fails is a 500 for a central handler that names no status', async () => {
      const { server } = appOf(
        async (ctx, next) => {
          try {
            await next()
          } catch {
            ctx.body = 'sorry'
          }
        },
        refusing(() => {
          throw new Error('no')
        }),
      )
      await request(server).get('/').expect(500, 'sorry')
    })
  })

  describe('@koa/router', () => {
    it('takes a limit for a router and for a route, which do not limit the rest', async () => {
      const router = new Router({ prefix: '/api' })
      router.use(rateLimit(perMinute(3, { name: 'router' })))
      router.get('/free', ok)
      router.get('/search', rateLimit(perMinute(1, { name: 'search' })), ok)
      const { server } = appOf(router.routes() as Middleware, router.allowedMethods() as Middleware, ok)
      await request(server)
        .get('/api/search')
        .expect(200)
        .expect('RateLimit', /^"router";r=2.*"search";r=0/)
      await request(server).get('/api/search').expect(429)
      await request(server).get('/api/free').expect(200).expect('RateLimit', '"router";r=0;t=20')
      await request(server).get('/api/free').expect(429)
      const { headers } = await request(server).get('/').expect(200)
      expect(headers).not.toHaveProperty('ratelimit')
    })

    it('may key by what the route has matched', async () => {
      const router = new Router()
      router.get('/users/:id', rateLimit(perMinute(1, { key: ctx => ctx.params.id })), ok)
      const { server } = appOf(router.routes() as Middleware)
      await request(server).get('/users/ann').expect(200)
      await request(server).get('/users/ann').expect(429)
      await request(server).get('/users/bob').expect(200)
    })
  })

  it('nests in middleware that is composed, and runs what follows once, before what awaits it', async () => {
    const compose = createRequire(createRequire(import.meta.url).resolve('koa'))('koa-compose')
    const trace: string[] = []
    const tracing =
      (name: string): Middleware =>
      async (_ctx, next) => {
        trace.push(`${name} in`)
        await next()
        trace.push(`${name} out`)
      }
    const limit = rateLimit(perMinute(1))
    const { server } = appOf(tracing('outer'), compose([tracing('inner'), limit]), tracing('handler'), ok)
    await request(server).get('/').expect(200, 'ok')
    expect(trace.splice(0)).toEqual([
      'outer in',
      'inner in',
      'handler in',
      'handler out',
      'inner out',
      'outer out',
    ])
    await request(server).get('/').expect(429)
    expect(trace).toEqual(['outer in', 'inner in', 'inner out', 'outer out'])
  })

  it('leaves the decision of the last limiter in ctx.state.rateLimit', async () => {
    const decisions: (Decision | undefined)[] = []
    const note: Middleware = async (ctx, next) => {
      decisions.push(ctx.state.rateLimit)
      await next()
    }
    const { server } = appOf(note, rateLimit(perMinute(3)), note, rateLimit(perMinute(7)), note, ok)
    await request(server).get('/').expect(200)
    expect(decisions).toMatchObject([undefined, { limit: 3, remaining: 2 }, { limit: 7, remaining: 6 }])
  })

  it('takes the address Koa trusts', async () => {
    const limiter = createLimiter(tokenBucket({ limit: 5, window: '1m' }), { clock })
    const app = new Framework({ proxy: true })
    app.use(rateLimit({ limiter })).use(ok)
    const server = createServer(app.callback())
    await request(server).get('/').set('X-Forwarded-For', '2001:db8:1:2345::5').expect(200)
    expect(limiter.peek('2001:db8:1:2300::/56').remaining).toBe(4)
  })
})

it('has types that fit the apps and routers of others', () => {
  interface State {
    user: { id: string }
  }
  const app = new Koa<State, { tenant: string }>()
  app.use(rateLimit(perMinute(1))).use(ctx => {
    expectTypeOf(ctx.state.user.id).toEqualTypeOf<string>()
  })
  new Koa().use(ctx => {
    expectTypeOf(ctx.state.rateLimit).toEqualTypeOf<Decision | undefined>()
  })
  new Router<State>().use(rateLimit({ limit: 1, window: '1m', key: ctx => ctx.state.user.id }))
  // @ts-expect-error: true or false
  expect(() => rateLimit({ limit: 1, window: '1m', throws: 'yes' })).toThrow()
})
