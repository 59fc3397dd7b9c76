import {
  andThen,
  dropOnRedirect,
  type MaybePromise,
  type NodeResponse,
  type Refusal,
  refusedError,
  sendRefusal,
  type Verdict,
  writeFields,
} from '@sluice/core/http'
import type { FastifyReply, FastifyRequest } from 'fastify'
import type { RouteLimitOptions } from './options.js'

/** Applies a verdict, and says whether the request continues. */
export function apply(
  verdict: Verdict,
  request: FastifyRequest,
  reply: FastifyReply,
  { onRefused, throws }: Pick<RouteLimitOptions, 'onRefused' | 'throws'>,
): MaybePromise<boolean> {
  if (verdict.outcome === 'abandoned') reply.hijack()
  if (verdict.outcome === 'abandoned' || reply.sent) return false
  if (verdict.outcome === 'skipped') return true
  request.rateLimit = verdict.decision
  if (reply.raw.headersSent) {
    // Other code began the response during an asynchronous decision: too late for header fields and for a refusal.
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

/** Whether `onRefused` has sent a response. `reply.sent` does not say: it is false while the app's onSend hooks run. */
function answeredBy(
  onRefused: NonNullable<RouteLimitOptions['onRefused']>,
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
  // A reply has a `then` method, which never calls back if no response is sent.
  return andThen(answer === reply ? undefined : answer, () => answered)
}

/** A reply with the methods of a node:http response. */
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

  /** Sends bytes, because Fastify adds a charset to the media type of a string. */
  end(body: string): void {
    this.reply.send(Buffer.from(body))
  }
}
