import { once } from 'node:events'
import { type AddressInfo, Server } from 'node:net'
import { pathToFileURL } from 'node:url'
import { format } from 'node:util'

/*
 * Runs blocks of the documentation, one after the other, in a process of its own: `run-blocks.ts <file>...`. Sends a
 * message for each file with what went wrong: errors, warnings, and anything written to stderr. A server that asks for a port
 * listens on a free one of loopback instead, gets one request, has to state its limit, and is closed. A server that asks for
 * port 0 is left alone, and has to be closed by its block.
 */

/** What went wrong in a block. */
export interface Report {
  readonly file: string
  readonly errors: readonly string[]
}

let errors: string[] = []
let servers: Server[] = []

const note = (error: unknown) => errors.push(format(error))
process.on('uncaughtException', note)
process.on('unhandledRejection', note)
process.on('warning', note)
process.stderr.write = (text: unknown) => errors.push(String(text)) > 0
process.stdout.write = () => true

const { listen } = Server.prototype

Server.prototype.listen = function (this: Server, ...args: readonly unknown[]) {
  if (args[0] === 0) return Reflect.apply(listen, this, args)
  servers.push(this)
  const callback = args.find(arg => typeof arg === 'function') as (() => void) | undefined
  return Reflect.apply(listen, this, [0, '127.0.0.1', callback])
}

async function askOnce(server: Server): Promise<void> {
  if (server.address() === null) await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  try {
    const { status, headers } = await fetch(`http://127.0.0.1:${port}/`, { headers: { Connection: 'close' } })
    if (status >= 500 || !headers.has('RateLimit-Policy')) throw new Error(`answered with ${status}`)
  } finally {
    server.close()
    await once(server, 'close')
  }
}

for (const file of process.argv.slice(2)) {
  errors = []
  servers = []
  await import(pathToFileURL(file).href).catch(note)
  // A framework may listen on several addresses, and closes all of them with the first.
  const [first] = servers
  if (first !== undefined) await askOnce(first).catch(note)
  // Warnings and unhandled rejections come a tick later.
  await new Promise(resolve => setImmediate(resolve))
  process.send?.({ file, errors } satisfies Report)
}
