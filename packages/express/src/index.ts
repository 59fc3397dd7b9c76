import type { Decision } from '@sluice/core'
import {
  finish,
  type Host,
  type HttpOptions,
  isRefusal,
  limitOn,
  type RouteLimit,
  routeLimit,
  runLimited,
} from '@sluice/core/http'
import type { NextFunction, Request, RequestHandler, Response } from 'express'

export type { Ending, Refusal, RefusedError } from '@sluice/core/http'

/** Options of `rateLimit` and `limitRoute` on Express. */
export type RateLimitOptions = HttpOptions<[request: Request, response: Response]>

declare global {
  namespace Express {
    interface Request {
      /** What the limiter decided over this request; undefined where none has. */
      rateLimit?: Decision | undefined
    }
  }
}

/**
 * Middleware that limits requests, for an app, a router or a route, on Express 4 and 5.
 *
 * Takes `{ limit, window }` (that many requests at once per client, then one every window / limit) or `{ limiter }`. A
 * request within the limit goes on, with `req.rateLimit` and the RateLimit fields set; one beyond it is answered with
 * 429, Retry-After and a problem+json body, or by `onRefused`. Errors of callbacks go to `next(error)`.
 *
 * Throws a TypeError or RangeError (with `code` and `option`) for options that are unknown, of a wrong type or out of
 * range.
 *
 * @example
 * app.use(rateLimit({ limit: 100, window: '1m' }))
 * app.post('/login', rateLimit({ limit: 5, window: '15m', name: 'login' }), login)
 */
export function rateLimit(options: RateLimitOptions): RequestHandler {
  const limit = limitOn(options, host)
  return (req, res, next) => finish(() => limit(req, res), next, failing(res, next))
}

export default rateLimit

// biome-ignore lint/suspicious/noExplicitAny: a handler of whatever parameters, query and body.
type Handled = [req: Request<any, any, any, any>, res: Response<any, any>, next: NextFunction]

/**
 * Limits one handler, with the options of `rateLimit`; also as a standard method decorator on a controller's method. Called
 * by another handler without `next`, it hands errors to the route's.
 *
 * @example
 * app.get('/search', limitRoute({ limit: 10, window: '1m', name: 'search' })((req, res) => res.json([])))
 *
 * class Items {
 *   @limitRoute({ limit: 10, window: '1m', name: 'search' })
 *   search(req: Request, res: Response) {}
 * }
 */
export function limitRoute(options: RateLimitOptions): RouteLimit<Handled> {
  const limit = limitOn(options, host)
  return routeLimit<Handled>(([req, res, next], handle) =>
    // A handler that is called by another one has no `next` of its own.
    runLimited(() => limit(req, res), handle, failing(res, next ?? req.next)),
  )
}

/** Hands errors to Express, or to whoever called a handler without `next`. */
function failing(res: Response, next: NextFunction | undefined) {
  return (error: unknown, byHandler = false) => {
    // A refusal whose answer fails is an error of ours, not of the client.
    if (!res.headersSent && !byHandler && !isRefusal(error)) res.statusCode = 500
    if (next === undefined) throw error
    next(error)
  }
}

const host: Host<[Request, Response]> = {
  address: req => req.ip,
  message: req => req,
  response: (_, res) => res,
  trusts: req => {
    const trusted: unknown = req.app.get('trust proxy')
    if (trusted === true) return 'anybody'
    return trusted ? 'some' : 'nobody'
  },
}
