import { createServer, type IncomingMessage, type RequestListener, type ServerResponse } from 'node:http'
import { createServer as createHttp2Server } from 'node:http2'
import { createServer as createHttpsServer } from 'node:https'
import Router, { type RouterMiddleware } from '@koa/router'
import { createLimiter, type Decision, type Limiter, tokenBucket } from '@sluice/core'
import * as onNode from '@sluice/core/http'
import * as onExpress from '@sluice/express'
import * as onFastify from '@sluice/fastify'
import * as onKoa from '@sluice/koa'
import express, { type NextFunction, type Request, type RequestHandler, type Response } from 'express'
import {
  type FastifyReply,
  type FastifyRequest,
  fastify,
  type RouteGenericInterface,
  type RouteHandlerMethod,
} from 'fastify'
import Koa, { type Context, type Middleware, type Next, type ParameterizedContext } from 'koa'

/*
 * Checked by tsc and never run: a limited handler keeps its type.
 */

type Same<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false

/** Compiles only when both types are the same. */
declare function same<A, B>(..._: Same<A, B> extends true ? [] : [never]): void

const limiter = createLimiter(tokenBucket({ limit: 10, window: '1m' }))
const options = { limit: 10, window: '1m', name: 'search' } as const

interface User {
  readonly id: string
  readonly name: string
}

/*
 * Express.
 */

const inExpress = onExpress.limitRoute(options)
const web = express()

/** A handler with type annotations keeps its type. */
export function handlersOfExpress() {
  const handler: RequestHandler<{ id: string }, User> = (req, res) => {
    res.json({ id: req.params.id, name: 'ann' })
  }
  const limited = inExpress(handler)
  same<typeof limited, RequestHandler<{ id: string }, User>>()
  const plain = inExpress((req: Request, res: Response) => res.json(req.path))
  same<typeof plain, (req: Request, res: Response) => Response>()
  const later = inExpress(async (_req: Request, _res: Response, _next: NextFunction) => 5)
  same<typeof later, (req: Request, res: Response, next: NextFunction) => Promise<number>>()
  const none = inExpress(() => 'ok')
  same<typeof none, () => string>()
  web.get('/users/:id', limited)
  web.get('/', plain, later, none)
  web.route('/').get(plain).post(later)
  express.Router().get('/users/:id', limited)
}

/** A handler without type annotations gets the types of Express. */
export function handlersOfExpressWithoutTypeAnnotations() {
  inExpress((req, res, next) => {
    same<typeof req.method, string>()
    same<typeof req.rateLimit, Decision | undefined>()
    same<typeof next, NextFunction>()
    res.status(201).json({ path: req.path })
    // @ts-expect-error there is no such method
    res.answer()
    // @ts-expect-error no such property
    return req.nothing
  })
  web.get(
    '/',
    inExpress((_req, res) => {
      res.send('ok')
    }),
  )
  web.get(
    '/users/:id',
    inExpress((req, res) => {
      res.send(req.params.id)
    }),
  )
  web.get(
    '/users/:id',
    inExpress(async (req, res) => {
      res.json({ id: req.params.id, page: req.query.page, body: req.body })
    }),
  )
  web.get('/users/:id', onExpress.rateLimit(options), inExpress(onExpress.rateLimit({ limiter })))
}

export class ItemsOfExpress {
  readonly items: string[] = []

  @onExpress.limitRoute(options)
  search(_req: Request, res: Response): void {
    res.json(this.items)
  }

  @onExpress.limitRoute({ limiter, key: req => req.get('x-api-key') ?? null, throws: true })
  async find(req: Request<{ id: string }>, res: Response<User>, next: NextFunction): Promise<void> {
    if (req.params.id === '') next()
    else res.json({ id: req.params.id, name: this.items[0] ?? '' })
  }

  @inExpress
  static all(_req: Request, res: Response): Response {
    return res.json([])
  }

  @inExpress
  #secret(_req: Request, res: Response): Response {
    return res.json(this.items)
  }

  secret(req: Request, res: Response) {
    return this.#secret(req, res)
  }
}

export function controllersOfExpress(items: ItemsOfExpress) {
  web.get('/', (req, res) => items.search(req, res))
  web.get('/users/:id', items.find.bind(items))
  web.get('/all', ItemsOfExpress.all)
}

