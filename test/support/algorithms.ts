import {
  type Algorithm,
  cycle,
  fixedWindow,
  leakyBucket,
  slidingLog,
  slidingWindow,
  smoothBursty,
  smoothWarmingUp,
  tokenBucket,
  unlimited,
} from '@sluice/core'
import type { Unreachable } from '@sluice/core/testing'
import fc from 'fast-check'

/** An algorithm for the tests of the laws: how to create one, and its bounds. */
export interface LawfulAlgorithm {
  readonly name: string
  /** Algorithms with random options. Their spans are short, so that random gaps in time have an effect. */
  readonly algorithm: fc.Arbitrary<Algorithm>
  /** The most permits it grants within a span (both ends included), as an exact fraction of integers. */
  readonly promise: (algorithm: Algorithm, spanUs: number, demand: Demand) => Promised
  /** The largest balance after an update of the options, from the balance before. */
  readonly kept: (previous: Algorithm, next: Algorithm, balance: number) => number
  /** Whether the balance is an exact count of permits, which grows by exactly what is returned. */
  readonly counts: boolean
  /** What it does not support; default nothing. */
  readonly unreachable?: readonly Unreachable[]
  /** Whether permits of an old, higher limit may still be used after an update. */
  readonly outlives?: boolean
}

/** What a bound may depend on. */
export interface Demand {
  /** The number of granted requests. */
  readonly asks: number
  /** The largest cost among them. */
  readonly largest: number
  /** Whether permits of the future were booked. */
  readonly booked: boolean
}

export interface Promised {
  readonly permits: bigint
  readonly per: bigint
}

/** Every algorithm obeys every law: a new one is one entry here. */
export const ALGORITHMS: readonly LawfulAlgorithm[] = [
  {
    name: 'tokenBucket',
    algorithm: fc
      .record({ limit: limit(), windowUs: spanUs(), burst: fc.integer({ min: 1, max: 20 }) })
      .map(({ limit, windowUs, burst }) => tokenBucket({ limit, window: windowUs / 1000, burst })),
    promise: ({ args: [limit = 0, windowUs = 0, burst = 0] }, span) => ({
      permits: BigInt(burst) * BigInt(windowUs) + BigInt(span) * BigInt(limit),
      per: BigInt(windowUs),
    }),
    kept: balanceAtMost,
    counts: true,
  },
  {
    name: 'tokenBucket, closed',
    algorithm: fc.constantFrom(
      tokenBucket({ limit: 0, window: '1s' }),
      tokenBucket({ limit: 5, window: '1s', burst: 0 }),
    ),
    promise: () => whole(0),
    kept: balanceAtMost,
    counts: true,
    unreachable: ['later grant', 'refill', 'give-back'],
  },
  {
    name: 'leakyBucket',
    algorithm: fc
      .record({ limit: limit(), windowUs: spanUs(), capacity: fc.integer({ min: 0, max: 20 }) })
      .map(({ limit, windowUs, capacity }) => leakyBucket({ limit, window: windowUs / 1000, capacity })),
    promise: ({ args: [limit = 0, windowUs = 0] }, span, { largest }) => ({
      permits: BigInt(largest) * BigInt(windowUs) + BigInt(span) * BigInt(limit),
      per: BigInt(windowUs),
    }),
    kept: balanceAtMost,
    counts: true,
  },
  {
    name: 'fixedWindow',
    algorithm: fc
      .record({
        limit: fc.nat(50),
        windowUs: spanUs(),
        align: fc.constantFrom('first' as const, 'epoch' as const),
      })
      .map(({ limit, windowUs, align }) => fixedWindow({ limit, window: windowUs / 1000, align })),
    promise: ({ args: [limit = 0, windowUs = 0] }, span) => whole(limit * windowsTouched(span, windowUs)),
    kept: usedAtLeast,
    counts: true,
  },
  {
    name: 'slidingWindow',
    // Always the same number of slices, because an update to another number resets the keys.
    algorithm: fc
      .record({ limit: fc.nat(50), windowUs: spanUs() })
      .map(({ limit, windowUs }) => slidingWindow({ limit, window: windowUs / 1000, slices: 4 })),
    promise: limitPerWindow,
    kept: usedAtLeast,
    counts: true,
  },
  {
    name: 'slidingLog',
    algorithm: fc
      .record({ limit: fc.nat(50), windowUs: spanUs() })
      .map(({ limit, windowUs }) => slidingLog({ limit, window: windowUs / 1000 })),
    promise: limitPerWindow,
    kept: usedAtLeast,
    counts: true,
  },
  {
    name: 'cycle',
    algorithm: fc
      .record({ limit: fc.nat(50), periodUs: spanUs(), originUs: fc.nat(200_000) })
      .map(({ limit, periodUs, originUs }) =>
        cycle({ limit, period: periodUs / 1000, origin: originUs / 1000 }),
      ),
    promise: ({ args: [limit = 0, periodUs = 0] }, span, { largest, booked }) =>
      whole(limit * windowsTouched(span, periodUs) + (booked ? Math.max(largest, 1) - 1 : 0)),
    kept: balanceAtMost,
    counts: true,
    unreachable: ['impossible cost'],
    outlives: true,
  },
  {
    name: 'smoothBursty',
    algorithm: fc
      .record({ limit: limit(), intervalUs: fc.integer({ min: 2, max: 5000 }), maxBurstUs: fc.nat(30_000) })
      .map(({ limit, intervalUs, maxBurstUs }) =>
        smoothBursty({
          limit,
          window: (limit * intervalUs + (intervalUs % limit)) / 1000,
          maxBurst: maxBurstUs / 1000,
        }),
      ),
    // The time of a request may be up to a microsecond too short, because it is truncated.
    promise: ({ args: [limit = 0, windowUs = 0, maxBurstUs = 0] }, span, { asks, largest }) => ({
      permits: BigInt(limit) * BigInt(maxBurstUs + span + asks) + BigInt(largest) * BigInt(windowUs),
      per: BigInt(windowUs),
    }),
    kept: shareAtMost,
    counts: false,
    unreachable: ['impossible cost'],
  },
  {
    name: 'smoothWarmingUp',
    algorithm: fc
      .record({
        limit: limit(),
        intervalUs: fc.integer({ min: 8, max: 5000 }),
        warmupUs: fc.nat(30_000),
        coldFactor: fc.constantFrom(1, 1.5, 3, 10),
      })
      .map(({ limit, intervalUs, warmupUs, coldFactor }) =>
        smoothWarmingUp({
          limit,
          window: (limit * intervalUs + (intervalUs % limit)) / 1000,
          warmup: warmupUs / 1000,
          coldFactor,
        }),
      ),
    // The time of a request may be up to three microseconds too short, because it is truncated.
    promise: ({ args: [limit = 0, windowUs = 0] }, span, { asks, largest }) => ({
      permits: BigInt(limit) * BigInt(span + 3 * asks) + BigInt(largest) * BigInt(windowUs),
      per: BigInt(windowUs),
    }),
    kept: shareAtMost,
    counts: false,
    unreachable: ['impossible cost'],
  },
  {
    name: 'unlimited',
    algorithm: fc.constant(unlimited()),
    promise: () => whole(Number.MAX_SAFE_INTEGER),
    kept: () => Infinity,
    counts: true,
    unreachable: ['refusal', 'later grant', 'impossible cost', 'refill', 'give-back'],
  },
]

