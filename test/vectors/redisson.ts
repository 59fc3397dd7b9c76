import { slidingLog } from '@sluice/core'
import type { Key, OpenKey } from './one-key.js'
import { REDISSON_RULES } from './redisson-rules.js'
import { type Comparison, type Replica, type System, unknownOp } from './replay.js'
import type { Case, Step } from './traces.js'

/** RRateLimiter of Redisson, with one rate for all clients, no changes of the rate and no waiting. */
export const redisson: System = {
  prefix: 'redisson',
  rules: REDISSON_RULES,
  begin: (_, open: OpenKey) => new Redisson(open),
  leavesOut: recorded => (isReplayable(recorded) ? undefined : 'belongs to the shared-configuration work'),
}

interface RedissonStep extends Step {
  readonly args: {
    readonly type: string
    readonly rate: number
    readonly rateInterval: number
    readonly permits: number
  }
}

function isReplayable({ steps }: Case): boolean {
  const [first, ...others] = steps as readonly RedissonStep[]
  const setsRate = first?.op === 'trySetRate' && first.args.type === 'OVERALL' && first.result === true
  return setsRate && !('keepAliveTime' in first.args) && others.every(isSupported)
}

function isSupported({ op, args }: Step): boolean {
  return op === 'availablePermits' || (op === 'tryAcquire' && !('timeout' in args))
}

class Redisson implements Replica {
  readonly #open: OpenKey
  #key: Key | undefined

  constructor(open: OpenKey) {
    this.#open = open
  }

  async play(step: RedissonStep): Promise<Comparison> {
    const { rate, rateInterval, permits } = step.args
    await this.#key?.at(step.t)
    switch (step.op) {
      case 'trySetRate':
        this.#key = await this.#open(slidingLog({ limit: rate, window: rateInterval }))
        return { ours: {}, theirs: {} }
      case 'tryAcquire':
        return { ours: { allowed: await this.#take(permits) }, theirs: { allowed: step.result } }
      case 'availablePermits':
        return { ours: { permits: (await this.#key?.now)?.remaining }, theirs: { permits: step.result } }
      default:
        throw unknownOp(step)
    }
  }

  /** A cost above the rate is an error there. Here it is refused for ever. */
  async #take(permits: number): Promise<boolean | undefined> {
    const decision = await this.#key?.take(permits)
    if (decision?.waitMs === Infinity) throw new RangeError('permits exceed rate')
    return decision?.allowed
  }
}
