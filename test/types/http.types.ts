import Router from '@koa/router'
import {
  type AsyncStore,
  combine,
  createLimiter,
  type Decision,
  type Limiter,
  memoryStore,
  type SyncStore,
  tokenBucket,
} from '@sluice/core'
import * as onExpress from '@sluice/express'
import * as onFastify from '@sluice/fastify'
import * as onKoa from '@sluice/koa'
import express, { type Request, type RequestHandler, type Response } from 'express'
import { type FastifyReply, type FastifyRequest, fastify } from 'fastify'
import Koa, { type Context, type Middleware } from 'koa'

/*
 * Checked by tsc and never run: the options of each adapter, the arguments of its callbacks, and what must not compile.
 */

type Same<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false

/** Compiles only when both types are the same. */
declare function same<A, B>(..._: Same<A, B> extends true ? [] : [never]): void

declare const redis: AsyncStore
declare const memory: SyncStore
declare const either: SyncStore | AsyncStore
declare const maybeText: string | undefined
declare const anyLimiter: Limiter

const bucket = tokenBucket({ limit: 10, window: '1m' })
const limiter = createLimiter(bucket)
const shared = createLimiter(bucket, { store: redis })
const chosen = createLimiter(bucket, { store: either })

const toExpress = (options: onExpress.RateLimitOptions) => onExpress.rateLimit(options)
const toKoa = (options: onKoa.RateLimitOptions) => onKoa.rateLimit(options)
const app = fastify()
const toFastify = (options: onFastify.RateLimitOptions) => app.register(onFastify.rateLimit, options)

/*
 * Ways to give a limit.
 */

export function waysToGiveLimit() {
  const inExpress = onExpress.rateLimit({ limit: 100, window: '1m' })
  same<typeof inExpress, RequestHandler>()
  const inKoa = onKoa.rateLimit({ limit: 100, window: '1m' })
  same<typeof inKoa, Middleware>()
  express().use(inExpress).get('/', inExpress)
  new Koa().use(inKoa)
  new Router().get('/', inKoa)

  for (const rateLimit of [toExpress, toKoa, toFastify]) {
    rateLimit({ limit: 100, window: '1m' })
    rateLimit({ limit: 0, window: 60_000, name: 'api', store: memoryStore(), clock: { nowUs: () => 0 } })
    rateLimit({
      limit: 100,
      window: '1m',
      name: undefined,
      store: undefined,
      clock: undefined,
      limiter: undefined,
    })
    rateLimit({ limiter })
    rateLimit({ limiter: () => limiter })
    rateLimit({ limiter: () => null })
    rateLimit({ limiter: async () => (maybeText === undefined ? null : limiter) })
    rateLimit({ limiter: combine(limiter, shared) })
    rateLimit({
      policies: [
        { limit: 10, window: '1s', name: 'burst' },
        { limiter, cost: 2 },
      ],
    })
    rateLimit({
      policies: [{ limiter: () => limiter, name: 'plan', key: () => 5, hidden: true, unit: 'requests' }],
    })
  }
}

/** A limiter on any store, and one store in every adapter (hono-rate-limiter#10, #36). */
export function stores() {
  for (const rateLimit of [toExpress, toKoa, toFastify]) {
    for (const store of [redis, memory, either, memoryStore()]) {
      rateLimit({ limit: 100, window: '1m', name: 'api', store })
      rateLimit({ policies: [{ limit: 100, window: '1m', store }] })
    }
    rateLimit({ limiter: shared })
    rateLimit({ limiter: chosen })
    rateLimit({ limiter: anyLimiter })
    rateLimit({ limiter: () => shared })
    rateLimit({ limiter: async () => chosen })
    rateLimit({ policies: [{ limiter: shared }, { limiter: () => anyLimiter }] })
  }
  const store = redis
  onExpress.rateLimit({ limit: 100, window: '1m', name: 'api', store })
  onKoa.rateLimit({ limit: 100, window: '1m', name: 'api', store })
  app.register(onFastify.rateLimit, { limit: 100, window: '1m', name: 'api', store })
  app.get('/', { config: { rateLimit: { limit: 100, window: '1m', name: 'api', store } } }, () => 'ok')
}

