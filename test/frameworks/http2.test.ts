import { once } from 'node:events'
import * as http2 from 'node:http2'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'
import * as onNode from '@sluice/core/http'
import * as onFastify from '@sluice/fastify'
import * as onKoa from '@sluice/koa'
import { fastify } from 'fastify'
import Koa from 'koa'
import { describe, expect, it } from 'vitest'
import { closing } from '../support/each-test.js'
import { limit, limiterOf, type Options, until } from './support.js'

/*
 * The same limits over HTTP/2, whose requests and responses only look like those of HTTP/1.
 */

type AnyListener = (request: never, response: never) => unknown

/** Answers with a status, or with 0 not at all. */
const onHttp2: readonly (readonly [string, (options: Options, status: () => number) => AnyListener])[] = [
  [
    'node:http2',
    (options, status) =>
      onNode.limitRoute(options as onNode.NodeOptions)((_request, response) => {
        if (status() > 0) response.writeHead(status()).end('ok')
      }),
  ],
  [
    'koa',
    (options, status) => {
      const app = new Koa().use(onKoa.rateLimit(options)).use(ctx => {
        ctx.respond = status() > 0
        if (!ctx.respond) return
        ctx.status = status()
        ctx.body = 'ok'
      })
      return app.callback()
    },
  ],
]

describe.each(onHttp2)('over HTTP/2, on %s', (_, listenerOf) => {
  async function serve(options: Options) {
    let status = 200
    const server = http2.createServer(listenerOf(options, () => status) as never)
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    closing.push(() => new Promise<void>(resolve => server.close(() => resolve())))
    const client = http2.connect(`http://127.0.0.1:${(server.address() as AddressInfo).port}`)
    closing.push(() => client.destroy())
    const open = (wanted = 200) => {
      status = wanted
      return client.request({ ':path': '/' })
    }
    const ask = async (wanted = 200) => {
      const stream = open(wanted)
      const [headers] = (await once(stream, 'response')) as [http2.IncomingHttpHeaders]
      return { status: headers[':status'], limit: headers.ratelimit, body: await text(stream) }
    }
    return { ask, open }
  }

  it('requests are limited', async () => {
    const { ask } = await serve(limit(1))
    expect(await ask()).toEqual({ status: 200, limit: '"default";r=0;t=60', body: 'ok' })
    expect(await ask()).toMatchObject({ status: 429, limit: '"default";r=0;t=60' })
  })

  it.each(['before', 'after'] as const)('what is counted %s is counted and given back once', async count => {
    const limiter = limiterOf(9)
    const { ask } = await serve({ limiter, count, refund: { ifFailed: true } } as Options)
    await ask()
    await until(() => expect(limiter.peek('127.0.0.1').remaining).toBe(8))
    await ask(500)
    await ask()
    await until(() => expect(limiter.peek('127.0.0.1').remaining).toBe(7))
  })

  it('a stream that is reset before it is answered has failed, and one that is answered has not', async () => {
    const limiter = limiterOf(9)
    const endings: unknown[] = []
    const refund = (...args: unknown[]) => {
      endings.push(args.at(-1))
      return false
    }
    const { ask, open } = await serve({ limiter, refund } as Options)
    await ask()
    await until(() => expect(endings).toEqual([{ status: 200, aborted: false }]))
    await ask(404)
    await until(() => expect(endings.slice(1)).toEqual([{ status: 404, aborted: false }]))
    const silent = open(0).on('error', () => {})
    await until(() => expect(limiter.peek('127.0.0.1').remaining).toBe(6))
    silent.close(http2.constants.NGHTTP2_CANCEL)
    await until(() => expect(endings.slice(2)).toMatchObject([{ aborted: true }]))
  })

  it('a stream that is reset while it waits gets its permit back', async () => {
    const limiter = limiterOf(1)
    const { ask, open } = await serve({ limiter, maxWait: '60s' } as Options)
    expect(await ask()).toMatchObject({ status: 200 })
    const held = open().on('error', () => {})
    await until(() => expect(limiter.peek('127.0.0.1').balance).toBe(-1))
    held.close(http2.constants.NGHTTP2_CANCEL)
    await until(() => expect(limiter.peek('127.0.0.1').balance).toBe(0))
  })

  it('as many listeners are left as there were', async () => {
    const warnings: unknown[] = []
    const listen = (warning: unknown) => warnings.push(warning)
    process.on('warning', listen)
    closing.push(() => process.off('warning', listen))
    const { ask } = await serve(limit(99, { refund: { ifFailed: true } }))
    for (let time = 0; time < 15; time++) await ask()
    expect(warnings).toEqual([])
  })
})

it("over HTTP/2, on fastify, count: 'after' counts a request once", async () => {
  const limiter = limiterOf(9)
  const app = fastify({ http2: true })
  closing.push(() => app.close())
  await app.register(onFastify.rateLimit, { limiter, count: 'after', refund: { ifFailed: true } } as never)
  app.get('/', () => 'ok')
  const client = http2.connect(await app.listen({ port: 0, host: '127.0.0.1' }))
  closing.push(() => client.destroy())
  for (const left of [8, 7]) {
    const stream = client.request({ ':path': '/' })
    expect(await text(stream)).toBe('ok')
    await until(() => expect(limiter.peek('127.0.0.1').remaining).toBe(left))
  }
})
