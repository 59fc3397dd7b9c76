import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
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
  tryAcquireAll,
  unlimited,
} from '@sluice/core'
import { limitRoute } from '@sluice/core/http'
import { type ManualClock, manualClock } from '@sluice/core/testing'
import { type RedisStore, redisStore } from '@sluice/redis'
import fc from 'fast-check'
import { afterAll, afterEach, beforeEach, describe, expect, test } from 'vitest'
import { ALGORITHMS } from '../support/algorithms.js'
import { seeded } from '../support/random.js'
import { jointDifferences, jointHistories } from './joint-parity.js'
import { noCounts, rested } from './parity.js'
import { Quiet } from './redis-key.js'
import { callsOf, server } from './server.js'

const it = server()
const TIMES = Number(process.env.PARITY_TIMES ?? 1)
const counts = noCounts()
const closing: (() => Promise<unknown>)[] = []
let clock: ManualClock
let stores = 0

beforeEach(async () => {
  clock = manualClock()
  await it.redis.flushall()
})

afterEach(async () => {
  for (const close of closing.splice(0)) await close()
})

afterAll(() => console.log('Several limiters, in memory and on Redis:', counts))

/** A store of its own, as in another process. */
function storeOf(prefix = `several-${stores++}`): RedisStore {
  return redisStore(it.redis, { prefix, deadline: '1m' })
}

function limiterOf(store: RedisStore, name: string, algorithm: Algorithm): Limiter<true> {
  return createLimiter(algorithm, { name, clock, store })
}

/** Every algorithm, all of them with the same limit. */
const EACH: readonly (readonly [name: string, algorithm: Algorithm])[] = [
  ['token-bucket', tokenBucket({ limit: 5, window: '1s' })],
  ['leaky-bucket', leakyBucket({ limit: 5, window: '1s', capacity: 4 })],
  ['fixed-window', fixedWindow({ limit: 5, window: '1s' })],
  ['sliding-window', slidingWindow({ limit: 5, window: '1s' })],
  ['sliding-log', slidingLog({ limit: 5, window: '1s' })],
  ['cycle', cycle({ limit: 5, period: '1s' })],
  ['smooth-bursty', smoothBursty({ limit: 5, window: '1s', maxBurst: '1s' })],
  ['smooth-warming-up', smoothWarmingUp({ limit: 5, window: '1s', warmup: '1s' })],
  ['unlimited', unlimited()],
]

describe('several limiters give the answers of memory', () => {
  test.each(ALGORITHMS)(
    '$name and others',
    async ({ algorithm }) => {
      const several = fc.array(jointHistories(algorithm), { minLength: 1, maxLength: 16, size: 'max' })
      await fc.assert(
        fc.asyncProperty(several, async histories => {
          const found = await Promise.all(
            histories.map(history => jointDifferences(history, it.redis, counts)),
          )
          expect(found.flat().join('\n')).toBe('')
        }),
        { numRuns: 15 * TIMES, interruptAfterTimeLimit: 25_000 * TIMES },
      )
    },
    30_000 * TIMES,
  )
})

