import {
  type Algorithm,
  cycle,
  fixedWindow,
  leakyBucket,
  slidingWindow,
  smoothBursty,
  tokenBucket,
  unlimited,
} from '@sluice/core'
import { redisStore } from '@sluice/redis'
import fc from 'fast-check'
import { afterAll, beforeEach, describe, expect, test } from 'vitest'
import { ALGORITHMS } from '../support/algorithms.js'
import { type Counts, differences, type Life, lives, longLives, noCounts, type Step } from './parity.js'
import { server } from './server.js'

/** Many times as many lives can be lived. */
const TIMES = Number(process.env.PARITY_TIMES ?? 1)
/** So many lives are lived side by side, each with a clock and keys of its own. */
const AT_ONCE = 24
const RUNS = 40 * TIMES

const it = server()
const compared = new Map<string, Counts>()

beforeEach(() => it.redis.flushall())
afterAll(() => console.log(table()))

function storeOf() {
  return redisStore(it.redis, { prefix: 'parity', deadline: '1m' })
}

test.each(ALGORITHMS)(
  '$name: a server decides as memory does, whatever is done',
  async lawful => {
    const counts = noCounts()
    compared.set(lawful.name, counts)
    const store = storeOf()
    const several = fc.array(lives(lawful.algorithm, lawful.name), {
      minLength: 1,
      maxLength: AT_ONCE,
      size: 'max',
    })
    await fc.assert(
      fc.asyncProperty(several, async lives => {
        const found = await Promise.all(lives.map(life => differences(life, store, counts)))
        expect(found.flat().join('\n')).toBe('')
      }),
      { numRuns: RUNS, interruptAfterTimeLimit: 25_000 * TIMES },
    )
    expect(counts).toMatchObject({ differences: 0 })
    expect(counts.granted).toBeGreaterThan(0)
  },
  30_000 * TIMES,
)

test(
  'slidingLog: and over logs that are long',
  async () => {
    const counts = noCounts()
    compared.set('slidingLog, long', counts)
    const store = storeOf()
    await fc.assert(
      fc.asyncProperty(fc.array(longLives(), { minLength: 1, maxLength: 12, size: 'max' }), async lives => {
        const found = await Promise.all(lives.map(life => differences(life, store, counts)))
        expect(found.flat().join('\n')).toBe('')
      }),
      { numRuns: 5 * TIMES, interruptAfterTimeLimit: 25_000 * TIMES },
    )
    expect(counts).toMatchObject({ differences: 0 })
  },
  30_000 * TIMES,
)

