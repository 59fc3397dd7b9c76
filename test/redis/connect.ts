import { once } from 'node:events'
import type { RedisClient } from '@sluice/redis'
import { Redis as Ioredis } from 'ioredis'
import { Redis as Ioredis5 } from 'ioredis5'
import { createClient, createClientPool } from 'redis'
import { createClient as createClient4 } from 'redis4'
import { createClient as createClient5 } from 'redis5'

/** A connected client, and how to close it. */
export interface Connection {
  readonly client: RedisClient
  close(): void
}

/** A client library with a protocol. */
export interface Kind {
  readonly name: string
  readonly protocol: 2 | 3
  /** Connects with a name that CLIENT LIST shows. */
  connect(port: number, name: string): Promise<Connection>
}

export const CLIENTS: readonly Kind[] = [
  ...([2, 3] as const).map(protocol => ({
    name: `ioredis 6 over RESP${protocol}`,
    protocol,
    connect: (port: number, connectionName: string) => ready(new Ioredis({ port, protocol, connectionName })),
  })),
  {
    name: 'ioredis 6 with the replies of RESP3',
    protocol: 3,
    connect: (port, connectionName) =>
      ready(new Ioredis({ port, protocol: 3, replyMapping: 'resp3', connectionName })),
  },
  {
    name: 'ioredis 6 with automatic pipelines and numbers as text',
    protocol: 3,
    connect: (port, connectionName) =>
      ready(new Ioredis({ port, enableAutoPipelining: true, stringNumbers: true, connectionName })),
  },
  {
    name: 'ioredis 5 over RESP2',
    protocol: 2,
    connect: (port, connectionName) => ready(new Ioredis5({ port, connectionName })),
  },
  ...([2, 3] as const).map(RESP => ({
    name: `node-redis 6 over RESP${RESP}`,
    protocol: RESP,
    connect: async (port: number, name: string) => {
      const client = createClient({ socket: { port }, RESP, name })
      await client.connect()
      return { client, close: () => client.destroy() }
    },
  })),
  {
    name: 'node-redis 6, a pool',
    protocol: 3,
    connect: async (port, name) => {
      const client = createClientPool({ socket: { port }, name }, { minimum: 1, maximum: 3 })
      await client.connect()
      return { client, close: () => client.destroy() }
    },
  },
  ...([2, 3] as const).map(RESP => ({
    name: `node-redis 5 over RESP${RESP}`,
    protocol: RESP,
    connect: async (port: number, name: string) => {
      const client = createClient5({ socket: { port }, RESP, name })
      await client.connect()
      return { client, close: () => client.destroy() }
    },
  })),
  {
    name: 'node-redis 4 over RESP2',
    protocol: 2,
    connect: async (port, name) => {
      const client = createClient4({ socket: { port }, name })
      await client.connect()
      return { client, close: () => void client.disconnect() }
    },
  },
]

async function ready(client: Ioredis | Ioredis5): Promise<Connection> {
  await once(client, 'ready')
  return { client, close: () => client.disconnect() }
}
