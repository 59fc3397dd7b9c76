import { cycle } from '@sluice/core'
import { expect } from 'vitest'
import { OneKey } from './one-key.js'
import { atOnce, isError, NEVER, type Rule } from './rules.js'
import type { Step } from './traces.js'

interface Resilience4jStep extends Step {
  readonly args: { readonly permits?: number; readonly limitForPeriod?: number }
  readonly events: readonly { readonly type: string; readonly permits: number }[]
  readonly after: { readonly availablePermissions: number; readonly cycle: number }
}

const drains = ({ events }: Resilience4jStep): boolean => events.some(({ type }) => type === 'DRAINED')

const RULES: readonly Rule<Resilience4jStep>[] = [
  {
    reason: 'quirk: a drain clears a debt; here it takes the available permits and does not change a debt',
    shows: ({ events }) => events.some(({ type, permits }) => type === 'DRAINED' && permits < 0),
    instead() {
      const key = new OneKey(cycle({ limit: 5, period: '1s' }))
      key.book(12)
      expect(key.drain()).toBe(0)
      expect(key.now.balance).toBe(-7)
      expect(key.book().waitMs).toBe(2000)
    },
  },
  {
    reason:
      'quirk: in a new cycle a drain takes only what was left of the previous cycle; here it takes all available permits',
    shows: step => drains(step) && step.after.availablePermissions > 0,
    // The next cycle is full in both systems, unless there is a debt.
    agreesAgain: ({ after }, { last }) =>
      last !== undefined && after.cycle > last.after.cycle && last.after.availablePermissions >= 0,
    instead() {
      const key = new OneKey(cycle({ limit: 5, period: '1s' }))
      key.take(3)
      expect(key.at(1000).drain()).toBe(5)
      expect(key.now).toMatchObject({ balance: 0, waitMs: 1000 })
      key.at(2000).take(4)
      expect([key.drain(), key.drain()]).toEqual([1, 0])
      expect(key.at(3000).drain()).toBe(5)
    },
  },
  {
    reason: 'quirk: a negative cost grants permits above the limit; here it throws and changes nothing',
    shows: step => (step.args.permits ?? 0) < 0 && !isError(step),
    // The extra permits are used up again.
    agreesAgain: (_, { last }, since) =>
      last?.after.availablePermissions === since.last?.after.availablePermissions,
    instead() {
      const key = new OneKey(cycle({ limit: 3, period: '1s' }))
      key.take(3)
      expect(() => key.book(-2)).toThrow(RangeError)
      expect(() => key.take(-10)).toThrow(RangeError)
      expect(key.now.balance).toBe(0)
    },
  },
  {
    reason: 'quirk: a cost of 0 waits during a debt; here it is granted at once',
    shows: ({ args, after }) => args.permits === 0 && after.availablePermissions < 0,
    agreesAgain: atOnce,
    instead() {
      const key = new OneKey(cycle({ limit: 2, period: '1s' }))
      key.book(5)
      expect(key.book(0, 0)).toMatchObject({ allowed: true, waitMs: 0 })
      expect(key.now.balance).toBe(-3)
    },
  },
  {
    reason: 'a limit of 0 is an error there; here it refuses everything until the limit is updated',
    shows: step => step.args.limitForPeriod === 0 && isError(step),
    agreesAgain: atOnce,
    instead() {
      const key = new OneKey(cycle({ limit: 3, period: '1s' }))
      key.update(cycle({ limit: 0, period: '1s' }))
      expect(key.book()).toMatchObject(NEVER)
      key.update(cycle({ limit: 1, period: '1s' }))
      expect(key.at(1000).take().allowed).toBe(true)
    },
  },
]

export const RESILIENCE4J_RULES = RULES as readonly Rule[]
