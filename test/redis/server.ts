import { Redis } from 'ioredis'
import { afterAll, beforeAll } from 'vitest'
import { type RedisServer, startRedis } from '../support/redis-server.js'

/** A server for the tests of one file, and a connection to it. */
export function server(): { readonly running: RedisServer; readonly port: number; readonly redis: Redis } {
  let running: RedisServer
  let redis: Redis
  beforeAll(async () => {
    running = await startRedis()
    redis = new Redis(running.port)
  })
  afterAll(async () => {
    redis.disconnect()
    await running.stop()
  })
  return {
    get running() {
      return running
    },
    get port() {
      return running.port
    },
    get redis() {
      return redis
    },
  }
}

/** How often each command has run since the last call of this function, without the commands of this function. */
export async function callsOf(redis: Redis): Promise<Record<string, number>> {
  const stats = await redis.info('commandstats')
  await redis.config('RESETSTAT')
  const calls: Record<string, number> = {}
  for (const [, name = '', count] of stats.matchAll(/^cmdstat_([\w|-]+):calls=(\d+)/gm))
    calls[name] = Number(count)
  const { info, 'config|resetstat': _, ...others } = calls
  return others
}

/** How many writes the server has made. */
export async function writesOn(redis: Redis): Promise<number> {
  const [, count] = /^rdb_changes_since_last_save:(\d+)/m.exec(await redis.info('persistence')) ?? []
  return Number(count)
}

/** The keys that begin with a prefix. */
export async function keysUnder(redis: Redis, prefix: string): Promise<string[]> {
  const found = (await redis.keys('*')).filter(key => key.startsWith(prefix))
  return found.toSorted()
}
