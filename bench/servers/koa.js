// A Koa server for bench/http.js: bare, with two constant headers, or limited.
import { rateLimit } from '@sluice/koa'
import Koa from 'koa'
import { listen } from './listen.js'

const app = new Koa()

const MIDDLEWARE = {
  bare: undefined,
  headers: /** @type {Koa.Middleware} */ (
    (ctx, next) => {
      ctx.res.setHeader('RateLimit-Policy', '"default";q=1000000000;w=86400')
      ctx.res.setHeader('RateLimit', '"default";r=999999999;t=86400')
      return next()
    }
  ),
  sluice: rateLimit({ limit: 1_000_000_000, window: '1d' }),
}

const middleware = MIDDLEWARE[/** @type {keyof typeof MIDDLEWARE} */ (process.argv[2])]
if (middleware !== undefined) app.use(middleware)
app.use(ctx => {
  ctx.body = 'Hello\n'
})
listen(app.callback())
