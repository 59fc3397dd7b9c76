import type { AddressInfo } from 'node:net'
import { createLimiter, type Decision, memoryStore, tokenBucket } from '@sluice/core'
import { manualClock } from '@sluice/core/testing'
import { type RateLimitOptions, type Refusal, rateLimit } from '@sluice/fastify'
import {
  type FastifyContextConfig,
  type FastifyInstance,
  type FastifyRequest,
  type FastifyServerOptions,
  fastify,
  type InjectOptions,
} from 'fastify'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'

/*
 * What is Fastify's own. What every adapter promises is in contract.test.ts.
 */

declare module 'fastify' {
  interface FastifyRequest {
    user?: { id: string }
  }
}

let clock = manualClock()
const apps: FastifyInstance[] = []

beforeEach(() => {
  clock = manualClock()
})

afterEach(async () => {
  for (const app of apps.splice(0)) await app.close()
})

function make(options: FastifyServerOptions = {}): FastifyInstance {
  const app = fastify(options)
  apps.push(app)
  return app
}

const limit = (limit: number, options: object = {}): RateLimitOptions =>
  ({ limit, window: '1m', clock, ...options }) as RateLimitOptions

const own = (options: RateLimitOptions | false) => ({ config: { rateLimit: options } })

const ok = () => ({ ok: true })

async function ask(app: FastifyInstance, url: string, options: InjectOptions = {}) {
  const { statusCode, headers, body } = await app.inject({ method: 'GET', url, ...options })
  return {
    status: statusCode,
    /** Without the times, which the contract checks. */
    limit: headers.ratelimit?.toString().replace(/;t=\d+/g, ''),
    policy: headers['ratelimit-policy'],
    retryAfter: headers['retry-after'],
    headers,
    body,
  }
}

async function statuses(app: FastifyInstance, url: string, times: number, options?: InjectOptions) {
  const all: number[] = []
  for (let i = 0; i < times; i++) all.push((await ask(app, url, options)).status)
  return all
}

// fastify/fastify-rate-limit#133
describe.each(['context', 'route'])('HEAD under a limit of the %s', level => {
  it.each(['/items', '/'])('of an automatic route %s counts once, with its GET', async path => {
    const app = make()
    await app.register(rateLimit, limit(level === 'context' ? 3 : 0))
    const config = level === 'context' ? {} : { rateLimit: limit(3) }
    app.register(
      async api => {
        api.get(path, { config }, ok)
      },
      { prefix: '/api' },
    )
    const url = `/api${path}`
    expect((await ask(app, url, { method: 'HEAD' })).limit).toBe('"default";r=2')
    expect((await ask(app, url)).limit).toBe('"default";r=1')
    expect((await ask(app, url)).limit).toBe('"default";r=0')
    const refused = await ask(app, url, { method: 'HEAD' })
    expect(refused).toMatchObject({ status: 429, limit: '"default";r=0', retryAfter: '20', body: '' })
    expect(refused.headers).toMatchObject({
      'content-type': 'application/problem+json',
      'cache-control': 'no-store',
    })
    const { headers } = await ask(app, url)
    expect(refused.headers['content-length']).toBe(headers['content-length'])
  })
})

