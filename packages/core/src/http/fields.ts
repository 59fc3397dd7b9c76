import type { Field } from './guard.js'

/** The part of a response that holds header fields, as in node:http. */
export interface HeaderHolder {
  getHeader(name: string): number | string | readonly string[] | undefined
  setHeader(name: string, value: string): unknown
}

/** Writes fields to a response; one that joins is appended to what a gateway or another limiter has put there. */
export function writeFields(fields: readonly Field[], response: HeaderHolder): void {
  for (const field of fields) {
    const before = field.joins ? response.getHeader(field.name) : undefined
    response.setHeader(field.name, before === undefined ? field.value : `${before}, ${field.value}`)
  }
}
