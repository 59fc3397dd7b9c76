import {
  type Algorithm,
  type AsyncStore,
  combine,
  createLimiter,
  fixedWindow,
  type JointDecision,
  type Limiter,
  memoryStore,
  type SyncStore,
  slidingLog,
  tokenBucket,
  tryAcquireAll,
} from '@sluice/core'
import { guarded } from '@sluice/core/store'
import { type ManualClock, manualClock } from '@sluice/core/testing'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { ALGORITHMS, type LawfulAlgorithm } from '../support/algorithms.js'
import { asynchronous } from '../support/async-store.js'
import { checkWhere } from '../support/premise.js'
import { asks, cost, gapUs } from '../support/scripts.js'
import { settled } from './support.js'

/** An algorithm, and the most it may grant. */
interface Part {
  readonly algorithm: Algorithm
  readonly promise: LawfulAlgorithm['promise']
}

function partOf({ algorithm, promise }: LawfulAlgorithm): fc.Arbitrary<Part> {
  return algorithm.map(algorithm => ({ algorithm, promise }))
}

const anyPart = fc.oneof(...ALGORITHMS.map(partOf))
const countingPart = fc.oneof(...ALGORITHMS.filter(({ counts }) => counts).map(partOf))

describe.each(ALGORITHMS)('several limiters together, one of them a $name', lawful => {
  const parts = fc
    .tuple(partOf(lawful), fc.array(anyPart, { minLength: 1, maxLength: 2 }), fc.boolean())
    .map(([first, others, isLast]) => (isLast ? [...others, first] : [first, ...others]))

  test('grants if each limiter alone would, charging each its cost; a refusal charges none', () => {
    check(fc.tuple(parts, asks()), ([parts, script]) => {
      const clock = manualClock()
      const limiters = open(parts, clock)
      const alone = open(parts, clock)
      for (const { gapUs, cost } of script) {
        clock.advance(gapUs / 1000)
        const expected = alone.map(limiter => limiter.peek('key', { cost }))
        const { allowed, refusedBy, waitMs, retryAfterMs } = tryAcquireAll(asksOf(limiters, cost))
        const refused = expected.filter(({ allowed }) => !allowed)
        expect(allowed).toBe(refused.length === 0)
        expect(refusedBy).toEqual(namesOf(alone.filter((_, index) => !expected[index]?.allowed)))
        expect(waitMs).toBe(Math.max(0, ...refused.map(({ waitMs }) => waitMs)))
        expect(retryAfterMs).toBe(Math.max(0, ...refused.map(({ retryAfterMs }) => retryAfterMs)))
        if (allowed) for (const limiter of alone) limiter.tryAcquire('key', { cost })
        expect(looksOf(limiters)).toEqual(looksOf(alone))
      }
    })
  })

  test('refuses before retryAfter and grants at it, to the microsecond', () => {
    checkWhere(
      fc.tuple(parts, asks(), cost(), fc.boolean()),
      ([parts, script, cost, empties]) => {
        const clock = manualClock()
        const both = combine(...open(parts, clock))
        replay(both, clock, script)
        if (empties) both.drain('key')
        const { allowed, retryAfterMs } = both.peek('key', { cost })
        if (allowed || retryAfterMs === Infinity) return false
        clock.advance(retryAfterMs - 0.001)
        expect(both.tryAcquire('key', { cost }).allowed).toBe(false)
        clock.advance(0.001)
        expect(both.tryAcquire('key', { cost }).allowed).toBe(true)
        return true
      },
      { least: lawful.unreachable?.includes('later grant') && lawful.name !== 'unlimited' ? 0 : 0.2 },
    )
  })

  test('never grants more in any window than each limiter allows', () => {
    check(fc.tuple(parts, asks()), ([parts, script]) => {
      const clock = manualClock()
      const limiters = open(parts, clock)
      const grants: Grant[] = []
      for (const { gapUs, cost } of script) {
        clock.advance(gapUs / 1000)
        if (tryAcquireAll(asksOf(limiters, cost)).allowed) grants.push({ atUs: clock.nowUs(), cost })
      }
      for (const part of parts) expectWithinPromise(part, grants)
    })
  })

  test('a combination of one limiter decides like that limiter', () => {
    check(fc.tuple(partOf(lawful), asks()), ([part, script]) => {
      const clock = manualClock()
      const [combined, alone] = open([part, part], clock) as [Limiter<false>, Limiter<false>]
      const combination = combine(combined)
      for (const { gapUs, cost } of script) {
        clock.advance(gapUs / 1000)
        for (const verb of ['peek', 'tryAcquire'] as const) {
          const { refusedBy, ...figures } = (combination[verb]('key', { cost }) as JointDecision).toJSON()
          expect(figures).toEqual(alone[verb]('key', { cost }).toJSON())
          expect(refusedBy).toEqual(figures.allowed ? [] : [combined.name])
        }
      }
    })
  })

  test('adds up the costs of a limiter and key listed twice', () => {
    const pairs = fc.array(fc.record({ gapUs: gapUs(), first: cost(), second: cost() }))
    check(fc.tuple(partOf(lawful), pairs), ([part, script]) => {
      const clock = manualClock()
      const [limiter, alone] = open([part, part], clock) as [Limiter<false>, Limiter<false>]
      for (const { gapUs, first, second } of script) {
        clock.advance(gapUs / 1000)
        const { parts } = tryAcquireAll([
          { limiter, key: 'key', cost: first },
          { limiter, key: 'key', cost: second },
        ])
        const expected = alone.tryAcquire('key', { cost: first + second })
        expect(parts.map(({ cost, decision }) => [cost, decision.toJSON()])).toEqual([
          [first + second, expected.toJSON()],
        ])
      }
    })
  })

  test('gives back the permits taken if a full store refuses another part', () => {
    checkWhere(
      fc.tuple(partOf(lawful), asks(), fc.integer({ min: 1, max: 5 }), fc.boolean()),
      ([part, script, cost, rests]) => {
        const clock = manualClock()
        const [limiter] = open([part], clock) as [Limiter<false>]
        replay(limiter, clock, script)
        if (rests) clock.advance('1m')
        const before = limiter.peek('key', { cost })
        if (!before.allowed) return false
        // Each key has a slot when it is checked. After the first key is charged, the store has no slot for the second.
        const crowded = createLimiter(fixedWindow({ limit: 1, window: '1h' }), {
          name: 'crowded',
          store: memoryStore({ maxKeys: 1, onFull: 'refuse' }),
          clock,
        })
        const { allowed, refusedBy, code } = tryAcquireAll([
          { limiter, key: 'key', cost },
          { limiter: crowded, key: 'a' },
          { limiter: crowded, key: 'b' },
        ])
        expect({ allowed, refusedBy, code }).toEqual({
          allowed: false,
          refusedBy: ['crowded'],
          code: 'SLUICE_STORE_FULL',
        })
        const after = limiter.peek('key', { cost })
        expect(crowded.peek('a').allowed).toBe(true)
        if (before.balance === Infinity) return true
        // Smooth limiters truncate a cost to whole microseconds, and the same cost when it is given back.
        const [limit = 0, windowUs = 0] = part.algorithm.args
        const truncated = lawful.counts ? 1e-6 : (4 * limit) / windowUs
        expect(Math.abs(after.balance - before.balance)).toBeLessThanOrEqual(truncated)
        if (lawful.counts) expect([after.allowed, after.remaining]).toEqual([true, before.remaining])
        return true
      },
      { least: lawful.name === 'tokenBucket, closed' ? 0 : 0.2 },
    )
  })

  test('asynchronous and mixed stores decide like synchronous ones', async () => {
    const script = asks(10)
    await checkLater(fc.tuple(parts, script, fc.boolean()), async ([parts, script, isMixed]) => {
      const clock = manualClock()
      const synchronous = open(parts, clock)
      const [first, ...rest] = open(parts, clock, () => asynchronous(memoryStore()))
      const asked = isMixed
        ? [first as Limiter, ...open(parts.slice(1), clock, undefined, 1)]
        : [first as Limiter, ...rest]
      for (const { gapUs, cost } of script) {
        clock.advance(gapUs / 1000)
        const answer = tryAcquireAll(asksOf(asked, cost))
        expect(answer).toBeInstanceOf(Promise)
        expect((await answer).toJSON()).toEqual(tryAcquireAll(asksOf(synchronous, cost)).toJSON())
      }
    })
  })

  test('grants waiters in order, within the limit of every part, and leaves no timer or booking behind', async () => {
    const act = fc.record({ gapUs: gapUs(), cost: cost(), leaves: fc.boolean() })
    await checkLater(fc.tuple(parts, fc.array(act, { maxLength: 12 })), async ([parts, script]) => {
      const clock = manualClock()
      const limiters = open(parts, clock)
      const both = combine(...limiters)
      const grants: (Grant & { readonly number: number })[] = []
      const aborts: AbortController[] = []
      for (const [number, { gapUs, cost, leaves }] of script.entries()) {
        const abort = new AbortController()
        const askedUs = clock.nowUs()
        both.acquire('key', { cost, maxWait: '1h', signal: abort.signal }).then(
          ({ waitMs }) => grants.push({ atUs: askedUs + Math.round(waitMs * 1000), cost, number }),
          () => {},
        )
        clock.advance(gapUs / 1000)
        await settled()
        if (leaves) abort.abort()
        aborts.push(abort)
      }
      for (let turn = 0; turn < 5; turn++) {
        clock.advance(10)
        await settled()
      }
      for (const abort of aborts) abort.abort()
      await settled()
      const paying = grants.filter(({ cost }) => cost > 0)
      for (const part of parts) expectWithinPromise(part, paying)
      expect(paying.map(({ number }) => number)).toEqual(
        paying.map(({ number }) => number).toSorted((a, b) => a - b),
      )
      expect(clock.alarms).toBe(0)
      expect(both.stats()).toMatchObject({ granted: grants.length, waiting: 0 })
      for (const limiter of limiters) expect(limiter.stats().granted).toBe(grants.length)
    })
  })
})

