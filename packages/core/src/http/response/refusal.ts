import { type Decision, refusalOf } from '../../algorithms/decision.js'
import { isJoint } from '../../limiter/joint/joint-decision.js'
import { andThen, type MaybePromise } from '../../shared/maybe-promise.js'
import type { Exchange, Refusal } from '../options.js'
import type { Field, Rules, Verdict } from '../types.js'
import { bodyOf, problemBody } from './problem.js'

/** Completes a refusal with its body and its last fields. `fields` are those about its policies. */
export function refuse<X extends Exchange>(
  { body, exposeHeaders }: Rules<X>,
  request: X[0],
  refusal: Omit<Refusal, 'body'>,
  fields: Field[] = [],
  dropsOnRedirect: readonly string[] = [],
): MaybePromise<Verdict> {
  if (exposeHeaders) expose(fields)
  fields.push({ name: 'Cache-Control', value: 'no-store', joins: false })
  const { decision, problem } = refusal
  const answer = body === undefined ? problemBody(problem) : andThen(body(request, refusal), bodyOf)
  return andThen(answer, body => {
    return { outcome: 'refused', decision, fields, dropsOnRedirect, refusal: { ...refusal, body } }
  })
}

/** Adds the field that lets scripts of other origins read the others. */
export function expose(fields: Field[]): void {
  if (fields.length === 0) return
  const value = fields.map(({ name }) => name).join(', ')
  fields.push({ name: 'Access-Control-Expose-Headers', value, joins: true, unique: true })
}

/** The decision for a client on the `deny` list, which no limiter makes. */
export const DENIED = /* @__PURE__ */ refusalOf('SLUICE_BLOCKED', 0, Infinity)

/** Whether a request is refused because a store failed. */
export function isStoreFailure(decision: Decision): boolean {
  if (decision.allowed) return false
  if (!isJoint(decision)) return decision.code === 'SLUICE_STORE_ERROR'
  return decision.parts.some(({ decision }) => decision.code === 'SLUICE_STORE_ERROR' && !decision.allowed)
}
