import {
  type AsyncStore,
  createLimiter,
  memoryStore,
  type SyncStore,
  tokenBucket,
  tryAcquireAll,
} from '@sluice/core'
import { type ManualClock, manualClock } from '@sluice/core/testing'
import { type RedisClient, type RedisStore, redisStore } from '@sluice/redis'
import { Cluster, Redis } from 'ioredis'
import { createClient, createCluster } from 'redis'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { ALGORITHMS, asOnRedis } from './algorithms.js'
import { CLIENTS, type Connection } from './connect.js'
import { callsOf, server } from './server.js'

const here = server()
const BUCKET = tokenBucket({ limit: 100, window: '1h' })

describe.each(CLIENTS)('$name', ({ name, protocol, connect }) => {
  let connection: Connection
  beforeAll(async () => {
    connection = await connect(here.port, name.replace(/[^\w-]/g, '-'))
  })
  afterAll(() => connection.close())

  test('connects with that protocol', async () => {
    const clients = String(await here.redis.client('LIST'))
    const line = clients.split('\n').find(line => line.includes(` name=${name.replace(/[^\w-]/g, '-')} `))
    expect(line).toMatch(new RegExp(`resp=${protocol}\\b`))
  })

  test('gives the answers of memoryStore', async () => {
    const prefix = name.replace(/[^\w-]/g, '-')
    const ours = await answers(redisStore(connection.client, { prefix, deadline: '5s' }))
    expect(ours).toEqual(await answers(memoryStore()))
  })

  test('makes one call for a decision, and sends each script once', async () => {
    const store = redisStore(connection.client, { prefix: 'calls', deadline: '5s' })
    const [a, b, c] = ['a', 'b', 'c'].map(name => createLimiter(BUCKET, { name, store })) as [L, L, L]
    await here.redis.script('FLUSH')
    await callsOf(here.redis)
    await a.tryAcquire('ann')
    expect(await callsOf(here.redis)).toMatchObject({ evalsha: 1, eval: 1 })
    const acts: Record<string, () => Promise<unknown>> = {
      tryAcquire: () => a.tryAcquire('ann', { cost: 2 }),
      peek: () => a.peek('ann'),
      reserve: () => a.reserve('ann', { maxWait: '1s' }),
      acquire: () => a.acquire('ann'),
      'three policies': () => tryAcquireAll([a, b, c].map(limiter => ({ limiter, key: 'ann' }))),
      'three subjects': () => tryAcquireAll([a, b, c].map(limiter => ({ limiter, key: limiter.name }))),
    }
    await acts['three policies']?.()
    for (const [verb, act] of Object.entries(acts)) {
      await callsOf(here.redis)
      await act()
      const { evalsha, eval: sent, script } = await callsOf(here.redis)
      expect({ evalsha, sent, script }, verb).toEqual({ evalsha: 1, sent: undefined, script: undefined })
    }
  })

  // express-rate-limit/rate-limit-redis#71, upstash/ratelimit-js#122
  test('loses no call when the server loses its scripts', async () => {
    const store = redisStore(connection.client, { prefix: 'flushed', deadline: '5s' })
    const limiter = createLimiter(BUCKET, { name: name.replace(/[^\w-]/g, '-'), store })
    await limiter.tryAcquire('ann')
    await here.redis.script('FLUSH')
    await callsOf(here.redis)
    const decisions = await Promise.all(Array.from({ length: 50 }, () => limiter.tryAcquire('ann')))
    expect(decisions.filter(({ allowed }) => allowed)).toHaveLength(50)
    expect((await limiter.peek('ann')).remaining).toBe(100 - 51)
    const calls = await callsOf(here.redis)
    expect(calls.evalsha).toBe(51)
    expect(calls.eval).toBeLessThanOrEqual(50)
  })

  test('lists the keys of a limiter', async () => {
    const store = redisStore(connection.client, { prefix: name.replace(/[^\w-]/g, '-'), deadline: '5s' })
    const limiter = createLimiter(BUCKET, { name: 'listed', store })
    const keys = Array.from({ length: 700 }, (_, index) => `user ${index}`)
    await Promise.all(keys.map(key => limiter.tryAcquire(key)))
    expect(await listed(store, 'listed')).toEqual(keys.toSorted())
  })
})

