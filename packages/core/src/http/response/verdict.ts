import type { Decision } from '../../algorithms/decision.js'
import { andThen, type MaybePromise } from '../../shared/maybe-promise.js'
import { recordDialect, recordReports } from '../lifecycle/request-record.js'
import type { Exchange } from '../options.js'
import type { Ask, Field, HeaderStyle, PolicyRule, Rules, Verdict } from '../types.js'
import { fieldsOf } from './older-fields.js'
import { abnormalUsage, refusalProblem, temporaryReducedCapacity } from './problem.js'
import { floorUnits, isVisible, retryAfterSeconds } from './ratelimit-fields.js'
import { DENIED, expose, isStoreFailure, refuse } from './refusal.js'
import { clockOf, policyFieldCache, reportsOf, withUnused } from './report.js'

/** Turns the decisions of a route into what its adapter does. */
export interface Verdicts<X extends Exchange> {
  /** Calls `onDecision` first. `unused` are the policies of the route that do not apply to this request. */
  of(
    request: X[0],
    asks: readonly Ask<X>[],
    decision: Decision,
    unused: readonly PolicyRule<X>[],
  ): MaybePromise<Verdict>
  /** For a client on the `deny` list. */
  denied(request: X[0]): MaybePromise<Verdict>
}

export function createVerdicts<X extends Exchange>(rules: Rules<X>): Verdicts<X> {
  const { onDecision, status, dryRun } = rules
  const policyFieldOf = policyFieldCache<X>()

  function notified(
    request: X[0],
    decision: Decision,
    goOn: () => MaybePromise<Verdict>,
  ): MaybePromise<Verdict> {
    const refused = !decision.allowed && !dryRun
    return andThen(onDecision?.(request, { decision, refused }), goOn)
  }

  function verdictOf(
    request: X[0],
    asks: readonly Ask<X>[],
    decision: Decision,
    unused: readonly PolicyRule<X>[],
  ): MaybePromise<Verdict> {
    if (isStoreFailure(decision)) {
      if (dryRun) return { outcome: 'allowed', decision, fields: [], dropsOnRedirect: NO_NAMES }
      const problem = temporaryReducedCapacity(503)
      return refuse(rules, request, { decision, status: 503, retryAfter: undefined, problem })
    }
    const decided = reportsOf(rules, request, asks, decision)
    const reports = withUnused(rules, request, decided, unused)
    const allReports = recordReports(request, reports)
    const policyText = policyFieldOf(asks, reports)
    const fields = fieldsOf(reports, styleOf(request), clockOf(asks, rules), policyText, allReports)
    const isUsedUp = decided.some(report => isVisible(report) && floorUnits(report.remaining) === 0)
    const dropsOnRedirect = isUsedUp ? remainingNames(fields) : NO_NAMES
    if (decision.allowed || dryRun) {
      if (rules.exposeHeaders) expose(fields)
      return { outcome: 'allowed', decision, fields, dropsOnRedirect }
    }
    const retryAfter = retryAfterSeconds(allReports)
    if (retryAfter !== undefined)
      fields.push({ name: 'Retry-After', value: String(retryAfter), joins: false })
    const refusal = { decision, status, retryAfter, problem: refusalProblem(status, reports) }
    return refuse(rules, request, refusal, fields, dropsOnRedirect)
  }

  /** All limits of a request use the draft of the first. */
  function styleOf(request: X[0]): HeaderStyle {
    const dialect = recordDialect(request, rules.dialect)
    return dialect === rules.dialect ? rules : { dialect, legacy: rules.legacy }
  }

  return {
    of(request, asks, decision, unused) {
      if (onDecision === undefined) return verdictOf(request, asks, decision, unused)
      return notified(request, decision, () => verdictOf(request, asks, decision, unused))
    },
    denied(request) {
      const decision = DENIED
      return notified(request, decision, () => {
        if (dryRun) return { outcome: 'allowed', decision, fields: [], dropsOnRedirect: NO_NAMES }
        const problem = abnormalUsage(status)
        return refuse(rules, request, { decision, status, retryAfter: undefined, problem })
      })
    },
  }
}

const NO_NAMES: readonly string[] = []

/** The names of the fields that say how much remains. */
function remainingNames(fields: readonly Field[]): readonly string[] {
  return fields.filter(({ name }) => name !== 'RateLimit-Policy').map(({ name }) => name)
}