describe('a combination of exact limiters', () => {
  const counting = fc.array(countingPart, { minLength: 1, maxLength: 3 })

  test('grants exactly `remaining` more single permits now', () => {
    check(fc.tuple(counting, asks()), ([parts, script]) => {
      const clock = manualClock()
      const both = combine(...open(parts, clock))
      replay(both, clock, script)
      const { remaining } = both.peek('key')
      if (remaining === Infinity) return
      for (let permit = 0; permit < remaining; permit++) expect(both.tryAcquire('key').allowed).toBe(true)
      expect(both.tryAcquire('key').allowed).toBe(false)
    })
  })

  test('`remaining` grows after refillAfter and not before', () => {
    checkWhere(fc.tuple(counting, asks(), fc.boolean()), ([parts, script, empties]) => {
      const clock = manualClock()
      const both = combine(...open(parts, clock))
      replay(both, clock, script)
      if (empties) both.drain('key')
      const { remaining, refillAfterMs } = both.peek('key')
      if (refillAfterMs === 0 || refillAfterMs === Infinity) return false
      clock.advance(refillAfterMs - 0.001)
      expect(both.peek('key').remaining).toBe(remaining)
      clock.advance(0.001)
      expect(both.peek('key').remaining).toBeGreaterThan(remaining)
      return true
    })
  })

  test('grants `limit` permits after resetAfter', () => {
    check(fc.tuple(counting, asks()), ([parts, script]) => {
      const clock = manualClock()
      const both = combine(...open(parts, clock))
      replay(both, clock, script)
      const { limit, resetAfterMs } = both.peek('key')
      if (resetAfterMs === Infinity) return
      clock.advance(resetAfterMs)
      expect(both.peek('key').remaining).toBe(limit)
    })
  })

  test('drain takes all remaining permits, and reset gives them back', () => {
    check(fc.tuple(counting, asks()), ([parts, script]) => {
      const clock = manualClock()
      const limiters = open(parts, clock)
      const both = combine(...limiters)
      replay(both, clock, script)
      const { remaining } = both.peek('key')
      if (remaining === Infinity) return
      expect(both.drain('key')).toBe(remaining)
      expect(both.peek('key').remaining).toBe(0)
      both.reset('key')
      expect(looksOf(limiters)).toEqual(looksOf(open(parts, clock)))
    })
  })
})

