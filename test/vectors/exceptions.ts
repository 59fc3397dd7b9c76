import { cycle, slidingLog, smoothBursty, smoothWarmingUp, tokenBucket, unlimited } from '@sluice/core'
import { expect } from 'vitest'
import { OneKey } from './one-key.js'
import type { System } from './replay.js'
import type { Case, Trace } from './traces.js'

/** Steps that we do not copy. */
export interface Exception {
  /** What the `system` of its trace begins with. */
  readonly system: string
  readonly case: string
  /** By number, from 0; all of them where it is missing. Those that depend on a fault belong to it. */
  readonly steps?: readonly number[]
  readonly reason: string
  /** What we do instead. Times are milliseconds. */
  readonly instead: () => void | Promise<void>
}

const REFUSED_FOR_EVER = { allowed: false, waitMs: Infinity, retryAfterMs: Infinity }

export const EXCEPTIONS: readonly Exception[] = [
  {
    system: 'guava-bursty',
    case: 'infinite-rate',
    steps: [4, 5, 13],
    reason:
      'after an infinite rate the store is full there; here a finite rate starts afresh, with nothing stored',
    instead() {
      const key = new OneKey(unlimited())
      expect(key.book(1_000_000).waitMs).toBe(0)
      key.at(4000).update(smoothBursty({ limit: 4, window: '1s' }))
      expect([key.book(4).waitMs, key.book().waitMs, key.book().waitMs]).toEqual([0, 1000, 1250])
    },
  },
  {
    system: 'guava-bursty',
    case: 'invalid-arguments',
    steps: [0, 2, 4],
    reason:
      'an ask of 0 is an error there; here it passes and changes nothing, and a limit of 0 refuses everything',
    instead() {
      const key = new OneKey(smoothBursty({ limit: 5, window: '1s' }))
      key.book()
      const before = key.now.toJSON()
      expect(key.book(0)).toMatchObject({ allowed: true, waitMs: 0 })
      expect(key.book(0, 0)).toMatchObject({ allowed: true, waitMs: 0 })
      expect(key.now.toJSON()).toEqual(before)
      expect(() => key.book(-1)).toThrow(RangeError)
      key.update(smoothBursty({ limit: 0, window: '1s' }))
      expect(key.at(60_000).book()).toMatchObject(REFUSED_FOR_EVER)
    },
  },
  {
    system: 'guava-warmup',
    case: 'zero-warmup',
    steps: [3, 4, 5, 6],
    reason:
      'quirk: without a warm-up the stored permits become NaN, and nothing is limited any more; here none are stored',
    instead() {
      const key = new OneKey(smoothWarmingUp({ limit: 5, window: '1s', warmup: 0 }))
      expect([key.book().waitMs, key.book().waitMs]).toEqual([0, 200])
      key.at(5000)
      expect([key.book().waitMs, key.book(100).waitMs, key.book().waitMs]).toEqual([0, 200, 20_200])
      expect(key.book(1, 0).allowed).toBe(false)
    },
  },
  {
    system: 'resilience4j',
    case: 'drain-forgives-debt',
    steps: [3, 4, 5, 6, 7, 8],
    reason:
      'quirk: a drain forgives what is booked ahead; here it takes what is there, and leaves a debt alone',
    instead() {
      const key = new OneKey(cycle({ limit: 5, period: '1s' }))
      key.book(12)
      expect(key.drain()).toBe(0)
      expect(key.now.balance).toBe(-7)
      expect(key.book().waitMs).toBe(2000)
    },
  },
  {
    system: 'resilience4j',
    case: 'drain-after-cycle-change-drains-stale-amount',
    steps: [1, 2, 3, 4, 6, 7, 8],
    reason:
      'quirk: in a new cycle a drain takes only what was left of the one before; here it takes all that is there',
    instead() {
      const key = new OneKey(cycle({ limit: 5, period: '1s' }))
      key.take(3)
      expect(key.at(1000).drain()).toBe(5)
      expect(key.now).toMatchObject({ balance: 0, waitMs: 1000 })
    },
  },
  {
    system: 'resilience4j',
    case: 'drained-event-count-is-never-positive',
    steps: [3],
    reason:
      'quirk: a drain in a new cycle takes what was left before, and its event never tells how much; ours is counted',
    instead() {
      const key = new OneKey(cycle({ limit: 9, period: '1s' }))
      expect(key.drain()).toBe(9)
      key.at(1000).take(4)
      expect([key.drain(), key.drain()]).toEqual([5, 0])
      expect(key.at(2000).drain()).toBe(9)
    },
  },
  {
    system: 'resilience4j',
    case: 'zero-and-negative-permits',
    steps: [3, 4, 5, 6, 7, 8],
    reason: 'quirk: a negative ask hands out permits above the limit; here it throws and changes nothing',
    instead() {
      const key = new OneKey(cycle({ limit: 3, period: '1s' }))
      key.take(3)
      expect(() => key.book(-2)).toThrow(RangeError)
      expect(() => key.take(-10)).toThrow(RangeError)
      expect(key.now.balance).toBe(0)
    },
  },
  {
    system: 'resilience4j',
    case: 'zero-permits-with-debt',
    steps: [2],
    reason: 'quirk: an ask of 0 waits while permits are owed; here it passes at once',
    instead() {
      const key = new OneKey(cycle({ limit: 2, period: '1s' }))
      key.book(5)
      expect(key.book(0, 0)).toMatchObject({ allowed: true, waitMs: 0 })
      expect(key.now.balance).toBe(-3)
    },
  },
  {
    system: 'resilience4j',
    case: 'changeLimitForPeriod-applies-next-cycle',
    steps: [12],
    reason: 'a limit of 0 is an error there; here it refuses everything until there is another limit',
    instead() {
      const key = new OneKey(cycle({ limit: 3, period: '1s' }))
      key.update(cycle({ limit: 0, period: '1s' }))
      expect(key.book()).toMatchObject(REFUSED_FOR_EVER)
      key.update(cycle({ limit: 1, period: '1s' }))
      expect(key.at(1000).take().allowed).toBe(true)
    },
  },
  {
    system: 'golang.org/x/time/rate',
    case: 'cancel-twice',
    steps: [3, 4],
    reason: 'quirk: a second cancel gives back again; here it gives back nothing',
    instead() {
      const key = new OneKey(tokenBucket({ limit: 10, window: '1s', burst: 3 }))
      key.book(3)
      const booking = key.book(2)
      expect([booking.cancel(), booking.cancel()]).toEqual([2, 0])
      expect(key.now.balance).toBe(0)
    },
  },
  {
    system: 'golang.org/x/time/rate',
    case: 'zero-rate',
    steps: [0, 4, 5, 6],
    reason:
      'a rate of 0 spends the burst there; here it refuses everything, and keeps a bucket that was in use as it was',
    instead() {
      const open = tokenBucket({ limit: 10, window: '1s', burst: 1 })
      const closed = tokenBucket({ limit: 0, window: '1s', burst: 1 })
      expect(new OneKey(closed).book()).toMatchObject(REFUSED_FOR_EVER)
      const key = new OneKey(open)
      expect(key.take().allowed).toBe(true)
      expect(key.update(closed).at(200_000).book()).toMatchObject(REFUSED_FOR_EVER)
      key.update(open)
      expect([key.take().allowed, key.book().waitMs]).toEqual([false, 100])
    },
  },
  {
    system: 'golang.org/x/time/rate',
    case: 'tiny-rate',
    reason: 'a permit every 317 years is more than the clock can tell; here a window is at most 200 years',
    instead() {
      expect(() => tokenBucket({ limit: 1, window: 1e13, burst: 1 })).toThrow(RangeError)
    },
  },
  {
    system: 'golang.org/x/time/rate',
    case: 'cancel-over-refund',
    steps: [5, 6],
    reason: 'quirk: a cancel can give back more than was taken; here never more',
    instead() {
      const key = new OneKey(tokenBucket({ limit: 10, window: '1s', burst: 4 }))
      key.book(4)
      const second = key.book(4)
      const third = key.book()
      expect(second.cancel()).toBe(3)
      expect(key.book().waitMs).toBe(300)
      expect(third.cancel()).toBeLessThanOrEqual(1)
      expect(key.now.balance).toBeLessThanOrEqual(-2)
    },
  },
  {
    system: 'golang.org/x/time/rate',
    case: 'unreachable-reserve',
    reason:
      'quirk: what can never be had is booked for the end of time; here it is refused and takes nothing',
    instead() {
      const open = tokenBucket({ limit: 10, window: '1s', burst: 1 })
      const key = new OneKey(open)
      key.take()
      key.update(tokenBucket({ limit: 0, window: '1s', burst: 1 }))
      expect(key.book()).toMatchObject(REFUSED_FOR_EVER)
      expect(key.update(open).now.balance).toBe(0)
    },
  },
  {
    system: 'golang.org/x/time/rate',
    case: 'one-nanosecond-early',
    steps: [4, 5, 6],
    reason: 'quirk: a token is given up to a nanosecond before it is due; here never before its time',
    instead() {
      const key = new OneKey(tokenBucket({ limit: 10, window: '1s', burst: 3 }))
      key.take(3)
      expect(key.at(99.999).take()).toMatchObject({ allowed: false, waitMs: 0.001 })
      expect(key.at(100).take().allowed).toBe(true)
    },
  },
  {
    system: 'golang.org/x/time/rate',
    case: 'time-backwards',
    steps: [2, 3, 4, 5],
    reason: 'quirk: when time goes back the same interval is credited twice; here going back earns nothing',
    instead() {
      const key = new OneKey(tokenBucket({ limit: 10, window: '1s', burst: 3 })).at(1000)
      key.book(3)
      expect(key.at(800).book().waitMs).toBe(300)
      expect(key.at(1000).now.balance).toBe(-1)
      expect(key.at(1200).now.balance).toBe(1)
    },
  },
  {
    system: 'redisson',
    case: 'zero-and-negative-permits',
    steps: [4, 5, 6],
    reason: 'quirk: a negative ask hands out permits above the rate; here it throws and changes nothing',
    instead() {
      const key = new OneKey(slidingLog({ limit: 3, window: '1s' }))
      key.take(3)
      expect(() => key.take(-1)).toThrow(RangeError)
      expect(key.take().allowed).toBe(false)
      expect(key.at(1000).now.remaining).toBe(3)
    },
  },
  {
    system: 'redisson',
    case: 'timeout-negative',
    reason: 'quirk: a timeout of -1 waits for ever; here a negative wait is rejected and takes nothing',
    async instead() {
      const key = new OneKey(slidingLog({ limit: 2, window: '300ms' }))
      key.take(1)
      await expect(key.acquire(1, -1)).rejects.toThrow(RangeError)
      expect(key.now.remaining).toBe(1)
    },
  },
  {
    system: 'redisson',
    case: 'release-is-credited-twice',
    reason: 'quirk: what is released comes back again with the end of its window; here it leaves the log',
    instead() {
      const key = new OneKey(slidingLog({ limit: 5, window: '1s' }))
      key.take(3)
      expect(key.release(3)).toBe(3)
      expect(key.at(500).take(5).allowed).toBe(true)
      expect(key.at(1000).now.remaining).toBe(0)
      expect(key.take().allowed).toBe(false)
      expect(key.at(1500).now.remaining).toBe(5)
    },
  },
  {
    system: 'redisson',
    case: 'availablePermits-can-exceed-rate-after-release',
    reason: 'quirk: more permits than the rate are there after a release; here never more than the limit',
    instead() {
      const key = new OneKey(slidingLog({ limit: 5, window: '1s' }))
      key.take(4)
      expect(key.release(4)).toBe(4)
      expect(key.at(1000).now.remaining).toBe(5)
      expect([key.take(5).allowed, key.take(4).allowed]).toEqual([true, false])
    },
  },
  {
    system: 'redisson',
    case: 'keepState-lower-below-used',
    reason:
      'quirk: a lower rate forgets what was used above it; here every grant counts until its window ends',
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

/** The steps of a case that are not copied, and why. */
export function leftOut(
  trace: Trace,
  system: System,
  recorded: Case,
): { readonly steps: readonly number[]; readonly reason: string | undefined } {
  const exception = exceptionOf(trace, recorded)
  const reason = exception?.reason ?? system.leavesOut?.(recorded)
  if (reason === undefined) return { steps: [], reason }
  return { steps: exception?.steps ?? [...recorded.steps.keys()], reason }
}

export function exceptionOf(trace: Trace, { name }: Case): Exception | undefined {
  return EXCEPTIONS.find(exception => exception.case === name && trace.system.startsWith(exception.system))
}
