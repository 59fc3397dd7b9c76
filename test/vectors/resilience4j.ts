import { type Algorithm, cycle, parseDuration } from '@sluice/core'
import { OneKey } from './one-key.js'
import { type Comparison, type Replica, type System, unknownOp } from './replay.js'
import type { Step } from './traces.js'

/** AtomicRateLimiter of Resilience4j. One of its nanoseconds is one of our microseconds, so that nothing is rounded. */
export const resilience4j: System = {
  prefix: 'resilience4j',
  begin: (config: Resilience4jConfig) => new Resilience4j(config),
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
  readonly #key: OneKey
  #maxWait: number

  constructor(config: Resilience4jConfig) {
    this.#config = config
    this.#startMs = toMs(config.startNanos ?? 0)
    this.#key = new OneKey(algorithmOf(config), this.#startMs)
    this.#maxWait = toMs(config.timeoutDuration)
  }

  play(step: Resilience4jStep): Comparison {
    this.#key.at(toMs(step.t) - this.#startMs)
    const { ours, theirs } = this.#compare(step)
    return { ours: { ...ours, ...this.#metrics }, theirs: { ...theirs, ...metricsOf(step.after) } }
  }

  finish(): void {
    this.#key.at(LONG_AFTER_MS)
  }

  get #metrics(): Metrics {
    const { balance, waitMs } = this.#key.now
    return { availablePermissions: balance, nanosToWaitForOne: toNanos(waitMs) }
  }

  #compare(step: Resilience4jStep): Comparison {
    const { permits, limitForPeriod, timeoutDuration, value } = step.args
    switch (step.op) {
      case 'reserve': {
        const { allowed, waitMs } = this.#key.book(permits, this.#maxWait)
        return { ours: { wait: allowed ? toNanos(waitMs) : -1 }, theirs: { wait: step.result } }
      }
      case 'acquire': {
        const waited = this.#key.acquire(permits, this.#maxWait).then(ms => ms !== undefined && toNanos(ms))
        return { ours: { waited }, theirs: { waited: step.result && step.waited } }
      }
      case 'metrics':
        return { ours: { measured: this.#metrics }, theirs: { measured: metricsOf(step.result as Metrics) } }
      case 'drain':
        return this.#drainIf(true)
      case 'onError':
        return this.#drainIf(this.#config.drainPermissionsOnResult === 'error')
      case 'onResult':
        return this.#drainIf(this.#config.drainPermissionsOnResult === `result==${value}`)
      case 'onSuccess':
        return this.#drainIf(false)
      case 'changeLimitForPeriod':
        this.#key.update(algorithmOf({ ...this.#config, limitForPeriod }))
        return { ours: {}, theirs: {} }
      case 'changeTimeoutDuration':
        this.#maxWait = parseDuration(toMs(timeoutDuration))
        return { ours: {}, theirs: {} }
      default:
        throw unknownOp(step)
    }
  }

  #drainIf(overloaded: boolean): Comparison {
    if (overloaded) this.#key.drain()
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
