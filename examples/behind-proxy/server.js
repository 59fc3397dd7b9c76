import { once } from 'node:events'
import { createServer } from 'node:http'
import { limitRoute } from '@sluice/core/http'
import { createProxy } from './proxy.js'

const limit = limitRoute({
  limit: Number(process.env.LIMIT ?? 100),
  window: '1m',
  // Our proxies. X-Forwarded-For is read from right to left. The first address that is not one of our proxies is the
  // client. Addresses further to the left may be forged by the client, so they are ignored.
  trustedProxies: ['127.0.0.1'],
  // Denies a whole network, except for our monitoring: the longer prefix wins.
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
