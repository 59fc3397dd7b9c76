import type { Decision } from './decision.js'

/**
 * What `acquire` throws when the permits are refused: the wait would be longer than `maxWait`, or too many wait already.
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
  readonly decision: Decision

  constructor(limiter: string, decision: Decision, reason: string) {
    super(`limiter '${limiter}' refused: ${reason}`)
    this.limiter = limiter
    this.decision = decision
  }
}
