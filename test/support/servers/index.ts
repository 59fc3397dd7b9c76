import type { ServerFactory } from './app.js'
import { expressServers } from './express.js'
import { fastifyServers } from './fastify.js'
import { koaServers } from './koa.js'
import { nodeServers } from './node.js'

export type { AnyRequest, App, Limit, Passage, RunningServer, ServerFactory } from './app.js'

/** Every framework, in every version we support, and none. A new adapter is one entry, and inherits the HTTP contract. */
export const servers: readonly ServerFactory[] = [
  ...expressServers,
  ...koaServers,
  ...fastifyServers,
  ...nodeServers,
]