describe('one call to the server', () => {
  /** How many script calls an act makes, once the server knows the scripts. */
  async function callsFor(act: () => unknown) {
    await act()
    await callsOf(it.redis)
    await act()
    const { evalsha = 0, eval: evals = 0 } = await callsOf(it.redis)
    return { evalsha, eval: evals }
  }

  const ONE = { evalsha: 1, eval: 0 }

  test('for limiters with every algorithm, each for its own subject', async () => {
    const store = storeOf()
    const asks = EACH.map(([name, algorithm]) => ({ limiter: limiterOf(store, name, algorithm), key: name }))
    expect(await callsFor(() => tryAcquireAll(asks))).toEqual(ONE)
  })

  test('for a refusal', async () => {
    const store = storeOf()
    const asks = EACH.map(([name, algorithm]) => ({
      limiter: limiterOf(store, name, algorithm),
      key: 'ann',
      cost: 9,
    }))
    expect(await callsFor(() => tryAcquireAll(asks))).toEqual(ONE)
  })

  test('for 2 and for 20 limiters', async () => {
    const store = storeOf()
    for (const count of [2, 20]) {
      const asks = Array.from({ length: count }, (_, place) => ({
        limiter: limiterOf(store, `limiter ${place}`, tokenBucket({ limit: 1000, window: '1m' })),
        key: `subject ${place}`,
      }))
      expect(await callsFor(() => tryAcquireAll(asks))).toEqual(ONE)
    }
  })

  test('for one limiter and many subjects', async () => {
    const limiter = limiterOf(storeOf(), 'limiter', slidingLog({ limit: 100, window: '1m' }))
    const asks = ['ann', 'bob', 'eve'].map(key => ({ limiter, key }))
    expect(await callsFor(() => tryAcquireAll(asks))).toEqual(ONE)
  })

  test('for each verb of a combined limiter that decides', async () => {
    const store = storeOf()
    const all = combine(...EACH.slice(2, 5).map(([name, algorithm]) => limiterOf(store, name, algorithm)))
    expect(await callsFor(() => all.tryAcquire('ann'))).toEqual(ONE)
    expect(await callsFor(() => all.peek('ann'))).toEqual(ONE)
    expect(await callsFor(() => all.reserve('bob', { maxWait: 0 }))).toEqual(ONE)
    expect(await callsFor(() => all.acquire('eve'))).toEqual(ONE)
  })

  test('at most, if all limiters are unlimited', async () => {
    const store = storeOf()
    const asks = ['a', 'b'].map(name => ({ limiter: limiterOf(store, name, unlimited()), key: 'ann' }))
    expect(await tryAcquireAll(asks)).toMatchObject({ allowed: true, remaining: Infinity })
    expect((await callsFor(() => tryAcquireAll(asks))).evalsha).toBeLessThanOrEqual(1)
  })
})

describe('all or none', () => {
  test.each(EACH.slice(0, -1))('%s refuses, and none is charged', async (name, algorithm) => {
    const store = storeOf()
    const asks = EACH.map(([other, algorithm]) => ({
      limiter: limiterOf(store, other, algorithm),
      key: 'ann',
    }))
    const spent = limiterOf(store, name, algorithm)
    await spent.drain('ann')
    const before = await lookAt(asks)
    const decision = await tryAcquireAll(asks)
    expect([decision.allowed, decision.refusedBy]).toEqual([false, [name]])
    expect(await lookAt(asks)).toEqual(before)
  })

  test('a refusal by all of them writes nothing', async () => {
    const store = storeOf()
    const asks = EACH.map(([name, algorithm]) => ({
      limiter: limiterOf(store, name, algorithm),
      key: 'ann',
      cost: 9,
    }))
    expect((await tryAcquireAll(asks)).allowed).toBe(false)
    expect(await it.redis.dbsize()).toBe(0)
  })

  test.each([false, true])('a check takes no permits, with bookings: %s', async books => {
    const store = storeOf()
    const open = (name: string, algorithm: Algorithm) => store.open({ name, algorithm, clock })
    const [looked, taken] = [
      open('looked', tokenBucket({ limit: 5, window: '1s' })),
      open('taken', fixedWindow({ limit: 5, window: '1s' })),
    ]
    const asks = (cost: number) => [
      { ledger: looked, key: 'ann', cost, isCheck: true },
      { ledger: taken, key: 'ann', cost },
    ]
    for (const cost of [3, 2, 6]) await looked.together?.decide(asks(cost), true, books)
    expect((await looked.decide('ann', 0, 0, false)).remaining).toBe(5)
    expect(await it.redis.dbsize()).toBe(1)
    expect((await taken.decide('ann', 0, 0, false)).remaining).toBe(0)
  })

  test('a blocked key of one limiter refuses for all', async () => {
    const store = storeOf()
    const [bucket, log] = [
      limiterOf(store, 'bucket', tokenBucket({ limit: 5, window: '1s' })),
      limiterOf(store, 'log', slidingLog({ limit: 5, window: '1s' })),
    ]
    await log.block('ann', '1m')
    const decision = await combine(bucket, log).tryAcquire('ann')
    expect(decision).toMatchObject({ allowed: false, code: 'SLUICE_BLOCKED', retryAfterMs: 60_000 })
    expect((await bucket.peek('ann')).remaining).toBe(5)
    expect((await combine(bucket, log).tryAcquire('ann', { cost: 0 })).allowed).toBe(true)
  })

  test('a refund of a joint booking gives back to each limiter, once', async () => {
    const store = storeOf()
    const counting = EACH.filter(([name]) => !name.startsWith('smooth') && name !== 'leaky-bucket')
    const limiters = counting.map(([name, algorithm]) => limiterOf(store, name, algorithm))
    const booking = await combine(...limiters).reserve('ann', { cost: 3, maxWait: 0 })
    expect(booking.allowed).toBe(true)
    expect([await booking.refund(), await booking.refund(), await booking.cancel()]).toEqual([3, 0, 0])
    for (const limiter of limiters.slice(0, -1)) expect((await limiter.peek('ann')).remaining).toBe(5)
  })
})

