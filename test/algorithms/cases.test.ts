import { setImmediate as nextTurn } from 'node:timers/promises'
import {
  type Algorithm,
  createLimiter,
  cycle,
  type Duration,
  fixedWindow,
  type Limiter,
  leakyBucket,
  slidingLog,
  slidingWindow,
  smoothBursty,
  smoothWarmingUp,
  tokenBucket,
} from '@sluice/core'
import { afterEach, describe, expect, test } from 'vitest'
import { fromStart, START_MS } from './steps.js'

/** Bugs of other libraries, tested on every algorithm that could have them. */
interface Kind {
  readonly name: string
  readonly of: (limit: number, window: Duration) => Algorithm
}

const TOKEN_BUCKET: Kind = { name: 'tokenBucket', of: (limit, window) => tokenBucket({ limit, window }) }
const FIXED_WINDOW: Kind = { name: 'fixedWindow', of: (limit, window) => fixedWindow({ limit, window }) }
const CYCLE: Kind = {
  name: 'cycle',
  of: (limit, window) => cycle({ limit, period: window, origin: START_MS }),
}
const LEAKY_BUCKET: Kind = {
  name: 'leakyBucket',
  of: (limit, window) => leakyBucket({ limit, window, capacity: limit }),
}
/** At most `limit` in any window. */
const SLIDING: readonly Kind[] = [
  { name: 'slidingWindow', of: (limit, window) => slidingWindow({ limit, window }) },
  { name: 'slidingLog', of: (limit, window) => slidingLog({ limit, window }) },
]
/** A used-up window comes back all at once. */
const WINDOWS: readonly Kind[] = [FIXED_WINDOW, ...SLIDING, CYCLE]
const SMOOTH: readonly Kind[] = [
  { name: 'smoothBursty', of: (limit, window) => smoothBursty({ limit, window, maxBurst: window }) },
  { name: 'smoothWarmingUp', of: (limit, window) => smoothWarmingUp({ limit, window, warmup: window }) },
]
const ALL: readonly Kind[] = [TOKEN_BUCKET, LEAKY_BUCKET, ...WINDOWS, ...SMOOTH]

const MINUTE_MS = 60_000
const DAY_MS = 86_400_000

describe('a refusal', () => {
  // animir/node-rate-limiter-flexible 11.4.0 counts first and refuses then
  test.each(WINDOWS)('of $name costs no permits (S04)', ({ of }) => {
    const { limiter, at } = fromStart(of(10, '60s'))
    const answers = [8, 5, 2, 1].map((cost, ms) => {
      at(ms)
      return limiter.tryAcquire('key', { cost }).allowed
    })
    expect(answers).toEqual([true, false, true, false])
  })

  // jhurliman/node-rate-limiter#25
  test('ends at the next refill of a bucket, or at the end of a window (S08)', () => {
    const bucket = fromStart(tokenBucket({ limit: 3, window: '1m', burst: 3 }))
    bucket.limiter.tryAcquire('key', { cost: 3 })
    bucket.at(20_000)
    expect(bucket.limiter.tryAcquire('key').allowed).toBe(true)

    for (const { of } of SLIDING) {
      const { limiter, at } = fromStart(of(3, '1m'))
      limiter.tryAcquire('key', { cost: 3 })
      at(20_000)
      expect(limiter.tryAcquire('key')).toMatchObject({ allowed: false, retryAfterMs: 40_000 })
    }
  })
})

describe('the clock', () => {
  // spring-cloud/spring-cloud-gateway#2412
  test.each([
    { name: 'tokenBucket', algorithm: tokenBucket({ limit: 2, window: '1s', burst: 4 }) },
    ...WINDOWS.map(({ name, of }) => ({ name, algorithm: of(4, '2s') })),
  ])('$name grants no extra permits to any host when one has a slow clock (S05)', ({ algorithm }) => {
    const { limiter, at } = fromStart(algorithm)
    expect(fourAsks(limiter)).toEqual([true, true, true, true])
    at(-10_000)
    expect(limiter.tryAcquire('key').allowed).toBe(false)
    at(0)
    expect(fourAsks(limiter)).toEqual([false, false, false, false])
  })

  // gofiber/fiber#1247, and express-rate-limit/express-rate-limit 8.7.5: 9 served in 84 ms at 5 per 400 ms
  test.each(SLIDING)('$name never grants twice the limit around the end of a window (S06)', ({ of }) => {
    const { limiter, at } = fromStart(of(5, '400ms'))
    expect(limiter.tryAcquire('key').allowed).toBe(true)
    at(340)
    expect(fourAsks(limiter)).toEqual([true, true, true, true])
    at(410)
    expect([limiter.tryAcquire('key').allowed, ...fourAsks(limiter)]).toEqual([
      true,
      false,
      false,
      false,
      false,
    ])
  })

  // upstash/ratelimit-js#39
  test.each(ALL)('$name with limit 1 grants one request, and another one later (S07)', ({ of }) => {
    const { limiter, at } = fromStart(of(1, '10s'))
    const answers = [0, 1, 20_000].map(ms => {
      at(ms)
      return limiter.tryAcquire('key').allowed
    })
    expect(answers).toEqual([true, false, true])
  })

  function fourAsks(limiter: Limiter<false>): boolean[] {
    return [1, 2, 3, 4].map(() => limiter.tryAcquire('key').allowed)
  }
})