/*
 * Koa.
 */

const inKoa = onKoa.limitRoute(options)
const router = new Router()

export function handlersOfKoa() {
  const handler: Middleware = ctx => {
    ctx.body = 'ok'
  }
  const limited = inKoa(handler)
  same<typeof limited, Middleware>()
  const plain = inKoa((ctx: Context) => ctx.path)
  same<typeof plain, (ctx: Context) => string>()
  const withNext = inKoa(async (_ctx: Context, next: Next): Promise<void> => {
    await next()
  })
  same<typeof withNext, (ctx: Context, next: Next) => Promise<void>>()
  new Koa().use(limited).use(plain).use(withNext)
  router.get('/', limited).post('/', withNext)
  const ofRouter: RouterMiddleware = ctx => {
    ctx.body = ctx.params.id
  }
  const limitedOfRouter = inKoa(ofRouter)
  same<typeof limitedOfRouter, RouterMiddleware>()
  router.get('/:id', limitedOfRouter)
}

export function handlersOfKoaWithoutTypeAnnotations() {
  inKoa((ctx, next) => {
    same<typeof ctx.method, string>()
    same<typeof next, Next>()
    ctx.body = ctx.path
    return next()
  })
  new Koa().use(
    inKoa(ctx => {
      ctx.body = ctx.get('x-user')
    }),
  )
  router.get(
    '/users/:id',
    inKoa(ctx => {
      ctx.body = ctx.params.id
    }),
  )
  const state = inKoa((ctx: ParameterizedContext<{ user: User }>) => {
    ctx.body = ctx.state.user.name
  })
  new Koa<{ user: User }>().use(state)
}

export class ItemsOfKoa {
  readonly items: string[] = []

  @onKoa.limitRoute(options)
  search(ctx: Context): void {
    ctx.body = this.items
  }

  @onKoa.limitRoute({ limiter, key: ctx => ctx.ip })
  async find(ctx: ParameterizedContext<{ user: User }>, next: Next): Promise<void> {
    ctx.body = [ctx.state.user.id, this.items]
    await next()
  }

  @inKoa
  static all(ctx: Context): void {
    ctx.body = []
  }
}

export function controllersOfKoa(items: ItemsOfKoa) {
  router.get('/', ctx => items.search(ctx))
  router.get('/all', ItemsOfKoa.all)
  new Koa<{ user: User }>().use(items.find.bind(items))
}

/*
 * Fastify.
 */

const inFastify = onFastify.limitRoute(options)
const app = fastify()

export function handlersOfFastify() {
  const handler: RouteHandlerMethod = (_request, reply) => reply.send('ok')
  const limited = inFastify(handler)
  same<typeof limited, RouteHandlerMethod>()
  const plain = inFastify((request: FastifyRequest) => request.ip)
  same<typeof plain, (request: FastifyRequest) => string>()
  const later = inFastify(async (request: FastifyRequest, _reply: FastifyReply) => request.ip)
  same<typeof later, (request: FastifyRequest, reply: FastifyReply) => Promise<string>>()
  app.get('/', limited)
  app.get('/plain', plain)
  app.get('/later', later)
}

export function handlersOfFastifyWithoutTypeAnnotations() {
  inFastify((request, reply) => {
    same<typeof request.method, string>()
    same<typeof request.rateLimit, Decision | undefined>()
    // @ts-expect-error there is no such method
    reply.answer()
    return reply.code(201).send({ url: request.url })
  })
  app.get(
    '/',
    inFastify(() => 'ok'),
  )
  app.get(
    '/users/:id',
    inFastify(async request => request.ip),
  )
  app.route({ method: 'GET', url: '/route', handler: app.rateLimit({ limiter })(() => 'ok') })
}

interface UserRoute extends RouteGenericInterface {
  Params: { id: string }
  Reply: User
}

