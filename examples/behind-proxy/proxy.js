// A minimal reverse proxy in place of nginx or a load balancer. It appends the client's address to X-Forwarded-For.
import { createServer, request } from 'node:http'
import { pipeline } from 'node:stream'

/** @param {number} port of the app on this machine */
export function createProxy(port) {
  return createServer((incoming, outgoing) => {
    const { method, url, headers, socket } = incoming
    const callers = [headers['x-forwarded-for'], socket.remoteAddress].filter(Boolean).join(', ')
    const options = { port, host: '127.0.0.1', method, path: url }
    const forwarded = request({ ...options, headers: { ...headers, 'x-forwarded-for': callers } })

    forwarded.once('response', response => {
      outgoing.writeHead(response.statusCode ?? 502, response.headers)
      pipeline(response, outgoing, () => {})
    })
    forwarded.on('error', () => {
      if (outgoing.headersSent) outgoing.destroy()
      else outgoing.writeHead(502).end()
    })
    outgoing.once('close', () => forwarded.destroy())
    incoming.pipe(forwarded)
  })
}
