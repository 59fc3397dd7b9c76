import { slidingLog } from '@sluice/core'
import { OneKey } from './one-key.js'
import { type Comparison, type Replica, type System, unknownOp } from './replay.js'
import type { Case, Step } from './traces.js'

/** RRateLimiter of Redisson, where all clients share one rate that nobody changes and nobody waits. */
export const redisson: System = {
  prefix: 'redisson',
  begin: () => new Redisson(),
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
  return setsRate && !('keepAliveTime' in first.args) && others.every(asks)
}

function asks({ op, args }: Step): boolean {
  return op === 'availablePermits' || (op === 'tryAcquire' && !('timeout' in args))
}

class Redisson implements Replica {
  #key: OneKey | undefined

  play(step: RedissonStep): Comparison {
    const { rate, rateInterval, permits } = step.args
    this.#key?.at(step.t)
    switch (step.op) {
      case 'trySetRate':
        this.#key = new OneKey(slidingLog({ limit: rate, window: rateInterval }))
        return { ours: {}, theirs: {} }
      case 'tryAcquire':
        return { ours: { allowed: this.#take(permits) }, theirs: { allowed: step.result } }
      case 'availablePermits':
        return { ours: { permits: this.#key?.now.remaining }, theirs: { permits: step.result } }
      default:
        throw unknownOp(step)
    }
  }

  /** An ask above the rate is an error there and a refusal for ever here. */
  #take(permits: number): boolean | undefined {
    const decision = this.#key?.take(permits)
    if (decision?.waitMs === Infinity) throw new RangeError('permits exceed rate')
    return decision?.allowed
  }
}
