import { type Algorithm, cycle, parseDuration } from '@sluice/core'
import type { Key, OpenKey } from './one-key.js'
import { type Comparison, type Replica, type System, unknownOp } from './replay.js'
import { RESILIENCE4J_RULES } from './resilience4j-rules.js'
import type { Step } from './traces.js'

/** AtomicRateLimiter of Resilience4j. A nanosecond of the original is a microsecond here, so nothing is rounded. */
export const resilience4j: System = {
  prefix: 'resilience4j',
  rules: RESILIENCE4J_RULES,
  begin: async (config: Resilience4jConfig, open: OpenKey) =>
    new Resilience4j(config, await open(algorithmOf(config), toMs(config.startNanos ?? 0))),
}

interface Resilience4jConfig {
  readonly limitForPeriod: number
  readonly limitRefreshPeriod: number
  readonly timeoutDuration: number
  readonly startNanos?: number
  /** `error`, or `result==` and a value. */
  readonly drainPermissionsOnResult?: string
}

interface Resilience4jStep extends Step {
  readonly args: Resilience4jConfig & { readonly permits: number; readonly value: string }
  readonly waited: number
  readonly after: Metrics
}

interface Metrics {
  readonly availablePermissions: number
  readonly nanosToWaitForOne: number
}

const LONG_AFTER_MS = 1e9

class Resilience4j implements Replica {
  readonly #config: Resilience4jConfig
  readonly #startMs: number
  readonly #key: Key
  #maxWait: number

  constructor(config: Resilience4jConfig, key: Key) {
    this.#config = config
    this.#startMs = toMs(config.startNanos ?? 0)
    this.#key = key
    this.#maxWait = toMs(config.timeoutDuration)
  }

  async play(step: Resilience4jStep): Promise<Comparison> {
    await this.#key.at(toMs(step.t) - this.#startMs)
    const { ours, theirs } = await this.#compare(step)
    return { ours: { ...ours, ...(await this.#metrics()) }, theirs: { ...theirs, ...metricsOf(step.after) } }
  }

  finish(): unknown {
    return this.#key.at(LONG_AFTER_MS)
  }

  async #metrics(): Promise<Metrics> {
    const { balance, waitMs } = await this.#key.now
    return { availablePermissions: balance, nanosToWaitForOne: toNanos(waitMs) }
  }

  async #compare(step: Resilience4jStep): Promise<Comparison> {
    const { permits, limitForPeriod, timeoutDuration, value } = step.args
    switch (step.op) {
      case 'reserve': {
        const { allowed, waitMs } = await this.#key.book(permits, this.#maxWait)
        return { ours: { wait: allowed ? toNanos(waitMs) : -1 }, theirs: { wait: step.result } }
      }
      case 'acquire': {
        const waited = this.#key.acquire(permits, this.#maxWait).then(ms => ms !== undefined && toNanos(ms))
        return { ours: { waited }, theirs: { waited: step.result && step.waited } }
      }
      case 'metrics':
        return {
          ours: { measured: await this.#metrics() },
          theirs: { measured: metricsOf(step.result as Metrics) },
        }
      case 'drain':
        return this.#drainIf(true)
      case 'onError':
        return this.#drainIf(this.#config.drainPermissionsOnResult === 'error')
      case 'onResult':
        return this.#drainIf(this.#config.drainPermissionsOnResult === `result==${value}`)
      case 'onSuccess':
        return this.#drainIf(false)
      case 'changeLimitForPeriod':
        await this.#key.update(algorithmOf({ ...this.#config, limitForPeriod }))
        return { ours: {}, theirs: {} }
      case 'changeTimeoutDuration':
        this.#maxWait = parseDuration(toMs(timeoutDuration))
        return { ours: {}, theirs: {} }
      default:
        throw unknownOp(step)
    }
  }

  async #drainIf(overloaded: boolean): Promise<Comparison> {
    if (overloaded) await this.#key.drain()
    return { ours: {}, theirs: {} }
  }
}

function algorithmOf({ limitForPeriod, limitRefreshPeriod, startNanos = 0 }: Resilience4jConfig): Algorithm {
  return cycle({ limit: limitForPeriod, period: toMs(limitRefreshPeriod), origin: toMs(startNanos) })
}

function metricsOf({ availablePermissions, nanosToWaitForOne }: Metrics): Metrics {
  return { availablePermissions, nanosToWaitForOne }
}

function toMs(nanos: number): number {
  return nanos / 1000
}

function toNanos(ms: number): number {
  return Math.round(ms * 1000)
}
