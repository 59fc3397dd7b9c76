import { type AsyncStore, createLimiter, type Limiter, tokenBucket, tryAcquireAll } from '@sluice/core'
import { limitRoute } from '@sluice/core/http'
import { manualClock } from '@sluice/core/testing'
import { rateLimit as onExpress } from '@sluice/express'
import { rateLimit as onFastify } from '@sluice/fastify'
import { rateLimit as onKoa } from '@sluice/koa'
import { type RedisStore, redisStore } from '@sluice/redis'
import fc from 'fast-check'
import { fastify } from 'fastify'
import { Redis } from 'ioredis'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { escaped, unescaped } from '../../packages/redis/src/key-names.js'
import { ALGORITHMS } from './algorithms.js'
import { callsOf, keysUnder, server, writesOn } from './server.js'

const here = server()
const BUCKET = tokenBucket({ limit: 10, window: '1h' })
const PATIENT = { deadline: '5s' } as const

/** The connection of a second process. */
let other: Redis
beforeAll(() => {
  other = new Redis(here.port)
})
afterAll(() => other.disconnect())

let store: RedisStore
beforeEach(async () => {
  await here.redis.flushall()
  store = redisStore(here.redis, PATIENT)
})

describe('the key on the server', () => {
  const HASH = /^%23[\w-]{43}$/
  test.each<[what: string, subject: string, between: string | RegExp]>([
    ['letters', 'ann', 'ann'],
    ['colons and spaces', 'user: ann of:us', 'user: ann of:us'],
    ['an address', '2001:db8::/56', '2001:db8::/56'],
    ['braces', 'a{b}c', 'a%7Bb%7Dc'],
    ['a brace at its end', 'ann}', 'ann%7D'],
    ['nothing but braces', '{}', '%7B%7D'],
    ['a percent sign', '100%', '100%25'],
    ['an escape sequence', '%7B', '%257B'],
    ['the mark of a hash', '%23', '%2523'],
    ['letters of many scripts', 'Žofie 日本 🙂', 'Žofie 日本 🙂'],
    ['a combining letter', 'e\u0301', 'e\u0301'],
    ['control characters', 'a\0b\r\nc', 'a\0b\r\nc'],
    ['glob characters', 'a*?[b]\\', 'a*?[b]\\'],
    ['a property of every object', '__proto__', '__proto__'],
    ['128 bytes', 'x'.repeat(128), 'x'.repeat(128)],
    ['128 bytes of 64 letters', 'é'.repeat(64), 'é'.repeat(64)],
    ['129 bytes', 'x'.repeat(129), HASH],
    ['129 bytes of 65 letters', `${'é'.repeat(64)}x`, HASH],
    ['a lone high surrogate', 'a\ud800', HASH],
    ['a lone low surrogate', '\udc00a', HASH],
  ])('for a subject: %s', async (_, subject, between) => {
    const limiter = createLimiter(BUCKET, { name: 'per-user', store })
    await limiter.tryAcquire(subject)
    const keys = await here.redis.keys('*')
    expect(keys).toHaveLength(1)
    const [, found] = /^sluice:\{([^{}]*)\}:per-user:token-bucket$/s.exec(String(keys[0])) ?? []
    if (typeof between === 'string') expect(found).toBe(between)
    else expect(found).toMatch(between)
    expect((await limiter.peek(subject)).remaining).toBe(9)
    await limiter.reset(subject)
    expect(await here.redis.dbsize()).toBe(0)
  })

  test('differs for any two subjects', () => {
    const letters = fc.constantFrom(...'{}%2357BD#:ax é', '\ud800', '\udc00', '🙂')
    const subject = fc.oneof(
      fc.string({ unit: letters, maxLength: 6 }),
      fc.string({ unit: letters, minLength: 126, maxLength: 130 }),
      fc.string({ unit: 'binary' }),
    )
    fc.assert(
      fc.property(subject, subject, (a, b) => {
        expect(escaped(a) === escaped(b)).toBe(a === b)
        expect(escaped(a)).toMatch(/^[^{}]*$/)
        expect([a, undefined]).toContain(unescaped(escaped(a)))
        // No subject can be spelled like the escaped form of another.
        expect(escaped(escaped(a)) === escaped(a)).toBe(!/[%{}]/.test(escaped(a)))
      }),
      { numRuns: 2000 },
    )
    const hashes = ['\ud800', '\ud801', '\udc00', 'x'.repeat(129), 'y'.repeat(129), 'x'.repeat(130)].map(
      escaped,
    )
    expect(new Set(hashes).size).toBe(hashes.length)
  })

  test('differs for any two limiters', async () => {
    const names = ['a', 'a:penalty', 'a:given', 'penalty', '{a}', 'a}:a', 'token-bucket']
    for (const name of names) {
      const limiter = createLimiter(BUCKET, { name, store })
      await limiter.tryAcquire('ann', { cost: 2 })
      await limiter.block('ann', '1h')
      await limiter.unblock('ann')
      await (await limiter.reserve('ann')).refund()
      expect((await limiter.peek('ann')).remaining, name).toBe(8)
    }
    for (const { name, of } of ALGORITHMS) {
      const limiter = createLimiter(of(20, '1h'), { name: 'one', store: redisStore(here.redis, PATIENT) })
      expect((await limiter.tryAcquire('ann')).allowed, name).toBe(true)
    }
    expect(await keysUnder(here.redis, 'sluice:{ann}:one:')).toHaveLength(ALGORITHMS.length)
  })
})

