import type { ServerFactory } from './app.js'
import { expressServers } from './express.js'
import { fastifyServers } from './fastify.js'
import { koaServers } from './koa.js'
import { nodeServer } from './node.js'

export type { AnyRequest, App, Limit, Passage, RunningServer, ServerFactory } from './app.js'

/** All rows of all tables run on this server, because it has no framework and starts fastest. */
export const reference: ServerFactory = nodeServer

/** node:http and every supported version of every framework. A new adapter is one entry and runs the HTTP contract. */
export const servers: readonly ServerFactory[] = [
  ...expressServers,
  ...koaServers,
  ...fastifyServers,
  nodeServer,
]
