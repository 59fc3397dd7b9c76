import { type Algorithm, smoothBursty, smoothWarmingUp, unlimited } from '@sluice/core'
import { GUAVA_RULES } from './guava-rules.js'
import type { Key, OpenKey } from './one-key.js'
import { type Comparison, near, type Replica, type System, unknownOp } from './replay.js'
import type { Step } from './traces.js'
import { wholeRate } from './whole-rate.js'

/** RateLimiter of Guava, bursty and warming up. A microsecond of the original is a microsecond here. */
export const guava: System = {
  prefix: 'guava-',
  rules: GUAVA_RULES,
  begin: async (config: GuavaConfig, open: OpenKey) =>
    new Guava(config, await open(algorithmOf(config), (config.startMicros ?? 0) / 1000)),
}

interface GuavaConfig {
  readonly type: 'bursty' | 'warmingUp'
  readonly permitsPerSecond: number
  readonly maxBurstSeconds: number
  readonly warmupPeriodMicros: number
  readonly coldFactor: number
  readonly startMicros?: number
}

interface GuavaStep extends Step {
  readonly args: { readonly permits: number; readonly timeout: number; readonly permitsPerSecond: number }
  readonly wait: number
  readonly after: { readonly nextFreeTicketMicros: number }
}

class Guava implements Replica {
  readonly #config: GuavaConfig
  readonly #startUs: number
  readonly #key: Key

  constructor(config: GuavaConfig, key: Key) {
    this.#config = config
    this.#startUs = config.startMicros ?? 0
    this.#key = key
  }

  async play(step: GuavaStep): Promise<Comparison> {
    await this.#key.at((step.t - this.#startUs) / 1000)
    const { ours, theirs } = await this.#compare(step)
    const untilFreeUs = Math.max(step.after.nextFreeTicketMicros - step.t, 0)
    return {
      ours: { ...ours, untilFreeUs: toUs((await this.#key.now).waitMs) },
      theirs: { ...theirs, untilFreeUs },
    }
  }

  async #compare(step: GuavaStep): Promise<Comparison> {
    const { permits, timeout, permitsPerSecond } = step.args
    switch (step.op) {
      case 'acquire':
        return {
          ours: { waitUs: toUs((await this.#key.book(permits)).waitMs) },
          theirs: { waitUs: step.result },
        }
      case 'tryAcquire': {
        // A negative timeout means no waiting there and is an error here.
        const { allowed, waitMs } = await this.#key.book(permits, Math.max(timeout, 0) / 1000)
        return {
          ours: { allowed, waitUs: allowed ? toUs(waitMs) : 0 },
          theirs: { allowed: step.result, waitUs: step.wait },
        }
      }
      case 'setRate':
        await this.#key.update(algorithmOf({ ...this.#config, permitsPerSecond }))
        return { ours: {}, theirs: {} }
      case 'getRate': {
        const theirs = step.result as number
        return {
          ours: { rate: near(this.#key.ratePerMs * 1000, theirs, theirs * 1e-9) },
          theirs: { rate: theirs },
        }
      }
      default:
        throw unknownOp(step)
    }
  }
}

function algorithmOf(config: GuavaConfig): Algorithm {
  if (config.permitsPerSecond === Infinity) return unlimited()
  const rate = wholeRate(config.permitsPerSecond)
  return config.type === 'bursty'
    ? smoothBursty({ ...rate, maxBurst: config.maxBurstSeconds * 1000 })
    : smoothWarmingUp({ ...rate, warmup: config.warmupPeriodMicros / 1000, coldFactor: config.coldFactor })
}

function toUs(ms: number): number {
  return Math.round(ms * 1000)
}
