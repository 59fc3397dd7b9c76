import { Decision, FixedGauge } from '../../algorithms/decision.js'
import { isJoint, type JointDecision } from '../../limiter/joint/joint-decision.js'
import { membersOf } from '../../limiter/joint/joint-limiter.js'
import type { Limiter } from '../../limiter/limiter.js'
import { andThen, type MaybePromise } from '../../shared/maybe-promise.js'
import { dialectOf, distinctName, reportsSoFar } from '../lifecycle/request-record.js'
import type { Exchange, Refusal } from '../options.js'
import type { Ask } from '../request/resolve-ask.js'
import type { PolicyRule, Rules } from '../resolve-options.js'
import { fieldsOf, type HeaderStyle } from './older-fields.js'
import {
  abnormalUsage,
  problemBody,
  refusalProblem,
  statedBody,
  temporaryReducedCapacity,
} from './problem.js'
import {
  floorUnits,
  isVisible,
  type PolicyReport,
  policyField,
  reportOf,
  retryAfterSeconds,
} from './ratelimit-fields.js'

/** A header field to send. One that `joins` is appended to a value that is there already. */
export interface Field {
  readonly name: string
  readonly value: string
  readonly joins: boolean
  /** Whether members that are there already are not to come twice. */
  readonly unique?: boolean
}

/** What to do with a request. */
export type Verdict =
  /** Not limited: go on and touch nothing. */
  | { readonly outcome: 'skipped' }
  /** The client has gone: do nothing, not even go on. */
  | { readonly outcome: 'abandoned' }
  | {
      readonly outcome: 'allowed'
      readonly decision: Decision
      readonly fields: readonly Field[]
      /** Names of fields that are not to go out with a redirection, which a client might not follow then. */
      readonly dropsOnRedirect: readonly string[]
    }
  | {
      readonly outcome: 'refused'
      readonly decision: Decision
      readonly fields: readonly Field[]
      readonly dropsOnRedirect: readonly string[]
      readonly refusal: Refusal
    }

/** What decisions mean for requests, by the rules of a route. */
export class Verdicts<X extends Exchange> {
  private readonly rules: Rules<X>
  private readonly policyTexts = new PolicyTexts()

  constructor(rules: Rules<X>) {
    this.rules = rules
  }

  /** Tells of a decision, and says what follows from it; `idle` are policies that ask nothing for this request. */
  of(
    request: X[0],
    asks: readonly Ask<X>[],
    decision: Decision,
    idle: readonly PolicyRule<X>[],
  ): MaybePromise<Verdict> {
    if (this.rules.onDecision === undefined) return this.verdict(request, asks, decision, idle)
    return this.told(request, decision, () => this.verdict(request, asks, decision, idle))
  }

  /** For a client that is refused whatever it asks for. */
  denied(request: X[0]): MaybePromise<Verdict> {
    const { status, dryRun } = this.rules
    const decision = DENIED
    return this.told(request, decision, () => {
      if (dryRun) return { outcome: 'allowed', decision, fields: [], dropsOnRedirect: NO_NAMES }
      const problem = abnormalUsage(status)
      return this.refused(request, [], { decision, status, retryAfter: undefined, problem })
    })
  }

  /** For a request that is refused because nobody knows: 503. */
  unavailable(request: X[0], decision: Decision): MaybePromise<Verdict> {
    const status = 503
    const problem = temporaryReducedCapacity(status)
    return this.refused(request, [], { decision, status, retryAfter: undefined, problem })
  }

  private told(request: X[0], decision: Decision, goOn: () => MaybePromise<Verdict>): MaybePromise<Verdict> {
    const { onDecision, dryRun } = this.rules
    const refused = !decision.allowed && !dryRun
    return andThen(onDecision?.(request, { decision, refused }), goOn)
  }

