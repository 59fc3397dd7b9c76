import type { ServerResponse } from 'node:http'
import { coded } from '../../shared/errors.js'
import { isPromise, type MaybePromise } from '../../shared/maybe-promise.js'
import type { Refusal } from '../options.js'
import type { Field } from './report.js'

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
  for (const { name, value, joins, unique } of fields) {
    const before = joins ? response.getHeader(name) : undefined
    if (before === undefined) response.setHeader(name, value)
    else response.setHeader(name, unique ? union(before, value) : joined(before, value))
  }
}

/** Gives the default answer to a refused request, unless an answer has begun. */
export function sendRefusal({ status, body }: Refusal, response: NodeResponse): void {
  if (response.headersSent) return
  response.statusCode = status
  // An earlier handler may have described a body of its own.
  for (const name of FOREIGN) response.removeHeader(name)
  response.setHeader('Content-Type', body.type)
  response.setHeader('Content-Length', Buffer.byteLength(body.text))
  response.end(body.text)
}

/** What an earlier handler may have said of a body that is not sent. */
export const FOREIGN = [
  'Content-Encoding',
  'Content-Disposition',
  'Content-Range',
  'ETag',
  'Last-Modified',
  'Trailer',
  'Transfer-Encoding',
] as const

/**
 * Takes fields out of a response that turns out to be a redirection when its head is written: a client that reads of
 * nothing being left might not follow it.
 */
export function dropOnRedirect(names: readonly string[], response: ServerResponse): void {
  if (names.length === 0) return
  const { writeHead } = response
  const dropped = new Set(names.map(name => name.toLowerCase()))
  response.writeHead = function (this: ServerResponse, status: number, ...rest: never[]) {
    if (status < 300 || status > 399) return writeHead.call(this, status, ...rest)
    for (const name of names) this.removeHeader(name)
    const exposed = this.getHeader(EXPOSED)
    if (exposed !== undefined) this.setHeader(EXPOSED, unlisted(exposed, dropped))
    const kept = rest.map(part => without(part, dropped) as never)
    return writeHead.call(this, status, ...kept)
  } as ServerResponse['writeHead']
}

const EXPOSED = 'access-control-expose-headers'

/** Headers as an object, where a framework has them so. */
function without(headers: unknown, dropped: ReadonlySet<string>): unknown {
  if (typeof headers !== 'object' || headers === null || Array.isArray(headers)) return headers
  const kept = Object.entries(headers).filter(([name]) => !dropped.has(name.toLowerCase()))
  return Object.fromEntries(
    kept.map(([name, value]) => [name, name.toLowerCase() === EXPOSED ? unlisted(value, dropped) : value]),
  )
}

/** A list of names without some of them. */
function unlisted(value: number | string | readonly string[], dropped: ReadonlySet<string>): string {
  const names = [value].flat().join(',').split(',')
  return names
    .map(name => name.trim())
    .filter(name => !dropped.has(name.toLowerCase()))
    .join(', ')
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
    fail(asError(error))
    return
  }
  // What `goOn` throws is not for `fail`, nor for a promise that nobody looks at.
  if (isPromise(goesOn))
    goesOn.then(
      value => value === true && queueMicrotask(goOn),
      error => fail(asError(error)),
    )
  else if (goesOn) goOn()
}

/**
 * What a callback has thrown, as the error it is meant to be: to frameworks nothing at all means to go on, and some words
 * mean where to.
 */
export function asError(thrown: unknown): unknown {
  if (thrown && thrown !== 'route' && thrown !== 'router') return thrown
  return coded(
    new Error('a callback has failed without an error', { cause: thrown }),
    'SLUICE_CALLBACK_FAILED',
    'callback',
  )
}

/** One list (RFC 9651 3.1) of what may be several lines, or none. */
function joined(before: number | string | readonly string[], value: string): string {
  return [before, value]
    .flat()
    .filter(line => line !== '')
    .join(', ')
}

/** A list of names, none of them twice in whatever case. */
function union(before: number | string | readonly string[], value: string): string {
  const names = joined(before, value)
    .split(',')
    .map(name => name.trim())
  return [...new Map(names.toReversed().map(name => [name.toLowerCase(), name])).values()]
    .toReversed()
    .join(', ')
}
