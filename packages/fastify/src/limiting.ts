import type { Limiter } from '@sluice/core'
import {
  andThen,
  createGuard,
  type Host,
  invalid,
  isRefusal,
  runLimited,
  runMiddleware,
} from '@sluice/core/http'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { apply } from './apply.js'
import { HOOKS, type RateLimitOptions, type RouteLimitOptions } from './options.js'

/** A limit, for use as a hook or around a handler. */
export interface Limiting {
  /** The limiters, except those that a function chooses for each request. */
  readonly limiters: readonly Limiter[]
  limit(request: FastifyRequest, reply: FastifyReply, next: (error?: Error) => void): void
  around(request: FastifyRequest, reply: FastifyReply, handle: () => unknown): unknown
  /** Ends the wait of every waiting request. */
  close(): void
}

export interface Hooked {
  /** Either hook. Its type is one of them because `addHook` does not accept a union, and both take the same functions. */
  readonly hook: 'onRequest'
}

/** Makes the limit of a hook. Throws for invalid options, as `rateLimit` does. */
export function hooked(options: RateLimitOptions): Limiting & Hooked {
  const { hook = 'onRequest', ...others } = { ...options }
  if (!HOOKS.includes(hook)) throw invalid(TypeError, 'hook', "'onRequest' or 'preHandler'", hook)
  // If `options` is not an object, `limiting` throws the error.
  const limit = limiting('hook' in Object(options) ? others : options)
  return { ...limit, hook: hook as Hooked['hook'] }
}

/** Makes a limit that is placed by hand, without a `hook` option. */
export function limiting(options: RouteLimitOptions): Limiting {
  const guard = createGuard(options, host)
  const act = (request: FastifyRequest, reply: FastifyReply) =>
    andThen(guard(request, reply), verdict => apply(verdict, request, reply, options))
  const failing =
    (reply: FastifyReply, fail: (error: Error) => unknown) =>
    (error: unknown, byHandler = false) => {
      // A refusal may have set its status already, and then `onRefused` failed: that is an error of the server.
      if (!reply.raw.headersSent && !byHandler && !isRefusal(error)) reply.code(500)
      return fail(error as Error)
    }
  return {
    limiters: guard.limiters,
    close: guard.close,
    limit(request, reply, next) {
      if (reply.raw.headersSent) return next()
      return runMiddleware(() => act(request, reply), next, failing(reply, next))
    },
    around(request, reply, handle) {
      const fail = failing(reply, error => {
        throw error
      })
      return runLimited(() => act(request, reply), handle, fail, reply)
    },
  }
}

const host: Host<[FastifyRequest, FastifyReply]> = {
  address: request => request.ip,
  message: request => request.raw,
  response: (_, reply) => reply.raw,
  trusts: request => trusted(request.server),
}

/** Reads the `trustProxy` option of the server, which Fastify stores under a private symbol only. */
function trusted(server: object): 'nobody' | 'some' | 'anybody' {
  const symbol = Object.getOwnPropertySymbols(server).find(
    ({ description }) => description === 'fastify.options',
  )
  const options = (server as Record<symbol, { readonly trustProxy?: unknown } | undefined>)[symbol as symbol]
  const trustProxy = options?.trustProxy
  if (trustProxy === true) return 'anybody'
  // Since Fastify 5.12.1 a number trusts no proxy.
  return trustProxy === undefined || trustProxy === false || typeof trustProxy === 'number'
    ? 'nobody'
    : 'some'
}