export function typedRoutesOfFastify() {
  app.get<UserRoute>('/users/:id', { onRequest: inFastify }, async request => ({
    id: request.params.id,
    name: 'ann',
  }))
  app.get<UserRoute>(
    '/people/:id',
    inFastify(async (request: FastifyRequest<UserRoute>) => ({ id: request.params.id, name: 'ann' })),
  )
  app.get<UserRoute>(
    '/persons/:id',
    { preHandler: [app.rateLimit({ limiter, key: request => request.ip })] },
    (request, reply) => {
      reply.send({ id: request.params.id, name: 'ann' })
    },
  )
}

/** Works in every hook that gets a request, a reply and nothing else. */
export function hooksOfFastify() {
  app.get('/', { onRequest: onFastify.limitRoute({ limit: 5, window: '1s' }) }, () => 'ok')
  app.get('/b', { preHandler: app.rateLimit({ limiter, throws: true }) }, () => 'ok')
  app.get('/c', { preValidation: [inFastify, app.rateLimit({ limiter })] }, () => 'ok')
  app.addHook('onRequest', inFastify)
  app.addHook('preHandler', app.rateLimit({ limiter }))
  app.register(async context => {
    context.get('/d', { onRequest: context.rateLimit(options) }, () => 'ok')
    same<typeof context.limiters, ReadonlyMap<string, Limiter>>()
  })
  const limit: onFastify.RouteLimit = app.rateLimit(options)
  const own: onFastify.RouteLimitOptions = options
  // @ts-expect-error this hook also gets a payload
  app.get('/e', { preParsing: limit }, () => 'ok')
  // @ts-expect-error this hook also gets a payload
  app.get('/f', { onSend: limit }, () => 'ok')
  // @ts-expect-error the map is read-only
  app.limiters.set('mine', limiter)
  // @ts-expect-error set by the app
  app.limiters = new Map()
  return own
}

export class ItemsOfFastify {
  readonly items: string[] = []

  @onFastify.limitRoute(options)
  search(_request: FastifyRequest, reply: FastifyReply): void {
    reply.send(this.items)
  }

  @onFastify.limitRoute({ limiter, key: request => request.ip })
  async find(request: FastifyRequest<UserRoute>, _reply: FastifyReply<UserRoute>): Promise<User> {
    return { id: request.params.id, name: this.items[0] ?? '' }
  }

  @app.rateLimit(options)
  list(_request: FastifyRequest): readonly string[] {
    return this.items
  }

  @inFastify
  static all(_request: FastifyRequest, reply: FastifyReply): FastifyReply {
    return reply.send([])
  }
}

export function controllersOfFastify(items: ItemsOfFastify) {
  app.get('/', (request, reply) => items.search(request, reply))
  app.get<UserRoute>('/users/:id', items.find.bind(items))
  app.get('/all', ItemsOfFastify.all)
}

/*
 * node:http.
 */

const inNode = onNode.limitRoute({ ...options, onError: (_error, _request, response) => response.end() })

export function handlersOfNode() {
  const handler: RequestListener = (_request, response) => {
    response.end('ok')
  }
  const limited = inNode(handler)
  same<typeof limited, RequestListener>()
  createServer(limited)
  createServer(
    { keepAlive: true },
    inNode((_request, response) => response.end('ok')),
  ).on('request', limited)
  createHttpsServer({ key: '', cert: '' }, limited)
  const plain = inNode(async (request: IncomingMessage, response: ServerResponse) => {
    response.end(request.url)
    return 5
  })
  same<typeof plain, (request: IncomingMessage, response: ServerResponse) => Promise<number>>()
}

export function handlersOfNodeWithoutTypeAnnotations() {
  const limited = inNode((request, response) => {
    same<typeof request, onNode.LimitedMessage>()
    same<typeof response, ServerResponse>()
    same<typeof request.rateLimit, Decision | undefined>()
    response.end(request.url)
  })
  createServer(limited)
  // @ts-expect-error HTTP/2 requests have another type
  createHttp2Server(limited)
}

export class ItemsOfNode {
  readonly items: string[] = []

  @onNode.limitRoute(options)
  search(_request: IncomingMessage, response: ServerResponse): void {
    response.end(this.items.join())
  }

  @inNode
  async find(request: onNode.LimitedMessage, response: ServerResponse): Promise<void> {
    response.end(String(request.rateLimit?.remaining))
  }
}

/*
 * The names of the types.
 */

