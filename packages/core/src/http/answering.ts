import { isPromise, type MaybePromise } from '../answer.js'
import type { Field } from './guard.js'
import type { Refusal } from './options.js'
import { PROBLEM_JSON } from './problem.js'

/** The part of a response that adapters write to, as in node:http. */
export interface NodeResponse {
  statusCode: number
  readonly headersSent: boolean
  getHeader(name: string): number | string | readonly string[] | undefined
  setHeader(name: string, value: string | number): unknown
  removeHeader(name: string): unknown
  end(body: string): unknown
}

/** Writes fields to a response; one that joins is appended to what a gateway or another limiter has put there. */
export function writeFields(
  fields: readonly Field[],
  response: Pick<NodeResponse, 'getHeader' | 'setHeader'>,
): void {
  for (const { name, value, joins } of fields) {
    const before = joins ? response.getHeader(name) : undefined
    response.setHeader(name, before === undefined ? value : joined(before, value))
  }
}

/** Gives the default answer to a refused request, unless an answer has begun. */
export function sendProblem(refusal: Refusal, response: NodeResponse): void {
  if (response.headersSent) return
  const body = JSON.stringify(refusal.problem)
  response.statusCode = refusal.status
  // An earlier handler may have described a body of its own.
  for (const name of ['Content-Encoding', 'ETag', 'Last-Modified']) response.removeHeader(name)
  response.setHeader('Content-Type', PROBLEM_JSON)
  response.setHeader('Content-Length', Buffer.byteLength(body))
  response.end(body)
}

/**
 * For frameworks that go on by a callback: runs `act`, which says whether the request goes on, and calls `goOn` or
 * `fail` once, or neither.
 */
export function finish(
  act: () => MaybePromise<boolean>,
  goOn: () => void,
  fail: (error: unknown) => void,
): void {
  let goesOn: MaybePromise<boolean>
  try {
    goesOn = act()
  } catch (error) {
    fail(error)
    return
  }
  // What `goOn` throws is not for `fail`, nor for a promise that nobody looks at.
  if (isPromise(goesOn)) goesOn.then(value => value === true && queueMicrotask(goOn), fail)
  else if (goesOn) goOn()
}

/** One list (RFC 9651 3.1) of what may be several lines, or none. */
function joined(before: number | string | readonly string[], value: string): string {
  return [before, value]
    .flat()
    .filter(line => line !== '')
    .join(', ')
}
