import type { Refusal } from '../options.js'
import type { Field } from './report.js'
import type { NodeResponse } from './write-fields.js'

/** What `throws: true` hands to the error handling of a framework, in the terms that all of them know. */
export interface RefusedError extends Error, Refusal {
  readonly code: 'SLUICE_RATE_LIMITED'
  readonly statusCode: number
  /** Whether clients may read the message: they may. */
  readonly expose: boolean
  /** Every field of a refusal. They are set on the response too, for an app that answers by itself. */
  readonly headers: Readonly<Record<string, string>>
}

/** Makes the error of a refusal whose fields are on the response. */
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

/** A refusal is no fault whose place somebody looks for. */
function withoutStack(message: string): Error {
  const { stackTraceLimit } = Error
  Error.stackTraceLimit = 0
  try {
    return new Error(message)
  } finally {
    Error.stackTraceLimit = stackTraceLimit
  }
}

/** Whether an error is a refusal of ours, and no failure. */
export function isRefusal(error: unknown): boolean {
  return refusals.has(error as object)
}

const refusals = new WeakSet<object>()
