import {
  type Algorithm,
  combine,
  createLimiter,
  cycle,
  fixedWindow,
  type Limiter,
  leakyBucket,
  slidingLog,
  slidingWindow,
  smoothBursty,
  smoothWarmingUp,
  tokenBucket,
} from '@sluice/core'
import { type ManualClock, manualClock } from '@sluice/core/testing'
import { parseList } from 'structured-headers'
import request, { type Response } from 'supertest'
import { afterEach, describe, expect, it } from 'vitest'
import { seeded } from '../support/random.js'
import { type RunningServer, servers } from '../support/servers/index.js'
import { rowsOn } from '../support/servers/rows.js'

/*
 * The fields keep their promises (section 3 of the standard): a client that reads of remaining permits gets them, and a
 * client that comes back after Retry-After passes. Where an algorithm is exact, it would not have passed a second earlier.
 *
 * One client sends requests after random pauses. After each answer a second limiter with the same requests behind it
 * tries what was promised, so that the attempt changes nothing.
 */

interface Subject {
  readonly name: string
  /** What is asked, on a clock that has not moved since. */
  make(clock: ManualClock): Limiter
  /** The most permits of one request that can ever pass. */
  readonly most: number
  /** About how long a permit takes to come back, in milliseconds. */
  readonly pauseMs: number
  /** Whether a wait is never longer than it has to be. */
  readonly exact?: boolean
}

/** A limiter with one algorithm, and what of it matters here. */
function subject(name: string, algorithm: () => Algorithm, figures: Omit<Subject, 'name' | 'make'>): Subject {
  return { name, make: clock => createLimiter(algorithm(), { clock }), ...figures }
}

const SUBJECTS: readonly Subject[] = [
  subject('tokenBucket', () => tokenBucket({ limit: 10, window: '1m' }), {
    most: 10,
    pauseMs: 6000,
    exact: true,
  }),
  subject('tokenBucket of thirds', () => tokenBucket({ limit: 3, window: '10s', burst: 7 }), {
    most: 7,
    pauseMs: 3333,
    exact: true,
  }),
  subject('tokenBucket, fast', () => tokenBucket({ limit: 1000, window: '7s', burst: 6 }), {
    most: 6,
    pauseMs: 7,
    exact: true,
  }),
  subject('slidingWindow', () => slidingWindow({ limit: 10, window: '1m' }), { most: 10, pauseMs: 6000 }),
  subject('slidingWindow of 3 slices', () => slidingWindow({ limit: 7, window: '10s', slices: 3 }), {
    most: 7,
    pauseMs: 1500,
  }),
  subject('slidingLog', () => slidingLog({ limit: 10, window: '1m' }), {
    most: 10,
    pauseMs: 6000,
    exact: true,
  }),
  subject("fixedWindow, align 'first'", () => fixedWindow({ limit: 10, window: '1m' }), {
    most: 10,
    pauseMs: 6000,
    exact: true,
  }),
  subject("fixedWindow, align 'epoch'", () => fixedWindow({ limit: 10, window: '1m', align: 'epoch' }), {
    most: 10,
    pauseMs: 6000,
    exact: true,
  }),
  subject('leakyBucket', () => leakyBucket({ limit: 10, window: '1m', capacity: 5 }), {
    most: 6,
    pauseMs: 6000,
  }),
  subject('leakyBucket without a queue', () => leakyBucket({ limit: 3, window: '10s', capacity: 0 }), {
    most: 1,
    pauseMs: 3333,
  }),
  subject('cycle', () => cycle({ limit: 10, period: '1m', origin: 12_345.678 }), { most: 10, pauseMs: 6000 }),
  subject('smoothBursty', () => smoothBursty({ limit: 10, window: '1m', maxBurst: '30s' }), {
    most: Infinity,
    pauseMs: 6000,
  }),
  subject('smoothBursty of sevenths', () => smoothBursty({ limit: 7, window: '1s' }), {
    most: Infinity,
    pauseMs: 143,
  }),
  subject('smoothWarmingUp', () => smoothWarmingUp({ limit: 10, window: '1m', warmup: '20s' }), {
    most: Infinity,
    pauseMs: 6000,
  }),
  {
    name: 'two together',
    make: clock =>
      combine(
        createLimiter(tokenBucket({ limit: 5, window: '10s' }), { name: 'burst', clock }),
        createLimiter(fixedWindow({ limit: 12, window: '1m' }), { name: 'minute', clock }),
      ),
    most: 5,
    pauseMs: 3000,
    exact: true,
  },
]

