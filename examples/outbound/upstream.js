// The API of another company for this example: 10 requests per second with a burst of 3, and 429 above that.
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
