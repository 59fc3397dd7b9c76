import { createServer } from 'node:http'
import { createRequire } from 'node:module'
import Router from '@koa/router'
import { rateLimit } from '@sluice/koa'
import Koa, { type Context } from 'koa'
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
/** Koa 2 with the types of Koa 3. The part used here is the same. */
export const Koa2 = require('koa2') as typeof Koa

export const koaServers: readonly ServerFactory[] = [
  { name: 'koa', start: app => startKoa(Koa, app) },
  { name: 'koa2', start: app => startKoa(Koa2, app) },
]

function startKoa(Framework: typeof Koa, plan: App): Promise<RunningServer> {
  const log = new Log()
  const app = new Framework()
  // This listener replaces Koa's, which prints. Koa itself reports a second `next()`.
  app.on('error', error => log.errors.push(error))
  app.use((ctx, next) => {
    plan.before?.(koaPassage(ctx))
    return next()
  })
  const limiting = (limit: Limit) => rateLimit(inWordsOf(limit, koaPassage))
  for (const limit of plan.app ?? []) app.use(limiting(limit))

  const router = new Router({ prefix: '/api' })
  for (const limit of plan.router ?? []) router.use(limiting(limit))
  router.all('/items', ...(plan.route ?? []).map(limiting), ctx => {
    log.handled++
    const passage = koaPassage(ctx)
    return plan.handler === undefined ? passage.json({ ok: true }) : plan.handler(passage)
  })
  app.use(router.routes())
  return running(createServer(app.callback()), log)
}

function koaPassage(ctx: Context): Passage {
  return {
    req: ctx.req,
    res: ctx.res,
    get decision() {
      return ctx.state.rateLimit
    },
    setHeader: (name, value) => ctx.set(name, value),
    json(body) {
      ctx.body = body
    },
  }
}
