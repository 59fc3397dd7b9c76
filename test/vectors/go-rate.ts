import { type Algorithm, type Reservation, tokenBucket, unlimited } from '@sluice/core'
import { GO_RATE_RULES } from './go-rate-rules.js'
import type { Key, OpenKey } from './one-key.js'
import { type Comparison, near, type Replica, type System, unknownOp } from './replay.js'
import type { Step } from './traces.js'
import { wholeRate } from './whole-rate.js'

/** golang.org/x/time/rate. A nanosecond of the original is a microsecond here. */
export const goRate: System = {
  prefix: 'golang.org/x/time/rate',
  rules: GO_RATE_RULES,
  begin: async (config: GoConfig, open: OpenKey) => new GoRate(config, await open(algorithmOf(config))),
}

interface GoConfig {
  readonly burst: number
  readonly limitPerSec: number
}

interface GoStep extends Step {
  readonly args: GoConfig & { readonly n: number; readonly id: string; readonly maxWaitNs?: number }
}

/** The result of an operation that returns several values. */
interface GoResult {
  readonly ok: boolean
  readonly delayNs: number
  readonly tokensAfter: number
}

const SECOND_MS = 1_000_000
const TOLERANCE_NS = 1
const TOLERANCE_TOKENS = 1e-6

class GoRate implements Replica {
  readonly #key: Key
  readonly #booked = new Map<string, { readonly booking: Reservation; readonly actNs: number }>()
  #config: GoConfig

  constructor(config: GoConfig, key: Key) {
    this.#config = config
    this.#key = key
  }

  async play(step: GoStep): Promise<Comparison> {
    const { n, id, maxWaitNs = Infinity, limitPerSec, burst } = step.args
    const result = step.result as GoResult
    await this.#key.at(step.t / 1000)
    switch (step.op) {
      case 'allow':
        return { ours: { ok: (await this.#key.take(n)).allowed }, theirs: { ok: step.result } }
      case 'reserve': {
        const booking = await this.#key.book(n, maxWaitNs / 1000)
        this.#booked.set(id, { booking, actNs: step.t + toNs(booking.waitMs) })
        const ours = { ok: booking.allowed }
        return { ours: booking.allowed ? { ...ours, ...this.#delay(step) } : ours, theirs: { ...result } }
      }
      case 'delayFrom':
        return { ours: this.#delay(step), theirs: { ...result } }
      case 'cancel':
        await this.#booked.get(id)?.booking.cancel()
        return this.#tokens(result.tokensAfter)
      case 'tokens':
        return this.#tokens(step.result as number)
      case 'setLimit':
        await this.#update({ ...this.#config, limitPerSec })
        return this.#tokens(result.tokensAfter)
      case 'setBurst':
        await this.#update({ ...this.#config, burst })
        return this.#tokens(result.tokensAfter)
      default:
        throw unknownOp(step)
    }
  }

  async #update(config: GoConfig): Promise<void> {
    this.#config = config
    await this.#key.update(algorithmOf(config))
  }

  /** The time until a booking may act. */
  #delay({ t, args, result }: GoStep): { delayNs: number } {
    const { actNs = Number.NaN } = this.#booked.get(args.id) ?? {}
    return { delayNs: near(Math.max(actNs - t, 0), (result as GoResult).delayNs, TOLERANCE_NS) }
  }

  /** At an infinite rate the original returns the tokens of its unused bucket, and Sluice the available permits. */
  async #tokens(shown: number): Promise<Comparison> {
    const theirs = this.#config.limitPerSec === Infinity ? Infinity : shown
    const { balance } = await this.#key.now
    return { ours: { tokens: near(balance, theirs, TOLERANCE_TOKENS) }, theirs: { tokens: theirs } }
  }
}

function algorithmOf({ burst, limitPerSec }: GoConfig): Algorithm {
  return limitPerSec === Infinity ? unlimited() : tokenBucket({ ...wholeRate(limitPerSec, SECOND_MS), burst })
}

function toNs(ms: number): number {
  return Math.round(ms * 1000)
}
