import { createHash } from 'node:crypto'
import { invalid } from '@sluice/core/store'

/*
 * Clients are told apart by what they offer, not by what they are called, so that none of them is a dependency: ioredis and
 * what is made like it (iovalkey), and node-redis.
 */

// biome-ignore lint/suspicious/noExplicitAny: clients have many signatures of one method, and ours is one of them.
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

/** A client that is connected, or will be. */
export type RedisClient = IoredisLike | NodeRedisLike

/** A script and the hash that the server knows it by. */
export class Script {
  readonly text: string
  readonly sha: string

  constructor(text: string) {
    this.text = text
    this.sha = createHash('sha1').update(text).digest('hex')
  }
}

/** What we do with a client. */
export interface Commands {
  /**
   * One EVALSHA, and an EVAL only when the server does not know the script; no other error is retried. The reply is `read`
   * in the promise that looks for the error, because this lies on every decision.
   */
  run<T>(
    script: Script,
    keys: readonly string[],
    argument: string,
    read: (reply: unknown) => T,
  ): Promise<Awaited<T>>
  /** One step of a SCAN; the cursor is '0' at the start and at the end. */
  scan(cursor: string, pattern: string, count: number): Promise<readonly [cursor: string, keys: string[]]>
  unlink(keys: readonly string[]): Promise<unknown>
}

/** Throws for what is no client of Redis. */
export function commandsOf(client: unknown): Commands {
  const { evalsha, evalSha } = (client ?? {}) as Partial<IoredisLike & NodeRedisLike>
  // What is decided together may lie on several servers of a cluster.
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
        orUnknown(() => client.eval(script.text, keys.length, ...keys, argument).then(read)),
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
        orUnknown(() => client.eval(script.text, options).then(read)),
      )
    },
    async scan(cursor, pattern, count) {
      // Version 4 takes and gives the cursor as a number.
      const next = await scanned(client, cursor, { MATCH: pattern, COUNT: count })
      return [String(next.cursor), next.keys]
    },
    unlink: keys => client.unlink(keys),
  } as Commands
}

/** Goes on where the server has lost a script, and with the error otherwise. */
function orUnknown<T>(retry: () => Promise<T>): (error: unknown) => Promise<T> {
  return error => {
    if (String((error as Error | undefined)?.message).startsWith('NOSCRIPT')) return retry()
    throw error
  }
}

async function scanned(client: NodeRedisLike, cursor: string, options: object) {
  try {
    return await client.scan(cursor, options)
  } catch (error) {
    if (error instanceof TypeError) return client.scan(Number(cursor), options)
    throw error
  }
}
