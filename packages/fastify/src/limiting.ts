import type { Limiter } from '@sluice/core'
import {
  andThen,
  createGuard,
  dropOnRedirect,
  finish,
  type Host,
  type HttpOptions,
  invalid,
  isRefusal,
  type MaybePromise,
  type NodeResponse,
  type Refusal,
  refusedError,
  runLimited,
  sendRefusal,
  type Verdict,
  writeFields,
} from '@sluice/core/http'
import type { FastifyReply, FastifyRequest } from 'fastify'

/** Options of `limitRoute` and `app.rateLimit`. */
export type RouteLimitOptions = HttpOptions<[request: FastifyRequest, reply: FastifyReply]>

/** Options of `rateLimit` on Fastify, and of a route's `config.rateLimit`. */
export type RateLimitOptions = RouteLimitOptions & {
  /**
   * When to decide: `'onRequest'`, the default, before a body is read; `'preHandler'`, after it, for keys that an
   * earlier hook has to find, such as `request.user`.
   */
  readonly hook?: 'onRequest' | 'preHandler' | undefined
}

/** The hooks that can limit. */
export const HOOKS = ['onRequest', 'preHandler'] as const

/** A limit, ready to be a hook or to be put around a handler. */
export interface Limiting {
  /** The limiters that are not chosen for each request. */
  readonly limiters: readonly Limiter[]
  limit(request: FastifyRequest, reply: FastifyReply, next: (error?: Error) => void): void
  around(request: FastifyRequest, reply: FastifyReply, handle: () => unknown): unknown
  /** Ends the waits of held requests. */
  close(): void
}

export interface Hooked {
  /** Either hook, in the types of one: they take the same functions, but `addHook` takes no union of names. */
  readonly hook: 'onRequest'
}

/** Checks options once, and makes the hook of a limit. Throws as `rateLimit` does. */
export function hooked(options: RateLimitOptions): Limiting & Hooked {
  const { hook = 'onRequest', ...others } = { ...options }
  if (!HOOKS.includes(hook)) throw invalid(TypeError, 'hook', "'onRequest' or 'preHandler'", hook)
  // What is no object of options is for the guard to refuse.
  const limit = limiting('hook' in Object(options) ? others : options)
  return { ...limit, hook: hook as Hooked['hook'] }
}

/** The same for a limit that is put where it is to decide. */
export function limiting(options: RouteLimitOptions): Limiting {
  const guard = createGuard(options, host)
  const act = (request: FastifyRequest, reply: FastifyReply) =>
    andThen(guard(request, reply), verdict => apply(verdict, request, reply, options))
  const failing =
    (reply: FastifyReply, fail: (error: Error) => unknown) =>
    (error: unknown, byHandler = false) => {
      // A refusal whose answer fails is an error of ours, not of the client.
      if (!reply.raw.headersSent && !byHandler && !isRefusal(error)) reply.code(500)
      return fail(error as Error)
    }
  return {
    limiters: guard.limiters,
    close: guard.close,
    limit(request, reply, next) {
      if (reply.raw.headersSent) return next()
      return finish(() => act(request, reply), next, failing(reply, next))
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

/** Whom a server trusts is in its options, which it shows to nobody who does not know the name of their symbol. */
function trusted(server: object): 'nobody' | 'some' | 'anybody' {
  const symbol = Object.getOwnPropertySymbols(server).find(
    ({ description }) => description === 'fastify.options',
  )
  const options = (server as Record<symbol, { readonly trustProxy?: unknown } | undefined>)[symbol as symbol]
  const trustProxy = options?.trustProxy
  if (trustProxy === true) return 'anybody'
  // A number has trusted nobody since 5.12.1.
  return trustProxy === undefined || trustProxy === false || typeof trustProxy === 'number'
    ? 'nobody'
    : 'some'
}

/** Puts a verdict into effect; the answer says whether the request goes on. */
function apply(
  verdict: Verdict,
  request: FastifyRequest,
  reply: FastifyReply,
  { onRefused, throws }: Pick<RateLimitOptions, 'onRefused' | 'throws'>,
): MaybePromise<boolean> {
  if (verdict.outcome === 'abandoned') reply.hijack()
  if (verdict.outcome === 'abandoned' || reply.sent) return false
  if (verdict.outcome === 'skipped') return true
  request.rateLimit = verdict.decision
  if (reply.raw.headersSent) {
    // Somebody began to answer while the key was looked for: too late for fields, and for a refusal.
    if (verdict.outcome === 'refused') reply.raw.destroy()
    return verdict.outcome === 'allowed'
  }
  const response = new ReplyAsResponse(reply)
  writeFields(verdict.fields, response)
  dropOnRedirect(verdict.dropsOnRedirect, reply.raw)
  if (verdict.outcome === 'allowed') return true

  const { refusal, fields } = verdict
  reply.code(refusal.status)
  if (throws) throw refusedError(refusal, fields, response)
  return andThen(onRefused && answeredBy(onRefused, request, reply, refusal), answered => {
    if (answered !== true) sendRefusal(refusal, response)
    return false
  })
}

/** Whether `onRefused` has answered: `reply.sent` stays false while hooks of the app are at work on an answer. */
function answeredBy(
  onRefused: NonNullable<RateLimitOptions['onRefused']>,
  request: FastifyRequest,
  reply: FastifyReply,
  refusal: Refusal,
): MaybePromise<boolean> {
  let answered = false
  const { send } = reply
  reply.send = payload => {
    answered = true
    return send.call(reply, payload)
  }
  const answer = onRefused(request, reply, refusal)
  // A reply passes for a promise, and one that nobody sends is never kept.
  return andThen(answer === reply ? undefined : answer, () => answered)
}

/** A reply in the terms of node:http. */
class ReplyAsResponse implements NodeResponse {
  private readonly reply: FastifyReply

  constructor(reply: FastifyReply) {
    this.reply = reply
  }

  get statusCode(): number {
    return this.reply.statusCode
  }

  set statusCode(status: number) {
    this.reply.code(status)
  }

  get headersSent(): boolean {
    return this.reply.sent || this.reply.raw.headersSent
  }

  getHeader(name: string) {
    return this.reply.getHeader(name)
  }

  setHeader(name: string, value: string | number): void {
    this.reply.header(name, value)
  }

  removeHeader(name: string): void {
    this.reply.removeHeader(name)
  }

  /** In bytes: Fastify adds a charset to the type of a text. */
  end(body: string): void {
    this.reply.send(Buffer.from(body))
  }
}