describe('a window of a year', () => {
  const warnings: Error[] = []
  const noteWarning = (warning: Error) => warnings.push(warning)

  afterEach(() => {
    process.off('warning', noteWarning)
    warnings.length = 0
  })

  // express-rate-limit/express-rate-limit#546
  test.each(WINDOWS)('of $name ends after a year (S47)', ({ of }) => {
    const { limiter, at } = fromStart(of(5, '365d'))
    const answers = [1, 2, 3, 4, 5, 6].map(() => limiter.tryAcquire('key').allowed)
    expect(answers).toEqual([true, true, true, true, true, false])
    at(30 * DAY_MS)
    expect(limiter.tryAcquire('key')).toMatchObject({ allowed: false, retryAfterMs: 28_944_000_000 })
  })

  test.each([TOKEN_BUCKET, FIXED_WINDOW, ...SLIDING])(
    'of $name does not overflow the timer of a waiter (S47)',
    async ({ of }) => {
      process.on('warning', noteWarning)
      // The system clock sets real timers.
      const limiter = createLimiter(of(1, '365d'))
      limiter.tryAcquire('key')
      const controller = new AbortController()
      const waiting = limiter.acquire('key', { signal: controller.signal })
      await nextTurn()
      controller.abort(new Error('gave up'))
      await expect(waiting).rejects.toThrow('gave up')
      expect(warnings).toEqual([])
    },
  )
})

describe('peek', () => {
  // valeriansaliou/node-fast-ratelimit#7
  test.each(ALL)('costs no permits on $name, also when it returns a refusal (S23)', ({ of }) => {
    const { limiter, at } = fromStart(of(5, '1m'))
    at(MINUTE_MS)
    const fresh = limiter.peek('key')
    for (let i = 0; i < 100; i++) expect(limiter.peek('key').toJSON()).toEqual(fresh.toJSON())
    expect(limiter.tryAcquire('key').remaining).toBe(fresh.limit - 1)

    while (limiter.tryAcquire('key').allowed);
    const { waitMs } = limiter.peek('key')
    expect(waitMs).toBeGreaterThan(0)
    for (let i = 0; i < 100; i++) expect(limiter.peek('key')).toMatchObject({ allowed: false, waitMs })
    expect(limiter.tryAcquire('key')).toMatchObject({ allowed: false, waitMs })
  })
})

describe('a limit of 0', () => {
  // express-rate-limit/express-rate-limit 7 changed what it means, microlinkhq/async-ratelimiter throws "max required"
  test.each(ALL)('of $name refuses every call, at any time (S50)', async ({ of }) => {
    const { limiter, at } = fromStart(of(0, '1m'))
    for (const ms of [0, MINUTE_MS, 365 * DAY_MS]) {
      at(ms)
      const refusal = { allowed: false, remaining: 0, waitMs: Infinity, retryAfterMs: Infinity }
      expect(limiter.tryAcquire('key')).toMatchObject(refusal)
      expect(limiter.peek('key')).toMatchObject(refusal)
      expect(limiter.drain('key')).toBe(0)
      await expect(limiter.acquire('key')).rejects.toMatchObject({ code: 'SLUICE_RATE_LIMITED' })
    }
  })

  test.each(ALL)('of $name, set by an update, refuses new keys and keys in use (S50)', ({ of }) => {
    const { limiter, at } = fromStart(of(5, '1m'))
    limiter.tryAcquire('begun')
    limiter.update(of(0, '1m'))
    for (const key of ['begun', 'never seen'])
      expect(limiter.tryAcquire(key)).toMatchObject({ allowed: false, remaining: 0, waitMs: Infinity })
    at(365 * DAY_MS)
    expect(limiter.tryAcquire('begun').allowed).toBe(false)
  })
})

describe('an update to another window', () => {
  // Tabcorp/redis-rate-limiter#44. Smooth limiters differ, as in Guava: the time of a debt does not change.
  test.each([TOKEN_BUCKET, LEAKY_BUCKET, ...WINDOWS])(
    'of $name applies within the new window, not after the old one (S52)',
    ({ of }) => {
      const { limiter, at } = fromStart(of(10, '1h'))
      while (limiter.tryAcquire('key').allowed);
      at(500)
      expect(limiter.peek('key').retryAfterMs).toBeGreaterThan(1000)
      limiter.update(of(10, '1s'))
      const { retryAfterMs } = limiter.peek('key')
      expect(retryAfterMs).toBeLessThanOrEqual(1000)
      at(500 + retryAfterMs)
      expect(limiter.tryAcquire('key').allowed).toBe(true)
    },
  )
})

describe('reset', () => {
  // express-rate-limit/express-rate-limit#2
  test.each(ALL)('gives a key of $name its whole limit and no more (S53)', ({ of }) => {
    const { limiter, at } = fromStart(of(5, '1m'))
    at(MINUTE_MS)
    const atOnce = grantsOf(limiter)
    expect(atOnce).toBe(limiter.peek('key').limit)
    expect(grantsOf(limiter)).toBe(0)
    limiter.reset('key')
    expect(grantsOf(limiter)).toBe(atOnce)
  })

  function grantsOf(limiter: Limiter<false>): number {
    let grants = 0
    while (limiter.tryAcquire('key').allowed) grants++
    return grants
  }
})
