import type { Decision } from '@sluice/core'
import {
  createGuard,
  dropOnRedirect,
  finish,
  type Host,
  type HttpOptions,
  type MaybePromise,
  proceed,
  sendRefusal,
  type Verdict,
  writeFields,
} from '@sluice/core/http'
import type { Request, RequestHandler, Response } from 'express'

export type { Refusal } from '@sluice/core/http'

/** Options of `rateLimit` on Express. */
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
  const guard = createGuard(options, host)
  const { onRefused } = options

  return (req, res, next) => {
    if (res.headersSent) {
      if (!res.writableEnded) next()
      return
    }
    const act = () => proceed(guard(req, res), verdict => apply(verdict, req, res, onRefused))
    finish(act, next, error => {
      // A refusal whose answer fails is an error of ours, not of the client.
      if (!res.headersSent) res.statusCode = 500
      next(error)
    })
  }
}

export default rateLimit

const host: Host<Request> = {
  address: req => req.ip,
  message: req => req,
  trusts: req => {
    const trusted: unknown = req.app.get('trust proxy')
    if (trusted === true) return 'anybody'
    return trusted ? 'some' : 'nobody'
  },
}

/** Puts a verdict into effect; the answer says whether the request goes on. */
function apply(
  verdict: Verdict,
  req: Request,
  res: Response,
  onRefused: RateLimitOptions['onRefused'],
): MaybePromise<boolean> {
  if (verdict.outcome === 'abandoned') return false
  if (verdict.outcome === 'skipped') return true
  req.rateLimit = verdict.decision
  if (res.headersSent) return applyLate(verdict.outcome, res)
  writeFields(verdict.fields, res)
  dropOnRedirect(verdict.dropsOnRedirect, res)
  if (verdict.outcome === 'allowed') return true

  res.statusCode = verdict.refusal.status
  return proceed(onRefused?.(req, res, verdict.refusal), () => {
    sendRefusal(verdict.refusal, res)
    return false
  })
}

/** Somebody began to answer while the key was looked for: no field can be said any more, and no refusal. */
function applyLate(outcome: 'allowed' | 'refused', res: Response): boolean {
  if (res.writableEnded) return false
  if (outcome === 'refused') res.destroy()
  return outcome === 'allowed'
}