test('on asynchronous stores no caller gets too much, and refused calls keep nothing, in any order of answers', async () => {
  const LIMITS = [3, 4, 5]
  const ask = fc
    .shuffledSubarray([0, 1, 2], { minLength: 1 })
    .chain(indexes =>
      fc
        .array(fc.integer({ min: 1, max: 2 }), { minLength: indexes.length, maxLength: indexes.length })
        .map(costs => indexes.map((index, position) => ({ index, cost: costs[position] as number }))),
    )
  let losers = 0
  await fc.assert(
    fc.asyncProperty(
      fc.scheduler(),
      fc.array(ask, { minLength: 2, maxLength: 6 }),
      async (scheduler, asked) => {
        const store = scheduled(memoryStore(), scheduler)
        const clock = manualClock()
        const limiters = LIMITS.map((limit, index) =>
          createLimiter(
            [tokenBucket, slidingLog, fixedWindow][index]?.({ limit, window: '1h' }) as Algorithm,
            {
              name: `limiter ${index}`,
              store,
              clock,
            },
          ),
        )
        const answers = asked.map(parts =>
          tryAcquireAll(
            parts.map(({ index, cost }) => ({ limiter: limiters[index] as Limiter, key: 'key', cost })),
          ),
        )
        await scheduler.waitIdle()
        const decisions = await Promise.all(answers)
        const used = LIMITS.map((_, index) =>
          asked
            .filter((_, number) => decisions[number]?.allowed)
            .flat()
            .filter(part => part.index === index)
            .reduce((sum, { cost }) => sum + cost, 0),
        )
        const peeks = Promise.all(limiters.map(limiter => limiter.peek('key')))
        await scheduler.waitIdle()
        expect((await peeks).map(({ remaining }) => remaining)).toEqual(
          LIMITS.map((limit, index) => limit - (used[index] as number)),
        )
        for (const [index, limit] of LIMITS.entries()) expect(used[index]).toBeLessThanOrEqual(limit)
        for (const { allowed, refusedBy } of decisions) {
          expect(refusedBy.length === 0).toBe(allowed)
          if (!allowed) losers++
        }
      },
    ),
    { numRuns: 300 },
  )
  expect(losers).toBeGreaterThan(0)
})

