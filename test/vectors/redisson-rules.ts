import { slidingLog } from '@sluice/core'
import { expect } from 'vitest'
import { OneKey } from './one-key.js'
import type { Rule } from './rules.js'
import type { Step } from './traces.js'

interface RedissonStep extends Step {
  readonly args: {
    readonly permits?: number
    readonly timeout?: number
    readonly rate?: number
    readonly keepState?: boolean
  }
  readonly after: {
    readonly overall?: { readonly permits: readonly (readonly [at: number, permits: number])[] }
  }
}

/** The permits that the original still records after a step. */
function recorded({ after }: RedissonStep): number {
  return (after.overall?.permits ?? []).reduce((sum, [, permits]) => sum + permits, 0)
}

const RULES: readonly Rule<RedissonStep>[] = [
  {
    reason: 'quirk: a negative cost grants permits above the rate; here it throws and changes nothing',
    shows: ({ args, result }) => (args.permits ?? 0) < 0 && result === true,
    instead() {
      const key = new OneKey(slidingLog({ limit: 3, window: '1s' }))
      key.take(3)
      expect(() => key.take(-1)).toThrow(RangeError)
      expect(key.take().allowed).toBe(false)
      expect(key.at(1000).now.remaining).toBe(3)
    },
  },
  {
    reason: 'quirk: a timeout of -1 waits for ever; here a negative wait is rejected and takes nothing',
    shows: ({ args }) => args.timeout === -1,
    async instead() {
      const key = new OneKey(slidingLog({ limit: 2, window: '300ms' }))
      key.take(1)
      await expect(key.acquire(1, -1)).rejects.toThrow(RangeError)
      expect(key.now.remaining).toBe(1)
    },
  },
  {
    reason:
      'quirk: released permits come back a second time at the end of their window, even above the rate; here they are removed from the log',
    shows: ({ op }) => op === 'release',
    instead() {
      const key = new OneKey(slidingLog({ limit: 5, window: '1s' }))
      key.take(3)
      expect(key.release(3)).toBe(3)
      expect(key.at(500).take(5).allowed).toBe(true)
      expect(key.at(1000).now.remaining).toBe(0)
      expect(key.take().allowed).toBe(false)
      expect(key.at(1500).now.remaining).toBe(5)
      expect([key.take(4).allowed, key.release(4)]).toEqual([true, 4])
      expect(key.at(2500).now.remaining).toBe(5)
      expect([key.take(5).allowed, key.take(4).allowed]).toEqual([true, false])
    },
  },
  {
    reason:
      'quirk: a lower rate drops the used permits above it; here every grant counts until its window ends',
    shows: step => step.args.keepState === true && recorded(step) > (step.args.rate ?? 0),
    instead() {
      const key = new OneKey(slidingLog({ limit: 10, window: '1s' }))
      key.take(1)
      key.at(500).take(4)
      key.at(600).update(slidingLog({ limit: 2, window: '1s' }))
      expect(key.now).toMatchObject({ remaining: 0, balance: -3 })
      expect(key.at(1000).take().allowed).toBe(false)
      expect(key.at(1500).now.remaining).toBe(2)
    },
  },
]

export const REDISSON_RULES = RULES as readonly Rule[]
