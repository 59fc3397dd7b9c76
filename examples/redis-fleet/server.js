import { rateLimit } from '@sluice/express'
import { redisStore } from '@sluice/redis'
import express from 'express'
import { Redis } from 'ioredis'

const redis = new Redis(process.env.REDIS_URL ?? 'redis://127.0.0.1:6379')
redis.on('error', error => console.error(`redis: ${error.message}`))

// All servers count on one Redis, which must answer within 100 ms. If it does not, the request is granted: here that
// is better than refusing all clients.
const store = redisStore(redis, { prefix: 'fleet', deadline: '100ms', onStoreError: 'allow' })

const app = express()

// Each client gets LIMIT requests per minute over all servers. A limit on a shared store needs a name.
app.use(rateLimit({ limit: Number(process.env.LIMIT ?? 5), window: '1m', name: 'per-client', store }))

app.get('/', (req, res) => {
  res.json({ server: process.pid, remaining: req.rateLimit?.remaining })
})

const server = app.listen(Number(process.env.PORT ?? 3000), '127.0.0.1', error => {
  if (error) throw error
  const { port } = /** @type {import('node:net').AddressInfo} */ (server.address())
  console.log(`listening on http://127.0.0.1:${port}`)
})
