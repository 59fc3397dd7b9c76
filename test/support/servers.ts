import { once } from 'node:events'
import {
  createServer,
  type IncomingHttpHeaders,
  type IncomingMessage,
  type Server,
  type ServerResponse,
} from 'node:http'
import { createRequire } from 'node:module'
import type { AddressInfo } from 'node:net'
import type { Decision } from '@sluice/core'
import type { LimitDoor, LimiterDoor, Refusal, RequestOptions } from '@sluice/core/http'
import { type RateLimitOptions, rateLimit } from '@sluice/express'
import express, { type ErrorRequestHandler, type Request, type RequestHandler, type Response } from 'express'

/*
 * One way to write an app with rate limits, and a factory per framework that builds it. A new adapter is one entry in
 * `servers`, and inherits the HTTP contract (adapters/contract.test.ts).
 */

/** What the requests of every framework have in common; callbacks of limits are given one. */
export interface AnyRequest {
  readonly headers: IncomingHttpHeaders
}

/** A rate limit in no framework's words. */
export type Limit = (LimitDoor | LimiterDoor<[AnyRequest]>) &
  Omit<RequestOptions<[AnyRequest]>, 'onRefused'> & {
    readonly onRefused?: (passage: Passage, refusal: Refusal) => unknown
  }

/** One request on its way through the app. */
export interface Passage {
  readonly req: IncomingMessage
  readonly res: ServerResponse
  /** What the limiter has left where users of the framework look. */
  readonly decision: Decision | undefined
  /** Sets a field as an app would, replacing what is there. */
  setHeader(name: string, value: string | string[]): void
  /** Answers with JSON as an app would. */
  json(body: unknown): unknown
}

/** An app with one resource, `/api/items`, for every method. */
export interface App {
  /** Limits on the whole app, on the router at `/api`, and on the route itself. */
  readonly app?: readonly Limit[]
  readonly router?: readonly Limit[]
  readonly route?: readonly Limit[]
  /** What happens to a request before any limiter sees it; the request goes on afterwards. */
  readonly before?: (passage: Passage) => void
  /** Answers a request that was let through; default `{"ok":true}`. */
  readonly handler?: (passage: Passage) => unknown
}

export interface RunningServer {
  /** The address of the resource. */
  readonly url: string
  /** What has reached the framework's error handler, in order. */
  readonly errors: readonly unknown[]
  /** How often the handler has run. */
  readonly handled: number
  close(): Promise<void>
}

export interface ServerFactory {
  readonly name: string
  /** Starts the app on a free port of 127.0.0.1. */
  start(app: App): Promise<RunningServer>
}

const require = createRequire(import.meta.url)
/** Express 4 in the types of Express 5, whose part that is used here is the same. */
const express4 = require('express4') as typeof express

export const servers: readonly ServerFactory[] = [
  { name: 'express', start: app => startExpress(express, app) },
  { name: 'express4', start: app => startExpress(express4, app) },
]

function startExpress(framework: typeof express, plan: App): Promise<RunningServer> {
  const log = new Log()
  const app = framework()
  // Express's own answer to an error, without printing it.
  app.set('env', 'test')
  app.use((req, res, next) => {
    plan.before?.(expressPassage(req, res))
    next()
  })
  const limiting = (limit: Limit) => onceOnly(rateLimit(expressOptions(limit)), log)
  for (const limit of plan.app ?? []) app.use(limiting(limit))

  const router = framework.Router()
  for (const limit of plan.router ?? []) router.use(limiting(limit))
  router.route('/items').all(...(plan.route ?? []).map(limiting), (req, res) => {
    log.handled++
    const passage = expressPassage(req, res)
    if (plan.handler === undefined) passage.json({ ok: true })
    else plan.handler(passage)
  })
  app.use('/api', router)

  const record: ErrorRequestHandler = (error, _req, _res, next) => {
    log.errors.push(error)
    next(error)
  }
  app.use(record)
  return running(createServer(app), log)
}

function expressOptions({ onRefused, ...options }: Limit): RateLimitOptions {
  if (onRefused === undefined) return options
  return { ...options, onRefused: (req, res, refusal) => onRefused(expressPassage(req, res), refusal) }
}

/** Reports a second `next()`, which Express takes for the first of whatever comes next. */
function onceOnly(middleware: RequestHandler, log: Log): RequestHandler {
  return (req, res, next) => {
    let calls = 0
    return middleware(req, res, (error?: unknown) => {
      if (++calls > 1) log.errors.push(new Error('next() was called twice'))
      else next(error)
    })
  }
}

function expressPassage(req: Request, res: Response): Passage {
  return {
    req,
    res,
    get decision() {
      return req.rateLimit
    },
    setHeader: (name, value) => res.setHeader(name, value),
    json: body => res.json(body),
  }
}

class Log {
  readonly errors: unknown[] = []
  handled = 0
}

async function running(server: Server, log: Log): Promise<RunningServer> {
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  return {
    url: `http://127.0.0.1:${port}/api/items`,
    errors: log.errors,
    get handled() {
      return log.handled
    },
    close() {
      const closed = new Promise<void>(resolve => server.close(() => resolve()))
      server.closeAllConnections()
      return closed
    },
  }
}
