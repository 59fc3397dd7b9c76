import { createLimiter, tokenBucket } from '@sluice/core'
import { rateLimit } from '@sluice/fastify'
import Fastify from 'fastify'

const app = Fastify()

// Every client: LIMIT requests at once, then LIMIT a minute.
await app.register(rateLimit, { limit: Number(process.env.LIMIT ?? 100), window: '1m' })

// A limiter of your own, for one route: one report a second for everybody, and a short wait is waited out.
const reports = createLimiter(tokenBucket({ limit: 1, window: '1s' }), { name: 'reports' })
app.get(
  '/report',
  { config: { rateLimit: { limiter: reports, key: () => 'all', maxWait: '2s' } } },
  async request => ({ waitedMs: request.rateLimit?.waitMs }),
)

app.get('/health', { config: { rateLimit: false } }, async () => 'ok\n')
app.get('/', async () => 'Hello\n')

const url = await app.listen({ port: Number(process.env.PORT ?? 3000), host: '127.0.0.1' })
console.log(`listening on ${url}`)
