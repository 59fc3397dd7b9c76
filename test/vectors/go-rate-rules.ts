import { tokenBucket } from '@sluice/core'
import { expect } from 'vitest'
import { OneKey } from './one-key.js'
import { NEVER, type Past, type Rule } from './rules.js'
import type { Step } from './traces.js'

interface GoConfig {
  readonly burst: number
  readonly limitPerSec: number
}

interface GoStep extends Step {
  readonly args: Partial<GoConfig> & { readonly n?: number; readonly id?: string }
  readonly result: boolean | number | { readonly ok?: boolean; readonly tokensAfter?: number }
}

const SECOND_NS = 1e9
/** Our longest window is 200 years. A nanosecond of the original is a microsecond here. */
const LONGEST_INTERVAL_NS = 200 * 365.25 * 86_400 * 1e6

const isGranted = ({ op, result }: GoStep): boolean =>
  op === 'allow' ? result === true : op === 'reserve' && (result as { ok: boolean }).ok

const isRefused = (step: GoStep): boolean => ['allow', 'reserve'].includes(step.op) && !isGranted(step)

const isClosed = (past: Past<GoStep>): boolean => configAt(past).limitPerSec === 0

function configAt({ config, steps }: Past<GoStep>): GoConfig {
  return steps.reduce<GoConfig>((before, { args: { burst, limitPerSec } }) => {
    return { burst: burst ?? before.burst, limitPerSec: limitPerSec ?? before.limitPerSec }
  }, config as GoConfig)
}

/** The tokens right before a step at `t`, as counted by the original. */
function tokensAt(t: number, past: Past<GoStep>): number {
  let tokens = (past.config as GoConfig).burst
  let sinceNs = 0
  const passTo = (ns: number, index: number) => {
    const { burst, limitPerSec } = configAt({ ...past, steps: past.steps.slice(0, index) })
    tokens = Math.min(burst, tokens + (Math.max(ns - sinceNs, 0) / SECOND_NS) * limitPerSec)
    sinceNs = ns
  }
  for (const [index, step] of past.steps.entries()) {
    passTo(step.t, index)
    if (isGranted(step)) tokens -= step.args.n ?? 0
    const { tokensAfter } = Object(step.result) as { readonly tokensAfter?: number }
    if (tokensAfter !== undefined) tokens = tokensAfter
  }
  passTo(t, past.steps.length)
  return tokens
}

/** The permits of a reservation before a step: its cost less what its cancels have returned. */
function heldBy(id: string | undefined, past: Past<GoStep>): number {
  const own = past.steps.filter(({ args }) => args.id === id)
  const taken = own.find(({ op }) => op === 'reserve')?.args.n ?? 0
  return own.some(({ op }) => op === 'cancel') ? 0 : taken
}

const RULES: readonly Rule<GoStep>[] = [
  {
    reason:
      'quirk: a cancel can return more permits than its reservation has left; here it returns at most those, once',
    shows(step, past) {
      if (step.op !== 'cancel') return false
      const { tokensAfter = 0 } = step.result as { readonly tokensAfter?: number }
      return tokensAfter - tokensAt(step.t, past) > heldBy(step.args.id, past) + 1e-6
    },
    instead() {
      const key = new OneKey(tokenBucket({ limit: 10, window: '1s', burst: 4 }))
      key.book(4)
      const second = key.book(4)
      const third = key.book()
      expect([second.cancel(), second.cancel()]).toEqual([3, 0])
      expect(key.book().waitMs).toBe(300)
      expect(third.cancel()).toBeLessThanOrEqual(1)
      expect(key.now.balance).toBeLessThanOrEqual(-2)
    },
  },
  {
    reason:
      'a rate of 0 spends the burst there, or books at the largest time; here it refuses everything and keeps the bucket of a used key',
    shows: (step, past) => isClosed(past) && (step.op === 'setLimit' || isGranted(step)),
    // Both refuse while the rate is 0; what is left afterwards is not the same.
    agreesAgain: (step, past) => isClosed(past) && isRefused(step),
    instead() {
      const open = tokenBucket({ limit: 10, window: '1s', burst: 1 })
      const closed = tokenBucket({ limit: 0, window: '1s', burst: 1 })
      expect(new OneKey(closed).book()).toMatchObject(NEVER)
      const key = new OneKey(open)
      expect(key.take().allowed).toBe(true)
      expect(key.update(closed).at(200_000).book()).toMatchObject(NEVER)
      key.update(open)
      expect(key.now.balance).toBe(0)
      expect([key.take().allowed, key.book().waitMs]).toEqual([false, 100])
    },
  },
  {
    reason: 'one permit may take centuries there; here a window is at most 200 years',
    shows(_, past) {
      const { limitPerSec } = configAt(past)
      return limitPerSec > 0 && SECOND_NS / limitPerSec > LONGEST_INTERVAL_NS
    },
    instead() {
      expect(() => tokenBucket({ limit: 1, window: 1e13, burst: 1 })).toThrow(RangeError)
    },
  },
  {
    reason: 'quirk: a token is granted up to a nanosecond too early; here never too early',
    shows(step, past) {
      const { limitPerSec } = configAt(past)
      const missing = (step.args.n ?? 0) - tokensAt(step.t, past)
      return (
        step.op === 'allow' &&
        isGranted(step) &&
        missing > 0 &&
        (missing / limitPerSec) * SECOND_NS <= 1 + 1e-3
      )
    },
    instead() {
      const key = new OneKey(tokenBucket({ limit: 10, window: '1s', burst: 3 }))
      key.take(3)
      expect(key.at(99.999).take()).toMatchObject({ allowed: false, waitMs: 0.001 })
      expect(key.at(100).take().allowed).toBe(true)
    },
  },
  {
    reason:
      'quirk: when the clock goes back the same interval is refilled twice; here a clock that goes back refills nothing',
    shows: (step, { steps }) => isGranted(step) && steps.some(({ t }) => t > step.t),
    instead() {
      const key = new OneKey(tokenBucket({ limit: 10, window: '1s', burst: 3 })).at(1000)
      key.book(3)
      expect(key.at(800).book().waitMs).toBe(300)
      expect(key.at(1000).now.balance).toBe(-1)
      expect(key.at(1200).now.balance).toBe(1)
    },
  },
]

export const GO_RATE_RULES = RULES as readonly Rule[]