  private verdict(
    request: X[0],
    asks: readonly Ask<X>[],
    decision: Decision,
    idle: readonly PolicyRule<X>[],
  ): MaybePromise<Verdict> {
    const { rules } = this
    if (!decision.allowed && hasFailed(decision)) {
      if (!rules.dryRun) return this.unavailable(request, decision)
      return { outcome: 'allowed', decision, fields: [], dropsOnRedirect: NO_NAMES }
    }
    const evaluated = isJoint(decision)
      ? this.jointReports(request, asks, decision)
      : this.singleReport(request, asks[0] as Ask<X>, decision)
    const reports = idle.length === 0 ? evaluated : this.withIdle(request, evaluated, idle)
    const told = reportsSoFar(request, reports)
    const text = this.policyText(asks, reports)
    const fields = fieldsOf(reports, this.styleOf(request), clockOf(asks, rules), text, told)
    const isSpent = evaluated.some(report => isVisible(report) && floorUnits(report.remaining) === 0)
    const dropsOnRedirect = isSpent ? limitNames(fields) : NO_NAMES
    if (decision.allowed || rules.dryRun) {
      if (rules.exposeHeaders) expose(fields)
      return { outcome: 'allowed', decision, fields, dropsOnRedirect }
    }
    const retryAfter = retryAfterSeconds(told)
    if (retryAfter !== undefined)
      fields.push({ name: 'Retry-After', value: String(retryAfter), joins: false })
    const problem = refusalProblem(rules.status, reports)
    const refusal = { decision, status: rules.status, retryAfter, problem }
    return this.refused(request, fields, refusal, dropsOnRedirect)
  }

  /** Who comes later speaks as those before. */
  private styleOf(request: X[0]): HeaderStyle {
    const { rules } = this
    const dialect = dialectOf(request, rules.dialect)
    return dialect === rules.dialect ? rules : { dialect, legacy: rules.legacy }
  }

  private refused(
    request: X[0],
    fields: Field[],
    refusal: Omit<Refusal, 'body'>,
    dropsOnRedirect = NO_NAMES,
  ): MaybePromise<Verdict> {
    if (this.rules.exposeHeaders) expose(fields)
    fields.push({ name: 'Cache-Control', value: 'no-store', joins: false })
    const { decision, problem } = refusal
    const { body } = this.rules
    const answer = body === undefined ? problemBody(problem) : andThen(body(request, refusal), statedBody)
    return andThen(answer, body => {
      return { outcome: 'refused', decision, fields, dropsOnRedirect, refusal: { ...refusal, body } }
    })
  }

  private singleReport(request: X[0], ask: Ask<X>, decision: Decision): PolicyReport[] {
    if (decision.code === 'SLUICE_STORE_ERROR') return []
    const { rule, limiter, key } = ask
    const name = rule.name ?? limiter.name
    const report = reportOf(
      name,
      limiter.policy,
      decision,
      this.rules.paced,
      decision.allowed ? owed(ask) : 0,
    )
    return [this.completed(request, rule, key, report)]
  }

  private jointReports(request: X[0], asks: readonly Ask<X>[], joint: JointDecision): PolicyReport[] {
    const { parts } = joint
    // A combination is one ask with several parts, policies are one ask for each.
    const isCombination = asks.length < parts.length
    const reports = parts.flatMap(({ limiter, policy, key, decision }, index) => {
      if (decision.code === 'SLUICE_STORE_ERROR') return []
      const ask = asks[isCombination ? 0 : index] as Ask<X>
      const { rule } = ask
      const name = isCombination ? limiter : (rule.name ?? limiter)
      const report = reportOf(name, policy, decision, this.rules.paced, joint.allowed ? owed(ask) : 0)
      return [this.completed(request, rule, key, report)]
    })
    return joint.allowed ? reports : behind(reports, joint.waitMs)
  }

  /** The policies of a route are the same from request to request, in the order in which they are declared. */
  private withIdle(
    request: X[0],
    evaluated: readonly PolicyReport[],
    idle: readonly PolicyRule<X>[],
  ): readonly PolicyReport[] {
    const idleReports = idle.flatMap(rule => {
      if (typeof rule.limiter === 'function') return []
      const members = membersOf(rule.limiter)
      return members.map(({ name, policy }) => {
        const own = members.length === 1 ? (rule.name ?? name) : name
        const report = { ...policy, name: own, remaining: 0, violated: false, idle: true }
        return this.completed(request, rule, undefined, report)
      })
    })
    return [...evaluated, ...idleReports].toSorted((a, b) => (a.place ?? 0) - (b.place ?? 0))
  }

