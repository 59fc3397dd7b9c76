import {
  ceilSeconds,
  floorUnits,
  isVisible,
  limitField,
  type PolicyReport,
  policyField,
  resetSeconds,
  retryAfterSeconds,
  windowSeconds,
} from './ratelimit-fields.js'
import type { Field } from './report.js'

/*
 * The dialects of the RateLimit fields. Of each the client sees one; the X-RateLimit fields that were there before may
 * come in addition. The older ones have room for one limit: the one closest to exhaustion, and of a refusal the one with
 * the longest wait.
 */

/** The drafts by number; 9 to 11 are written like 8. */
export type Dialect = 'draft-6' | 'draft-7' | 'draft-8' | 'draft-9' | 'draft-10' | 'draft-11'

/** What the X-RateLimit-Reset field says: seconds since the epoch, or seconds left. */
export type LegacyReset = 'epoch' | 'delta'

/** How a limit is to be announced. */
export interface HeaderStyle {
  readonly dialect: Dialect | undefined
  readonly legacy: LegacyReset | undefined
}

/**
 * The fields that tell of policies. Those that have room for one limit choose among all that the response has `told` of;
 * `policyText` is that of RateLimit-Policy in lists, where it is known already.
 */
export function fieldsOf(
  reports: readonly PolicyReport[],
  { dialect, legacy }: HeaderStyle,
  nowMs: () => number,
  policyText?: string,
  told = reports,
): Field[] {
  const fields: Field[] = []
  if (dialect === 'draft-6' || dialect === 'draft-7')
    addOlder(fields, told, dialect, told.length === reports.length)
  else if (dialect !== undefined) {
    add(fields, 'RateLimit-Policy', policyText ?? policyField(reports), true)
    add(fields, 'RateLimit', limitField(reports), true)
  }
  if (legacy !== undefined) addLegacy(fields, told, legacy, nowMs)
  return fields
}

/** Later fields of ours take the place of the first ones, which have joined what was there before. */
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

/** No quota may come twice: the selected policy keeps its own, otherwise the first one does. */
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

/** The moment of Retry-After on a refusal, otherwise that of the policy, or its whole window if nobody knows. */
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

/** The time that the seconds of a reset are made of, not rounded. */
function resetMsOf({ violated, waitMs, resetMs, windowMs }: PolicyReport): number {
  const known = [violated ? waitMs : undefined, resetMs, windowMs].find(ms => ceilSeconds(ms) !== undefined)
  return Math.max(0, known ?? 0)
}

/** The one policy that the older fields have room for. */
function selectedOf(reports: readonly PolicyReport[]): PolicyReport | undefined {
  const visible = reports.filter(report => isVisible(report) && report.idle !== true)
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