interface Grant {
  readonly atUs: number
  readonly cost: number
}

type Opened<Store> = Store extends () => AsyncStore ? Limiter<true>[] : Limiter<false>[]

/** A limiter for each part, named by its place. */
function open<Store extends (() => SyncStore | AsyncStore) | undefined = undefined>(
  parts: readonly Part[],
  clock: ManualClock,
  store?: Store,
  firstPlace = 0,
): Opened<Store> {
  return parts.map(({ algorithm }, index) =>
    createLimiter(algorithm, {
      name: `limiter ${firstPlace + index}`,
      clock,
      store: (store ?? memoryStore)() as SyncStore,
    }),
  ) as unknown as Opened<Store>
}

function asksOf<Async extends boolean>(limiters: readonly Limiter<Async>[], cost: number) {
  return limiters.map(limiter => ({ limiter, key: 'key', cost }))
}

function namesOf(limiters: readonly Limiter[]): string[] {
  return limiters.map(({ name }) => name)
}

function looksOf(limiters: readonly Limiter<false>[]) {
  return limiters.map(limiter => limiter.peek('key').toJSON())
}

function replay(
  limiter: Limiter<false>,
  clock: ManualClock,
  script: readonly { gapUs: number; cost: number }[],
): void {
  for (const { gapUs, cost } of script) {
    clock.advance(gapUs / 1000)
    limiter.tryAcquire('key', { cost })
  }
}

/** Checks every window that starts with one grant and ends with another: it holds at most the permits allowed in its span. */
function expectWithinPromise({ algorithm, promise }: Part, grants: readonly Grant[]): void {
  const largest = Math.max(1, ...grants.map(({ cost }) => cost))
  const demand = { asks: grants.length, largest, booked: false }
  for (const [first, { atUs: fromUs }] of grants.entries()) {
    let granted = 0n
    for (const { atUs, cost } of grants.slice(first)) {
      granted += BigInt(cost)
      const { permits, per } = promise(algorithm, atUs - fromUs, demand)
      expect(granted * per <= permits, `${granted} granted within ${atUs - fromUs} us`).toBe(true)
    }
  }
}

/** An asynchronous store whose answers come in an order of the scheduler's choice. */
function scheduled(store: SyncStore, scheduler: fc.Scheduler): AsyncStore {
  return {
    async: true,
    open(spec) {
      const ledger = store.open(spec)
      const later = new Proxy(ledger, {
        get(_, verb) {
          const act = Reflect.get(ledger, verb)
          if (typeof act !== 'function') return act
          return (...args: unknown[]) =>
            scheduler.schedule(Promise.resolve()).then(() => act.apply(ledger, args))
        },
      })
      return guarded(later as never, spec)
    },
  }
}

function check<T>(arbitrary: fc.Arbitrary<T>, law: (value: T) => void): void {
  fc.assert(fc.property(arbitrary, law), { numRuns: 150 })
}

async function checkLater<T>(arbitrary: fc.Arbitrary<T>, law: (value: T) => Promise<void>): Promise<void> {
  await fc.assert(fc.asyncProperty(arbitrary, law), { numRuns: 40 })
}