  private completed(
    request: X[0],
    rule: PolicyRule<X>,
    key: string | undefined,
    report: PolicyReport,
  ): PolicyReport {
    const { place, hidden, unit } = rule
    if (report.limit === Infinity || hidden) return { ...report, place, hidden }
    const { partition } = this.rules
    const name = distinctName(request, report.name)
    if (name === report.name && place === 0 && unit === undefined && partition === undefined) return report
    return { ...report, name, place, unit, partition: key === undefined ? undefined : partition?.(key) }
  }

  /** The text of RateLimit-Policy, where it is that of one limiter and no more. */
  private policyText([ask]: readonly Ask<X>[], reports: readonly PolicyReport[]): string | undefined {
    const [report] = reports
    if (reports.length !== 1 || ask === undefined || report === undefined || report.hidden) return undefined
    const isPlain =
      report.name === ask.limiter.name && report.unit === undefined && report.partition === undefined
    return isPlain ? this.policyTexts.of(ask.limiter) : undefined
  }
}

/** The value of RateLimit-Policy changes only when a limiter's policy does. */
class PolicyTexts {
  readonly #texts = new WeakMap<Limiter, { policy: Limiter['policy']; text: string | undefined }>()

  of(limiter: Limiter): string | undefined {
    const known = this.#texts.get(limiter)
    if (known !== undefined && known.policy === limiter.policy) return known.text
    const { name, policy } = limiter
    const text = policyField([
      { name, limit: policy.limit, windowMs: policy.windowMs, remaining: 0, violated: false },
    ])
    this.#texts.set(limiter, { policy, text })
    return text
  }
}

/**
 * A request that stands behind another one is refused by those that refuse it, and for as long as it takes; where each of
 * them alone would let it pass, by the one with the least left.
 */
function behind(reports: readonly PolicyReport[], waitMs: number): PolicyReport[] {
  const violated = reports.filter(report => report.violated)
  const least = Math.min(...reports.map(({ remaining }) => remaining))
  const isLonger = violated.every(({ waitMs: own = 0 }) => own < waitMs)
  return reports.map(report => {
    if (violated.length > 0) return report.violated && isLonger ? { ...report, waitMs } : report
    return report.remaining === least ? { ...report, remaining: 0, violated: true, waitMs } : report
  })
}

/** What a request will be charged when it has been answered; the fields are to be true also then. */
function owed<X extends Exchange>({ rule, cost }: Ask<X>): number {
  return rule.countsAfter ? cost : 0
}

/** The decision over a client on a list, which no limiter has made. */
const DENIED = new Decision(
  new FixedGauge({
    code: 'SLUICE_BLOCKED',
    limit: 0,
    balance: 0,
    refillAfterUs: Infinity,
    resetAfterUs: Infinity,
  }),
  Infinity,
  Infinity,
  0,
  0,
)

const NO_NAMES: readonly string[] = []

/** Whether a refusal is one because a store has failed. */
function hasFailed(decision: Decision): boolean {
  if (!isJoint(decision)) return decision.code === 'SLUICE_STORE_ERROR'
  return decision.parts.some(({ decision }) => decision.code === 'SLUICE_STORE_ERROR' && !decision.allowed)
}

/** The fields that say what is left. */
function limitNames(fields: readonly Field[]): readonly string[] {
  return fields.filter(({ name }) => name !== 'RateLimit-Policy').map(({ name }) => name)
}

/** Scripts of other origins may read the fields that are sent. */
function expose(fields: Field[]): void {
  if (fields.length === 0) return
  const value = fields.map(({ name }) => name).join(', ')
  fields.push({ name: 'Access-Control-Expose-Headers', value, joins: true, unique: true })
}

/** The time by the limiter's clock, for fields that are times of day. */
function clockOf<X extends Exchange>([ask]: readonly Ask<X>[], { legacy }: HeaderStyle): () => number {
  const limiter = ask?.limiter
  return legacy !== undefined && limiter !== undefined ? () => limiter.nowMs() : Date.now
}
