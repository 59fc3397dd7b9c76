import type { Refusal } from '../options.js'
import type { Field, NodeResponse } from '../types.js'

/** Writes fields to a response. A field that `joins` is appended to the value of a gateway or of another limit. */
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

/** Sends the default response to a refused request, unless a response has begun. */
export function sendRefusal({ status, body }: Refusal, response: NodeResponse): void {
  if (response.headersSent) return
  response.statusCode = status
  for (const name of BODY_HEADERS) response.removeHeader(name)
  response.setHeader('Content-Type', body.type)
  response.setHeader('Content-Length', byteLength(body.text))
  response.end(body.text)
}

/** Header fields that describe a body, which an earlier handler may have set for its own. */
export const BODY_HEADERS = [
  'Content-Encoding',
  'Content-Disposition',
  'Content-Range',
  'ETag',
  'Last-Modified',
  'Trailer',
  'Transfer-Encoding',
] as const

/** Bytes of UTF-8. Buffer is eight times as fast as the encoder, but not every runtime has it. */
function byteLength(text: string): number {
  return globalThis.Buffer?.byteLength(text) ?? new TextEncoder().encode(text).length
}

/** One list (RFC 9651 3.1) of the lines of a field, some of which may be empty. */
function joined(before: number | string | readonly string[], value: string): string {
  return [before, value]
    .flat()
    .filter(line => line !== '')
    .join(', ')
}

/** One list of names, each of them once; names differ in more than case. */
function union(before: number | string | readonly string[], value: string): string {
  const names = joined(before, value)
    .split(',')
    .map(name => name.trim())
  return [...new Map(names.toReversed().map(name => [name.toLowerCase(), name])).values()]
    .toReversed()
    .join(', ')
}
