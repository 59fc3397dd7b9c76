import type { Algorithm } from '@sluice/core'
import fc from 'fast-check'

/** A request, a time after the previous one. */
export interface Ask {
  readonly gapUs: number
  readonly cost: number
  readonly maxWaitUs: number
}

/** A gap in time: often 0, often about one refill, sometimes long. */
export function gapUs(): fc.Arbitrary<number> {
  return fc.oneof(fc.constant(0), fc.integer({ min: 0, max: 50 }), fc.integer({ min: 0, max: 20_000 }))
}

export function cost(): fc.Arbitrary<number> {
  return fc.oneof(
    { weight: 4, arbitrary: fc.constant(1) },
    { weight: 3, arbitrary: fc.integer({ min: 0, max: 25 }) },
  )
}

export function maxWaitUs(): fc.Arbitrary<number> {
  return fc.oneof(fc.constant(0), fc.integer({ min: 0, max: 30_000 }), fc.constant(Infinity))
}

export function asks(maxLength = 40): fc.Arbitrary<Ask[]> {
  return fc.array(fc.record({ gapUs: gapUs(), cost: cost(), maxWaitUs: maxWaitUs() }), { maxLength })
}

/** The state of one key at a time. */
export class Moment {
  readonly algorithm: Algorithm
  state: Float64Array
  nowUs = 1_700_000_000_000_000

  constructor(algorithm: Algorithm, script: readonly Ask[] = []) {
    this.algorithm = algorithm
    this.state = new Float64Array(algorithm.lanes)
    for (const ask of script) this.ask(ask)
  }

  ask({ gapUs, cost, maxWaitUs }: Ask) {
    this.nowUs += gapUs
    return this.algorithm.step(this.state, 0, this.nowUs, cost, maxWaitUs, true)
  }

  /** The answer to a request at a later time, without changing the key. */
  wouldAnswer(cost: number, maxWaitUs = 0, inUs = 0) {
    return this.algorithm.step(this.state, 0, this.nowUs + inUs, cost, maxWaitUs, false)
  }
}
