import { type IncomingMessage, type ServerResponse, STATUS_CODES } from 'node:http'
import type { Decision } from '../algorithms/decision.js'
import { callable } from '../shared/validate.js'
import { type RouteLimit, routeLimit, runLimited } from './handler.js'
import { limitOn } from './middleware.js'
import type { HttpOptions } from './options.js'
import type { Host } from './request/client-key.js'
import { isRefusal } from './response/refused-error.js'

/** A request of node:http that may have been limited. */
export type LimitedMessage = IncomingMessage & {
  /** What the limiter decided over this request; undefined where none has. */
  rateLimit?: Decision | undefined
}

/** Options of `limitRoute` without a framework. */
export type NodeOptions = HttpOptions<[request: LimitedMessage, response: ServerResponse]> & {
  /**
   * Answers a request over which a callback or a store has failed, and refusals of `throws: true`; default the status of
   * the error, or 500 and a process warning.
   */
  readonly onError?:
    | ((error: unknown, request: LimitedMessage, response: ServerResponse) => unknown)
    | undefined
}

/**
 * Limits a handler of node:http, without any framework; also as a standard method decorator on a controller's method.
 *
 * Takes the options of every adapter. A request within the limit reaches the handler, with `request.rateLimit` and the
 * RateLimit fields set; one beyond it is answered with 429, Retry-After and a problem+json body, or by `onRefused`.
 *
 * Throws a TypeError or RangeError (with `code` and `option`) for options that are unknown, of a wrong type or out of
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
      error => failing(onError, error, request, response),
    ),
  )
}

/** An answer to an error that fails is an error as well, which is answered as usual. */
async function failing(
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

/** Without a framework nobody else answers, and an error that nobody sees is not mended. */
function answerError(error: unknown, _: LimitedMessage, response: ServerResponse): void {
  if (!isRefusal(error)) process.emitWarning(error instanceof Error ? error : String(error))
  if (response.headersSent) {
    response.destroy()
    return
  }
  const { status = 500 } = (error ?? {}) as { status?: number }
  response.statusCode = status >= 400 && status <= 599 ? status : 500
  response.setHeader('Content-Type', 'text/plain; charset=utf-8')
  response.end(STATUS_CODES[response.statusCode])
}