describe('lives that are seldom lived', () => {
  const bucket = (limit: number, window: number, burst = limit) => tokenBucket({ limit, window, burst })
  const BLOCKED: Steps = [
    ['block', { cost: 99 }],
    ['tryAcquire', {}],
    ['peek', { cost: 0 }],
    ['drain', {}],
    ['tryAcquire', { gapUs: 10_000 }],
    ['strike', {}],
    ['strike', {}],
    ['reserve', {}],
    ['unblock', {}],
    ['tryAcquire', {}],
  ]
  const slices = (limit: number, window: number, slices: number) => slidingWindow({ limit, window, slices })

  test.each<
    [name: string, algorithm: Algorithm, steps: Steps, changes?: readonly Algorithm[], maxWait?: number]
  >([
    [
      'a booking further ahead than the limiter waits by itself',
      bucket(1, 1000, 3),
      [
        ['reserve', { cost: 3 }],
        ['reserve', { cost: 3, maxWait: Infinity }],
        ['peek', {}],
        ['tryAcquire', { gapUs: 3_500_000 }],
      ],
      [],
      0,
    ],
    [
      'what is counted after, by a limiter that does not wait',
      bucket(5, 1000),
      [
        ['tryAcquire', { cost: 5 }],
        ['charge', { cost: 4 }],
        ['peek', {}],
      ],
      [],
      0,
    ],
    [
      'a leaky bucket that has grown',
      leakyBucket({ limit: 1, window: 1, capacity: 0 }),
      [
        ['update', {}],
        ['reserve', { cost: 7 }],
        ['peek', {}],
      ],
      [leakyBucket({ limit: 1, window: 1, capacity: 6 })],
    ],
    [
      'a leaky bucket that has become one of tokens, which waits for as long as it takes',
      leakyBucket({ limit: 1, window: 1, capacity: 0 }),
      [
        ['update', {}],
        ['reserve', { cost: 1 }],
        ['reserve', { cost: 1, maxWait: Infinity }],
        ['peek', {}],
      ],
      [bucket(1, 1)],
    ],
    [
      'another algorithm, and then other options of that',
      fixedWindow({ limit: 5, window: 1000 }),
      [
        ['update', {}],
        ['tryAcquire', { cost: 5 }],
        ['update', { gapUs: 100_000 }],
        ['peek', { gapUs: 300_000 }],
      ],
      [bucket(5, 1000), bucket(50, 1000, 60)],
    ],
    [
      'a line that is cut when the options change',
      bucket(1, 1000),
      [
        ['reserve', {}],
        ['reserve', { cost: 1, maxWait: Infinity }],
        ['update', {}],
        ...[7, 4, 2].map(cost => ['reserve', { cost, maxWait: Infinity }] as const),
        ['cancel', { place: 3 }],
        ['update', {}],
        ['cancel', { place: 2 }],
        ['peek', {}],
      ],
      [bucket(1, 1000, 9), bucket(2, 1000, 9)],
    ],
    [
      'a part of a permit that is owed when the limit becomes 0',
      bucket(1, 1000),
      [
        ['tryAcquire', {}],
        ['reserve', { maxWait: Infinity }],
        ['update', { gapUs: 300_000 }],
        ['peek', {}],
        ['update', {}],
        ['peek', {}],
      ],
      [bucket(0, 1000), bucket(2, 1000)],
    ],
    [
      'a booking that is given up before others, over the end of a cycle',
      cycle({ limit: 5, period: 1000 }),
      [
        ...[5, 4, 2].map(cost => ['reserve', { cost, maxWait: Infinity }] as const),
        ['cancel', { place: 2 }],
        ['peek', {}],
      ],
    ],
    [
      'a ladder to its last step, which repeats',
      bucket(5, 1000),
      [0, 600, 3100, 3100].flatMap(gapUs => [
        ['strike', { gapUs }] as const,
        ['strike', {}] as const,
        ['peek', {}] as const,
      ]),
    ],
    [
      'a ladder that is forgotten when the key is blocked by hand',
      bucket(5, 1000),
      [
        ['strike', {}],
        ['block', { gapUs: 3000 }],
        ['strike', { gapUs: 200 }],
        ['tryAcquire', {}],
      ],
    ],
    ['a key without a limit that is blocked', unlimited(), BLOCKED],
    ['and one that was limited before', bucket(5, 1000), [['update', {}], ...BLOCKED], [unlimited()]],
    [
      'a burst that nothing comes back of',
      smoothBursty({ limit: 1, window: 1, maxBurst: 0 }),
      [
        ['reserve', { cost: 1 }],
        ['release', { gapUs: 3000 }],
        ['drain', { gapUs: -1000 }],
      ],
    ],
    [
      'another number of slices',
      slices(5, 1000, 4),
      [
        ['tryAcquire', { cost: 4 }],
        ['update', {}],
        ['tryAcquire', { cost: 5 }],
        ['update', {}],
        ['peek', {}],
      ],
      [slices(5, 1000, 9), slices(6, 2000, 9)],
    ],
  ])('%s', async (_name, algorithm, steps, changes = [], maxWait = undefined) => {
    const life: Life = {
      algorithm,
      changes,
      maxWait,
      steps: steps.map(([verb, rest]) => ({ ...STEP, ...rest, verb })),
    }
    expect((await differences(life, storeOf(), noCounts())).join('\n')).toBe('')
  })

  test('numbers of slices that come and go leave no key that cannot be read', async () => {
    const changes = [slices(5, 1000, 9), slices(6, 2000, 9), slices(5, 2000, 4)]
    const steps: Steps = [
      ['tryAcquire', {}],
      ...changes.map(() => ['update', {}] as const),
      ['peek', {}],
      ['release', {}],
    ]
    const life: Life = {
      algorithm: slices(5, 1000, 4),
      changes,
      maxWait: undefined,
      steps: steps.map(([verb, rest]) => ({ ...STEP, ...rest, verb })),
    }
    // Memory has forgotten the key, and a server may have found it again.
    expect((await differences(life, storeOf(), noCounts())).filter(text => text.includes('SLUICE_'))).toEqual(
      [],
    )
  })
})

type Steps = readonly (readonly [verb: Step['verb'], rest: Partial<Step>])[]

const STEP = { gapUs: 0, key: 'ann', cost: 1, maxWait: 0, place: 1 }

function table(): string {
  const sum = noCounts()
  for (const counts of compared.values())
    for (const figure of Object.keys(sum) as (keyof Counts)[]) sum[figure] += counts[figure]
  const head = ['', 'sequences', 'answers', 'decisions', 'granted', 'differences']
  const rows = [...compared, ['in all', sum] as const].map(([name, counts]) => [
    name,
    ...Object.values(counts),
  ])
  const lines = [head, ...rows].map(([name, ...cells]) =>
    [String(name).padEnd(20), ...cells.map(cell => String(cell).padStart(12))].join(''),
  )
  return ['Memory and Redis at equal times:', ...lines].join('\n')
}
