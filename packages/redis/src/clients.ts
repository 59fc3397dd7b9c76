import { invalid } from '@sluice/core/store'
import type { Script } from './scripts/script.js'

/*
 * No client is a dependency. A client is recognized by its methods: `evalsha` means ioredis or iovalkey, `evalSha` means
 * node-redis.
 */

// biome-ignore lint/suspicious/noExplicitAny: each client overloads these methods in its own way.
type Anything = any

/** A client like that of ioredis 5 and 6. */
export interface IoredisLike {
  evalsha(...args: Anything[]): Promise<unknown>
  eval(...args: Anything[]): Promise<unknown>
  scan(...args: Anything[]): Promise<Anything>
  unlink(...args: Anything[]): Promise<unknown>
}

/** A client like that of node-redis 4 to 6. */
export interface NodeRedisLike {
  evalSha(...args: Anything[]): Promise<unknown>
  eval(...args: Anything[]): Promise<unknown>
  scan(...args: Anything[]): Promise<Anything>
  unlink(...args: Anything[]): Promise<unknown>
}

/** A client of Redis or Valkey, connected or not yet. */
export type RedisClient = IoredisLike | NodeRedisLike

/** The commands that the store uses, the same for every client. */
export interface Commands {
  /**
   * Runs a script by EVALSHA, and by EVAL if the server does not know it. No other error is retried. `read` runs in the same
   * `then` that handles the error, because one more promise would slow down every decision.
   */
  run<T>(
    script: Script,
    keys: readonly string[],
    argument: string,
    read: (reply: unknown) => T,
  ): Promise<Awaited<T>>
  /** One step of a SCAN. The cursor is '0' at the start and at the end. */
  scan(cursor: string, pattern: string, count: number): Promise<readonly [cursor: string, keys: string[]]>
  unlink(keys: readonly string[]): Promise<unknown>
}

/** The commands of a client. Throws a TypeError for a value that is no client. */
export function commandsOf(client: unknown): Commands {
  const { evalsha, evalSha } = (client ?? {}) as Partial<IoredisLike & NodeRedisLike>
  // One call may use keys of several subjects, which a cluster keeps on several servers.
  const { isCluster, nodeClient } = (client ?? {}) as { isCluster?: unknown; nodeClient?: unknown }
  if (isCluster === true || nodeClient !== undefined)
    throw invalid(TypeError, 'client', 'a client of one server, not of a cluster', client)
  if (typeof evalsha === 'function') return ioredis(client as IoredisLike)
  if (typeof evalSha === 'function') return nodeRedis(client as NodeRedisLike)
  throw invalid(TypeError, 'client', 'a client of ioredis or node-redis', client)
}

function ioredis(client: IoredisLike): Commands {
  return {
    run: (script, keys, argument, read) =>
      client.evalsha(script.sha, keys.length, ...keys, argument).then(
        read,
        onUnknownScript(() => client.eval(script.text, keys.length, ...keys, argument).then(read)),
      ),
    scan: (cursor, pattern, count) => client.scan(cursor, 'MATCH', pattern, 'COUNT', count),
    unlink: keys => client.unlink(...keys),
  } as Commands
}

function nodeRedis(client: NodeRedisLike): Commands {
  return {
    run(script, keys, argument, read) {
      const options = { keys, arguments: [argument] }
      return client.evalSha(script.sha, options).then(
        read,
        onUnknownScript(() => client.eval(script.text, options).then(read)),
      )
    },
    async scan(cursor, pattern, count) {
      // In version 4 the cursor is a number.
      const next = await scan(client, cursor, { MATCH: pattern, COUNT: count })
      return [String(next.cursor), next.keys]
    },
    unlink: keys => client.unlink(keys),
  } as Commands
}

/** Retries if the server does not know the script, and throws any other error. */
function onUnknownScript<T>(retry: () => Promise<T>): (error: unknown) => Promise<T> {
  return error => {
    if (String((error as Error | undefined)?.message).startsWith('NOSCRIPT')) return retry()
    throw error
  }
}

async function scan(client: NodeRedisLike, cursor: string, options: object) {
  try {
    return await client.scan(cursor, options)
  } catch (error) {
    if (error instanceof TypeError) return client.scan(Number(cursor), options)
    throw error
  }
}