type L = ReturnType<typeof createLimiter<RedisStore>>

async function listed(store: RedisStore, name: string) {
  const keys = new Set<string | undefined>()
  for await (const { key } of store.list({ name })) keys.add(key)
  return [...keys].toSorted()
}

/** The answers to a sequence of all verbs, for every algorithm. */
async function answers(store: AsyncStore | SyncStore): Promise<unknown[]> {
  const clock = manualClock()
  const collected: unknown[] = []
  const limiters = ALGORITHMS.map(({ name, of }) => {
    const algorithm = store.async ? of(5, '10s') : asOnRedis(of(5, '10s'))
    return {
      algorithm,
      of,
      limiter: createLimiter<AsyncStore | SyncStore>(algorithm, { name, clock, store }),
    }
  })
  for (const { algorithm, of, limiter } of limiters)
    for await (const answer of sequence(limiter as never, clock, algorithm.bookable, () => of(8, '10s')))
      collected.push([limiter.name, answer])
  const asks = limiters.map(({ limiter }) => ({ limiter, key: 'bob' }))
  for (let times = 0; times < 12; times++) collected.push(await tryAcquireAll(asks as never))
  // Decisions are compared by their JSON.
  return collected.map(answer => JSON.stringify(answer, (_, value) => (value === Infinity ? 'never' : value)))
}

async function* sequence(limiter: L, clock: ManualClock, bookable: boolean, changed: () => typeof BUCKET) {
  const maxWait = bookable ? '1h' : 0
  yield limiter.tryAcquire('ann')
  clock.advance(333.333)
  yield limiter.tryAcquire('ann', { cost: 2 })
  yield limiter.peek('ann')
  const cancelled = await limiter.reserve('ann', { maxWait })
  yield cancelled
  yield cancelled.cancel()
  yield cancelled.cancel()
  yield limiter.peek('ann')
  const refunded = await limiter.reserve('ann', { cost: 2, maxWait })
  yield refunded
  clock.advance('1s')
  yield refunded.refund()
  yield limiter.peek('ann')
  yield limiter.release('ann', 1)
  yield limiter.drain('ann')
  yield limiter.tryAcquire('ann')
  yield limiter.tryAcquire('ann', { cost: 100 })
  yield limiter.block('ann', '30s')
  yield limiter.tryAcquire('ann')
  yield limiter.unblock('ann')
  yield limiter.peek('ann')
  clock.advance('4s')
  yield limiter.update(changed())
  yield limiter.peek('ann')
  yield limiter.tryAcquire('ann')
  yield limiter.reset('ann')
  yield limiter.peek('ann')
}

/** A client whose script calls are replaced by `act`, which can make the real call; and how many there were. */
function faulty(
  redis: Redis,
  shape: 'ioredis' | 'node-redis',
  act: (answer: () => Promise<unknown>, call: number) => Promise<unknown>,
) {
  let calls = 0
  const one = (answer: () => Promise<unknown>) => act(answer, ++calls)
  const options = ({ keys, arguments: rest }: { keys: string[]; arguments: string[] }) =>
    [...keys, ...rest] as const
  const others = { scan: redis.scan.bind(redis), unlink: redis.unlink.bind(redis) }
  const client: RedisClient =
    shape === 'ioredis'
      ? {
          ...others,
          evalsha: (sha, count, ...rest) => one(() => redis.evalsha(sha, count, ...rest)),
          eval: (text, count, ...rest) => one(() => redis.eval(text, count, ...rest)),
        }
      : {
          ...others,
          evalSha: (sha, call) => one(() => redis.evalsha(sha, call.keys.length, ...options(call))),
          eval: (text, call) => one(() => redis.eval(text, call.keys.length, ...options(call))),
        }
  return {
    client,
    get calls() {
      return calls
    },
  }
}

