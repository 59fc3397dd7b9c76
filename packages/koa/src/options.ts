import { coded, type HttpOptions, invalid } from '@sluice/core/http'
import type { Context } from 'koa'

/** Options of `rateLimit` on Koa. */
export type RateLimitOptions = HttpOptions<[ctx: Context]> & {
  /**
   * Throws a `RefusedError` for a refused request instead of answering it, for apps that answer errors in one place;
   * default false. Not to be combined with `onRefused`.
   */
  readonly throws?: boolean | undefined
}

/** Checks the option that is Koa's own, and takes it out; core complains of the others, and of what has none. */
export function coreOptions(options: RateLimitOptions): HttpOptions<[ctx: Context]> {
  if (!Object.hasOwn(Object(options), 'throws')) return options
  const { throws, ...others } = options
  if (throws !== undefined && typeof throws !== 'boolean')
    throw invalid(TypeError, 'throws', 'true or false', throws)
  if (throws && others.onRefused !== undefined)
    throw coded(
      new TypeError("throws: cannot be combined with 'onRefused', which answers instead"),
      'SLUICE_INVALID_OPTION',
      'throws',
    )
  return others
}