// fastify/fastify-rate-limit#83, #224
describe('the hook', () => {
  it('is onRequest by default, before a body is read', async () => {
    const app = make({ bodyLimit: 10_000_000 })
    let parsed = 0
    app.addContentTypeParser('application/octet-stream', { parseAs: 'buffer' }, (_request, body, done) => {
      parsed++
      done(null, body)
    })
    await app.register(rateLimit, limit(1))
    app.post('/upload', ok)
    const upload: InjectOptions = {
      method: 'POST',
      payload: Buffer.alloc(5_000_000),
      headers: { 'content-type': 'application/octet-stream' },
    }
    expect(await statuses(app, '/upload', 3, upload)).toEqual([200, 429, 429])
    expect(parsed).toBe(1)
  })

  const users = async (app: FastifyInstance) => {
    app.addHook('preHandler', async request => {
      request.user = { id: String(request.headers['x-user']) }
    })
  }
  const key = (request: FastifyRequest) => request.user?.id ?? 'nobody'
  const as = (user: string): InjectOptions => ({ headers: { 'x-user': user } })

  it('preHandler sees what an earlier preHandler has found out', async () => {
    const app = make()
    await users(app)
    await app.register(rateLimit, limit(1, { hook: 'preHandler', key }))
    app.get('/', ok)
    expect(await statuses(app, '/', 2, as('ann'))).toEqual([200, 429])
    expect(await statuses(app, '/', 2, as('bob'))).toEqual([200, 429])
  })

  it("of a route's own limit runs after the preHandler hooks of the route", async () => {
    const app = make()
    await app.register(rateLimit, limit(0))
    const preHandler = async (request: FastifyRequest) => {
      request.user = { id: String(request.headers['x-user']) }
    }
    app.get('/', { preHandler, ...own(limit(1, { hook: 'preHandler', key })) }, ok)
    expect(await statuses(app, '/', 2, as('ann'))).toEqual([200, 429])
    expect(await statuses(app, '/', 2, as('bob'))).toEqual([200, 429])
  })

  it("of a route's own limit runs before the onRequest hooks of the route", async () => {
    const app = make()
    await app.register(rateLimit, limit(0))
    let verified = 0
    const onRequest = async () => {
      verified++
    }
    app.get('/', { onRequest, ...own(limit(1)) }, ok)
    expect(await statuses(app, '/', 3)).toEqual([200, 429, 429])
    expect(verified).toBe(1)
  })

  it.each(['onSend', '', null, 5, {}])('%o is refused at construction', async hook => {
    const bad = { limit: 1, window: '1m', hook } as never
    const error = { code: 'SLUICE_INVALID_OPTION', option: 'hook' }
    const message = /^hook: expected 'onRequest' or 'preHandler', got .+$/
    const thrown = await rejection(async () => make().register(rateLimit, bad))
    expect(thrown).toBeInstanceOf(TypeError)
    expect(thrown).toMatchObject({ ...error, message: expect.stringMatching(message) })
  })

  it('undefined is the default', async () => {
    const app = make()
    await app.register(rateLimit, limit(1, { hook: undefined }))
    app.get('/', ok)
    expect(await statuses(app, '/', 2)).toEqual([200, 429])
  })
})

// fastify/fastify-rate-limit#59, #127
describe('requests without a route', () => {
  it('are limited like others', async () => {
    const app = make()
    await app.register(rateLimit, limit(3))
    for (const r of [2, 1, 0])
      expect(await ask(app, '/nope')).toMatchObject({ status: 404, limit: `"default";r=${r}` })
    expect(await ask(app, '/nope')).toMatchObject({ status: 429, retryAfter: '20' })
  })

  it.each(['before', 'after'])('reach a handler set %s the plugin', async when => {
    const app = make()
    const handle = () => app.setNotFoundHandler((_request, reply) => reply.code(404).send({ my: 'own' }))
    if (when === 'before') handle()
    await app.register(rateLimit, limit(3))
    if (when === 'after') handle()
    for (const r of [2, 1, 0])
      expect(await ask(app, '/nope')).toMatchObject({
        status: 404,
        limit: `"default";r=${r}`,
        body: '{"my":"own"}',
      })
    expect(await ask(app, '/nope')).toMatchObject({ status: 429, retryAfter: '20' })
  })

  it('keep the fields of a handler that finds nothing', async () => {
    const app = make()
    await app.register(rateLimit, limit(3))
    app.get('/items/:id', (_request, reply) => reply.callNotFound())
    expect(await ask(app, '/items/1')).toMatchObject({ status: 404, limit: '"default";r=2' })
  })
})

