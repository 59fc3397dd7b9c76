import { rateLimit } from '@sluice/fastify'
import { type FastifyInstance, type FastifyReply, type FastifyRequest, fastify } from 'fastify'
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

export const fastifyServers: readonly ServerFactory[] = [{ name: 'fastify', start: startFastify }]

async function startFastify(plan: App): Promise<RunningServer> {
  const log = new Log()
  const app = fastify()
  app.setErrorHandler((error, _request, reply) => {
    log.errors.push(error)
    // Fastify's default error handler answers.
    reply.send(error)
  })
  app.addHook('onRequest', (request, reply, next) => {
    plan.before?.(fastifyPassage(request, reply))
    next()
  })
  await limited(app, plan.app)
  app.register(
    async api => {
      await limited(api, plan.router)
      api.register(async context => {
        // A limit in the config of a route replaces the others. A limit of the context of a route adds to them.
        const [own, ...others] = plan.route ?? []
        const alone = own !== undefined && [plan.app, plan.router, others].every(limits => !limits?.length)
        if (alone) await context.register(rateLimit, { limiter: () => null })
        else await limited(context, plan.route)
        const config = alone ? { rateLimit: inWordsOf(own, fastifyPassage) } : {}
        context.all('/items', { config }, (request, reply) => {
          log.handled++
          const passage = fastifyPassage(request, reply)
          if (plan.handler === undefined) passage.json({ ok: true })
          else plan.handler(passage)
        })
      })
    },
    { prefix: '/api' },
  )
  await app.ready()
  return running(app.server, log)
}

async function limited(context: FastifyInstance, limits: readonly Limit[] = []): Promise<void> {
  for (const limit of limits) await context.register(rateLimit, inWordsOf(limit, fastifyPassage))
}

function fastifyPassage(request: FastifyRequest, reply: FastifyReply): Passage {
  return {
    req: request.raw,
    res: reply.raw,
    get decision() {
      return request.rateLimit
    },
    setHeader: (name, value) => reply.header(name, value),
    json: body => reply.send(body),
  }
}
