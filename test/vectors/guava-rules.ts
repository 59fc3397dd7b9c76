import { smoothBursty, smoothWarmingUp, unlimited } from '@sluice/core'
import { expect } from 'vitest'
import { OneKey } from './one-key.js'
import { atOnce, isError, NEVER, type Past, type Rule } from './rules.js'
import type { Step } from './traces.js'

interface GuavaStep extends Step {
  readonly args: { readonly permits?: number; readonly permitsPerSecond?: number }
  readonly after: { readonly storedPermits: number; readonly nextFreeTicketMicros: number }
}

/** Whether the rate of the case was infinite and is finite now. */
function wasInfinite({ config, steps }: Past<GuavaStep>): boolean {
  const first = (config as { readonly permitsPerSecond: number }).permitsPerSecond
  const rates = [first, ...steps.flatMap(({ args: { permitsPerSecond } }) => permitsPerSecond ?? [])]
  return rates.at(-1) !== Infinity && rates.includes(Infinity)
}

const RULES: readonly Rule<GuavaStep>[] = [
  {
    reason:
      'after an infinite rate all permits are stored there; here a finite rate starts with no stored permits',
    shows: (_, past) => wasInfinite(past) && (past.last?.after.storedPermits ?? 0) > 0,
    // A cost above the stored permits leaves a debt in the original, but not here.
    agreesAgain: ({ t }, { last }) => last?.after.storedPermits === 0 && last.after.nextFreeTicketMicros <= t,
    copiedOnRedis: true,
    instead() {
      const key = new OneKey(unlimited())
      expect(key.book(1_000_000).waitMs).toBe(0)
      key.at(4000).update(smoothBursty({ limit: 4, window: '1s' }))
      expect([key.book(4).waitMs, key.book().waitMs, key.book().waitMs]).toEqual([0, 1000, 1250])
    },
  },
  {
    reason: 'a cost of 0 is an error there; here it is granted and changes nothing',
    shows: step => step.args.permits === 0 && isError(step),
    agreesAgain: atOnce,
    instead() {
      const key = new OneKey(smoothBursty({ limit: 5, window: '1s' }))
      key.book()
      const before = key.now.toJSON()
      expect(key.book(0)).toMatchObject({ allowed: true, waitMs: 0 })
      expect(key.book(0, 0)).toMatchObject({ allowed: true, waitMs: 0 })
      expect(key.now.toJSON()).toEqual(before)
      expect(() => key.book(-1)).toThrow(RangeError)
    },
  },
  {
    reason: 'a rate of 0 is an error there; here a limit of 0 refuses everything',
    shows: step => step.args.permitsPerSecond === 0 && isError(step),
    agreesAgain: atOnce,
    instead() {
      const key = new OneKey(smoothBursty({ limit: 5, window: '1s' }))
      key.update(smoothBursty({ limit: 0, window: '1s' }))
      expect(key.at(60_000).book()).toMatchObject(NEVER)
    },
  },
  {
    reason: 'quirk: without a warm-up the stored permits become NaN and limit nothing; here none are stored',
    shows: ({ after }) => Number.isNaN(after.storedPermits),
    instead() {
      const key = new OneKey(smoothWarmingUp({ limit: 5, window: '1s', warmup: 0 }))
      expect([key.book().waitMs, key.book().waitMs]).toEqual([0, 200])
      key.at(5000)
      expect([key.book().waitMs, key.book(100).waitMs, key.book().waitMs]).toEqual([0, 200, 20_200])
      expect(key.book(1, 0).allowed).toBe(false)
    },
  },
]

export const GUAVA_RULES = RULES as readonly Rule[]
