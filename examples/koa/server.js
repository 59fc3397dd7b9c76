import Router from '@koa/router'
import { createLimiter, tokenBucket } from '@sluice/core'
import { rateLimit } from '@sluice/koa'
import Koa from 'koa'

const app = new Koa()

// Each client gets LIMIT requests at once, then LIMIT per minute.
app.use(rateLimit({ limit: Number(process.env.LIMIT ?? 100), window: '1m' }))

const router = new Router()

// A separate limiter for one route: one report per second for all clients together. A request may wait a short time.
const reports = createLimiter(tokenBucket({ limit: 1, window: '1s' }), { name: 'reports' })
router.get('/report', rateLimit({ limiter: reports, key: () => 'all', maxWait: '2s' }), ctx => {
  ctx.body = { waitedMs: ctx.state.rateLimit?.waitMs }
})

router.get('/', ctx => {
  ctx.body = 'Hello\n'
})
app.use(router.routes())

const server = app.listen(Number(process.env.PORT ?? 3000), '127.0.0.1', () => {
  const { port } = /** @type {import('node:net').AddressInfo} */ (server.address())
  console.log(`listening on http://127.0.0.1:${port}`)
})
