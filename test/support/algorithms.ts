import { type Algorithm, tokenBucket, unlimited } from '@sluice/core'
import fc from 'fast-check'

/** An algorithm as the laws see it: how to make one, and what it promises. */
export interface LawfulAlgorithm {
  readonly name: string
  /** Algorithms with random options; spans are kept short so that random gaps in time matter. */
  readonly algorithm: fc.Arbitrary<Algorithm>
  /** The most permits it grants within a span, as an exact fraction of integers. */
  readonly promise: (algorithm: Algorithm, spanUs: number) => Promised
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
      .record({
        limit: fc.integer({ min: 1, max: 50 }),
        windowUs: spanUs(),
        burst: fc.integer({ min: 1, max: 20 }),
      })
      .map(({ limit, windowUs, burst }) => tokenBucket({ limit, window: windowUs / 1000, burst })),
    promise: ({ args: [limit = 0, windowUs = 0, burst = 0] }, span) => ({
      permits: BigInt(burst) * BigInt(windowUs) + BigInt(span) * BigInt(limit),
      per: BigInt(windowUs),
    }),
  },
  {
    name: 'tokenBucket, closed',
    algorithm: fc.constantFrom(
      tokenBucket({ limit: 0, window: '1s' }),
      tokenBucket({ limit: 5, window: '1s', burst: 0 }),
    ),
    promise: () => ({ permits: 0n, per: 1n }),
  },
  {
    name: 'unlimited',
    algorithm: fc.constant(unlimited()),
    promise: () => ({ permits: BigInt(Number.MAX_SAFE_INTEGER), per: 1n }),
  },
]

function spanUs(): fc.Arbitrary<number> {
  return fc.oneof(
    fc.integer({ min: 1, max: 100 }),
    fc.constantFrom(1000, 60_000),
    fc.integer({ min: 101, max: 100_000 }),
  )
}