export function everyOption() {
  for (const rateLimit of [toExpress, toKoa, toFastify])
    for (const door of [{ limit: 100, window: '1m' }, { limiter }, { policies: [{ limiter }] }] as const)
      rateLimit({
        ...door,
        key: () => 'ann',
        cost: 2,
        hidden: false,
        unit: 'content-bytes',
        maxWait: '250ms',
        onRefused: () => {},
        onDecision: async (_, { decision, refused }) => [decision.allowed, refused],
        status: 503,
        body: { error: 'slow down' },
        dryRun: true,
        skipPreflight: true,
        onStoreError: 'allow',
        headers: 'draft-7',
        legacyHeaders: 'delta',
        paced: true,
        exposeHeaders: true,
        partitionSecret: 'sixteen characters or more',
        ipv6Prefix: 64,
        trustedProxies: ['10.0.0.0/8'],
        forwardedHeader: 'forwarded',
      })
  toKoa({ limiter, throws: true })
  toFastify({ limiter, hook: 'preHandler' })
  toExpress({
    limiter,
    hops: 1,
    key: async () => 5n,
    body: 'slow down',
    headers: false,
    legacyHeaders: false,
  })
}

/*
 * Callbacks.
 */

export function callbacksOfExpress() {
  onExpress.rateLimit({
    limiter: request => {
      same<typeof request, Request>()
      return limiter
    },
    key: request => {
      same<typeof request, Request>()
      return request.ip ?? null
    },
    cost: request => {
      same<typeof request, Request>()
      return request.method === 'POST' ? 5 : 1
    },
    body: (request, refusal) => {
      same<typeof request, Request>()
      same<typeof refusal.retryAfter, number | undefined>()
      return { title: refusal.problem.title }
    },
    onDecision: (request, { decision, refused }) => {
      same<typeof request, Request>()
      same<typeof decision, Decision>()
      same<typeof refused, boolean>()
    },
    onRefused: (request, response, refusal) => {
      same<typeof request, Request>()
      same<typeof response, Response>()
      same<typeof refusal, onExpress.Refusal>()
      response.status(refusal.status).json(refusal.decision)
    },
  })
  onExpress.rateLimit({
    policies: [
      {
        limiter: request => {
          same<typeof request, Request>()
          return null
        },
        key: request => request.get('x-api-key') ?? null,
        cost: async request => request.path.length,
      },
      { limit: 5, window: '1s', key: request => request.ip ?? null },
    ],
  })
}

export function callbacksOfKoa() {
  onKoa.rateLimit({
    limiter: ctx => {
      same<typeof ctx, Context>()
      return limiter
    },
    key: ctx => {
      same<typeof ctx, Context>()
      return ctx.ip
    },
    cost: ctx => {
      same<typeof ctx, Context>()
      return ctx.method === 'POST' ? 5 : 1
    },
    body: (ctx, refusal) => {
      same<typeof ctx, Context>()
      return { title: refusal.problem.title }
    },
    onDecision: (ctx, { decision }) => {
      same<typeof ctx, Context>()
      same<typeof decision, Decision>()
    },
    onRefused: (ctx, refusal) => {
      same<typeof ctx, Context>()
      same<typeof refusal, onKoa.Refusal>()
      ctx.body = refusal.decision
    },
  })
  onKoa.rateLimit({
    policies: [
      {
        limiter: ctx => {
          same<typeof ctx, Context>()
          return null
        },
        key: ctx => ctx.get('x-api-key'),
        cost: async ctx => ctx.path.length,
      },
      { limit: 5, window: '1s', key: ctx => ctx.ip },
    ],
  })
}