describe('a prefix', () => {
  test.each([
    [undefined, 'sluice:'],
    ['', ''],
    ['app', 'app:'],
    ['app:', 'app:'],
    ['app::', 'app::'],
    ['my_app-2.limits:eu', 'my_app-2.limits:eu:'],
    ['p'.repeat(64), `${'p'.repeat(64)}:`],
  ])('%j becomes %j', async (prefix, found) => {
    await createLimiter(BUCKET, {
      name: 'n',
      store: redisStore(here.redis, { prefix, ...PATIENT }),
    }).tryAcquire('ann')
    expect(await here.redis.keys('*')).toEqual([`${found}{ann}:n:token-bucket`])
  })

  test.each(['p'.repeat(65), 'my app', 'a*', 'a?', 'a[b', 'a{b', 'a}', 'ä', 'a\n', 'a/b', 'a%'])(
    '%j is rejected',
    prefix => {
      expect(() => redisStore(here.redis, { prefix })).toThrow(
        expect.objectContaining({ name: 'RangeError', code: 'SLUICE_INVALID_OPTION', option: 'prefix' }),
      )
    },
  )

  test.each([null, 5, ['app'], {}, true])('%j is rejected as no string', prefix => {
    expect(() => redisStore(here.redis, { prefix: prefix as never })).toThrow(
      expect.objectContaining({ name: 'TypeError', code: 'SLUICE_INVALID_OPTION', option: 'prefix' }),
    )
  })

  test('keeps the keys of two apps apart', async () => {
    const [one, two] = ['one', 'two'].map(prefix => {
      const store = redisStore(here.redis, { prefix, ...PATIENT })
      return { store, limiter: createLimiter(BUCKET, { name: 'n', store }) }
    }) as [{ store: RedisStore; limiter: Limiter<true> }, { store: RedisStore; limiter: Limiter<true> }]
    await one.limiter.drain('ann')
    expect((await two.limiter.tryAcquire('ann')).remaining).toBe(9)
    expect(await listed(one.store)).toEqual(['n ann token-bucket'])
    await two.limiter.reset('ann')
    expect((await one.limiter.peek('ann')).remaining).toBe(0)
  })
})

