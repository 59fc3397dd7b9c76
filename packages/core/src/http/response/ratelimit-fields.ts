import type { Policy } from '../../algorithms/algorithm.js'
import type { Decision } from '../../algorithms/decision.js'
import { isBlocked } from '../../store/blocked.js'

/*
 * The RateLimit and RateLimit-Policy fields of draft-ietf-httpapi-ratelimit-headers, -08 and later, and Retry-After
 * (RFC 9110 10.2.3). Both fields are lists of structured fields (RFC 9651): one member per policy.
 *
 *     RateLimit-Policy: "default";q=100;w=60      100 requests per 60 seconds
 *     RateLimit: "default";r=50;t=30              50 left; they are meant to last 30 seconds
 *
 * Numbers are rounded so that whoever believes them is never refused: quota down, times up.
 */

/** Names of the parameters; the drafts have renamed them before. */
const PARAMETER = {
  quota: 'q',
  unit: 'qu',
  window: 'w',
  remaining: 'r',
  reset: 't',
  partition: 'pk',
} as const

/** What a quota counts; requests, the default, are not written. */
export type QuotaUnit = 'requests' | 'content-bytes' | 'concurrent-requests'

/** What a response says about one policy. Times in milliseconds; undefined or infinite ones are left out. */
export interface PolicyReport {
  readonly name: string
  /** The quota; Infinity keeps the policy out of every field. */
  readonly limit: number
  readonly windowMs?: number | undefined
  readonly remaining: number
  /** Until more of the quota is there. */
  readonly resetMs?: number | undefined
  /** Whether this policy refused the request. */
  readonly violated: boolean
  /** When violated: until this request would pass; Infinity for never. */
  readonly waitMs?: number | undefined
  readonly unit?: QuotaUnit | undefined
  /** Bytes that stand for whom the quota is counted by, in base64. */
  readonly partition?: string | undefined
  /** Counted, and in no field. */
  readonly hidden?: boolean | undefined
  /** Where its policy stands among those of the route. */
  readonly place?: number | undefined
  /** Not asked for this request: a policy of the route, but no limit of the request. */
  readonly idle?: boolean | undefined
  /** Refused as a penalty, not for a mere excess. */
  readonly penalty?: boolean | undefined
}

/**
 * What a decision of a limiter means for the policy of that name; `owed` permits will be taken when the request has been
 * answered.
 */
export function reportOf(
  name: string,
  policy: Policy,
  decision: Decision,
  paced = false,
  owed = 0,
): PolicyReport {
  const remaining = Math.max(decision.remaining - owed, 0)
  return {
    name,
    limit: policy.limit,
    windowMs: policy.windowMs,
    remaining,
    resetMs: resetMs(
      policy,
      remaining,
      owed === 0 ? decision.refillAfterMs : refillAfter(policy, decision),
      paced,
    ),
    violated: !decision.allowed,
    waitMs: decision.waitMs,
    penalty: isBlocked(decision),
  }
}

/** The value of RateLimit-Policy; undefined when nothing limits. */
export function policyField(reports: readonly PolicyReport[]): string | undefined {
  return list(reports, policyMember, true)
}

/** The value of RateLimit; undefined when nothing limits. */
export function limitField(reports: readonly PolicyReport[]): string | undefined {
  return list(reports, limitMember, false)
}

/** Seconds for Retry-After on a refusal, at least 1; undefined when waiting cannot help or the wait is unknown. */
export function retryAfterSeconds(reports: readonly PolicyReport[]): number | undefined {
  if (reports.some(report => report.violated && report.waitMs === Infinity)) return undefined
  let longest: number | undefined
  for (const report of reports) {
    if (report.idle || (!report.violated && floorUnits(report.remaining) > 0)) continue
    const reset = resetSeconds(report)
    if (reset !== undefined) longest = Math.max(longest ?? 1, reset)
  }
  return longest
}

/** A whole quantity for a field: rounded down (within 1e-9), never negative, at most what an Integer can say. */
export function floorUnits(units: number): number {
  return Number.isNaN(units) ? 0 : Math.min(Math.max(Math.floor(units + 1e-9), 0), LARGEST_INTEGER)
}

