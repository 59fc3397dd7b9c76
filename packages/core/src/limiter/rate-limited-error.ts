import type { Decision } from '../algorithms/decision.js'

/**
 * What `acquire` and a limited function throw when the permits are refused: they are not there, the wait would be longer
 * than `maxWait`, or too many wait already.
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
  /** The key that was refused; it may be personal data, and is not in the message. */
  readonly key: string
  readonly decision: Decision

  constructor(limiter: string, key: string, decision: Decision, reason: string) {
    super(`limiter '${limiter}' refused: ${reason}`)
    this.limiter = limiter
    this.key = key
    this.decision = decision
  }
}
