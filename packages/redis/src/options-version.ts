import type { Algorithm } from '@sluice/core'
import { type Scripts, scriptsOf } from './scripts/script-cache.js'
import type { Twin } from './scripts/twin.js'
import { twinOf } from './scripts/twins.js'

/** What a decision does: look only, take permits, or take permits and return the booking. */
export type Mode = 0 | 1 | 2

/** The options of a limiter between two updates, prepared for the scripts. */
export class OptionsVersion {
  readonly algorithm: Algorithm
  readonly twin: Twin
  readonly scripts: Scripts
  /** `a` of the scripts: the args of the algorithm, then the constants computed from them. */
  readonly parameters: readonly number[]
  readonly parametersJson: string
  /** Whether the limit is 0. */
  readonly isZeroLimit: boolean
  /** Since when they hold, in microseconds; Infinity while the server's time is not known. */
  sinceUs: number
  /** The version that followed and converts its states. */
  next: OptionsVersion | undefined
  private readonly usualArgument: string

  constructor(algorithm: Algorithm, sinceUs: number) {
    this.algorithm = algorithm
    this.twin = twinOf(algorithm)
    this.scripts = scriptsOf(this.twin)
    this.parameters = [...algorithm.args, ...(algorithm.constants ?? [])]
    this.parametersJson = JSON.stringify(this.parameters)
    this.isZeroLimit = algorithm.policy.limit === 0
    this.sinceUs = sinceUs
    this.usualArgument = this.argumentOf(1, 0, 1, false)
  }

  /** Whether states of `previous` can be converted to these options: same algorithm, same length. */
  converts({ twin, algorithm }: OptionsVersion): boolean {
    return twin === this.twin && algorithm.lanes === this.algorithm.lanes
  }

  /** The argument of the script of a decision. The usual one is made once. */
  decideArgument(cost: number, maxWaitUs: number, mode: Mode, nowUs: number | false): string {
    return cost === 1 && maxWaitUs === 0 && mode === 1 && nowUs === false
      ? this.usualArgument
      : this.argumentOf(cost, maxWaitUs, mode, nowUs)
  }

  private argumentOf(cost: number, maxWaitUs: number, mode: Mode, nowUs: number | false): string {
    return `[${this.parametersJson},${cost},${maxWaitUs},${mode},${nowUs}]`
  }
}
