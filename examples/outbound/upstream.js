// Somebody else's API, for the sake of the example: 10 requests a second, 3 at once, and 429 beyond that.
import { once } from 'node:events'
import { createServer } from 'node:http'
import { createLimiter, tokenBucket } from '@sluice/core'

export async function startUpstream() {
  const limiter = createLimiter(tokenBucket({ limit: 10, window: '1s', burst: 3 }))
  const server = createServer((_request, response) => {
    const { allowed, waitMs } = limiter.tryAcquire('everybody')
    response.statusCode = allowed ? 200 : 429
    if (!allowed) response.setHeader('Retry-After', Math.ceil(waitMs / 1000))
    response.end()
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = /** @type {import('node:net').AddressInfo} */ (server.address())
  return {
    url: `http://127.0.0.1:${port}/items`,
    close() {
      server.close()
      server.closeAllConnections()
    },
  }
}
