import { invalid, type SluiceErrorCode } from '../../shared/errors.js'
import type { Body, Problem } from '../options.js'
import type { PolicyReport } from '../types.js'

/** The problem of a request that policies refused: over the quota, or blocked. */
export function refusalProblem(status: number, reports: readonly PolicyReport[]): Problem {
  const violated = reports.filter(report => report.violated)
  const names = violated.filter(({ hidden }) => hidden !== true).map(({ name }) => name)
  return violated.some(({ penalty }) => penalty === true)
    ? problem('abnormal-usage-detected', 'Abnormal Usage Detected', status, names)
    : problem('quota-exceeded', 'Quota Exceeded', status, names)
}

/** The problem of a client on the `deny` list. */
export function abnormalUsage(status: number): Problem {
  return problem('abnormal-usage-detected', 'Abnormal Usage Detected', status, [])
}

/** The problem of a request that is refused because a store failed. */
export function temporaryReducedCapacity(status: number): Problem {
  return problem('temporary-reduced-capacity', 'Temporary Reduced Capacity', status, [])
}

/** The default body of a refusal. */
export function problemBody(problem: Problem): Body {
  return { type: 'application/problem+json', text: JSON.stringify(problem) }
}

/** The body that a `body` option, or its function, gives: a string, or an object as JSON. */
export function bodyOf(value: unknown, code: SluiceErrorCode = 'SLUICE_INVALID_BODY'): Body {
  if (typeof value === 'string') return { type: 'text/plain; charset=utf-8', text: value }
  const text = typeof value === 'object' && value !== null ? jsonOf(value) : undefined
  if (text === undefined)
    throw invalid(TypeError, 'body', 'a string, or an object that can be written as JSON', value, code)
  return { type: 'application/json; charset=utf-8', text }
}

/** Undefined for an object that contains itself or a bigint. */
function jsonOf(value: object): string | undefined {
  try {
    return JSON.stringify(value)
  } catch {
    return undefined
  }
}

function problem(kind: string, title: string, status: number, violated: readonly string[]): Problem {
  const problem = { type: `https://iana.org/assignments/http-problem-types#${kind}`, title, status }
  return violated.length === 0 ? problem : { ...problem, 'violated-policies': violated }
}