describe.each(ALGORITHMS)('$name', ({ of }) => {
  test('sets a time to live of at least the time to rest', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.record({ verb: fc.nat(4), cost: fc.integer({ min: 1, max: 6 }) }), {
          minLength: 1,
          maxLength: 8,
        }),
        fc.constantFrom('900ms', '1m', '30d'),
        async (acts, window) => {
          await here.redis.flushall()
          const algorithm = of(5, window)
          const limiter = createLimiter(algorithm, { name: 'n', store: redisStore(here.redis, PATIENT) })
          for (const { verb, cost } of acts) {
            if (verb < 3) await limiter.tryAcquire('ann', { cost })
            else {
              const booking = await limiter.reserve('ann', { cost, maxWait: algorithm.bookable ? '60d' : 0 })
              if (verb === 4) await booking.cancel()
            }
            const ttls = await ttlsOf(await here.redis.keys('*'))
            // Read after the time to live, so the time to rest can only be shorter.
            const { resetAfterMs } = await limiter.peek('ann')
            for (const [key, ttl] of ttls)
              expect(ttl, `${key} of ${window}`).toBeGreaterThanOrEqual(
                key.endsWith(algorithm.name) ? resetAfterMs : 1,
              )
          }
        },
      ),
      { numRuns: 15 },
    )
  })

  test('writes nothing for a refusal or a peek', async () => {
    const algorithm = of(3, '1d')
    const limiter = createLimiter(algorithm, { name: 'n', store })
    const joint = createLimiter(BUCKET, { name: 'joint', store })
    const asks = async (key: string) => {
      const both = [joint, limiter].map(limiter => ({ limiter, key, cost: 50 }))
      const maxWait = algorithm.bookable ? 1 : 0
      return [
        await limiter.tryAcquire(key, { cost: 50 }),
        await limiter.reserve(key, { cost: 50, maxWait }),
        await limiter.acquire(key, { cost: 50, maxWait }).catch(error => error.decision),
        await tryAcquireAll(both),
      ]
    }
    const looks = async (key: string) => {
      await limiter.peek(key, { cost: 2 })
      await limiter.tryAcquire(key, { cost: 0 })
      await limiter.reserve(key, { cost: 0, maxWait: 0 })
      await limiter.release(key, 0)
    }
    const before = await writesOn(here.redis)
    // Smooth limiters grant any cost to a rested key, and the next caller waits for it.
    const isSmooth = algorithm.name.startsWith('smooth')
    if (!isSmooth) for (const { allowed } of await asks('new')) expect(allowed).toBe(false)
    await looks('new')
    await limiter.release('new', 2)
    expect(await limiter.drain('new').then(() => 'drained')).toBe('drained')
    await limiter.reset('new')
    const between = await writesOn(here.redis)
    expect(await here.redis.dbsize()).toBe(0)
    // One write by the drain, and one by the reset.
    expect(between - before).toBe(2)

    await limiter.drain('ann')
    const drained = await writesOn(here.redis)
    const dumps = await dumped()
    for (const { allowed } of await asks('ann')) expect(allowed).toBe(false)
    await looks('ann')
    expect(await limiter.drain('ann')).toBe(0)
    expect(await writesOn(here.redis)).toBe(drained)
    expect(await dumped()).toEqual(dumps)
  })

  // fastify/fastify-rate-limit#152
  test('sets a lost time to live again with the next grant', async () => {
    const clock = manualClock()
    const limiter = createLimiter(of(2, '500ms'), { name: 'n', clock, store })
    await limiter.drain('ann')
    const [key = ''] = await here.redis.keys('*')
    await here.redis.persist(key)
    expect(await here.redis.pttl(key)).toBe(-1)
    const refused = await limiter.tryAcquire('ann')
    expect(refused.allowed).toBe(false)
    expect(await here.redis.pttl(key)).toBe(-1)
    clock.advance(refused.retryAfterMs)
    expect((await limiter.tryAcquire('ann')).allowed).toBe(true)
    expect(await here.redis.pttl(key)).toBeGreaterThan(0)
  })

  test.each<[what: string, put: (key: string, length: number) => Promise<unknown>]>([
    ['a list', key => here.redis.rpush(key, 'a', 'b')],
    ['a hash', key => here.redis.hset(key, { count: 5 })],
    ['a set', key => here.redis.sadd(key, 'a')],
    ['a sorted set', key => here.redis.zadd(key, 1, 'a')],
    ['a stream', key => here.redis.xadd(key, '*', 'a', 'b')],
    ['an empty string', key => here.redis.set(key, '')],
    ['a number', key => here.redis.set(key, '17')],
    ['a state cut short', (key, length) => here.redis.set(key, Buffer.alloc(length - 1))],
    ['a state with something behind it', (key, length) => here.redis.set(key, Buffer.alloc(length + 1))],
    ['a long text', key => here.redis.set(key, 'x'.repeat(100_001))],
    ['a text of the same length', (key, length) => here.redis.set(key, 'x'.repeat(length))],
    ['NaNs', (key, length) => here.redis.set(key, Buffer.alloc(length, 0xff))],
  ])('treats %s in its place as a key never seen', async (_, put) => {
    const algorithm = of(5, '1h')
    const limiter = createLimiter(algorithm, { name: 'n', store })
    await limiter.tryAcquire('new')
    await limiter.tryAcquire('ann')
    const key = (await here.redis.keys('*{ann}*'))[0] ?? ''
    const length = await here.redis.strlen(key)
    const acts: Record<string, () => Promise<unknown>> = {
      tryAcquire: () => limiter.tryAcquire('ann'),
      reserve: () => limiter.reserve('ann', { maxWait: 0 }),
      'three together': () => tryAcquireAll([{ limiter, key: 'ann' }]),
      drain: () => limiter.drain('ann'),
      release: () => limiter.release('ann', 1),
    }
    for (const [verb, act] of Object.entries(acts)) {
      await here.redis.del(key)
      await put(key, length)
      const fresh = await limiter.peek('never seen')
      const peeked = await limiter.peek('ann')
      expect(peeked.remaining, verb).toBe(fresh.remaining)
      await act()
      await limiter.tryAcquire('ann')
      expect(await here.redis.pttl(key), verb).toBeGreaterThan(0)
    }
    expect((await limiter.peek('ann')).remaining).toBeLessThan((await limiter.peek('never seen')).remaining)
  })
})

