import { createServer, type ServerResponse } from 'node:http'
import { type LimitedMessage, limitRoute } from '@sluice/core/http'
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

export const nodeServer: ServerFactory = { name: 'node', start: startNode }

type Handler = (request: LimitedMessage, response: ServerResponse) => void

/** Limits wrap the handler: those of the app wrap those of the router, which wrap those of the route. */
function startNode(plan: App): Promise<RunningServer> {
  const log = new Log()
  const fail = (error: unknown, response: ServerResponse) => {
    log.errors.push(error)
    const { status = 500 } = (error ?? {}) as { status?: number }
    if (response.headersSent) response.destroy()
    else response.writeHead(status, { 'Content-Type': 'text/plain' }).end('an error')
  }
  const answer: Handler = (request, response) => {
    log.handled++
    const passage = nodePassage(request, response)
    try {
      if (plan.handler === undefined) passage.json({ ok: true })
      else plan.handler(passage)
    } catch (error) {
      fail(error, response)
    }
  }
  const onError = (error: unknown, _: LimitedMessage, response: ServerResponse) => fail(error, response)
  const within = (limits: readonly Limit[] | undefined, handler: Handler) =>
    (limits ?? []).reduceRight<Handler>(
      (inner, limit) => limitRoute({ ...(inWordsOf(limit, nodePassage) as object), onError } as never)(inner),
      handler,
    )
  const routed = within(plan.router, within(plan.route, answer))
  const notFound: Handler = (_, response) => void response.writeHead(404).end()
  const limited = within(plan.app, (request, response) =>
    request.url?.startsWith('/api/items') ? routed(request, response) : notFound(request, response),
  )
  const server = createServer((request, response) => {
    plan.before?.(nodePassage(request, response))
    limited(request, response)
  })
  return running(server, log)
}

function nodePassage(request: LimitedMessage, response: ServerResponse): Passage {
  return {
    req: request,
    res: response,
    get decision() {
      return request.rateLimit
    },
    setHeader: (name, value) => response.setHeader(name, value),
    json: body => {
      response.setHeader('Content-Type', 'application/json; charset=utf-8')
      response.end(JSON.stringify(body))
    },
  }
}