function limit(): fc.Arbitrary<number> {
  return fc.integer({ min: 1, max: 50 })
}

function spanUs(): fc.Arbitrary<number> {
  return fc.oneof(
    fc.integer({ min: 1, max: 100 }),
    fc.constantFrom(1000, 60_000),
    fc.integer({ min: 101, max: 100_000 }),
  )
}

function whole(permits: number): Promised {
  return { permits: BigInt(permits), per: 1n }
}

/** How many windows a span may overlap. */
function windowsTouched(spanUs: number, windowUs: number): number {
  return Math.ceil(spanUs / windowUs) + 1
}

/** At most `limit` in any half-open window: a span with both ends is one microsecond longer than the gap between them. */
function limitPerWindow({ args: [limit = 0, windowUs = 0] }: Algorithm, span: number): Promised {
  return whole(limit * (Math.floor(span / windowUs) + 1))
}

function balanceAtMost(_previous: Algorithm, _next: Algorithm, balance: number): number {
  return balance
}

/** Used permits stay used, unless the window has become shorter. */
function usedAtLeast(previous: Algorithm, next: Algorithm, balance: number): number {
  const shorter = (next.args[1] as number) < (previous.args[1] as number)
  return shorter ? next.policy.limit : balance + next.policy.limit - previous.policy.limit
}

/** Stored permits are scaled. The permit that passes on credit is not. */
function shareAtMost(previous: Algorithm, next: Algorithm, balance: number): number {
  const stored = (algorithm: Algorithm) => algorithm.policy.limit
  return balance <= 1 ? 1 : (balance * stored(next)) / Math.max(1, stored(previous) - 1) + 1
}