test.each(['list', 'text'])('a %s in the place of a penalty does not block the key', async kind => {
  const limiter = createLimiter(BUCKET, { name: 'n', store })
  const key = 'sluice:{ann}:n:penalty'
  const put = () => (kind === 'list' ? here.redis.rpush(key, 'a') : here.redis.set(key, 'blocked'))
  await put()
  expect((await limiter.tryAcquire('ann')).allowed).toBe(true)
  await limiter.block('ann', '1h')
  expect((await limiter.tryAcquire('ann')).code).toBe('SLUICE_BLOCKED')
  await here.redis.del(key)
  await put()
  await limiter.unblock('ann')
  expect(await here.redis.exists(key)).toBe(0)
  await put()
  await limiter.reset('ann')
  expect(await here.redis.dbsize()).toBe(0)
})

async function ttlsOf(keys: readonly string[]): Promise<[string, number][]> {
  return Promise.all(keys.map(async key => [key, await here.redis.pttl(key)] as [string, number]))
}

async function dumped(): Promise<Record<string, string>> {
  const keys = (await here.redis.keys('*')).toSorted()
  const dumps = await Promise.all(
    keys.map(async key => [key, (await here.redis.dumpBuffer(key)).toString('hex')]),
  )
  return Object.fromEntries(dumps)
}

async function listed(store: RedisStore, name?: string): Promise<string[]> {
  const found = new Set<string>()
  for await (const { name: of, key, algorithm } of store.list({ name }))
    found.add(`${of} ${key} ${algorithm}`)
  return [...found].toSorted()
}

describe('store.list', () => {
  const NAMES = [
    'a',
    'ab',
    'a*',
    '*',
    'a?',
    '[ab]',
    'a\\',
    'a^-z',
    'a:b',
    '{a}',
    'a}:b',
    'a:token-bucket',
    'penalty',
  ]

  test('finds all of 1,000 keys, and those of each limiter', async () => {
    const limiters = NAMES.map(name => createLimiter(BUCKET, { name, store }))
    const keys = Array.from({ length: 1001 }, (_, index) => ({
      limiter: limiters[index % limiters.length] as Limiter<true>,
      key: `${index} {*}:?%`,
    }))
    await Promise.all(keys.map(({ limiter, key }) => limiter.tryAcquire(key)))
    // Keys of others, and keys that are no states.
    await here.redis.mset(
      'other',
      '1',
      'sluice:{a}:a:count',
      '1',
      'sluice:{a}',
      '1',
      'my-sluice:{a}:a:token-bucket',
      '1',
    )
    await limiters[0]?.block('blocked', '1h')
    const entries = keys.map(({ limiter, key }) => `${limiter.name} ${key} token-bucket`).toSorted()

    await callsOf(here.redis)
    expect(await listed(store)).toEqual(entries)
    const calls = await callsOf(here.redis)
    expect(Object.keys(calls)).toEqual(['scan'])
    expect(calls.scan).toBeGreaterThan(1)
    for (const name of NAMES)
      expect(await listed(store, name)).toEqual(entries.filter(entry => entry.startsWith(`${name} `)))
    expect(await listed(store, 'nobody')).toEqual([])
  })

  test('returns no subject for a hashed key', async () => {
    const limiter = createLimiter(BUCKET, { name: 'n', store })
    await limiter.tryAcquire('x'.repeat(129))
    for await (const stored of store.list())
      expect(stored).toEqual({ name: 'n', key: undefined, algorithm: 'token-bucket' })
    expect(await listed(store)).toHaveLength(1)
  })

  test('finds only keys without a prefix if its prefix is empty', async () => {
    const bare = redisStore(here.redis, { prefix: '', ...PATIENT })
    await createLimiter(BUCKET, { name: 'n', store: bare }).tryAcquire('ann')
    await createLimiter(BUCKET, { name: 'n', store }).tryAcquire('bob')
    expect(await listed(bare)).toEqual(['n ann token-bucket'])
  })

  test('finds the keys of every algorithm', async () => {
    for (const { name, of } of ALGORITHMS) await createLimiter(of(5, '1h'), { name, store }).tryAcquire('ann')
    expect(await listed(store)).toEqual(
      ALGORITHMS.map(({ name, of }) => `${name} ann ${of(1, '1s').name}`).toSorted(),
    )
  })
})

