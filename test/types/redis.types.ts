import { type AsyncStore, createLimiter, type Limiter, tokenBucket } from '@sluice/core'
import { type RedisClient, type RedisStore, redisStore, type StoredKey } from '@sluice/redis'
import { Redis } from 'ioredis'
import { Redis as Redis5 } from 'ioredis5'
import { createClient, createClientPool } from 'redis'
import { createClient as createClient4 } from 'redis4'
import { createClient as createClient5 } from 'redis5'

/*
 * Checked by tsc and never run: redisStore accepts the supported clients and nothing else.
 */

type Same<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false

/** Compiles only when both types are the same. */
declare function same<A, B>(..._: Same<A, B> extends true ? [] : [never]): void

export function clients() {
  return [
    redisStore(new Redis()),
    redisStore(new Redis({ protocol: 2 })),
    redisStore(new Redis({ protocol: 3, replyMapping: 'resp3' })),
    redisStore(new Redis5()),
    redisStore(createClient()),
    redisStore(createClient({ RESP: 2 })),
    redisStore(createClient({ RESP: 3 })),
    redisStore(createClientPool()),
    redisStore(createClient5()),
    redisStore(createClient5({ RESP: 3 })),
    redisStore(createClient4()),
  ]
}

export async function limiters() {
  const store = redisStore(new Redis(), { prefix: 'app', deadline: '50ms', onStoreError: 'allow' })
  same<typeof store, RedisStore>()
  const asStore: AsyncStore = store
  const limiter = createLimiter(tokenBucket({ limit: 10, window: '1m' }), { name: 'per-user', store })
  same<typeof limiter, Limiter<true>>()
  for await (const stored of store.list({ name: 'per-user' })) {
    same<typeof stored, StoredKey>()
    same<typeof stored.key, string | undefined>()
  }
  return asStore
}

export function invalidClients(client: RedisClient) {
  redisStore(client)
  // @ts-expect-error an address is not a client
  redisStore('redis://127.0.0.1')
  // @ts-expect-error not a complete client
  redisStore({ evalsha: async () => null })
  // @ts-expect-error the client is missing
  redisStore()
  // @ts-expect-error 'local' is not one of the values
  redisStore(client, { onStoreError: 'local' })
  // @ts-expect-error the option is called prefix
  redisStore(client, { keyPrefix: 'app' })
}
