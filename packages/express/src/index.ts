import type { Decision } from '@sluice/core'
import {
  type Host,
  type HttpOptions,
  isRefusal,
  limitOn,
  type RouteLimit,
  routeLimit,
  runLimited,
  runMiddleware,
} from '@sluice/core/http'
import type { NextFunction, Request, RequestHandler, Response } from 'express'

export type { Ending, Refusal, RefusedError } from '@sluice/core/http'

/** Options of `rateLimit` and `limitRoute` on Express. */
export type RateLimitOptions = HttpOptions<[request: Request, response: Response]>

declare global {
  namespace Express {
    interface Request {
      /** The limiter's decision about this request; undefined if it was not limited. */
      rateLimit?: Decision | undefined
    }
  }
}

/**
 * Middleware that limits requests, for an app, a router or a route, on Express 4 and 5.
 *
 * Takes `{ limit, window }` (`limit` requests at once per client, then one every `window / limit`), `{ limiter }` or
 * `{ policies }`. A request within the limit continues, with `req.rateLimit` and the RateLimit header fields set. A request
 * over the limit gets status 429, Retry-After and a problem+json body, or the response of `onRefused`. Errors of callbacks
 * go to `next(error)`.
 *
 * Throws a TypeError or RangeError, with `code` and `option`, for an option that is unknown, of the wrong type or out of
 * range.
 *
 * @example
 * app.use(rateLimit({ limit: 100, window: '1m' }))
 * app.post('/login', rateLimit({ limit: 5, window: '15m', name: 'login' }), login)
 */
export function rateLimit(options: RateLimitOptions): RequestHandler {
  const limit = limitOn(options, host)
  return (req, res, next) => runMiddleware(() => limit(req, res), next, failing(res, next))
}

export default rateLimit

// biome-ignore lint/suspicious/noExplicitAny: a handler of any parameters, query and body.
type Handled = [req: Request<any, any, any, any>, res: Response<any, any>, next: NextFunction]

/**
 * Limits one handler, with the options of `rateLimit`; also works as a standard decorator of a method. If another handler
 * calls the limited one without `next`, errors go to the `next` of the route.
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
    runLimited(() => limit(req, res), handle, failing(res, next ?? req.next)),
  )
}

/** Passes errors to Express, or throws them to the caller if there is no `next`. */
function failing(res: Response, next: NextFunction | undefined) {
  return (error: unknown, byHandler = false) => {
    // A refusal may have set its status already, and then `onRefused` failed: that is an error of the server.
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
