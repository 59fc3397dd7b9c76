import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { Agent, createServer, get, type RequestListener } from 'node:http'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import * as onNode from '@sluice/core/http'
import request from 'supertest'
import { describe, expect, it } from 'vitest'
import { closing, listening } from '../support/each-test.js'
import { limit, limiterOf } from './support.js'

/*
 * Servers of node:http without a framework, and their connections.
 */

describe('on node:http', () => {
  const { limitRoute } = onNode
  const nodeLimit = (most: number, options: object = {}) => limit(most, options) as onNode.NodeOptions
  const ok: RequestListener = (_request, response) => void response.end('ok')

  it('one connection is kept over requests that pass and that are refused', async () => {
    const server = createServer(limitRoute(nodeLimit(1))(ok))
    let connections = 0
    server.on('connection', () => connections++)
    const url = await listening(server)
    const agent = new Agent({ keepAlive: true, maxSockets: 1 })
    closing.push(() => agent.destroy())
    const seen: unknown[] = []
    for (let time = 0; time < 4; time++)
      seen.push(
        await new Promise(resolve => {
          get(url, { agent }, response => {
            response.resume().on('end', () => resolve([response.statusCode, response.headers.connection]))
          })
        }),
      )
    expect(seen).toEqual([200, 429, 429, 429].map(status => [status, 'keep-alive']))
    expect(connections).toBe(1)
  })

  it('a POST that is refused leaves its connection usable', async () => {
    const url = new URL(await listening(createServer(limitRoute(nodeLimit(0))(ok))))
    const socket = connect(Number(url.port), url.hostname)
    const post = 'POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello'
    socket.end(`${post}${post.replace('Host: a', 'Host: a\r\nConnection: close')}`)
    const statuses = (await text(socket)).match(/HTTP\/1\.1 \d+/g)
    expect(statuses).toEqual(['HTTP/1.1 429', 'HTTP/1.1 429'])
  })

  it.each([
    ['at once', () => 'all'],
    ['later', async () => 'all'],
  ])('requests in a pipeline are counted and answered in their order, decided %s', async (_, key) => {
    const handled: unknown[] = []
    const handler = limitRoute(nodeLimit(2, { key }))((request, response) => {
      handled.push(request.url)
      response.end(request.url)
    })
    const url = new URL(await listening(createServer(handler)))
    const socket = connect(Number(url.port), url.hostname)
    const requests = ['/a', '/b', '/c'].map(path => `GET ${path} HTTP/1.1\r\nHost: a\r\n`)
    socket.end(`${requests.join('\r\n')}Connection: close\r\n\r\n`)
    const answer = await text(socket)
    expect(answer.match(/HTTP\/1\.1 \d+/g)).toEqual(['HTTP/1.1 200', 'HTTP/1.1 200', 'HTTP/1.1 429'])
    expect(handled).toEqual(['/a', '/b'])
  })

  it('on a Unix socket there is no address, and the error says to set a key', async () => {
    const directory = await mkdtemp(join(tmpdir(), 'sluice-'))
    closing.push(() => rm(directory, { recursive: true }))
    const socketPath = join(directory, 'socket')
    const errors: unknown[] = []
    const onError: onNode.NodeOptions['onError'] = (error, _request, response) => {
      errors.push(error)
      response.writeHead(500).end()
    }
    const routes: Record<string, RequestListener> = {
      '/none': limitRoute(nodeLimit(1, { onError }))(ok),
      '/keyed': limitRoute(nodeLimit(1, { onError, key: () => 'all' }))(ok),
      '/trusted': limitRoute(nodeLimit(1, { onError, hops: 1 }))(ok),
    }
    const server = createServer((request, response) => routes[request.url as string]?.(request, response))
    server.listen(socketPath)
    await once(server, 'listening')
    closing.push(() => new Promise(resolve => server.close(resolve)))
    const statusOf = (path: string) =>
      new Promise(resolve => {
        const headers = path === '/trusted' ? { 'x-forwarded-for': '192.0.2.1' } : {}
        get({ socketPath, path, headers, agent: false }, response => {
          resolve(response.resume().statusCode)
        })
      })
    expect([await statusOf('/keyed'), await statusOf('/keyed')]).toEqual([200, 429])
    expect([await statusOf('/trusted'), await statusOf('/trusted')]).toEqual([200, 429])
    expect(errors).toEqual([])
    expect(await statusOf('/none')).toBe(500)
    expect(errors).toMatchObject([
      { code: 'SLUICE_NO_CLIENT_ADDRESS', message: expect.stringContaining('set the key option') },
    ])
  })

  it('trustedProxies decide which address is the client', async () => {
    const limiter = limiterOf(9)
    const handler = limitRoute({ limiter, trustedProxies: ['127.0.0.0/8', '10.0.0.0/8'] })(ok)
    const url = await listening(createServer(handler))
    await request(url).get('/').set('X-Forwarded-For', '198.51.100.9, 192.0.2.1, 10.1.2.3').expect(200)
    expect(limiter.peek('192.0.2.1').remaining).toBe(8)
    await request(url).get('/').expect(200)
    expect(limiter.peek('127.0.0.1').remaining).toBe(8)
  })

  it('a server that gets its handler later is limited too', async () => {
    const server = createServer({ keepAliveTimeout: 1000 })
    server.on('request', limitRoute(nodeLimit(1))(ok))
    const url = await listening(server)
    await request(url).get('/').expect(200)
    await request(url).get('/').expect(429)
  })

  it('a refusal is known before the body is asked for', async () => {
    const handler = limitRoute(nodeLimit(0))(ok)
    const server = createServer(ok).on('checkContinue', handler)
    const url = new URL(await listening(server))
    const socket = connect(Number(url.port), url.hostname)
    socket.write(
      'POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\nConnection: close\r\n\r\n',
    )
    expect(await text(socket)).toMatch(/^HTTP\/1\.1 429/)
  })
})