describe.each(['ioredis', 'node-redis'] as const)('with a client like %s', shape => {
  const ERRORS = [
    'timeout',
    'Connection is closed.',
    'ERR unknown command',
    'BUSY Redis is busy running a script.',
    'LOADING Redis is loading the dataset in memory',
    "READONLY You can't write against a read only replica.",
    'MOVED 3999 127.0.0.1:6381',
    'OOM command not allowed when used memory > maxmemory.',
    'the script was lost: NOSCRIPT',
  ]

  // express-rate-limit/rate-limit-redis#251: commands that may have run were sent again
  test.each(ERRORS)('a command that ran and then failed with "%s" is not sent again', async message => {
    const fault = faulty(here.redis, shape, async answer => {
      await answer()
      throw new Error(message)
    })
    await here.redis.flushall()
    const store = redisStore(here.redis, { deadline: '5s' })
    const sound = createLimiter(BUCKET, { name: 'one', store })
    await sound.peek('ann')
    const limiter = createLimiter(BUCKET, {
      name: 'one',
      store: redisStore(fault.client, { deadline: '5s' }),
    })
    await sound.tryAcquire('ann')
    await expect(limiter.tryAcquire('ann')).rejects.toMatchObject({
      code: 'SLUICE_STORE_ERROR',
      cause: { message },
    })
    expect(fault.calls).toBe(1)
    expect((await sound.peek('ann')).remaining).toBe(98)
  })

  test('a script that the server does not know is sent once, and no more if that fails', async () => {
    const fault = faulty(here.redis, shape, async (_, call) => {
      throw new Error(call === 1 ? 'NOSCRIPT No matching script. Please use EVAL.' : 'NOSCRIPT again')
    })
    const limiter = createLimiter(BUCKET, {
      name: 'two',
      store: redisStore(fault.client, { deadline: '5s' }),
    })
    await expect(limiter.tryAcquire('ann')).rejects.toMatchObject({ cause: { message: 'NOSCRIPT again' } })
    expect(fault.calls).toBe(2)
  })

  test.each(
    [
      undefined,
      null,
      true,
      'OK',
      '',
      {},
      Buffer.from('OK'),
      [],
      [null],
      [0, 'a'],
      [0, null, 0],
      [0, 0, 0, 0, null, 0],
      ['stale'],
    ].map(answer => ({ answer })),
  )('the reply $answer is a store error', async ({ answer }) => {
    const fault = faulty(here.redis, shape, async () => answer)
    const store = redisStore(fault.client, { deadline: '5s' })
    const limiter = createLimiter(BUCKET, { name: 'three', store })
    const code = 'SLUICE_STORE_ERROR'
    await expect(limiter.tryAcquire('ann')).rejects.toMatchObject({ code })
    await expect(limiter.reserve('ann', { maxWait: '1h' })).rejects.toMatchObject({ code })
    await expect(limiter.release('ann', 1)).rejects.toMatchObject({ code })
  })

  test.each([undefined, null, 'OK', {}, [], [0], [0, 'a'], [0, []], [0, {}]].map(answer => ({ answer })))(
    'the reply $answer to two asks is a store error',
    async ({ answer }) => {
      const fault = faulty(here.redis, shape, async () => answer)
      const store = redisStore(fault.client, { deadline: '5s' })
      const limiters = ['four', 'five'].map(name => createLimiter(BUCKET, { name, store }))
      const asks = limiters.map(limiter => ({ limiter, key: 'ann' }))
      await expect(tryAcquireAll(asks)).rejects.toMatchObject({ code: 'SLUICE_STORE_ERROR' })
    },
  )
})

test.each([
  ['nothing', undefined],
  ['null', null],
  ['an address', 'redis://127.0.0.1'],
  ['a port', 6379],
  ['an object', {}],
  ['a class', Redis],
  ['a promise of a client', Promise.resolve(createClient())],
  ['a cluster of ioredis', new Cluster([{ port: 1 }], { lazyConnect: true })],
  ['a cluster of node-redis', createCluster({ rootNodes: [{}] })],
  ['an object whose evalsha is no function', { evalsha: true, evalSha: 'yes' }],
])('redisStore rejects %s as a client', (_, client) => {
  const code = 'SLUICE_INVALID_OPTION'
  expect(() => redisStore(client as never)).toThrow(
    expect.objectContaining({ name: 'TypeError', code, option: 'client' }),
  )
})

test('calls through a pipeline fail at the deadline', async () => {
  const limiter = createLimiter(BUCKET, { name: 'piped', store: redisStore(here.redis.pipeline() as never) })
  await expect(limiter.tryAcquire('ann')).rejects.toMatchObject({ code: 'SLUICE_STORE_ERROR' })
})
