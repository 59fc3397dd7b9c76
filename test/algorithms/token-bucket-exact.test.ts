import { tokenBucket } from '@sluice/core'
import { expect, test } from 'vitest'
import { seeded } from '../support/random.js'

/** The same bucket in exact arithmetic: the time at which it is full, in units of 1 / limit microseconds. */
class ExactBucket {
  full = 0n
  readonly #limit: bigint
  readonly #windowUs: bigint
  readonly #burst: bigint

  constructor(limit: number, windowUs: number, burst: number) {
    this.#limit = BigInt(limit)
    this.#windowUs = BigInt(windowUs)
    this.#burst = BigInt(burst)
  }

  ask(nowUs: number, cost: number, maxWaitUs: number) {
    const now = BigInt(nowUs) * this.#limit
    const from = this.full > now ? this.full : now
    const depth = this.#burst * this.#windowUs
    const to = from + BigInt(cost) * this.#windowUs
    const missing = to - depth - now
    const waitUs = missing > 0n ? Number((missing + this.#limit - 1n) / this.#limit) : 0
    const allowed = waitUs <= maxWaitUs
    if (allowed) this.full = to
    const debt = (allowed ? to : from) - now
    const held = depth - debt
    return { allowed, waitUs, remaining: held > 0n ? Number(held / this.#windowUs) : 0 }
  }
}

const DECISIONS = 1_000_000

test.each([3, 7, 95_000, 300_000, 1_000_000])(
  `${DECISIONS.toLocaleString('en')} random decisions at %d per second equal exact arithmetic`,
  limit => {
    const burst = Math.ceil(limit / 10)
    const bucket = tokenBucket({ limit, window: '1s', burst })
    const exact = new ExactBucket(limit, 1_000_000, burst)
    const state = new Float64Array(bucket.lanes)
    const random = seeded(limit)
    let nowUs = 1_700_000_000_000_000
    const differences: unknown[] = []
    for (let number = 0; number < DECISIONS; number++) {
      const cost = 1 + Math.floor(random() * Math.min(burst, 20))
      nowUs += Math.floor(random() * 2.1 * cost * (1_000_000 / limit))
      const maxWaitUs = random() < 0.5 ? 0 : Math.floor((random() * 3_000_000) / limit)
      const decision = bucket.step(state, 0, nowUs, cost, maxWaitUs, true)
      const expected = exact.ask(nowUs, cost, maxWaitUs)
      const actual = {
        allowed: decision.allowed,
        waitUs: Math.round(decision.waitMs * 1000),
        remaining: decision.remaining,
      }
      const isEqual =
        actual.allowed === expected.allowed &&
        actual.waitUs === expected.waitUs &&
        actual.remaining === expected.remaining
      if (!isEqual) differences.push({ number, actual, expected })
    }
    expect(differences).toEqual([])
  },
)
