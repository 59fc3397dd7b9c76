import {
  createGuard,
  dropOnRedirect,
  finish,
  type Host,
  type HttpOptions,
  invalid,
  type MaybePromise,
  type NodeResponse,
  proceed,
  type Refusal,
  sendRefusal,
  type Verdict,
  writeFields,
} from '@sluice/core/http'
import type { FastifyReply, FastifyRequest } from 'fastify'

/** Options of `rateLimit` on Fastify, and of a route's `config.rateLimit`. */
export type RateLimitOptions = HttpOptions<[request: FastifyRequest, reply: FastifyReply]> & {
  /**
   * When to decide: `'onRequest'`, the default, before a body is read; `'preHandler'`, after it, for keys that an
   * earlier hook has to find, such as `request.user`.
   */
  readonly hook?: 'onRequest' | 'preHandler' | undefined
}

/** The hooks that can limit. */
export const HOOKS = ['onRequest', 'preHandler'] as const

/** A limit, ready to be a hook. */
export interface Limiting {
  /** Either hook, in the types of one: they take the same functions, but `addHook` takes no union of names. */
  readonly hook: 'onRequest'
  limit(request: FastifyRequest, reply: FastifyReply, next: (error?: Error) => void): void
  /** Ends the waits of held requests. */
  close(): void
}

/** Checks options once, and makes the hook of a limit. Throws as `rateLimit` does. */
export function limiting(options: RateLimitOptions): Limiting {
  const { hook = 'onRequest', ...others } = { ...options }
  if (!HOOKS.includes(hook)) throw invalid(TypeError, 'hook', "'onRequest' or 'preHandler'", hook)
  // What is no object of options is for the guard to refuse.
  const guard = createGuard('hook' in Object(options) ? others : options, host)

  return {
    hook: hook as Limiting['hook'],
    close: guard.close,
    limit(request, reply, next) {
      if (reply.raw.headersSent) return next()
      const act = () =>
        proceed(guard(request, reply.raw), verdict => apply(verdict, request, reply, others.onRefused))
      return finish(act, next, error => {
        // A refusal whose answer fails is an error of ours, not of the client.
        if (!reply.raw.headersSent) reply.code(500)
        next(error as Error)
      })
    },
  }
}

const host: Host<FastifyRequest> = {
  address: request => request.ip,
  message: request => request.raw,
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

type OnRefused = NonNullable<RateLimitOptions['onRefused']>

/** Puts a verdict into effect; the answer says whether the request goes on. */
function apply(
  verdict: Verdict,
  request: FastifyRequest,
  reply: FastifyReply,
  onRefused: OnRefused | undefined,
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
  writeFields(verdict.fields, new ReplyAsResponse(reply))
  dropOnRedirect(verdict.dropsOnRedirect, reply.raw)
  if (verdict.outcome === 'allowed') return true

  reply.code(verdict.refusal.status)
  return proceed(onRefused && answeredBy(onRefused, request, reply, verdict.refusal), answered => {
    if (answered !== true) sendRefusal(verdict.refusal, new ReplyAsResponse(reply))
    return false
  })
}

/** Whether `onRefused` has answered: `reply.sent` stays false while hooks of the app are at work on an answer. */
function answeredBy(
  onRefused: OnRefused,
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
  return proceed(answer === reply ? undefined : answer, () => answered)
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
