import type { Decision } from '../algorithms/decision.js'

/**
 * The error of `acquire` and of a limited function when permits are refused: there are too few, the wait would be longer
 * than `maxWait`, or too many calls are waiting.
 *
 * @example
 * try {
 *   await limiter.acquire('ann', { maxWait: '2s' })
 * } catch (error) {
 *   if (error instanceof RateLimitedError) console.log(`try again in ${error.decision.retryAfterMs} ms`)
 * }
 */
export class RateLimitedError extends Error {
  override readonly name = 'RateLimitedError'
  readonly code = 'SLUICE_RATE_LIMITED'
  /** The name of the limiter that refused. */
  readonly limiter: string
  /** The key that was refused. It may be personal data, so the message does not contain it. */
  readonly key: string
  readonly decision: Decision

  constructor(limiter: string, key: string, decision: Decision, reason: string) {
    super(`limiter '${limiter}' refused: ${reason}`)
    this.limiter = limiter
    this.key = key
    this.decision = decision
  }
}

/** Whether an error is a RateLimitedError, also one of another copy of this package. */
export function isRateLimited(error: unknown): error is RateLimitedError {
  return (error as Partial<RateLimitedError> | null | undefined)?.code === 'SLUICE_RATE_LIMITED'
}
