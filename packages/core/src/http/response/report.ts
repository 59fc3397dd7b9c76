import type { Decision } from '../../algorithms/decision.js'
import { isJoint, type JointDecision } from '../../limiter/joint/joint-decision.js'
import { membersOf } from '../../limiter/joint/joint-limiter.js'
import type { Limiter } from '../../limiter/limiter.js'
import { distinctName } from '../lifecycle/request-record.js'
import type { Exchange } from '../options.js'
import type { Ask, HeaderStyle, PolicyReport, PolicyRule, Rules } from '../types.js'
import { policyField, reportOf } from './ratelimit-fields.js'

/** The reports of the policies that decided about a request. A policy whose store failed has no report. */
export function reportsOf<X extends Exchange>(
  rules: Rules<X>,
  request: X[0],
  asks: readonly Ask<X>[],
  decision: Decision,
): readonly PolicyReport[] {
  return isJoint(decision)
    ? jointReports(rules, request, asks, decision)
    : singleReport(rules, request, asks[0] as Ask<X>, decision)
}

function singleReport<X extends Exchange>(
  rules: Rules<X>,
  request: X[0],
  ask: Ask<X>,
  decision: Decision,
): PolicyReport[] {
  if (decision.code === 'SLUICE_STORE_ERROR') return []
  const { rule, limiter, key } = ask
  const pendingCost = decision.allowed ? pendingCostOf(ask) : 0
  const report = reportOf(rule.name ?? limiter.name, limiter.policy, decision, rules.paced, pendingCost)
  return [completed(rules, request, rule, key, report)]
}

function jointReports<X extends Exchange>(
  rules: Rules<X>,
  request: X[0],
  asks: readonly Ask<X>[],
  joint: JointDecision,
): readonly PolicyReport[] {
  const { parts } = joint
  // A combination is one ask with several parts; several policies are one ask for each part.
  const isCombination = asks.length < parts.length
  const reports = parts.flatMap(({ limiter, policy, key, decision }, index) => {
    if (decision.code === 'SLUICE_STORE_ERROR') return []
    const ask = asks[isCombination ? 0 : index] as Ask<X>
    const { rule } = ask
    const name = isCombination ? limiter : (rule.name ?? limiter)
    const pendingCost = joint.allowed ? pendingCostOf(ask) : 0
    const report = reportOf(name, policy, decision, rules.paced, pendingCost)
    return [completed(rules, request, rule, key, report)]
  })
  return joint.allowed ? reports : withQueue(reports, joint.waitMs)
}

/**
 * Adds the policies of the route that do not apply to this request, in the order of the route: RateLimit-Policy is the same
 * on every response.
 */
export function withUnused<X extends Exchange>(
  rules: Rules<X>,
  request: X[0],
  reports: readonly PolicyReport[],
  unused: readonly PolicyRule<X>[],
): readonly PolicyReport[] {
  if (unused.length === 0) return reports
  const unusedReports = unused.flatMap(rule => {
    if (typeof rule.limiter === 'function') return []
    const members = membersOf(rule.limiter)
    return members.map(({ name, policy }) => {
      const own = members.length === 1 ? (rule.name ?? name) : name
      const report = { ...policy, name: own, remaining: 0, violated: false, isUnused: true }
      return completed(rules, request, rule, undefined, report)
    })
  })
  return [...reports, ...unusedReports].toSorted((a, b) => (a.place ?? 0) - (b.place ?? 0))
}

/** Adds what the options of the route say about a policy. */
function completed<X extends Exchange>(
  { partition }: Rules<X>,
  request: X[0],
  { place, hidden, unit }: PolicyRule<X>,
  key: string | undefined,
  report: PolicyReport,
): PolicyReport {
  if (report.limit === Infinity || hidden) return { ...report, place, hidden }
  const name = distinctName(request, report.name)
  if (name === report.name && place === 0 && unit === undefined && partition === undefined) return report
  return { ...report, name, place, unit, partition: key === undefined ? undefined : partition?.(key) }
}

/**
 * For a refused request that would have to queue behind others for `waitMs`. The policies that refuse it report this wait
 * if it is longer than their own. If each policy alone has the permits, the one with the fewest left reports the refusal.
 */
function withQueue(reports: readonly PolicyReport[], waitMs: number): readonly PolicyReport[] {
  const violated = reports.filter(report => report.violated)
  const least = Math.min(...reports.map(({ remaining }) => remaining))
  const isLonger = violated.every(({ waitMs: own = 0 }) => own < waitMs)
  return reports.map(report => {
    if (violated.length > 0) return report.violated && isLonger ? { ...report, waitMs } : report
    return report.remaining === least ? { ...report, remaining: 0, violated: true, waitMs } : report
  })
}

/** The permits that a request takes when it has ended. Fields subtract them, so that they are still true then. */
function pendingCostOf<X extends Exchange>({ rule, cost }: Ask<X>): number {
  return rule.countsAfter ? cost : 0
}

/**
 * Returns a function that gives the value of RateLimit-Policy for a response with a single plain policy, and undefined
 * for any other. The value of a limiter changes only with its policy, and is kept until then.
 */
export function policyFieldCache<X extends Exchange>() {
  const fields = new WeakMap<Limiter, { policy: Limiter['policy']; field: string | undefined }>()

  function fieldOf(limiter: Limiter): string | undefined {
    const known = fields.get(limiter)
    if (known !== undefined && known.policy === limiter.policy) return known.field
    const { name, policy } = limiter
    const report = { name, limit: policy.limit, windowMs: policy.windowMs, remaining: 0, violated: false }
    const field = policyField([report])
    fields.set(limiter, { policy, field })
    return field
  }

  return ([ask]: readonly Ask<X>[], reports: readonly PolicyReport[]): string | undefined => {
    const [report] = reports
    if (reports.length !== 1 || ask === undefined || report === undefined || report.hidden) return undefined
    const isPlain =
      report.name === ask.limiter.name && report.unit === undefined && report.partition === undefined
    return isPlain ? fieldOf(ask.limiter) : undefined
  }
}

/** The time of day by the limiter's clock, for fields that contain one. */
export function clockOf<X extends Exchange>([ask]: readonly Ask<X>[], { legacy }: HeaderStyle): () => number {
  const limiter = ask?.limiter
  return legacy !== undefined && limiter !== undefined ? () => limiter.clock.nowUs() / 1000 : Date.now
}
