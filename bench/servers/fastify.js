// A Fastify server for bench/http.js: bare, with two constant headers, or limited.
import { rateLimit } from '@sluice/fastify'
import Fastify from 'fastify'
import { listen } from './listen.js'

const app = Fastify()
const variant = process.argv[2]
if (variant === 'headers')
  app.addHook('onRequest', (_request, reply, next) => {
    reply.header('RateLimit-Policy', '"default";q=1000000000;w=86400')
    reply.header('RateLimit', '"default";r=999999999;t=86400')
    next()
  })
if (variant === 'sluice') await app.register(rateLimit, { limit: 1_000_000_000, window: '1d' })
app.get('/', (_request, reply) => {
  reply.send('Hello\n')
})
await app.ready()
listen((request, response) => app.routing(request, response))