export function names() {
  same<onKoa.RateLimitOptions, Parameters<typeof onKoa.limitRoute>[0]>()
  same<onExpress.RateLimitOptions, Parameters<typeof onExpress.limitRoute>[0]>()
  same<onFastify.RouteLimitOptions, Parameters<typeof onFastify.limitRoute>[0]>()
  same<onFastify.RouteLimit, ReturnType<typeof onFastify.limitRoute>>()
  same<onFastify.RouteLimit, ReturnType<typeof app.rateLimit>>()
  same<onNode.NodeOptions, Parameters<typeof onNode.limitRoute>[0]>()
}

/*
 * What must not compile.
 */

export function badHandlers() {
  // @ts-expect-error not a function
  inExpress(5)
  // @ts-expect-error not a function
  inKoa('search')
  // @ts-expect-error not a function
  inFastify({ search() {} })
  // @ts-expect-error not a function
  inNode(undefined)
  // @ts-expect-error an error handler, which Express would not call with an error
  inExpress((_error: unknown, _req: Request, _res: Response, _next: NextFunction) => {})
  // @ts-expect-error the handler of another framework
  inExpress((ctx: Context) => ctx.ip)
  // @ts-expect-error the handler of another framework
  inFastify((ctx: Context) => ctx.ip)
  // @ts-expect-error the handler of another framework
  inNode((request: FastifyRequest) => request.ip)
  // @ts-expect-error a handler with three parameters; node:http passes two
  inNode((_request: IncomingMessage, _response: ServerResponse, next: () => void) => next())
  // @ts-expect-error limitRoute does not return a middleware
  web.use(inExpress)
  // @ts-expect-error limitRoute does not return a middleware
  new Koa().use(inKoa)
  // @ts-expect-error options instead of a handler
  web.get('/', onExpress.limitRoute(options), options)
}

export function badPlaces() {
  // @ts-expect-error the plugin is not a hook
  app.get('/', { onRequest: onFastify.rateLimit }, () => 'ok')
  // @ts-expect-error the plugin does not return a hook
  app.get('/', { onRequest: onFastify.rateLimit(options) }, () => 'ok')
  // @ts-expect-error options are not a hook
  app.get('/', { onRequest: options }, () => 'ok')
  // @ts-expect-error limitRoute does not return a plugin
  app.register(inFastify, {})
}

export class BadItems {
  // @ts-expect-error a field is not a method
  @inExpress
  items = 5

  // @ts-expect-error a getter is not a method
  @inExpress
  get size(): number {
    return 5
  }

  // @ts-expect-error a method of something else
  @inExpress
  count(items: string): number {
    return items.length
  }

  // @ts-expect-error the method of another framework
  @inKoa
  search(_req: Request, res: Response): void {
    res.json([])
  }

  // @ts-expect-error the method of another framework
  @inFastify
  find(ctx: Context): void {
    ctx.body = 'ok'
  }
}

export function badOptions() {
  // @ts-expect-error no options
  onExpress.limitRoute()
  // @ts-expect-error neither limit nor limiter nor policies
  onKoa.limitRoute({ name: 'search' })
  // @ts-expect-error a limit and a limiter
  onFastify.limitRoute({ limit: 5, window: '1m', limiter })
  // @ts-expect-error misspelt
  onNode.limitRoute({ limit: 5, window: '1m', onErrors: () => {} })
  // @ts-expect-error an option of node:http
  onExpress.limitRoute({ limiter, onError: () => {} })
  // @ts-expect-error an option of the plugin
  onFastify.limitRoute({ limiter, hook: 'preHandler' })
  // @ts-expect-error an option of the plugin
  app.rateLimit({ limiter, hook: 'preHandler' })
  // @ts-expect-error a window without a unit
  onKoa.limitRoute({ limit: 5, window: '60' })
  // @ts-expect-error the handler instead of the options
  onExpress.limitRoute((_req: Request, res: Response) => res.json([]))
  // @ts-expect-error the request of another framework
  onFastify.limitRoute({ limiter, key: (request: Request) => request.path })
  // @ts-expect-error no response
  onNode.limitRoute({ limiter, onError: (_error, _response: ServerResponse) => {} })
}
