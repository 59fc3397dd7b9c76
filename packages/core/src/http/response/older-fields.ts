import type { LegacyReset } from '../options.js'
import type { Field, HeaderStyle, PolicyReport } from '../types.js'
import {
  ceilSeconds,
  floorUnits,
  isVisible,
  limitField,
  policyField,
  resetSeconds,
  retryAfterSeconds,
  windowSeconds,
} from './ratelimit-fields.js'

/*
 * The drafts of the RateLimit fields. A response uses one of them, and may have the older X-RateLimit fields as well. The
 * fields of draft 6 and 7 and the X-RateLimit fields describe a single policy: the one closest to exhaustion, and on a
 * refusal the one with the longest wait.
 */

/**
 * The fields for some policies. Fields for a single policy choose it among `allReports`, which includes those of earlier
 * limits of the request. `policyText` is the value of RateLimit-Policy if it is known already.
 */
export function fieldsOf(
  reports: readonly PolicyReport[],
  { dialect, legacy }: HeaderStyle,
  nowMs: () => number,
  policyText?: string,
  allReports = reports,
): Field[] {
  const fields: Field[] = []
  if (dialect === 'draft-6' || dialect === 'draft-7')
    addOlder(fields, allReports, dialect, allReports.length === reports.length)
  else if (dialect !== undefined) {
    add(fields, 'RateLimit-Policy', policyText ?? policyField(reports), true)
    add(fields, 'RateLimit', limitField(reports), true)
  }
  if (legacy !== undefined) addLegacy(fields, allReports, legacy, nowMs)
  return fields
}

/** The first limit of a request appends its policies to those of a gateway; later limits replace the value. */
function addOlder(
  fields: Field[],
  reports: readonly PolicyReport[],
  dialect: 'draft-6' | 'draft-7',
  isFirst: boolean,
): void {
  const selected = selectedOf(reports)
  add(fields, 'RateLimit-Policy', olderPolicies(reports, selected), isFirst)
  if (selected === undefined) return
  const reset = olderReset(reports, selected)
  if (reset === undefined) return
  const limit = floorUnits(selected.limit)
  const remaining = floorUnits(selected.remaining)
  if (dialect === 'draft-7') {
    add(fields, 'RateLimit', `limit=${limit}, remaining=${remaining}, reset=${reset}`)
    return
  }
  add(fields, 'RateLimit-Limit', limit)
  add(fields, 'RateLimit-Remaining', remaining)
  add(fields, 'RateLimit-Reset', reset)
}

/** A quota must not occur twice. Of policies with the same quota the selected one is listed, otherwise the first. */
function olderPolicies(
  reports: readonly PolicyReport[],
  selected: PolicyReport | undefined,
): string | undefined {
  const quotas = new Map<number, PolicyReport>()
  for (const report of reports) {
    const quota = floorUnits(report.limit)
    if (!isVisible(report) || windowSeconds(report.windowMs) === undefined) continue
    if (!quotas.has(quota) || report === selected) quotas.set(quota, report)
  }
  const members = reports
    .filter(report => quotas.get(floorUnits(report.limit)) === report)
    .map(({ limit, windowMs }) => `${floorUnits(limit)};w=${windowSeconds(windowMs)}`)
  return members.length === 0 ? undefined : members.join(', ')
}

/** On a refusal the same seconds as Retry-After, otherwise those of the policy, or its window if they are unknown. */
function olderReset(reports: readonly PolicyReport[], selected: PolicyReport): number | undefined {
  if (reports.some(({ violated }) => violated)) return retryAfterSeconds(reports)
  return resetSeconds(selected) ?? windowSeconds(selected.windowMs)
}

function addLegacy(
  fields: Field[],
  reports: readonly PolicyReport[],
  legacy: LegacyReset,
  nowMs: () => number,
): void {
  const selected = selectedOf(reports)
  if (selected === undefined) return
  add(fields, 'X-RateLimit-Limit', floorUnits(selected.limit))
  add(fields, 'X-RateLimit-Remaining', floorUnits(selected.remaining))
  const seconds = resetSeconds(selected)
  if (seconds === undefined) return
  const ms = Math.min(resetMsOf(selected), seconds * 1000)
  add(fields, 'X-RateLimit-Reset', legacy === 'delta' ? seconds : Math.ceil((nowMs() + ms - 0.001) / 1000))
}

/** The time of `resetSeconds`, not rounded. */
function resetMsOf({ violated, waitMs, resetMs, windowMs }: PolicyReport): number {
  const known = [violated ? waitMs : undefined, resetMs, windowMs].find(ms => ceilSeconds(ms) !== undefined)
  return Math.max(0, known ?? 0)
}

/** The policy that fields for a single policy describe. */
function selectedOf(reports: readonly PolicyReport[]): PolicyReport | undefined {
  const visible = reports.filter(report => isVisible(report) && report.isUnused !== true)
  const violated = visible.filter(report => report.violated)
  if (violated.length > 0)
    return violated.reduce((longest, report) =>
      (report.waitMs ?? 0) > (longest.waitMs ?? 0) ? report : longest,
    )
  const [first, ...others] = visible
  return others.reduce(
    (closest, report) => (isCloser(report, closest) ? report : closest),
    first as PolicyReport,
  )
}

function isCloser(a: PolicyReport, b: PolicyReport): boolean {
  const left = floorUnits(a.remaining) - floorUnits(b.remaining)
  return left < 0 || (left === 0 && (ceilSeconds(a.resetMs) ?? 0) > (ceilSeconds(b.resetMs) ?? 0))
}

function add(fields: Field[], name: string, value: string | number | undefined, joins = false): void {
  if (value !== undefined) fields.push({ name, value: String(value), joins })
}
