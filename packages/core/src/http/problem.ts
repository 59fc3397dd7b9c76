/** The body of a refusal: problem details (RFC 9457) of a type the RateLimit drafts register. */
export interface Problem {
  /** A URI that names the kind of problem. */
  readonly type: string
  /** The kind of problem in words, the same for every occurrence. */
  readonly title: string
  /** The status of the response. */
  readonly status: number
  /** Names of the policies that refused. */
  readonly 'violated-policies'?: readonly string[]
}

/** The media type of a problem. */
export const PROBLEM_JSON = 'application/problem+json'

/** The client has used up what its policies grant. */
export function quotaExceeded(status: number, violatedPolicies: readonly string[]): Problem {
  return {
    type: 'https://iana.org/assignments/http-problem-types#quota-exceeded',
    title: 'Quota Exceeded',
    status,
    'violated-policies': violatedPolicies,
  }
}
