import type { Algorithm } from './algorithm.js'
import { Decision, FixedGauge } from './decision.js'

/*
 * Unlimited
 *
 * Grants every request, keeps no state and costs next to nothing. With it a limit is switched off by the choice of a
 * limiter: no flag, no second code path, and no advertised policy. The infinite rate of golang.org/x/time/rate.
 */

/**
 * An algorithm that grants every request, for plans without a limit and for switching a limit off with `update`.
 *
 * Has no options, keeps no state, throws nothing; every figure of its decisions is 0 or Infinity.
 *
 * @example
 * const plans = { free: createLimiter(tokenBucket({ limit: 10, window: '1m' })), staff: createLimiter(unlimited()) }
 * plans.staff.tryAcquire('ann').remaining // Infinity
 */
export function unlimited(): Algorithm {
  return UNLIMITED
}

const GAUGE = new FixedGauge({
  limit: Infinity,
  balance: Infinity,
  refillAfterUs: 0,
  resetAfterUs: 0,
})

const UNLIMITED: Algorithm = {
  name: 'unlimited',
  args: [],
  policy: { limit: Infinity, smooth: false },
  lanes: 0,
  bookable: true,
  step: () => new Decision(GAUGE, 0, 0, 0, 0),
  read: (waitUs, retryAfterUs) => new Decision(GAUGE, waitUs, retryAfterUs, 0, 0),
  cancel: () => 0,
  refund: () => 0,
  adopt: () => {},
  restsAt: () => 0,
  load: () => 0,
}