describe('limiters of one name', () => {
  const five = () => tokenBucket({ limit: 5, window: '1s' })

  test('share their keys, and their costs for one key add up', async () => {
    const store = storeOf()
    const [one, other] = [limiterOf(store, 'shared', five()), limiterOf(store, 'shared', five())]
    const asks = (cost: number) => [
      { limiter: one, key: 'ann', cost },
      { limiter: other, key: 'ann', cost },
    ]
    expect((await tryAcquireAll(asks(3))).allowed).toBe(false)
    expect((await one.peek('ann')).remaining).toBe(5)
    expect((await tryAcquireAll(asks(2))).allowed).toBe(true)
    expect((await other.peek('ann')).remaining).toBe(1)
  })

  test('get both costs back by one refund', async () => {
    const store = storeOf()
    const [one, other] = [limiterOf(store, 'shared', five()), limiterOf(store, 'shared', five())]
    const third = limiterOf(store, 'third', slidingLog({ limit: 5, window: '1s' }))
    const booking = await combine(one, third, other).reserve('ann', { cost: 2, maxWait: 0 })
    expect((await one.peek('ann')).remaining).toBe(1)
    expect(await booking.refund()).toBe(4)
    expect([(await one.peek('ann')).remaining, (await third.peek('ann')).remaining]).toEqual([5, 5])
  })

  test('keep the keys of different subjects apart', async () => {
    const store = storeOf()
    const [one, other] = [limiterOf(store, 'shared', five()), limiterOf(store, 'shared', five())]
    await tryAcquireAll([
      { limiter: one, key: 'ann', cost: 4 },
      { limiter: other, key: 'bob', cost: 1 },
    ])
    expect([(await other.peek('ann')).remaining, (await one.peek('bob')).remaining]).toEqual([1, 4])
  })
})

