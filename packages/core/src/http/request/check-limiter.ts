import { isLimiter } from '../../limiter/create-limiter.js'
import type { Limiter } from '../../limiter/limiter.js'
import { LedgerLimiter } from '../../limiter/limiter-class.js'
import { invalid } from '../../shared/errors.js'
import { policyName } from '../../shared/validate.js'
import type { Exchange } from '../options.js'
import type { PolicyRule } from '../types.js'

/** Checks the value of a `limiter` option, or what its function returned. */
export function checkLimiter(value: unknown, expected = 'a limiter made by createLimiter'): Limiter {
  if (isLimiter(value)) {
    // Its name goes into a header field. createLimiter has checked the names of its own limiters.
    if (value instanceof LedgerLimiter) return value
    policyName('limiter', value.name)
    if (typeof value.policy?.limit === 'number') return value
  }
  throw invalid(TypeError, 'limiter', expected, value, 'SLUICE_INVALID_LIMITER')
}

/** Whether a policy needs a limiter of createLimiter or combine: refunds and ladders use more than its public verbs. */
export function goesPastVerbs<X extends Exchange>(
  rule: Pick<PolicyRule<X>, 'settlesAtEnd' | 'ladder'>,
): boolean {
  return rule.settlesAtEnd || rule.ladder !== undefined
}