const SEEDS = [1, 2]
const REQUESTS = 40

const closing: (() => Promise<void>)[] = []

afterEach(async () => {
  for (const close of closing.splice(0)) await close()
})

describe.each(servers)('on $name', server => {
  const { start } = server
  const rows = rowsOn(server)

  describe('the fields of every algorithm', () => {
    it.each(rows(SUBJECTS.flatMap(subject => SEEDS.map(seed => ({ ...subject, seed })))))(
      '$name (seed $seed)',
      async ({ seed, pauseMs, most, exact = false, ...subject }) => {
        const client = new Client(subject.make)
        await client.start(start)
        const random = seeded(seed)
        let kept = 0
        for (let sent = 0; sent < REQUESTS; sent++) {
          client.clock.advance(pause(random, pauseMs))
          const cost = random() < 0.7 ? 1 : 1 + Math.floor(random() * Math.min(most + 1, 8))
          const response = await client.send(cost)

          if (restsIn(response).every(rest => rest >= 1)) {
            expect(await client.wouldPass(0, 1), `a request after ${response.headers.ratelimit}`).toBe(true)
            kept++
          }
          if (response.status === 200) continue

          const seconds = retryAfterIn(response)
          if (seconds === undefined) {
            expect(cost).toBeGreaterThan(most)
            expect(await client.wouldPass(100_000, cost), 'a request that can never pass').toBe(false)
            continue
          }
          expect(await client.wouldPass(seconds, cost), `a retry after ${seconds} s`).toBe(true)
          if (exact && seconds >= 2)
            expect(await client.wouldPass(seconds - 1, cost), `a retry after ${seconds - 1} s`).toBe(false)
          kept++
        }
        expect(kept).toBeGreaterThan(REQUESTS / 4)
      },
    )
  })
})

/** A client, its limiter, and its requests so far. */
class Client {
  readonly clock = manualClock()
  readonly #past: { readonly atMs: number; readonly cost: number }[] = []
  readonly #make: Subject['make']
  readonly #bornMs = this.clock.nowMs
  readonly #limiter: Limiter
  #twin: Limiter | undefined
  #server: RunningServer | undefined

  constructor(make: Subject['make']) {
    this.#make = make
    this.#limiter = make(this.clock)
  }

  async start(start: (typeof servers)[number]['start']): Promise<void> {
    this.#server = await start({
      app: [
        {
          limiter: () => this.#twin ?? this.#limiter,
          key: () => 'ann',
          cost: ({ headers }) => Number(headers['x-cost']),
          maxWait: 0,
        },
      ],
    })
    closing.push(this.#server.close)
  }

  async send(cost: number): Promise<Response> {
    this.#past.push({ atMs: this.clock.nowMs, cost })
    return this.#ask(cost)
  }

  /** Whether a request would pass after so many seconds. */
  async wouldPass(seconds: number, cost: number): Promise<boolean> {
    const nowMs = this.clock.nowMs
    this.clock.set(this.#bornMs)
    this.#twin = this.#make(this.clock)
    for (const { atMs, cost } of this.#past) {
      this.clock.set(atMs)
      this.#twin.tryAcquire('ann', { cost })
    }
    this.clock.set(nowMs)
    this.clock.advance(seconds * 1000)
    const { status } = await this.#ask(cost)
    this.#twin = undefined
    this.clock.set(nowMs)
    return status === 200
  }

  async #ask(cost: number): Promise<Response> {
    const response = await request(this.#server?.url ?? '')
      .get('')
      .set('X-Cost', String(cost))
    expect([200, 429]).toContain(response.status)
    return response
  }
}

/** Often none, often about what a permit takes, sometimes long; to the microsecond. */
function pause(random: () => number, usualMs: number): number {
  const kind = random()
  const ms = kind < 0.4 ? 0 : kind < 0.9 ? random() * 2 * usualMs : random() * 20 * usualMs
  return Math.round(ms * 1000) / 1000
}

/** Parameter `r` of every policy. */
function restsIn({ headers }: Response): number[] {
  return parseList(headers.ratelimit ?? '').map(([, parameters]) => parameters.get('r') as number)
}

function retryAfterIn({ headers }: Response): number | undefined {
  const value = headers['retry-after']
  if (value === undefined) return undefined
  expect(value).toMatch(/^[1-9]\d*$/)
  return Number(value)
}
