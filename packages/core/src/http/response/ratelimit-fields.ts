import type { Policy } from '../../algorithms/algorithm.js'
import type { Decision } from '../../algorithms/decision.js'
import { isBlocked } from '../../store/blocked.js'
import type { PolicyReport } from '../types.js'

/*
 * The RateLimit and RateLimit-Policy fields of draft-ietf-httpapi-ratelimit-headers, -08 and later, and Retry-After
 * (RFC 9110 10.2.3). Both fields are lists of structured fields (RFC 9651): one member per policy.
 *
 *     RateLimit-Policy: "default";q=100;w=60      100 requests per 60 seconds
 *     RateLimit: "default";r=50;t=30              50 remain; they should last 30 seconds
 *
 * Quotas are rounded down and times up, so that a client that goes by the numbers is never refused.
 */

/** Names of the parameters. Drafts have renamed them before. */
const QUOTA = 'q'
const UNIT = 'qu'
const WINDOW = 'w'
const REMAINING = 'r'
const RESET = 't'
const PARTITION = 'pk'

/**
 * The report of a decision, for the policy of that name. `pendingCost` is the number of permits that the request takes when
 * it has ended.
 */
export function reportOf(
  name: string,
  policy: Policy,
  decision: Decision,
  paced = false,
  pendingCost = 0,
): PolicyReport {
  const remaining = Math.max(decision.remaining - pendingCost, 0)
  return {
    name,
    limit: policy.limit,
    windowMs: policy.windowMs,
    remaining,
    resetMs: resetMs(
      policy,
      remaining,
      pendingCost === 0 ? decision.refillAfterMs : refillAfter(policy, decision),
      paced,
    ),
    violated: !decision.allowed,
    waitMs: decision.waitMs,
    penalty: isBlocked(decision),
  }
}

/** The value of RateLimit-Policy; undefined if no policy is visible. */
export function policyField(reports: readonly PolicyReport[]): string | undefined {
  return list(reports, policyMember, true)
}

/** The value of RateLimit; undefined if no visible policy applies to the request. */
export function limitField(reports: readonly PolicyReport[]): string | undefined {
  return list(reports, limitMember, false)
}

/** Seconds for Retry-After on a refusal, at least 1; undefined if waiting does not help or the wait is unknown. */
export function retryAfterSeconds(reports: readonly PolicyReport[]): number | undefined {
  if (reports.some(report => report.violated && report.waitMs === Infinity)) return undefined
  let longest: number | undefined
  for (const report of reports) {
    if (report.isUnused || (!report.violated && floorUnits(report.remaining) > 0)) continue
    const reset = resetSeconds(report)
    if (reset !== undefined) longest = Math.max(longest ?? 1, reset)
  }
  return longest
}

/** A whole quantity for a field: rounded down (within 1e-9), never negative, at most the largest Integer of RFC 9651. */
export function floorUnits(units: number): number {
  return Number.isNaN(units) ? 0 : Math.min(Math.max(Math.floor(units + 1e-9), 0), LARGEST_INTEGER)
}

/** Whole seconds for a field, rounded up from whole microseconds; undefined for infinite and unknown times. */
export function ceilSeconds(ms: number | undefined): number | undefined {
  if (ms === undefined || Number.isNaN(ms) || ms === Infinity) return undefined
  return Math.min(Math.max(Math.ceil(Math.round(ms * 1000) / 1e6), 0), LONGEST_SECONDS)
}

const LARGEST_INTEGER = 999_999_999_999_999
const LONGEST_SECONDS = 2 ** 31 - 1

/** Whether a policy appears in the fields. */
export function isVisible({ limit, hidden }: PolicyReport): boolean {
  return limit !== Infinity && hidden !== true
}

function list(
  reports: readonly PolicyReport[],
  memberOf: (report: PolicyReport) => string,
  withUnused: boolean,
): string | undefined {
  let members: string | undefined
  for (const report of reports) {
    if (!isVisible(report) || (report.isUnused === true && !withUnused)) continue
    members = members === undefined ? memberOf(report) : `${members}, ${memberOf(report)}`
  }
  return members
}

function policyMember({ name, limit, windowMs, unit, partition }: PolicyReport): string {
  const window = windowSeconds(windowMs)
  let member = `${quoted(name)};${QUOTA}=${floorUnits(limit)}`
  if (unit !== undefined && unit !== 'requests') member += `;${UNIT}="${unit}"`
  if (window !== undefined) member += `;${WINDOW}=${window}`
  return partition === undefined ? member : `${member};${PARTITION}=:${partition}:`
}

function limitMember(report: PolicyReport): string {
  // A policy without a window announces no reset.
  const reset = windowSeconds(report.windowMs) === undefined ? undefined : resetSeconds(report)
  let member = `${quoted(report.name)};${REMAINING}=${floorUnits(report.remaining)}`
  if (reset !== undefined) member += `;${RESET}=${reset}`
  return report.partition === undefined ? member : `${member};${PARTITION}=:${report.partition}:`
}

/** Seconds of a window, at least 1; undefined for a policy without a window. */
export function windowSeconds(windowMs: number | undefined): number | undefined {
  const seconds = ceilSeconds(windowMs)
  return seconds === undefined ? undefined : Math.max(1, seconds)
}

function quoted(name: string): string {
  return name.includes('"') || name.includes('\\') ? `"${name.replace(/["\\]/g, '\\$&')}"` : `"${name}"`
}

/** Seconds until more of a quota is available, or until a refused request passes; undefined for never and unknown. */
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
 * Until more of the quota is available. Where permits refill one by one it is the time over which the remaining permits
 * should be spread, because "40 left, 1 second" would invite 40 requests per second; with `paced` also for windows.
 */
function resetMs(policy: Policy, left: number, refillAfterMs: number, paced: boolean): number {
  const remaining = floorUnits(left)
  const { windowMs, limit, smooth } = policy
  if (windowMs === undefined || remaining === 0 || !(smooth || paced)) return refillAfterMs
  const lastsMs = (remaining * windowMs) / limit
  return smooth ? lastsMs : Math.max(lastsMs, refillAfterMs)
}

/** The latest time at which a permit taken now is back, for a key that is still full. */
function refillAfter({ windowMs = 0, limit, smooth }: Policy, { refillAfterMs }: Decision): number {
  if (refillAfterMs > 0) return refillAfterMs
  return smooth ? windowMs / limit : windowMs
}
