import type * as Http from 'node:http'
import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Decision } from '../algorithms/decision.js'
import { builtin } from '../shared/node-module.js'
import { callable } from '../shared/validate.js'
import { type RouteLimit, routeLimit, runLimited } from './handler.js'
import { limitOn } from './middleware.js'
import type { HttpOptions } from './options.js'
import { isRefusal } from './response/refused-error.js'
import type { Host } from './types.js'

/** A node:http request on which the decision is stored. */
export type LimitedMessage = IncomingMessage & {
  /** The limiter's decision about this request; undefined if it was not limited. */
  rateLimit?: Decision | undefined
}

/** Options of `limitRoute` for node:http. */
export type NodeOptions = HttpOptions<[request: LimitedMessage, response: ServerResponse]> & {
  /**
   * Sends the response when a callback or a store fails, and for refusals with `throws: true`; may be async. Default: a
   * plain response with the status of the error, or 500, and except for refusals a process warning with the error.
   */
  readonly onError?:
    | ((error: unknown, request: LimitedMessage, response: ServerResponse) => unknown)
    | undefined
}

/**
 * Limits a node:http handler, without a framework. Takes the options of every adapter, and also works as a standard
 * decorator of a method.
 *
 * A request within the limit reaches the handler, with `request.rateLimit` and the RateLimit header fields set. A request
 * over the limit gets status 429, Retry-After and a problem+json body, or the response of `onRefused`.
 *
 * Throws a TypeError or RangeError, with `code` and `option`, for an option that is unknown, of the wrong type or out of
 * range.
 *
 * @example
 * const limit = limitRoute({ limit: 100, window: '1m' })
 * createServer(limit((request, response) => response.end('Hello'))).listen(3000)
 */
export function limitRoute(options: NodeOptions): RouteLimit<Handled> {
  const { onError = answerError, ...others } = { ...options }
  callable('onError', onError)
  const limit = limitOn('onError' in Object(options) ? others : options, host)
  return routeLimit<Handled>(([request, response], handle) =>
    runLimited(
      () => limit(request, response),
      handle,
      error => handleError(onError, error, request, response),
    ),
  )
}

/** If `onError` itself fails, its error gets the default response. */
async function handleError(
  onError: NonNullable<NodeOptions['onError']>,
  error: unknown,
  ...exchange: Handled
): Promise<void> {
  try {
    await onError(error, ...exchange)
  } catch (failure) {
    answerError(failure, ...exchange)
  }
}

type Handled = [request: LimitedMessage, response: ServerResponse]

const host: Host<Handled> = {
  address: request => request.socket.remoteAddress,
  message: request => request,
  response: (_, response) => response,
  trusts: () => 'nobody',
}

/** Warns as well, because there is no framework that would report the error. */
function answerError(error: unknown, _: LimitedMessage, response: ServerResponse): void {
  if (!isRefusal(error)) process.emitWarning(error instanceof Error ? error : String(error))
  if (response.headersSent) {
    response.destroy()
    return
  }
  const { status = 500 } = (error ?? {}) as { status?: number }
  response.statusCode = status >= 400 && status <= 599 ? status : 500
  response.setHeader('Content-Type', 'text/plain; charset=utf-8')
  response.end(builtin<typeof Http>('node:http')?.STATUS_CODES[response.statusCode])
}