// fastify/fastify-rate-limit#76, #179
describe("a route's own limit", () => {
  it('replaces the limit of the context and leaves its counter alone', async () => {
    const app = make()
    await app.register(rateLimit, limit(5))
    app.get('/search', own(limit(3, { window: '1 minute', name: 'search' })), ok)
    app.get('/', ok)
    for (const r of [2, 1, 0])
      expect(await ask(app, '/search')).toMatchObject({
        status: 200,
        policy: '"search";q=3;w=60',
        limit: `"search";r=${r}`,
      })
    const refused = await ask(app, '/search')
    expect(refused.status).toBe(429)
    expect(Number(refused.retryAfter)).toBeLessThanOrEqual(60)
    expect(await ask(app, '/')).toMatchObject({ status: 200, limit: '"default";r=4' })
  })

  it('of false switches limits off', async () => {
    const app = make()
    await app.register(rateLimit, limit(0))
    const seen: unknown[] = []
    app.get('/health', own(false), request => {
      seen.push(request.rateLimit)
      return ok()
    })
    expect(await ask(app, '/health')).toMatchObject({ status: 200, limit: undefined, policy: undefined })
    expect(seen).toEqual([undefined])
  })

  it('of undefined leaves the limit of the app', async () => {
    const app = make()
    await app.register(rateLimit, limit(1))
    app.get('/', { config: { rateLimit: undefined } }, ok)
    expect(await statuses(app, '/', 2)).toEqual([200, 429])
  })

  it('counts by itself where routes share the options', async () => {
    const app = make()
    await app.register(rateLimit, limit(0))
    const strict = own(limit(1))
    app.get('/a', strict, ok)
    app.get('/b', strict, ok)
    app.post('/b', strict, ok)
    expect(await statuses(app, '/a', 2)).toEqual([200, 429])
    expect(await statuses(app, '/b', 2)).toEqual([200, 429])
    expect(await statuses(app, '/b', 2, { method: 'POST' })).toEqual([200, 429])
  })

  it('is one for a route of several methods', async () => {
    const app = make()
    await app.register(rateLimit, limit(0))
    app.route({ method: ['GET', 'POST'], url: '/', ...own(limit(1)), handler: ok })
    expect(await statuses(app, '/', 1)).toEqual([200])
    expect(await statuses(app, '/', 1, { method: 'POST' })).toEqual([429])
  })

  it('runs once under several registrations, and in place of all of them', async () => {
    const app = make()
    await app.register(rateLimit, limit(0))
    app.register(async api => {
      await api.register(rateLimit, limit(0))
      await api.register(rateLimit, limit(0))
      api.get('/', own(limit(2)), ok)
    })
    expect((await ask(app, '/')).limit).toBe('"default";r=1')
    expect(await statuses(app, '/', 2)).toEqual([200, 429])
  })

  it('leaves the config of the route as it was', async () => {
    const app = make()
    await app.register(rateLimit, limit(0))
    const config = { rateLimit: limit(1), title: 'mine' }
    app.get('/', { config }, request => request.routeOptions.config)
    expect(JSON.parse((await ask(app, '/')).body)).toMatchObject({ title: 'mine', url: '/', method: 'GET' })
    expect(Reflect.ownKeys(config)).toEqual(['rateLimit', 'title'])
  })

  it.each([
    [{ limit: -1, window: '1m' }, 'limit'],
    [{ limit: 1, window: 'soon' }, 'window'],
    [{ limit: 1, window: '1m', hook: 'onSend' }, 'hook'],
    [{ max: 1, timeWindow: '1m' }, 'max'],
    [true, 'rateLimit options'],
    [null, 'rateLimit options'],
  ])('of %o throws where the route is declared', async (options, option) => {
    const app = make()
    await app.register(rateLimit, limit(1))
    const thrown = await rejection(async () => app.get('/', own(options as never), ok))
    expect(thrown).toMatchObject({ option, code: expect.stringMatching(/^SLUICE_/) })
  })
})

