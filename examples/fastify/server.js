import { createLimiter, tokenBucket } from '@sluice/core'
import { rateLimit } from '@sluice/fastify'
import Fastify from 'fastify'

const app = Fastify()

// Each client gets LIMIT requests at once, then LIMIT per minute.
await app.register(rateLimit, { limit: Number(process.env.LIMIT ?? 100), window: '1m' })

// A separate limiter for one route: one report per second for all clients together. A request may wait a short time.
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
