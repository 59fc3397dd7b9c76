// An Express server for bench/http.js: bare, with two constant headers, or limited.
import { rateLimit } from '@sluice/express'
import express from 'express'
import { listen } from './listen.js'

const app = express()

const MIDDLEWARE = {
  bare: undefined,
  headers: /** @type {express.RequestHandler} */ (
    (_req, res, next) => {
      res.setHeader('RateLimit-Policy', '"default";q=1000000000;w=86400')
      res.setHeader('RateLimit', '"default";r=999999999;t=86400')
      next()
    }
  ),
  sluice: rateLimit({ limit: 1_000_000_000, window: '1d' }),
}

const middleware = MIDDLEWARE[/** @type {keyof typeof MIDDLEWARE} */ (process.argv[2])]
if (middleware !== undefined) app.use(middleware)
app.get('/', (_req, res) => {
  res.send('Hello\n')
})

listen(app)
