import { createServer } from 'node:http'
import { createRequire } from 'node:module'
import type { LimitDoor } from '@sluice/core/http'
import { rateLimit as expressRateLimit } from '@sluice/express'
import { rateLimit as fastifyRateLimit } from '@sluice/fastify'
import { rateLimit as koaRateLimit } from '@sluice/koa'
import express, { type Response } from 'express'
import { type FastifyReply, fastify } from 'fastify'
import Koa, { type Context } from 'koa'
import { type Limit, Log, type RunningServer, running } from '../support/servers/app.js'
import { Koa2 } from '../support/servers/koa.js'

/** How a request ends: by the framework's own redirect, or as 304. */
export type Ending = 'a redirect' | 'a 304'

/** An app behind one limit, whose handler and `onRefused` end every request in one way. */
export interface RedirectingServer {
  readonly name: string
  start(limit: Omit<Limit, 'onRefused'>, ending: Ending): Promise<RunningServer>
}

const express4 = createRequire(import.meta.url)('express4') as typeof express

/** Apps that redirect, by every framework in every version we support. */
export const redirectingServers: readonly RedirectingServer[] = [
  { name: 'express', start: (limit, ending) => startExpress(express, limit, ending) },
  { name: 'express4', start: (limit, ending) => startExpress(express4, limit, ending) },
  { name: 'koa', start: (limit, ending) => startKoa(Koa, limit, ending) },
  { name: 'koa2', start: (limit, ending) => startKoa(Koa2, limit, ending) },
  { name: 'fastify', start: startFastify },
]

type Start = RedirectingServer['start']

function startExpress(framework: typeof express, ...[limit, ending]: Parameters<Start>) {
  const app = framework()
  const end = (res: Response) =>
    ending === 'a redirect' ? res.redirect('/elsewhere') : res.status(304).end()
  app.use(expressRateLimit({ ...(limit as object as LimitDoor), onRefused: (_req, res) => end(res) }))
  app.use((_req, res) => void end(res))
  return running(createServer(app), new Log())
}

function startKoa(Framework: typeof Koa, ...[limit, ending]: Parameters<Start>) {
  const app = new Framework()
  const end = (ctx: Context) => {
    if (ending === 'a redirect') ctx.redirect('/elsewhere')
    else ctx.status = 304
  }
  app.use(koaRateLimit({ ...(limit as object as LimitDoor), onRefused: end }))
  app.use(end)
  return running(createServer(app.callback()), new Log())
}

async function startFastify(...[limit, ending]: Parameters<Start>) {
  const app = fastify()
  const end = (reply: FastifyReply) =>
    ending === 'a redirect' ? reply.redirect('/elsewhere', 302) : reply.code(304).send()
  await app.register(fastifyRateLimit, {
    ...(limit as object as LimitDoor),
    onRefused: (_request, reply) => void end(reply),
  })
  app.get('/api/items', (_request, reply) => end(reply))
  await app.ready()
  return running(app.server, new Log())
}
