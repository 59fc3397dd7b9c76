import { invalid, type SluiceErrorCode } from '../../shared/errors.js'
import type { PolicyReport } from './ratelimit-fields.js'

/** The body of a refusal: problem details (RFC 9457) of a type the RateLimit drafts register. */
export interface Problem {
  /** A URI that names the kind of problem. */
  readonly type: string
  /** The kind of problem in words, the same for every occurrence. */
  readonly title: string
  /** The status of the response. */
  readonly status: number
  /** Names of the policies that refused, unless all of them are hidden. */
  readonly 'violated-policies'?: readonly string[]
}

/** The media type of a problem. */
export const PROBLEM_JSON = 'application/problem+json'

/** A body, ready to be sent. */
export interface Body {
  /** Its media type. */
  readonly type: string
  readonly text: string
}

/** The problem of a request that policies have refused: an excess, or what a penalty was given for. */
export function refusalProblem(status: number, reports: readonly PolicyReport[]): Problem {
  const violated = reports.filter(report => report.violated)
  const names = violated.filter(({ hidden }) => hidden !== true).map(({ name }) => name)
  return violated.some(({ penalty }) => penalty === true)
    ? problem('abnormal-usage-detected', 'Abnormal Usage Detected', status, names)
    : problem('quota-exceeded', 'Quota Exceeded', status, names)
}

/** The client is on a list of those who are refused. */
export function abnormalUsage(status: number): Problem {
  return problem('abnormal-usage-detected', 'Abnormal Usage Detected', status, [])
}

/** The server cannot tell whether the client may pass. */
export function temporaryReducedCapacity(status: number): Problem {
  return problem('temporary-reduced-capacity', 'Temporary Reduced Capacity', status, [])
}

/** A problem as the body of an answer. */
export function problemBody(problem: Problem): Body {
  return { type: PROBLEM_JSON, text: JSON.stringify(problem) }
}

/** What a `body` option, or a function given for it, has come up with: a text, or anything that is JSON. */
export function statedBody(value: unknown, code: SluiceErrorCode = 'SLUICE_INVALID_BODY'): Body {
  if (typeof value === 'string') return { type: 'text/plain; charset=utf-8', text: value }
  const text = typeof value === 'object' && value !== null ? jsonOf(value) : undefined
  if (text === undefined) throw invalid(TypeError, 'body', 'a text or an object that is JSON', value, code)
  return { type: 'application/json; charset=utf-8', text }
}

/** Undefined for what holds itself or a bigint. */
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
