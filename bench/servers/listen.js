import { createServer } from 'node:http'

/**
 * Serves on a free port, sends the port to the parent process, and answers messages with the CPU time in microseconds.
 *
 * @param {import('node:http').RequestListener} listener
 */
export function listen(listener) {
  const server = createServer(listener).listen(0, '127.0.0.1', () => {
    const { port } = /** @type {import('node:net').AddressInfo} */ (server.address())
    process.send?.(port)
  })
  process.on('message', () => {
    const { user, system } = process.cpuUsage()
    process.send?.(user + system)
  })
}
