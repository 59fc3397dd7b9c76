import type { ServerResponse } from 'node:http'
import type { Field } from '@sluice/core/http'

/**
 * Adds fields, as the response carries them by now, to the `headers` of an error: Koa's answer to an error has no
 * others. What the error says itself stays. An error may be thrown for many requests, a constant for instance, and must
 * not take the figures of one client to the next.
 */
export function keepFields(fields: readonly Field[], response: ServerResponse, error: unknown): void {
  if (typeof error !== 'object' || error === null || response.headersSent) return
  const headers = (error as { headers?: unknown }).headers ?? {}
  // A Headers object, of a failed fetch say: Koa reads none of it, but the app may.
  if (typeof headers !== 'object' || 'get' in headers) return
  const before = given.get(headers)
  const own = before === undefined || before.response === response ? headers : before.own
  const names = new Set(Object.keys(own).map(name => name.toLowerCase()))
  const added = fields
    .filter(({ name }) => response.hasHeader(name) && !names.has(name.toLowerCase()))
    .map(({ name }) => [name, response.getHeader(name)])
  const kept = { ...own, ...Object.fromEntries(added) }
  // A frozen error stays as it is.
  if (Reflect.set(error, 'headers', kept)) given.set(kept, { response, own: before?.own ?? own })
}

/** The headers we have given to errors, for which response, and what the error had itself. */
const given = new WeakMap<object, { readonly response: ServerResponse; readonly own: object }>()
