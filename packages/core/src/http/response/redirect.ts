import type { ServerResponse } from 'node:http'

/**
 * Removes header fields if the response is a redirect, which is known when its head is written. A client that reads that
 * nothing remains might not follow the redirect.
 */
export function dropOnRedirect(names: readonly string[], response: ServerResponse): void {
  if (names.length === 0) return
  const { writeHead } = response
  const dropped = new Set(names.map(name => name.toLowerCase()))
  response.writeHead = function (this: ServerResponse, status: number, ...rest: never[]) {
    if (status < 300 || status > 399) return writeHead.call(this, status, ...rest)
    for (const name of names) this.removeHeader(name)
    const exposed = this.getHeader(EXPOSED)
    if (exposed !== undefined) this.setHeader(EXPOSED, withoutNames(exposed, dropped))
    const kept = rest.map(part => withoutFields(part, dropped) as never)
    return writeHead.call(this, status, ...kept)
  } as ServerResponse['writeHead']
}

const EXPOSED = 'access-control-expose-headers'

/** For an argument of `writeHead`, which may be an object of header fields. */
function withoutFields(headers: unknown, dropped: ReadonlySet<string>): unknown {
  if (typeof headers !== 'object' || headers === null || Array.isArray(headers)) return headers
  const kept = Object.entries(headers).filter(([name]) => !dropped.has(name.toLowerCase()))
  return Object.fromEntries(
    kept.map(([name, value]) => [
      name,
      name.toLowerCase() === EXPOSED ? withoutNames(value, dropped) : value,
    ]),
  )
}

/** For the value of a field that lists names. */
function withoutNames(value: number | string | readonly string[], dropped: ReadonlySet<string>): string {
  const names = [value].flat().join(',').split(',')
  return names
    .map(name => name.trim())
    .filter(name => !dropped.has(name.toLowerCase()))
    .join(', ')
}