describe('states that were written under other options', () => {
  /** A change of options for each algorithm. */
  const CHANGES: readonly (readonly [before: Algorithm, after: Algorithm])[] = [
    [tokenBucket({ limit: 5, window: '1s' }), tokenBucket({ limit: 7, window: '3s', burst: 9 })],
    [
      leakyBucket({ limit: 50, window: '1s', capacity: 4 }),
      leakyBucket({ limit: 30, window: '1s', capacity: 8 }),
    ],
    [fixedWindow({ limit: 5, window: '1s' }), fixedWindow({ limit: 8, window: '1s' })],
    [slidingWindow({ limit: 5, window: '1s' }), slidingWindow({ limit: 8, window: '2s' })],
    [slidingLog({ limit: 5, window: '1s' }), slidingLog({ limit: 4, window: '1s' })],
    [cycle({ limit: 5, period: '1s' }), cycle({ limit: 9, period: '1s' })],
    [smoothBursty({ limit: 50, window: '1s' }), smoothBursty({ limit: 40, window: '1s' })],
    [
      smoothWarmingUp({ limit: 50, window: '1s', warmup: '1s' }),
      smoothWarmingUp({ limit: 40, window: '1s', warmup: '2s' }),
    ],
  ]

  test('are converted by one call for each, and one more that decides', async () => {
    const prefix = `several-${stores++}`
    const named = (place: number) => `limiter ${place}`
    const ours = CHANGES.map(([before], place) =>
      createLimiter(rested(before), { name: named(place), clock }),
    )
    const first = storeOf(prefix)
    const theirs = CHANGES.map(([before], place) => limiterOf(first, named(place), before))
    const second = storeOf(prefix)
    const later = CHANGES.map(([, after], place) => limiterOf(second, named(place), after))
    const asks = <L extends Limiter>(limiters: readonly L[], cost = 1) =>
      limiters.map(limiter => ({ limiter, key: 'ann', cost }))
    expect(figures(await tryAcquireAll(asks(theirs, 3)))).toEqual(figures(tryAcquireAll(asks(ours, 3))))
    clock.advance(200)
    for (const [place, [, after]] of CHANGES.entries()) ours[place]?.update(rested(after))
    await callsOf(it.redis)
    const decision = await tryAcquireAll(asks(later))
    expect(decision.allowed).toBe(true)
    const { evalsha = 0, eval: evals = 0 } = await callsOf(it.redis)
    expect(figures(decision)).toEqual(figures(tryAcquireAll(asks(ours))))
    expect(evalsha + evals).toBeLessThanOrEqual(CHANGES.length + 2)
    clock.advance(700)
    expect(figures(await tryAcquireAll(asks(later)))).toEqual(figures(tryAcquireAll(asks(ours))))
    expect((await callsOf(it.redis)).evalsha).toBe(1)
  })

  test('are converted even if another limiter refuses', async () => {
    const prefix = `several-${stores++}`
    const [old, changed] = [storeOf(prefix), storeOf(prefix)]
    await limiterOf(old, 'bucket', tokenBucket({ limit: 5, window: '1s' })).tryAcquire('ann', { cost: 5 })
    const bucket = limiterOf(changed, 'bucket', tokenBucket({ limit: 10, window: '1s' }))
    const log = limiterOf(changed, 'log', slidingLog({ limit: 1, window: '1s' }))
    await log.tryAcquire('ann')
    const decision = await combine(bucket, log).tryAcquire('ann')
    expect(decision.allowed).toBe(false)
    expect((await bucket.peek('ann')).remaining).toBe(0)
    clock.advance(1000)
    expect((await combine(bucket, log).tryAcquire('ann')).allowed).toBe(true)
  })
})

