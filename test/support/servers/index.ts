import type { ServerFactory } from './app.js'
import { expressServers } from './express.js'
import { fastifyServers } from './fastify.js'
import { koaServers } from './koa.js'
import { nodeServer } from './node.js'

export type { AnyRequest, App, Limit, Passage, RunningServer, ServerFactory } from './app.js'

/** The server on which all rows of all tables run: it has no framework, and starts fastest. */
export const reference: ServerFactory = nodeServer

/** Every framework, in every version we support, and none. A new adapter is one entry, and inherits the HTTP contract. */
export const servers: readonly ServerFactory[] = [
  ...expressServers,
  ...koaServers,
  ...fastifyServers,
  nodeServer,
]
