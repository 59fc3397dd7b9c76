import { once } from 'node:events'
import { createServer } from 'node:http'
import { limitRoute } from '@sluice/core/http'
import { createProxy } from './proxy.js'

const limit = limitRoute({
  limit: Number(process.env.LIMIT ?? 100),
  window: '1m',
  // The proxies that are ours. X-Forwarded-For is read from the right for as long as it was one of them who wrote it: what a
  // client has put there stands further to the left, and is not believed.
  trustedProxies: ['127.0.0.1'],
  // A network we have trouble with, all of it but our own monitoring: the longer prefix decides.
  deny: ['198.51.100.0/24'],
  allow: ['198.51.100.7'],
})

const app = createServer(
  limit((_request, response) => {
    response.end('Hello\n')
  }),
)
const proxy = createProxy(await listening(app, 0))
console.log(`listening on http://127.0.0.1:${await listening(proxy, Number(process.env.PORT ?? 3000))}`)

/**
 * @param {import('node:http').Server} server
 * @param {number} port
 */
async function listening(server, port) {
  server.listen(port, '127.0.0.1')
  await once(server, 'listening')
  return /** @type {import('node:net').AddressInfo} */ (server.address()).port
}
