import type { Refusal } from '@sluice/core/http'
import request from 'supertest'
import { describe, expect, it } from 'vitest'
import { type Door, doors } from '../support/servers/app.js'
import { type AnyRequest, type Limit, servers } from '../support/servers/index.js'
import { doorsOn, rowsOn } from '../support/servers/rows.js'
import { fields, limitedOn, PROBLEM, REFUSED_BODY } from './limited.js'

/*
 * The status and the body of a refusal, and who writes them. Time stands still unless a test moves it.
 */

const circular: Record<string, unknown> = {}
circular.self = circular

/** What is no body. */
const NO_BODIES: [string, unknown][] = [
  ['undefined', undefined],
  ['null', null],
  ['5', 5],
  ['NaN', Number.NaN],
  ['true', true],
  ['a bigint', 1n],
  ['a symbol', Symbol('body')],
  ['a function', () => 'body'],
  ['an object that is no JSON', { toJSON: () => undefined }],
  ['an object that holds itself', circular],
  ['an object with a bigint', { count: 1n }],
]

describe.each(servers)('on $name', server => {
  describe.each(doorsOn(server))('behind $name', door => {
    const rows = rowsOn(server, door)
    const { spent } = limitedOn(server, door)

    it.each(rows([400, 403, 503, 599]))(
      'the status may be %d, in the answer and in its body',
      async status => {
        const server = await spent({ status })
        const refused = await request(server.url).get('').expect(status)
        expect(refused.headers['content-type']).toBe('application/problem+json')
        expect(refused.body).toEqual({ ...PROBLEM, status })
        expect(fields(refused)).toMatchObject({ limit: '"default";r=0;t=10', retryAfter: '10' })
        expect(refused.headers['cache-control']).toBe('no-store')
        expect(server.handled).toBe(1)
        expect(server.errors).toEqual([])
      },
    )

    it.each(
      rows<[string, NonNullable<Limit['body']>, string, string]>([
        ['a text', 'Slow down — please', 'Slow down — please', 'text/plain; charset=utf-8'],
        ['an empty text', '', '', 'text/plain; charset=utf-8'],
        ['an object', { slow: 'dówn' }, '{"slow":"dówn"}', 'application/json; charset=utf-8'],
        ['a list', [1], '[1]', 'application/json; charset=utf-8'],
        ['a function to a text', () => 'soon', 'soon', 'text/plain; charset=utf-8'],
        ['a function to an object', () => ({ a: 1 }), '{"a":1}', 'application/json; charset=utf-8'],
        ['a function to a promise', async () => ({ a: 1 }), '{"a":1}', 'application/json; charset=utf-8'],
      ]),
    )('the body may be %s', async (_, body, text, type) => {
      const server = await spent({ body })
      const refused = await request(server.url).get('').expect(429)
      expect(refused.text).toBe(text)
      expect(refused.headers['content-type']).toBe(type)
      expect(refused.headers['content-length']).toBe(String(Buffer.byteLength(text)))
      expect(fields(refused).retryAfter).toBe('10')
      expect(refused.headers['cache-control']).toBe('no-store')

      const head = await request(server.url).head('').expect(429)
      expect(head.text ?? '').toBe('')
      expect(head.headers['content-type']).toBe(type)
      expect(fields(head)).toEqual(fields(refused))
    })

    it('a body function is called once for each refusal, with the request and the refusal', async () => {
      const calls: unknown[] = []
      const body = (req: AnyRequest, refusal: Omit<Refusal, 'body'>) => {
        calls.push(refusal)
        return { user: req.headers['x-user'], again: refusal.retryAfter }
      }
      const server = await spent({ body, status: 403 })
      expect(calls).toEqual([])
      const refused = await request(server.url).get('').set('x-user', 'ann').expect(403)
      expect(refused.body).toEqual({ user: 'ann', again: 10 })
      expect(calls).toMatchObject([
        { decision: { allowed: false, waitMs: 10_000 }, status: 403, problem: { ...PROBLEM, status: 403 } },
      ])
    })

    it.each(rows(NO_BODIES))('a body function that returns %s is one coded error', async (_, value) => {
      for (const body of [() => value, async () => value]) {
        const server = await spent({ body: body as never })
        const response = await request(server.url).get('').expect(500)
        expect(server.errors).toMatchObject([{ code: 'SLUICE_INVALID_BODY', option: 'body' }])
        expect(server.handled).toBe(1)
        expect(response.headers['content-type']).not.toContain('problem')
      }
    })

    it('onRefused gets the status and the body, and need not answer', async () => {
      const refusals: Refusal[] = []
      const server = await spent({
        status: 403,
        body: async () => 'soon',
        onRefused: (_passage, refusal) => void refusals.push(refusal),
      })
      const refused = await request(server.url).get('').expect(403)
      expect(refused.text).toBe('soon')
      expect(refusals).toMatchObject([
        { status: 403, retryAfter: 10, body: { type: 'text/plain; charset=utf-8', text: 'soon' } },
      ])
    })

    it('onRefused may answer in place of the body, with the status', async () => {
      const server = await spent({
        status: 403,
        body: 'ours',
        onRefused: passage => passage.json({ theirs: true }),
      })
      const refused = await request(server.url).get('').expect(403)
      expect(refused.text).toBe('{"theirs":true}')
      expect(refused.headers['content-type']).toMatch(/^application\/json\b/)
    })

    it.each(rows([undefined, null, 5, {}, 'text']))(
      'an onRefused that returns %o has not answered',
      async value => {
        for (const onRefused of [() => value, async () => value]) {
          const server = await spent({ onRefused })
          const refused = await request(server.url).get('').expect(429)
          expect(refused.text).toBe(REFUSED_BODY)
        }
      },
    )
  })
})

describe('a body that is stated', () => {
  it.each(NO_BODIES.filter(([kind]) => !/undefined|function/.test(kind)))(
    'is refused at construction if it is %s',
    (_, body) => {
      const [{ start }] = servers as [(typeof servers)[0]]
      const [door] = doors as [Door]
      const made = async () =>
        start({ app: [door.limitOf({ limit: 1, window: '1s' }, { body: body as never })] })
      return expect(made()).rejects.toMatchObject({ code: 'SLUICE_INVALID_OPTION', option: 'body' })
    },
  )
})