describe('the policies of a route', () => {
  /** Starts a server that responds with the status in x-status. Returns a request that waits until the limits are settled. */
  async function serve(policiesOf: (make: Make) => Policies, store?: RedisStore, quiet?: Quiet) {
    const make: Make = (name, algorithm) =>
      store === undefined
        ? createLimiter(rested(algorithm), { name, clock })
        : (createLimiter(algorithm, { name, clock, store }) as unknown as Limiter)
    const limit = limitRoute({ policies: policiesOf(make) } as never)
    const handle = limit((request: IncomingMessage, response: ServerResponse) => {
      response.statusCode = Number(request.headers['x-status'] ?? 200)
      response.end('answer')
    })
    let ended: Promise<unknown> = Promise.resolve()
    const http = createServer((request, response) => {
      ended = once(response, 'close')
      handle(request, response)
    }).listen(0, '127.0.0.1')
    await once(http, 'listening')
    closing.push(() => new Promise(resolve => http.close(resolve).closeAllConnections()))
    const { port } = http.address() as AddressInfo
    return async (headers: Record<string, string>) => {
      const response = await fetch(`http://127.0.0.1:${port}/`, { headers })
      const body = await response.text()
      await ended
      await quiet?.wait()
      const { date: _, ...fields } = Object.fromEntries(response.headers)
      return { status: response.status, fields, body }
    }
  }

  const user = (request: IncomingMessage) => String(request.headers['x-user'])
  const tenant = (request: IncomingMessage) => String(request.headers['x-tenant'])

  const ROUTES: readonly (readonly [name: string, policiesOf: (make: Make) => Policies])[] = [
    [
      'policies with several subjects',
      make => [
        { limiter: make('user', tokenBucket({ limit: 6, window: '1s' })), key: user },
        { limiter: make('tenant', slidingWindow({ limit: 15, window: '2s' })), key: tenant, cost: 2 },
        { limiter: make('all', fixedWindow({ limit: 40, window: '5s' })), key: () => 'all' },
      ],
    ],
    [
      'policies with count: after, refund and block',
      make => [
        {
          limiter: make('failures', slidingLog({ limit: 3, window: '1s' })),
          key: user,
          count: 'after',
          refund: { ifSuccessful: true },
        },
        {
          limiter: make('tenant', tokenBucket({ limit: 8, window: '1s' })),
          key: tenant,
          refund: { ifFailed: true },
          block: { after: 2, for: ['300ms', '2s'] },
        },
        {
          limiter: make('bytes', tokenBucket({ limit: 10, window: '1s' })),
          key: user,
          count: 'after',
          cost: 2,
        },
      ],
    ],
    [
      'policies of which one is unlimited',
      make => [
        { limiter: make('free', unlimited()), key: user },
        { limiter: make('user', cycle({ limit: 4, period: '1s' })), key: user },
        { limiter: make('burst', smoothBursty({ limit: 5, window: '1s' })), key: tenant },
      ],
    ],
  ]

  test.each(ROUTES)('%s give the responses of memory', async (_name, policiesOf) => {
    const quiet = new Quiet(it.redis)
    const store = redisStore(quiet.client, { prefix: `several-${stores++}`, deadline: '1m' })
    const [inMemory, onRedis] = [await serve(policiesOf), await serve(policiesOf, store, quiet)]
    const random = seeded(7)
    const oneOf = <T>(values: readonly T[]) => values[Math.floor(random() * values.length)] as T
    const statuses = new Set<number>()
    for (let number = 0; number < 150; number++) {
      clock.advance(oneOf([0, 0, 1, 33, 100, 400]))
      const headers = {
        'x-user': oneOf(['ann', 'bob', 'eve']),
        'x-tenant': oneOf(['acme', 'umbrella']),
        'x-status': oneOf(['200', '200', '401', '500']),
      }
      const expected = await inMemory(headers)
      statuses.add(expected.status)
      expect(await onRedis(headers), `request ${number}`).toEqual(expected)
    }
    expect([...statuses]).toEqual(expect.arrayContaining([200, 429]))
  })

  test('make one call together', async () => {
    const quiet = new Quiet(it.redis)
    const store = redisStore(quiet.client, { prefix: `several-${stores++}`, deadline: '1m' })
    const [, policiesOf] = ROUTES[0] as (typeof ROUTES)[number]
    const get = await serve(policiesOf, store, quiet)
    await get({ 'x-user': 'ann', 'x-tenant': 'acme' })
    await callsOf(it.redis)
    expect((await get({ 'x-user': 'bob', 'x-tenant': 'umbrella' })).status).toBe(200)
    expect(await callsOf(it.redis)).toMatchObject({ evalsha: 1 })
  })

  test('with count: after make one call each after the response', async () => {
    const quiet = new Quiet(it.redis)
    const store = redisStore(quiet.client, { prefix: `several-${stores++}`, deadline: '1m' })
    const [, policiesOf] = ROUTES[1] as (typeof ROUTES)[number]
    const get = await serve(policiesOf, store, quiet)
    await get({ 'x-user': 'ann', 'x-tenant': 'acme', 'x-status': '500' })
    await callsOf(it.redis)
    await get({ 'x-user': 'bob', 'x-tenant': 'umbrella' })
    expect((await callsOf(it.redis)).evalsha).toBe(2)
  })
})

type Make = (name: string, algorithm: Algorithm) => Limiter
type Policies = readonly Record<string, unknown>[]

function lookAt(asks: readonly { readonly limiter: Limiter<true>; readonly key: string }[]) {
  return Promise.all(asks.map(async ({ limiter, key }) => (await limiter.peek(key)).toJSON()))
}

/** A joint decision and its parts as plain data. */
function figures(decision: Awaited<ReturnType<typeof tryAcquireAll<boolean>>>) {
  return [decision.toJSON(), ...decision.parts.map(({ decision }) => decision.toJSON())]
}
