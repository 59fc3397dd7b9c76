import { type AddressInfo, Server } from 'node:net'

/*
 * Loaded before a block of the README that runs: whatever port a server asks for, it listens on a free one of loopback,
 * answers one request, has to state its limit, and closes.
 */

const { listen } = Server.prototype

Server.prototype.listen = function (this: Server, ...args: readonly unknown[]) {
  const callback = args.find(arg => typeof arg === 'function') as (() => void) | undefined
  this.once('listening', () => askOnce(this))
  return Reflect.apply(listen, this, [0, '127.0.0.1', callback])
}

async function askOnce(server: Server): Promise<void> {
  const { port } = server.address() as AddressInfo
  const { status, headers } = await fetch(`http://127.0.0.1:${port}/`, { headers: { Connection: 'close' } })
  if (status >= 500 || !headers.has('RateLimit-Policy')) throw new Error(`answered with ${status}`)
  server.close()
}
