import { createLimiter, tokenBucket } from '@sluice/core'
import { rateLimit } from '@sluice/express'
import express from 'express'

const app = express()

// Each client gets LIMIT requests at once, then LIMIT per minute.
app.use(rateLimit({ limit: Number(process.env.LIMIT ?? 100), window: '1m' }))

// A separate limiter for one route: 3 searches at once, then one every 2 seconds. An export costs 3.
const searches = createLimiter(tokenBucket({ limit: 30, window: '1m', burst: 3 }), { name: 'search' })
app.get('/search', rateLimit({ limiter: searches, cost: req => (req.query.export ? 3 : 1) }), (req, res) => {
  res.json({ found: [], remaining: req.rateLimit?.remaining })
})

app.get('/', (_req, res) => {
  res.send('Hello\n')
})

const server = app.listen(Number(process.env.PORT ?? 3000), '127.0.0.1', error => {
  if (error) throw error
  const { port } = /** @type {import('node:net').AddressInfo} */ (server.address())
  console.log(`listening on http://127.0.0.1:${port}`)
})