describe('two processes see the same state', () => {
  test.each(ALGORITHMS)('$name', async ({ of }) => {
    const [mine, yours] = [here.redis, other].map(client =>
      createLimiter(of(5, '1h'), { name: 'n', store: redisStore(client, PATIENT) }),
    ) as [Limiter<true>, Limiter<true>]
    const fresh = (await yours.peek('ann')).remaining
    expect((await mine.tryAcquire('ann')).allowed).toBe(true)
    expect((await yours.peek('ann')).remaining).toBe((await mine.peek('ann')).remaining)
    await yours.drain('ann')
    expect((await mine.tryAcquire('ann')).allowed).toBe(false)
    await mine.reset('ann')
    expect((await yours.peek('ann')).remaining).toBe(fresh)
    await yours.block('ann', '1h')
    expect((await mine.tryAcquire('ann')).code).toBe('SLUICE_BLOCKED')
    await mine.unblock('ann')
    expect((await yours.tryAcquire('ann')).allowed).toBe(true)
  })
})

describe('the name of a limiter', () => {
  const NEEDS_NAME = expect.objectContaining({
    name: 'TypeError',
    code: 'SLUICE_INVALID_OPTION',
    option: 'name',
  })
  const LIMIT = { limit: 5, window: '1m' } as const
  const doors: Record<
    string,
    (options: { store: AsyncStore; name?: string; limit: number; window: '1m' }) => unknown
  > = {
    createLimiter: ({ store, name }) => createLimiter(BUCKET, { store, name }),
    'rateLimit of Express': options => onExpress(options),
    'rateLimit of Koa': options => onKoa(options),
    'rateLimit of Express, among policies': options => onExpress({ policies: [options] }),
    'limitRoute of node:http': options => limitRoute(options),
  }

  test.each(Object.entries(doors))('is required: %s', (_, door) => {
    expect(() => door({ ...LIMIT, store })).toThrow(NEEDS_NAME)
    expect(() => door({ ...LIMIT, store, name: 'per-user' })).not.toThrow()
  })

  test('is required: rateLimit of Fastify', async () => {
    const [nameless, named] = [
      { ...LIMIT, store },
      { ...LIMIT, store, name: 'per-user' },
    ]
    await expect(fastify().register(onFastify, nameless)).rejects.toThrow(NEEDS_NAME)
    await fastify().register(onFastify, named)
  })

  test('can be used twice with the same options, and then the keys are shared', async () => {
    const [one, two] = [1, 2].map(() => createLimiter(BUCKET, { name: 'n', store })) as [
      Limiter<true>,
      Limiter<true>,
    ]
    await one.drain('ann')
    expect((await two.tryAcquire('ann')).allowed).toBe(false)
  })

  const TAKEN = expect.objectContaining({ code: 'SLUICE_NAME_TAKEN', option: 'name' })
  test.each(ALGORITHMS)('cannot be used twice with different options: $name', ({ of }) => {
    createLimiter(of(5, '1h'), { name: 'n', store })
    expect(() => createLimiter(of(6, '1h'), { name: 'n', store })).toThrow(TAKEN)
    expect(() => createLimiter(of(5, '2h'), { name: 'n', store })).toThrow(TAKEN)
    expect(() => createLimiter(of(5, '1h'), { name: 'n', store })).not.toThrow()
    expect(() => createLimiter(of(6, '1h'), { name: 'm', store })).not.toThrow()
    expect(() => createLimiter(of(6, '1h'), { name: 'n', store: redisStore(here.redis) })).not.toThrow()
  })

  test('cannot be used with two algorithms', () => {
    const [first, ...others] = ALGORITHMS.map(({ of }) => of(5, '1h'))
    createLimiter(first as typeof BUCKET, { name: 'n', store })
    for (const algorithm of others)
      expect(() => createLimiter(algorithm, { name: 'n', store })).toThrow(TAKEN)
  })

  test('is free for the new options after an update', async () => {
    const changed = tokenBucket({ limit: 20, window: '1h' })
    const limiter = createLimiter(BUCKET, { name: 'n', store })
    await limiter.update(changed)
    expect(() => createLimiter(changed, { name: 'n', store })).not.toThrow()
    expect(() => createLimiter(BUCKET, { name: 'n', store })).toThrow(TAKEN)
  })
})