export function callbacksOfFastify() {
  const options: onFastify.RateLimitOptions = {
    limiter: request => {
      same<typeof request, FastifyRequest>()
      return limiter
    },
    key: request => {
      same<typeof request, FastifyRequest>()
      return request.ip
    },
    cost: request => {
      same<typeof request, FastifyRequest>()
      return request.method === 'POST' ? 5 : 1
    },
    body: (request, refusal) => {
      same<typeof request, FastifyRequest>()
      return { title: refusal.problem.title }
    },
    onDecision: (request, { decision }) => {
      same<typeof request, FastifyRequest>()
      same<typeof decision, Decision>()
    },
    onRefused: (request, reply, refusal) => {
      same<typeof request, FastifyRequest>()
      same<typeof reply, FastifyReply>()
      same<typeof refusal, onFastify.Refusal>()
      reply.code(refusal.status).send(refusal.decision)
    },
  }
  // The same without type annotations, at registration and in the config of a route.
  app.register(onFastify.rateLimit, {
    limit: 5,
    window: '1s',
    key: request => {
      same<typeof request, FastifyRequest>()
      return request.ip
    },
    onRefused: (request, reply, refusal) => {
      same<typeof request, FastifyRequest>()
      same<typeof reply, FastifyReply>()
      same<typeof refusal, onFastify.Refusal>()
    },
  })
  const config = {
    rateLimit: {
      policies: [{ limit: 5, window: '1s', key: (request: FastifyRequest) => request.ip }, { limiter }],
    } satisfies onFastify.RateLimitOptions,
  }
  app.get('/', { config }, () => 'ok')
  app.get(
    '/search',
    {
      config: {
        rateLimit: {
          limiter: request => {
            same<typeof request, FastifyRequest>()
            return limiter
          },
        },
      },
    },
    () => 'ok',
  )
  app.get('/health', { config: { rateLimit: false } }, () => 'ok')
  return options
}

/*
 * Where users of each framework find the decision.
 */

export function decisions() {
  express().get('/', (req, res) => {
    same<typeof req.rateLimit, Decision | undefined>()
    // @ts-expect-error may be undefined
    res.json(req.rateLimit.remaining)
  })
  new Koa().use(ctx => {
    same<typeof ctx.state.rateLimit, Decision | undefined>()
    // @ts-expect-error may be undefined
    ctx.body = ctx.state.rateLimit.remaining
  })
  new Router().get('/', ctx => {
    same<typeof ctx.state.rateLimit, Decision | undefined>()
  })
  app.get('/', request => {
    same<typeof request.rateLimit, Decision | undefined>()
    // @ts-expect-error may be undefined
    return request.rateLimit.remaining
  })
}

/*
 * What must not compile.
 */

export function incompleteLimits() {
  // @ts-expect-error neither limit nor limiter nor policies
  onExpress.rateLimit({})
  // @ts-expect-error neither limit nor limiter nor policies
  onKoa.rateLimit({})
  // @ts-expect-error neither limit nor limiter nor policies
  app.register(onFastify.rateLimit, {})
  // @ts-expect-error no options
  onExpress.rateLimit()
  // @ts-expect-error no options
  onKoa.rateLimit()
  // @ts-expect-error no options
  app.register(onFastify.rateLimit)
  // @ts-expect-error no window
  onExpress.rateLimit({ limit: 5 })
  // @ts-expect-error no window
  onKoa.rateLimit({ limit: 5 })
  // @ts-expect-error no window
  app.register(onFastify.rateLimit, { limit: 5 })
  // @ts-expect-error no window
  app.get('/', { config: { rateLimit: { limit: 5 } } }, () => 'ok')
  // @ts-expect-error no limit
  onExpress.rateLimit({ window: '1m' })
  // @ts-expect-error no limit
  onKoa.rateLimit({ window: '1m' })
  // @ts-expect-error no limit
  app.register(onFastify.rateLimit, { window: '1m' })
  // @ts-expect-error a limiter that is undefined
  onExpress.rateLimit({ limiter: undefined })
  // @ts-expect-error a limiter that is undefined
  onKoa.rateLimit({ limiter: undefined })
  // @ts-expect-error a limiter that is undefined
  app.register(onFastify.rateLimit, { limiter: undefined })
  // @ts-expect-error true is not a limit
  app.get('/', { config: { rateLimit: true } }, () => 'ok')
}

