import type { ServerResponse } from 'node:http'
import type { Field } from '@sluice/core/http'

/**
 * Copies fields from the response to the `headers` of an error, because Koa removes all other fields when it responds to an
 * error. Fields that the error has itself stay. One error object may be thrown for many requests, so the fields of the
 * previous request are removed first.
 */
export function keepFields(fields: readonly Field[], response: ServerResponse, error: unknown): void {
  if (typeof error !== 'object' || error === null || response.headersSent) return
  const headers = (error as { headers?: unknown }).headers ?? {}
  // Koa cannot read a Headers object, such as that of a failed fetch, but the app may need it.
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

/** For each `headers` object that was set here: its response, and the headers that the error had itself. */
const given = new WeakMap<object, { readonly response: ServerResponse; readonly own: object }>()
