import type { Refusal } from '../options.js'
import type { Field, NodeResponse } from '../types.js'

/** The error of a refusal with `throws: true`, with the properties that Express, Koa and Fastify read. */
export interface RefusedError extends Error, Refusal {
  readonly code: 'SLUICE_RATE_LIMITED'
  readonly statusCode: number
  /** True: the message may be sent to the client. */
  readonly expose: boolean
  /** Every header field of the refusal. The response has them too, for an app that answers by itself. */
  readonly headers: Readonly<Record<string, string>>
}

/** Makes the error of a refusal. Its fields must be on the response already. */
export function refusedError(
  refusal: Refusal,
  fields: readonly Field[],
  response: Pick<NodeResponse, 'getHeader'>,
): RefusedError {
  const headers = fields.map(({ name }) => [name, String(response.getHeader(name))])
  const error = Object.assign(withoutStack(refusal.problem.title), refusal, {
    code: 'SLUICE_RATE_LIMITED' as const,
    statusCode: refusal.status,
    expose: true,
    headers: Object.fromEntries(headers) as Record<string, string>,
  })
  refusals.add(error)
  return error
}

/** A stack trace costs time, and a refusal is no fault that one would help to find. */
function withoutStack(message: string): Error {
  const { stackTraceLimit } = Error
  Error.stackTraceLimit = 0
  try {
    return new Error(message)
  } finally {
    Error.stackTraceLimit = stackTraceLimit
  }
}

/** Whether an error was made by `refusedError`. */
export function isRefusal(error: unknown): boolean {
  return refusals.has(error as object)
}

const refusals = new WeakSet<object>()