export function conflictingLimits() {
  // @ts-expect-error a limit together with a limiter
  onExpress.rateLimit({ limit: 5, window: '1m', limiter })
  // @ts-expect-error a limit together with a limiter
  onKoa.rateLimit({ limit: 5, window: '1m', limiter })
  // @ts-expect-error a limit together with a limiter
  app.register(onFastify.rateLimit, { limit: 5, window: '1m', limiter })
  // @ts-expect-error a limit together with a limiter
  app.get('/', { config: { rateLimit: { limit: 5, window: '1m', limiter } } }, () => 'ok')
  // @ts-expect-error a window together with a limiter
  onExpress.rateLimit({ limiter, window: '1m' })
  // @ts-expect-error a window together with a limiter
  onKoa.rateLimit({ limiter, window: '1m' })
  // @ts-expect-error a window together with a limiter
  app.register(onFastify.rateLimit, { limiter, window: '1m' })
  // @ts-expect-error a name together with a limiter
  onExpress.rateLimit({ limiter, name: 'api' })
  // @ts-expect-error a name together with a limiter
  onKoa.rateLimit({ limiter, name: 'api' })
  // @ts-expect-error a name together with a limiter
  app.register(onFastify.rateLimit, { limiter, name: 'api' })
  // @ts-expect-error a store together with a limiter
  onExpress.rateLimit({ limiter, store: redis })
  // @ts-expect-error a store together with a limiter
  onKoa.rateLimit({ limiter, store: redis })
  // @ts-expect-error a store together with a limiter
  app.register(onFastify.rateLimit, { limiter, store: redis })
  // @ts-expect-error a limit together with policies
  onExpress.rateLimit({ limit: 5, window: '1m', policies: [{ limiter }] })
  // @ts-expect-error a limit together with policies
  onKoa.rateLimit({ limit: 5, window: '1m', policies: [{ limiter }] })
  // @ts-expect-error a limit together with policies
  app.register(onFastify.rateLimit, { limit: 5, window: '1m', policies: [{ limiter }] })
  // @ts-expect-error a limiter together with policies
  onExpress.rateLimit({ limiter, policies: [{ limiter }] })
  // @ts-expect-error a limiter together with policies
  onKoa.rateLimit({ limiter, policies: [{ limiter }] })
  // @ts-expect-error a limiter together with policies
  app.register(onFastify.rateLimit, { limiter, policies: [{ limiter }] })
  // @ts-expect-error a limit together with a limiter, in a policy
  onExpress.rateLimit({ policies: [{ limit: 5, window: '1m', limiter }] })
  // @ts-expect-error a limit together with a limiter, in a policy
  onKoa.rateLimit({ policies: [{ limit: 5, window: '1m', limiter }] })
  // @ts-expect-error a limit together with a limiter, in a policy
  app.register(onFastify.rateLimit, { policies: [{ limit: 5, window: '1m', limiter }] })
}

export function unknownOptions() {
  // @ts-expect-error an option of another library
  onExpress.rateLimit({ limit: 5, window: '1m', max: 5 })
  // @ts-expect-error an option of another library
  onKoa.rateLimit({ limit: 5, window: '1m', max: 5 })
  // @ts-expect-error an option of another library
  app.register(onFastify.rateLimit, { limit: 5, window: '1m', max: 5 })
  // Fastify infers the type of a config, so an unknown option is an error only with a type annotation.
  // @ts-expect-error an option of another library
  const own: onFastify.RateLimitOptions = { limit: 5, window: '1m', max: 5 }
  app.get('/', { config: { rateLimit: own } }, () => 'ok')
  // @ts-expect-error misspelt
  onExpress.rateLimit({ limiter, keys: () => 'ann' })
  // @ts-expect-error misspelt
  onKoa.rateLimit({ limiter, keys: () => 'ann' })
  // @ts-expect-error misspelt
  app.register(onFastify.rateLimit, { limiter, keys: () => 'ann' })
  // @ts-expect-error misspelt
  onExpress.rateLimit({ policies: [{ limiter }], onRefuse: () => {} })
  // @ts-expect-error misspelt
  onKoa.rateLimit({ policies: [{ limiter }], onRefuse: () => {} })
  // @ts-expect-error misspelt
  app.register(onFastify.rateLimit, { policies: [{ limiter }], onRefuse: () => {} })
  // @ts-expect-error a policy cannot have this option
  onExpress.rateLimit({ policies: [{ limiter, status: 503 }] })
  // @ts-expect-error a policy cannot have this option
  onKoa.rateLimit({ policies: [{ limiter, status: 503 }] })
  // @ts-expect-error a policy cannot have this option
  app.register(onFastify.rateLimit, { policies: [{ limiter, status: 503 }] })
  onExpress.rateLimit({ limiter, throws: true })
  app.register(onFastify.rateLimit, { limiter, throws: true })
  // @ts-expect-error an option of Fastify
  onExpress.rateLimit({ limiter, hook: 'preHandler' })
  // @ts-expect-error an option of Fastify
  onKoa.rateLimit({ limiter, hook: 'preHandler' })
  // @ts-expect-error burst is an option of tokenBucket
  onExpress.rateLimit({ limit: 5, window: '1m', burst: 10 })
}