/** Whole seconds for a field, rounded up from whole microseconds; undefined for what no number can say. */
export function ceilSeconds(ms: number | undefined): number | undefined {
  if (ms === undefined || Number.isNaN(ms) || ms === Infinity) return undefined
  return Math.min(Math.max(Math.ceil(Math.round(ms * 1000) / 1e6), 0), LONGEST_SECONDS)
}

const LARGEST_INTEGER = 999_999_999_999_999
const LONGEST_SECONDS = 2 ** 31 - 1

/** Whether a policy is in the fields. */
export function isVisible({ limit, hidden }: PolicyReport): boolean {
  return limit !== Infinity && hidden !== true
}

function list(
  reports: readonly PolicyReport[],
  memberOf: (report: PolicyReport) => string,
  withIdle: boolean,
): string | undefined {
  let members: string | undefined
  for (const report of reports) {
    if (!isVisible(report) || (report.idle === true && !withIdle)) continue
    members = members === undefined ? memberOf(report) : `${members}, ${memberOf(report)}`
  }
  return members
}

function policyMember({ name, limit, windowMs, unit, partition }: PolicyReport): string {
  const window = windowSeconds(windowMs)
  let member = `${quoted(name)};${PARAMETER.quota}=${floorUnits(limit)}`
  if (unit !== undefined && unit !== 'requests') member += `;${PARAMETER.unit}="${unit}"`
  if (window !== undefined) member += `;${PARAMETER.window}=${window}`
  return partition === undefined ? member : `${member};${PARAMETER.partition}=:${partition}:`
}

function limitMember(report: PolicyReport): string {
  // A policy without a window has no time of its own.
  const reset = windowSeconds(report.windowMs) === undefined ? undefined : resetSeconds(report)
  let member = `${quoted(report.name)};${PARAMETER.remaining}=${floorUnits(report.remaining)}`
  if (reset !== undefined) member += `;${PARAMETER.reset}=${reset}`
  return report.partition === undefined ? member : `${member};${PARAMETER.partition}=:${report.partition}:`
}

/** Seconds of a window, at least 1; undefined for a policy without one. */
export function windowSeconds(windowMs: number | undefined): number | undefined {
  const seconds = ceilSeconds(windowMs)
  return seconds === undefined ? undefined : Math.max(1, seconds)
}

function quoted(name: string): string {
  return name.includes('"') || name.includes('\\') ? `"${name.replace(/["\\]/g, '\\$&')}"` : `"${name}"`
}

/** Seconds until more of a quota is there, or until a refused request passes; undefined for never and unknown. */
export function resetSeconds(report: PolicyReport): number | undefined {
  if (report.violated) {
    if (report.waitMs === Infinity) return undefined
    const seconds = ceilSeconds(report.waitMs) ?? ceilSeconds(report.resetMs) ?? ceilSeconds(report.windowMs)
    return seconds === undefined ? undefined : Math.max(1, seconds)
  }
  const seconds = ceilSeconds(report.resetMs)
  return seconds === 0 && floorUnits(report.remaining) === 0 ? 1 : seconds
}

/**
 * A policy that refills one by one announces for how long the rest should last: "40 left, 1 second" would invite 40
 * requests a second. `paced` is for windows that are to do the same.
 */
function resetMs(policy: Policy, left: number, refillAfterMs: number, paced: boolean): number {
  const remaining = floorUnits(left)
  const { windowMs, limit, smooth } = policy
  if (windowMs === undefined || remaining === 0 || !(smooth || paced)) return refillAfterMs
  const lastsMs = (remaining * windowMs) / limit
  return smooth ? lastsMs : Math.max(lastsMs, refillAfterMs)
}

/** Until there is more once something is taken, at the latest: what is full does not refill yet. */
function refillAfter({ windowMs = 0, limit, smooth }: Policy, { refillAfterMs }: Decision): number {
  if (refillAfterMs > 0) return refillAfterMs
  return smooth ? windowMs / limit : windowMs
}
