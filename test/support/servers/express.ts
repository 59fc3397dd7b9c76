import { createServer } from 'node:http'
import { createRequire } from 'node:module'
import { rateLimit } from '@sluice/express'
import express, { type ErrorRequestHandler, type Request, type RequestHandler, type Response } from 'express'
import {
  type App,
  inWordsOf,
  type Limit,
  Log,
  type Passage,
  type RunningServer,
  running,
  type ServerFactory,
} from './app.js'

const require = createRequire(import.meta.url)
/** Express 4 with the types of Express 5. The part used here is the same. */
export const express4 = require('express4') as typeof express

export const expressServers: readonly ServerFactory[] = [
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
  const limiting = (limit: Limit) => onceOnly(rateLimit(inWordsOf(limit, expressPassage)), log)
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

/** Reports a second `next()`, which Express would read as the first `next()` of the following handler. */
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