/** A line for each adapter, so that each of them must reject the value. */
export function invalidLimits() {
  // @ts-expect-error a limit as a string
  onExpress.rateLimit({ limit: '5', window: '1m' })
  // @ts-expect-error a limit as a string
  onKoa.rateLimit({ limit: '5', window: '1m' })
  // @ts-expect-error a limit as a string
  app.register(onFastify.rateLimit, { limit: '5', window: '1m' })
  // @ts-expect-error a window without a unit
  onExpress.rateLimit({ limit: 5, window: '60' })
  // @ts-expect-error a window without a unit
  onKoa.rateLimit({ limit: 5, window: '60' })
  // @ts-expect-error a window without a unit
  app.register(onFastify.rateLimit, { limit: 5, window: '60' })
  // @ts-expect-error not a store
  onExpress.rateLimit({ limit: 5, window: '1m', store: new Map() })
  // @ts-expect-error not a store
  onKoa.rateLimit({ limit: 5, window: '1m', store: new Map() })
  // @ts-expect-error not a store
  app.register(onFastify.rateLimit, { limit: 5, window: '1m', store: new Map() })
  // @ts-expect-error an algorithm instead of a limiter
  onExpress.rateLimit({ limiter: bucket })
  // @ts-expect-error an algorithm instead of a limiter
  onKoa.rateLimit({ limiter: bucket })
  // @ts-expect-error an algorithm instead of a limiter
  app.register(onFastify.rateLimit, { limiter: bucket })
  // @ts-expect-error a limiter that may be undefined; no limit is null
  onExpress.rateLimit({ limiter: () => undefined })
  // @ts-expect-error a limiter that may be undefined; no limit is null
  onKoa.rateLimit({ limiter: () => undefined })
  // @ts-expect-error a limiter that may be undefined; no limit is null
  app.register(onFastify.rateLimit, { limiter: () => undefined })
  // @ts-expect-error one policy instead of an array
  onExpress.rateLimit({ policies: { limit: 5, window: '1m' } })
  // @ts-expect-error one policy instead of an array
  onKoa.rateLimit({ policies: { limit: 5, window: '1m' } })
  // @ts-expect-error one policy instead of an array
  app.register(onFastify.rateLimit, { policies: { limit: 5, window: '1m' } })
  // @ts-expect-error limiters instead of policies
  onExpress.rateLimit({ policies: [limiter] })
  // @ts-expect-error limiters instead of policies
  onKoa.rateLimit({ policies: [limiter] })
  // @ts-expect-error limiters instead of policies
  app.register(onFastify.rateLimit, { policies: [limiter] })
  // @ts-expect-error a policy without a limit or limiter
  onExpress.rateLimit({ policies: [{ key: () => 'ann' }] })
  // @ts-expect-error a policy without a limit or limiter
  onKoa.rateLimit({ policies: [{ key: () => 'ann' }] })
  // @ts-expect-error a policy without a limit or limiter
  app.register(onFastify.rateLimit, { policies: [{ key: () => 'ann' }] })
}

