import { createServer } from 'node:http'
import { limitRoute, type RefusedError } from '@sluice/core/http'
import request from 'supertest'
import { describe, expect, it, test } from 'vitest'
import { clock, closing } from '../support/each-test.js'
import { Log, running } from '../support/servers/app.js'
import { type App, servers } from '../support/servers/index.js'
import { rowsOn } from '../support/servers/rows.js'
import { ABNORMAL, ask, fields, NO_FIELDS, peerOfHeader, perUserOn } from './limited.js'

/*
 * Refusals that are thrown as errors, for the error handling of the framework.
 */

const EXCEEDED = { title: 'Quota Exceeded', status: 429 }

describe.each(servers)('on $name', server => {
  const rows = rowsOn(server)
  const { serve, limited, starting } = perUserOn(server)

  describe('throws: true', () => {
    it('passes a refusal to the error handling of the framework, whose answer has the status and the fields', async () => {
      const server = await limited({ throws: true })
      await ask(server).expect(200)
      expect(server.errors).toEqual([])
      const refused = await ask(server).expect(429)
      expect(fields(refused)).toEqual({
        policy: '"default";q=1;w=10',
        limit: '"default";r=0;t=10',
        retryAfter: '10',
      })
      expect(refused.headers['cache-control']).toBe('no-store')
      expect(server.errors).toHaveLength(1)
      expect(server.errors[0]).toBeInstanceOf(Error)
      expect(server.errors[0]).toMatchObject({
        message: 'Quota Exceeded',
        code: 'SLUICE_RATE_LIMITED',
        status: 429,
        statusCode: 429,
        expose: true,
        retryAfter: 10,
        problem: { ...EXCEEDED, 'violated-policies': ['default'] },
        decision: { allowed: false, limit: 1, remaining: 0, waitMs: 10_000 },
        headers: {
          'RateLimit-Policy': '"default";q=1;w=10',
          RateLimit: '"default";r=0;t=10',
          'Retry-After': '10',
          'Cache-Control': 'no-store',
        },
      })
      expect(server.handled).toBe(1)
    })

    it('puts the status and the body of the route on the error', async () => {
      const server = await limited({ throws: true, status: 503, body: { busy: true } })
      for (const status of [200, 503]) await ask(server).expect(status)
      expect(server.errors).toMatchObject([{ status: 503, statusCode: 503, body: { text: '{"busy":true}' } }])
    })

    it('throws for blocked keys and for denied addresses too', async () => {
      const server = await serve({
        before: peerOfHeader,
        app: [
          {
            limit: 1,
            window: '10s',
            clock,
            throws: true,
            deny: ['192.0.2.1'],
            block: { after: 1, for: '1m' },
          },
        ],
      })
      const from = (address: string) => request(server.url).get('').set('x-peer', address)
      await from('10.0.0.1').expect(200)
      await from('10.0.0.1').expect(429).expect('Retry-After', '60')
      expect(fields(await from('192.0.2.1').expect(429))).toEqual(NO_FIELDS)
      const errors = server.errors as readonly RefusedError[]
      expect(errors).toMatchObject([
        { message: ABNORMAL.title, decision: { code: 'SLUICE_BLOCKED' }, headers: { 'Retry-After': '60' } },
        {
          message: ABNORMAL.title,
          decision: { code: 'SLUICE_BLOCKED' },
          retryAfter: undefined,
          problem: ABNORMAL,
        },
      ])
      expect(errors[1]?.headers).toEqual({ 'Cache-Control': 'no-store' })
    })

    it('puts the fields of the other limits on the error too', async () => {
      const server = await serve({
        app: [
          { limit: 9, window: '1m', name: 'outer', clock },
          { limit: 0, window: '1m', name: 'inner', clock, throws: true },
        ],
      })
      const refused = await request(server.url).get('').expect(429)
      expect(fields(refused).limit).toBe('"outer";r=8;t=54, "inner";r=0')
      expect((server.errors[0] as RefusedError).headers.RateLimit).toBe('"outer";r=8;t=54, "inner";r=0')
    })

    it.each(
      rows([['with onRefused', { throws: true, onRefused: () => {} }], ...['yes', 1, null].map(bad)] as [
        string,
        object,
      ][]),
    )('%s throws at construction', async (_, options) => {
      await expect(starting(options)).rejects.toMatchObject({
        code: 'SLUICE_INVALID_OPTION',
        option: 'throws',
      })
    })
    function bad(throws: unknown): [string, object] {
      return [JSON.stringify(throws), { throws }]
    }
  })
})

describe('the default answer to a refusal that is thrown', () => {
  const APP = (): App => ({ app: [{ limit: 0, window: '1m', clock, throws: true, status: 503 }] })

  test.each([
    ['express', /^text\/html/, /Quota Exceeded/],
    ['express4', /^text\/html/, /Quota Exceeded/],
    ['koa', /^text\/plain/, /^Quota Exceeded$/],
    ['koa2', /^text\/plain/, /^Quota Exceeded$/],
    ['fastify', /^application\/json/, /"message":"Quota Exceeded"/],
  ])('is that of %s', async (name, type, body) => {
    const server = await servers.find(factory => factory.name === name)?.start(APP())
    if (server === undefined) throw new Error(`there is no ${name}`)
    closing.push(server.close)
    const response = await request(server.url).get('').expect(503).expect('Content-Type', type)
    expect(response.text).toMatch(body)
  })

  test('is the reason phrase of the status without a framework, and no warning', async () => {
    const warnings: Error[] = []
    const note = (warning: Error) => warnings.push(warning)
    process.on('warning', note)
    try {
      const handler = limitRoute({ limit: 0, window: '1m', clock, throws: true })((_, res) => res.end('ok'))
      const server = await running(createServer(handler), new Log())
      closing.push(server.close)
      await request(server.url).get('').expect(429, 'Too Many Requests').expect('RateLimit', '"default";r=0')
      await new Promise(resolve => setImmediate(resolve))
    } finally {
      process.off('warning', note)
    }
    expect(warnings).toEqual([])
  })
})