describe('routes declared before the plugin', () => {
  async function early(config: FastifyContextConfig, options: object = {}) {
    const app = make()
    app.get('/', { config }, ok)
    app.get('/other', { config }, ok)
    await app.register(rateLimit, limit(1, options))
    return app
  }

  it('are limited', async () => {
    expect(await statuses(await early({}), '/', 2)).toEqual([200, 429])
  })

  it('may switch the limit off', async () => {
    expect(await statuses(await early({ rateLimit: false }), '/', 3)).toEqual([200, 200, 200])
  })

  it.each(['onRequest', 'preHandler'] as const)('may have their own, in %s', async hook => {
    for (const plugin of ['onRequest', 'preHandler'] as const) {
      const app = await early({ rateLimit: limit(2, { hook }) }, { hook: plugin })
      expect(await statuses(app, '/', 1, { method: 'HEAD' })).toEqual([200])
      expect(await statuses(app, '/', 2)).toEqual([200, 429])
      expect(await statuses(app, '/other', 3)).toEqual([200, 200, 429])
    }
  })

  it('are never unlimited for a bad limit of their own', async () => {
    expect(await statuses(await early({ rateLimit: limit(-1) }), '/', 2)).toEqual([500, 500])
  })

  it('have their own limits when the plugin is not awaited', async () => {
    const app = make()
    app.register(rateLimit, limit(0))
    app.get('/', own(limit(1)), ok)
    expect(await statuses(app, '/', 2)).toEqual([200, 429])
  })
})

describe('contexts', () => {
  it('beside each other are independent', async () => {
    const app = make()
    for (const prefix of ['/a', '/b'])
      app.register(
        async api => {
          await api.register(rateLimit, limit(1))
          api.get('/', ok)
        },
        { prefix },
      )
    app.get('/free', ok)
    expect(await statuses(app, '/a', 2)).toEqual([200, 429])
    expect(await statuses(app, '/b', 2)).toEqual([200, 429])
    expect((await ask(app, '/free')).limit).toBeUndefined()
  })

  it('inside inherit the limit and share its counter', async () => {
    const app = make()
    await app.register(rateLimit, limit(2))
    app.get('/', ok)
    app.register(async api => {
      api.register(async v1 => {
        v1.get('/v1', ok)
      })
    })
    expect(await statuses(app, '/v1', 1)).toEqual([200])
    expect(await statuses(app, '/', 1)).toEqual([200])
    expect(await statuses(app, '/v1', 1)).toEqual([429])
  })

  it('inside add limits of their own', async () => {
    const app = make()
    await app.register(rateLimit, limit(3, { name: 'all' }))
    app.get('/', ok)
    app.register(async api => {
      await api.register(rateLimit, limit(1, { name: 'api' }))
      api.get('/api', ok)
    })
    expect((await ask(app, '/api')).limit).toBe('"all";r=2, "api";r=0')
    expect((await ask(app, '/api')).status).toBe(429)
    expect((await ask(app, '/')).limit).toBe('"all";r=0')
  })
})

describe('a refusal', () => {
  async function refusing(
    onRefused: NonNullable<RateLimitOptions['onRefused']>,
    prepare: (app: FastifyInstance) => void = () => {},
  ) {
    const app = make()
    const errors: unknown[] = []
    app.setErrorHandler((error, _request, reply) => {
      errors.push(error)
      return reply.send(error)
    })
    prepare(app)
    await app.register(rateLimit, limit(0, { onRefused }))
    app.get('/', ok)
    return { ...(await ask(app, '/')), errors }
  }

  it('goes through the onSend hooks of the app', async () => {
    const app = make()
    app.addHook('onSend', async (_request, reply, payload) => {
      reply.header('X-Seen', String(payload).length)
      return payload
    })
    await app.register(rateLimit, limit(0))
    const { headers, body } = await ask(app, '/')
    expect(headers).toMatchObject({
      'content-type': 'application/problem+json',
      'content-length': String(body.length),
      'x-seen': String(body.length),
    })
  })

  it('is answered once when hooks of the app take their time over the answer', async () => {
    let sent = 0
    const response = await refusing(
      (_request, reply) => {
        reply.send({ my: 'own' })
      },
      app =>
        app.addHook('onSend', async (_request, _reply, payload) => {
          sent++
          await new Promise(resolve => setImmediate(resolve))
          return payload
        }),
    )
    expect(response).toMatchObject({ status: 429, body: '{"my":"own"}', errors: [] })
    expect(sent).toBe(1)
  })

  it('gets our answer from an onRefused that returns a reply it has not sent', async () => {
    const response = await refusing((_request, reply) => reply.header('X-My', 'own'))
    expect(response).toMatchObject({ status: 429, errors: [] })
    expect(response.headers).toMatchObject({ 'x-my': 'own', 'content-type': 'application/problem+json' })
  })

  it('may be answered with another status', async () => {
    const response = await refusing((_request, reply) => reply.redirect('/slow-down', 303))
    expect(response).toMatchObject({ status: 303, body: '', errors: [] })
  })

  it('may be answered with the bare response', async () => {
    const response = await refusing((_request, reply) => {
      reply.hijack()
      reply.raw.writeHead(420).end('calm')
    })
    expect(response).toMatchObject({ status: 420, body: 'calm', errors: [] })
  })
})