export function badValues() {
  // @ts-expect-error a key that is not a function
  onExpress.rateLimit({ limiter, key: 'ann' })
  // @ts-expect-error a key that is not a function
  onKoa.rateLimit({ limiter, key: 'ann' })
  // @ts-expect-error a key that is not a function
  app.register(onFastify.rateLimit, { limiter, key: 'ann' })
  // @ts-expect-error a key that may be undefined
  onExpress.rateLimit({ limiter, key: () => maybeText })
  // @ts-expect-error a key that may be undefined
  onKoa.rateLimit({ limiter, key: async () => maybeText })
  // @ts-expect-error a key that may be undefined
  app.register(onFastify.rateLimit, { limiter, key: () => maybeText })
  // @ts-expect-error a key that is an object
  onExpress.rateLimit({ limiter, key: () => ({ id: 5 }) })
  // @ts-expect-error the address of Express may be undefined
  onExpress.rateLimit({ limiter, key: request => request.ip })
  // @ts-expect-error a header may come several times
  app.register(onFastify.rateLimit, { limiter, key: request => request.headers['x-api-key'] ?? null })
  // @ts-expect-error a cost as a string
  onExpress.rateLimit({ limiter, cost: '5' })
  // @ts-expect-error a cost as a string
  onKoa.rateLimit({ limiter, cost: () => '5' })
  // @ts-expect-error a cost as a string
  app.register(onFastify.rateLimit, { limiter, cost: async () => '5' })
  // @ts-expect-error a status as a string
  onExpress.rateLimit({ limiter, status: '429' })
  // @ts-expect-error a status as a string
  onKoa.rateLimit({ limiter, status: '429' })
  // @ts-expect-error a status as a string
  app.register(onFastify.rateLimit, { limiter, status: '429' })
  // @ts-expect-error a body that is a number
  onExpress.rateLimit({ limiter, body: 429 })
  // @ts-expect-error an unknown header draft
  onExpress.rateLimit({ limiter, headers: 'draft-5' })
  // @ts-expect-error true does not say which header draft
  onKoa.rateLimit({ limiter, headers: true })
  // @ts-expect-error a number is not a header draft
  app.register(onFastify.rateLimit, { limiter, headers: 8 })
  // @ts-expect-error true does not say which form of reset
  onExpress.rateLimit({ limiter, legacyHeaders: true })
  // @ts-expect-error a unit without a name in the standard
  onKoa.rateLimit({ limiter, unit: 'bytes' })
  // @ts-expect-error a wait without a unit
  app.register(onFastify.rateLimit, { limiter, maxWait: '250' })
  // @ts-expect-error none of the three values
  onExpress.rateLimit({ limiter, onStoreError: 'open' })
  // @ts-expect-error trust in every proxy
  onKoa.rateLimit({ limiter, trustedProxies: true })
  // @ts-expect-error one proxy instead of an array
  app.register(onFastify.rateLimit, { limiter, trustedProxies: '10.0.0.0/8' })
  // @ts-expect-error hops as a string
  onExpress.rateLimit({ limiter, hops: '1' })
  // @ts-expect-error a prefix as a string
  onKoa.rateLimit({ limiter, ipv6Prefix: '/56' })
  // @ts-expect-error no such hook
  app.register(onFastify.rateLimit, { limiter, hook: 'onSend' })
  // @ts-expect-error neither true nor false
  onKoa.rateLimit({ limiter, throws: 'yes' })
  // @ts-expect-error onRefused of Koa has no response
  onKoa.rateLimit({ limiter, onRefused: (_ctx, _response, _refusal) => {} })
  // @ts-expect-error the request of another framework
  onExpress.rateLimit({ limiter, key: (ctx: Context) => ctx.ip })
  // @ts-expect-error the request of another framework
  onKoa.rateLimit({ limiter, key: (request: FastifyRequest) => request.ip })
  // @ts-expect-error the request of another framework
  app.register(onFastify.rateLimit, { limiter, key: (request: Request) => request.path })
}
