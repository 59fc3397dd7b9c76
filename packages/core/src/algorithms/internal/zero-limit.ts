import type { Algorithm, Policy } from '../algorithm.js'
import { Decision, FixedGauge } from '../decision.js'
import { floorDivide } from './arithmetic.js'
import type { Balance, HoldsBalance } from './balance.js'

/**
 * An algorithm at a limit of 0: it refuses every cost above 0. It keeps the balance that a key had before the limit
 * became 0, because a limit that is switched off and on again must not fill a bucket. Lane 0 is -1 and lane 1 the
 * balance then.
 */
export class ZeroLimit implements Algorithm, HoldsBalance {
  readonly name: string
  readonly args: readonly number[]
  readonly policy: Policy
  readonly lanes: number
  readonly bookable = true

  /** `args` are the limit, the window in microseconds, and more. */
  constructor(name: string, args: readonly number[], lanes: number) {
    this.name = name
    this.args = args
    this.lanes = lanes
    this.policy = { limit: 0, windowMs: (args[1] as number) / 1000, smooth: true }
  }

  step(_state: Float64Array, _at: number, _nowUs: number, cost: number): Decision {
    return this.read(cost === 0 ? 0 : Infinity)
  }

  read(waitUs: number): Decision {
    return new Decision(NOTHING, waitUs, waitUs, 0, 0)
  }

  cancel(): number {
    return 0
  }

  refund(): number {
    return 0
  }

  adopt(state: Float64Array, at: number, nowUs: number, previous: Algorithm): void {
    const balance = (previous as Algorithm & HoldsBalance).balanceOf(state, at, nowUs)
    state.fill(0, at, at + this.lanes)
    if (balance === undefined) return
    state[at] = FROZEN
    state[at + 1] = Number(floorDivide(balance.permits, balance.scale))
  }

  restsAt(state: Float64Array, at: number): number {
    return state[at] === FROZEN ? Infinity : 0
  }

  load(): number {
    return 1
  }

  balanceOf(state: Float64Array, at: number): Balance | undefined {
    return state[at] === FROZEN ? { permits: BigInt(state[at + 1] as number), scale: 1n } : undefined
  }
}

const FROZEN = -1

const NOTHING = new FixedGauge({ limit: 0, balance: 0, refillAfterUs: Infinity, resetAfterUs: 0 })