it('keeps the status of an error of a callback that has one', async () => {
  const app = make()
  const error = Object.assign(new Error('who are you?'), { statusCode: 401 })
  await app.register(rateLimit, {
    limit: 1,
    window: '1m',
    key: () => {
      throw error
    },
  })
  app.get('/', ok)
  expect(await statuses(app, '/', 1)).toEqual([401])
})

it('survives a callback that fails after an answer has begun', async () => {
  const app = make()
  app.setErrorHandler((_error, _request, reply) => reply.code(500).send({ my: 'own' }))
  let begin = () => {}
  app.addHook('onRequest', async (_request, reply) => {
    begin = () => reply.raw.write('early')
  })
  await app.register(rateLimit, {
    limit: 1,
    window: '1m',
    key: async () => {
      begin()
      throw new Error('too late')
    },
  })
  app.get('/', ok)
  await app.listen({ port: 0, host: '127.0.0.1' })
  const { port } = app.server.address() as AddressInfo
  const answer = fetch(`http://127.0.0.1:${port}/`).then(response => response.text())
  await expect(answer).rejects.toThrow()
}, 2000)

it('is typed without casts', async () => {
  const app = make()
  const limiter = createLimiter(tokenBucket({ limit: 5, window: '1m' }), { store: memoryStore(), clock })
  await app.register(rateLimit, {
    limiter: request => (request.headers['x-staff'] ? null : limiter),
    key: async request => request.ip,
    hook: 'preHandler',
    onRefused: (request, reply, refusal: Refusal) => reply.send({ url: request.url, status: refusal.status }),
  })
  app.get('/', { config: { rateLimit: { limit: 1, window: '1m', key: request => request.ip } } }, request => {
    const decision: Decision | undefined = request.rateLimit
    return { remaining: decision?.remaining }
  })
  app.get('/off', { config: { rateLimit: false } }, ok)
  // @ts-expect-error there is no such hook
  const bad: RateLimitOptions = { limit: 1, window: '1m', hook: 'onSend' }
  expect(bad).toBeDefined()
})

async function rejection(act: () => unknown): Promise<unknown> {
  try {
    await act()
  } catch (error) {
    return error
  }
  throw new Error('nothing was thrown')
}

describe('requests that are injected', () => {
  it.each([
    [{ ifFailed: true }, 200, 2],
    [{ ifSuccessful: true }, 200, 3],
    [{ ifFailed: true }, 500, 3],
    [{ ifSuccessful: true }, 500, 2],
  ] as const)('are refunded by %o as others are, with %i', async (refund, status, left) => {
    const limiter = createLimiter(tokenBucket({ limit: 3, window: '1h' }), { name: 'injected' })
    const app = fastify()
    await app.register(rateLimit, { limiter, key: () => 'k', refund })
    app.get('/', (_, reply) => reply.code(status).send('x'))
    await app.inject('/')
    expect(limiter.peek('k').remaining).toBe(left)
    await app.close()
  })
})
