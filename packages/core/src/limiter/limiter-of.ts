import { invalid } from '../shared/errors.js'
import type { LedgerLimiter } from './limiter-class.js'
import { LIMITER, LIMITER_VERSION } from './limiter-mark.js'

/**
 * The internal view of a limiter of `createLimiter` or `combine`. Throws a TypeError of code SLUICE_INVALID_LIMITER for any
 * other value, also for an object with the verbs of a limiter.
 */
export function limiterOf<Async extends boolean = boolean>(
  value: unknown,
  expected = 'a limiter made by createLimiter or combine',
): LedgerLimiter<Async> {
  const version = (value as { readonly [LIMITER]?: unknown } | null | undefined)?.[LIMITER]
  if (version === LIMITER_VERSION) return value as LedgerLimiter<Async>
  const what = version === undefined ? expected : `${expected} of the same version of @sluice/core`
  throw invalid(TypeError, 'limiter', what, value, 'SLUICE_INVALID_LIMITER')
}
