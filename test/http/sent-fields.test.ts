import { createHmac } from 'node:crypto'
import { fixedWindow } from '@sluice/core'
import request from 'supertest'
import { describe, expect, it } from 'vitest'
import { clock } from '../support/each-test.js'
import { type Limit, servers } from '../support/servers/index.js'
import { doorsOn, rowsOn } from '../support/servers/rows.js'
import { exposed, fieldNames, fields, limitedOn, PROBLEM, REFUSED_BODY } from './limited.js'

/*
 * Which fields an answer has, and when. Time stands still unless a test moves it.
 */

const PREFLIGHT = { Origin: 'https://example.org', 'Access-Control-Request-Method': 'PUT' }

describe.each(servers)('on $name', server => {
  describe.each(doorsOn(server))('behind $name', door => {
    const rows = rowsOn(server, door)
    const { serve, limit, spent } = limitedOn(server, door)

    describe('a CORS preflight', () => {
      // S15 express-rate-limit/express-rate-limit#69
      it('is not counted and gets no fields, if it is to be skipped', async () => {
        const server = await serve({ app: [limit({ skipPreflight: true })] })
        const preflight = () => request(server.url).options('').set(PREFLIGHT)
        for (let round = 0; round < 3; round++) expect(fieldNames(await preflight().expect(200))).toEqual([])
        await request(server.url).get('').expect(200)
        expect(fieldNames(await preflight().expect(200))).toEqual([])
        await request(server.url).get('').expect(429)
      })

      it.each(
        rows([
          ['no Access-Control-Request-Method', 'options', { Origin: 'https://example.org' }],
          ['no Origin', 'options', { 'Access-Control-Request-Method': 'PUT' }],
          ['another method', 'get', PREFLIGHT],
        ] as const),
      )('is not one with %s', async (_, method, sent) => {
        const server = await spent({ skipPreflight: true })
        await request(server.url)[method]('').set(sent).expect(429)
      })

      it('is counted unless it is to be skipped', async () => {
        const server = await spent({})
        await request(server.url).options('').set(PREFLIGHT).expect(429)
      })
    })

    describe('exposed headers', () => {
      // S16 FoalTS/foal#485 (C1)
      it('are those that are sent, once each, beside the ones exposed already', async () => {
        const server = await spent(
          { exposeHeaders: true },
          {
            before: passage => {
              passage.setHeader('Access-Control-Allow-Origin', 'https://example.org')
              passage.setHeader('Access-Control-Expose-Headers', 'X-Total, ratelimit')
            },
          },
        )
        const refused = await request(server.url).get('').expect(429)
        expect(refused.headers['access-control-allow-origin']).toBe('https://example.org')
        expect(
          exposed(refused)
            .map(name => name.toLowerCase())
            .sort(),
        ).toEqual(['ratelimit', 'ratelimit-policy', 'retry-after', 'x-total'])
      })

      it('of a request that passes have no Retry-After among them', async () => {
        const server = await serve({ app: [limit({ exposeHeaders: true })] })
        expect(exposed(await request(server.url).get('').expect(200))).toEqual([
          'RateLimit',
          'RateLimit-Policy',
        ])
      })

      it('are those of the draft and of the X-RateLimit fields', async () => {
        const server = await spent({ exposeHeaders: true, headers: 'draft-6', legacyHeaders: 'epoch' })
        expect(exposed(await request(server.url).get('').expect(429))).toEqual([
          'RateLimit-Limit',
          'RateLimit-Policy',
          'RateLimit-Remaining',
          'RateLimit-Reset',
          'Retry-After',
          'X-RateLimit-Limit',
          'X-RateLimit-Remaining',
          'X-RateLimit-Reset',
        ])
      })

      it('are none without RateLimit fields, and none by default', async () => {
        const without = await spent({ exposeHeaders: true, headers: false })
        expect(exposed(await request(without.url).get('').expect(429))).toEqual(['Retry-After'])
        const silent = await serve({ app: [limit({ exposeHeaders: true, headers: false })] })
        for (const server of [silent, await serve({ app: [limit()] })]) {
          const response = await request(server.url).get('').expect(200)
          expect(response.headers).not.toHaveProperty('access-control-expose-headers')
        }
      })
    })

    describe('the fields', () => {
      const POLICY = '"default";q=1;w=10'
      const DRAFT_8 = { 'ratelimit-policy': POLICY, ratelimit: '"default";r=0;t=10' }

      it.each(
        rows<[string, Partial<Limit>, Record<string, string>]>([
          ['draft-8', { headers: 'draft-8' }, DRAFT_8],
          ['draft-9', { headers: 'draft-9' }, DRAFT_8],
          ['draft-10', { headers: 'draft-10' }, DRAFT_8],
          ['draft-11', { headers: 'draft-11' }, DRAFT_8],
          [
            'draft-7',
            { headers: 'draft-7' },
            { 'ratelimit-policy': '1;w=10', ratelimit: 'limit=1, remaining=0, reset=10' },
          ],
          [
            'draft-6',
            { headers: 'draft-6' },
            {
              'ratelimit-policy': '1;w=10',
              'ratelimit-limit': '1',
              'ratelimit-remaining': '0',
              'ratelimit-reset': '10',
            },
          ],
          ['no dialect', { headers: false }, {}],
          [
            'the past alone',
            { headers: false, legacyHeaders: 'delta' },
            { 'x-ratelimit-limit': '1', 'x-ratelimit-remaining': '0', 'x-ratelimit-reset': '10' },
          ],
          [
            'the past beside',
            { legacyHeaders: 'epoch' },
            {
              ...DRAFT_8,
              'x-ratelimit-limit': '1',
              'x-ratelimit-remaining': '0',
              'x-ratelimit-reset': String(Date.UTC(2025, 0, 1) / 1000 + 10),
            },
          ],
        ]),
      )(
        'of %s are the same for the last request that passes and the first that is refused',
        async (_, options, sent) => {
          const server = await serve({ app: [limit(options)] })
          for (const extra of [{}, { 'retry-after': '10' }]) {
            const response = await request(server.url).get('')
            expect(response.status).toBe('retry-after' in extra ? 429 : 200)
            const found = fieldNames(response).map(name => [name, response.headers[name]])
            expect(Object.fromEntries(found)).toEqual({ ...sent, ...extra })
          }
        },
      )

      it('carry a keyed hash of the key, with partitionSecret', async () => {
        const partitionSecret = 'a secret of sixteen letters'
        const server = await spent({ partitionSecret, key: () => 'ann@example.org' })
        const refused = await request(server.url).get('').expect(429)
        const hash = createHmac('sha256', partitionSecret).update('ann@example.org').digest().subarray(0, 9)
        const pk = hash.toString('base64')
        expect(fields(refused)).toMatchObject({
          policy: `"default";q=1;w=10;pk=:${pk}:`,
          limit: `"default";r=0;t=10;pk=:${pk}:`,
        })
        expect(JSON.stringify(refused.headers) + refused.text).not.toContain('ann')
        expect(refused.text).toBe(REFUSED_BODY)
      })

      it.each(rows(['draft-6', 'draft-7', 'draft-8'] as const))(
        'of a hidden limit are none in %s',
        async headers => {
          const server = await serve({ app: [limit({ hidden: true, headers, legacyHeaders: 'delta' })] })
          expect(fieldNames(await request(server.url).get('').expect(200))).toEqual([])
          const refused = await request(server.url).get('').expect(429)
          expect(fieldNames(refused)).toEqual(['retry-after'])
          expect(refused.headers['retry-after']).toBe('10')
          expect(refused.body).not.toHaveProperty('violated-policies')
          expect(refused.body).toMatchObject({ type: PROBLEM.type, status: 429 })
        },
      )

      it('name another unit', async () => {
        const server = await serve({ app: [limit({ unit: 'content-bytes' })] })
        const response = await request(server.url).get('').expect(200)
        expect(fields(response).policy).toBe('"default";q=1;qu="content-bytes";w=10')
      })

      it('of a paced window say for how long the remaining permits should last', async () => {
        const algorithm = fixedWindow({ limit: 10, window: '10s' })
        const rate = { limit: 10, algorithm }
        const server = await serve({ app: [limit({ paced: true }, rate)] })
        await request(server.url).get('').expect(200)
        clock.advance('9s')
        const response = await request(server.url).get('').expect(200)
        // In an unpaced window 8 would be left for 1 second; a bucket has refilled by then.
        expect(fields(response).limit).toBe(door.takesLimiter ? '"default";r=8;t=8' : '"default";r=9;t=9')
      })

      it('are not sent with a redirection when nothing is left', async () => {
        const server = await serve({
          app: [limit({ exposeHeaders: true }, { limit: 2, window: '20s' })],
          handler: passage => {
            passage.res.statusCode = 302
            passage.setHeader('Location', '/elsewhere')
            passage.json({})
            // Koa takes a body for a 200.
            passage.res.statusCode = 302
          },
        })
        const redirected = () => request(server.url).get('').redirects(0).expect(302)
        expect(fields(await redirected()).limit).toBe('"default";r=1;t=10')
        const last = await redirected()
        expect(fields(last)).toEqual({
          policy: '"default";q=2;w=20',
          limit: undefined,
          retryAfter: undefined,
        })
      })
    })

    it('a HEAD that passes has the fields and no body', async () => {
      const server = await serve({ app: [limit({ legacyHeaders: 'delta' })] })
      const head = await request(server.url).head('').expect(200)
      expect(fields(head).limit).toBe('"default";r=0;t=10')
      expect(head.headers['x-ratelimit-remaining']).toBe('0')
      expect(head.text ?? '').toBe('')
    })
  })
})
