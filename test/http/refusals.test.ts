import { createHmac } from 'node:crypto'
import { createLimiter, fixedWindow, type Limiter, tokenBucket } from '@sluice/core'
import type { Outcome, Refusal } from '@sluice/core/http'
import request from 'supertest'
import { describe, expect, it, vi } from 'vitest'
import { clock, closing } from '../support/each-test.js'
import { failsAt, scriptedStore } from '../support/scripted-store.js'
import { type Door, doors, type Rate } from '../support/servers/app.js'
import {
  type AnyRequest,
  type App,
  type Limit,
  type Passage,
  reference,
  servers,
} from '../support/servers/index.js'
import { doorsOn, rowsOn } from '../support/servers/rows.js'

/*
 * The options that say how requests are answered, each behind every door. Time stands still unless a test moves it.
 */

const PROBLEM = {
  type: 'https://iana.org/assignments/http-problem-types#quota-exceeded',
  title: 'Quota Exceeded',
  status: 429,
  'violated-policies': ['default'],
}
const REFUSED_BODY = JSON.stringify(PROBLEM)

const FAILURE = new Error('the audit log is down')
const fail = (): never => {
  throw FAILURE
}
const failLater = async (): Promise<never> => {
  await null
  return fail()
}

interface Response {
  readonly headers: Record<string, string>
}

/** Names of the fields that tell of limits. */
const fieldNames = ({ headers }: Response) =>
  Object.keys(headers).filter(name => /ratelimit|retry-after/.test(name))

function fields({ headers }: Response) {
  return {
    policy: headers['ratelimit-policy'],
    limit: headers.ratelimit,
    retryAfter: headers['retry-after'],
  }
}

const exposed = ({ headers }: Response) => (headers['access-control-expose-headers'] ?? '').split(', ').sort()

const PREFLIGHT = { Origin: 'https://example.org', 'Access-Control-Request-Method': 'PUT' }

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

/** What does what a promise does, and no more: its `then` returns nothing. */
const thenable = <T>(value: T) => ({
  // biome-ignore lint/suspicious/noThenProperty: it is what is tested
  then(resolve: (value: T) => void) {
    resolve(value)
  },
})

describe.each(servers)('on $name', server => {
  const { start } = server

  async function serve(app: App) {
    const server = await start(app)
    closing.push(server.close)
    return server
  }

  describe.each(doorsOn(server))('behind $name', door => {
    const rows = rowsOn(server, door)
    /** Each framework has an error path of its own. */
    const errorRows = rowsOn(reference, door)
    /** One request per 10 seconds, and a server whose one request has been let through. */
    const limit = (options: Partial<Limit> = {}, rate: Partial<Rate> = {}) =>
      door.limitOf({ limit: 1, window: '10s', clock, ...rate }, options)

    async function spent(options: Partial<Limit>, app: App = {}) {
      const server = await serve({ app: [limit(options)], ...app })
      await request(server.url).get('').expect(200)
      return server
    }

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

    it('a body that is made is made once for a refusal, from the request and what is known of it', async () => {
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

    it.each(rows(NO_BODIES))('a body made to %s is one coded error', async (_, value) => {
      for (const body of [() => value, async () => value]) {
        const server = await spent({ body: body as never })
        const response = await request(server.url).get('').expect(500)
        expect(server.errors).toMatchObject([{ code: 'SLUICE_INVALID_BODY', option: 'body' }])
        expect(server.handled).toBe(1)
        expect(response.headers['content-type']).not.toContain('problem')
      }
    })

    it('onRefused is told of status and body, and need not answer', async () => {
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

    describe('a dry run', () => {
      it('says what would be, counts, and lets pass', async () => {
        const outcomes: Outcome[] = []
        const decisions: Passage['decision'][] = []
        let answered = 0
        const note = () => {
          answered++
          return 'refused'
        }
        const server = await serve({
          app: [
            limit({
              dryRun: true,
              status: 503,
              body: note,
              onRefused: note,
              onDecision: (_request, outcome) => void outcomes.push(outcome),
            }),
          ],
          handler: passage => {
            decisions.push(passage.decision)
            passage.json({ ok: true })
          },
        })
        for (const status of [200, 200]) await request(server.url).get('').expect(status)
        const passed = await request(server.url).get('').expect(200, { ok: true })
        expect(fields(passed)).toEqual({
          policy: '"default";q=1;w=10',
          limit: '"default";r=0;t=10',
          retryAfter: undefined,
        })
        expect(passed.headers).not.toHaveProperty('cache-control')
        expect(outcomes.map(({ decision, refused }) => [decision.allowed, refused])).toEqual([
          [true, false],
          [false, false],
          [false, false],
        ])
        expect(decisions.map(decision => decision?.allowed)).toEqual([true, false, false])
        expect(server.handled).toBe(3)
        expect(answered).toBe(0)
      })

      it.each(rows(['draft-6', 'draft-7'] as const))('says so in %s as well', async headers => {
        const server = await spent({ dryRun: true, headers, legacyHeaders: 'delta', exposeHeaders: true })
        const passed = await request(server.url).get('').expect(200)
        expect(passed.headers['x-ratelimit-remaining']).toBe('0')
        expect(passed.headers['retry-after']).toBeUndefined()
        expect(exposed(passed)).not.toContain('Retry-After')
      })
    })

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
      )('is none with %s', async (_, method, sent) => {
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
      it('are those that are sent, once each, beside what is exposed already', async () => {
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

      it('are those of the dialect and of the past', async () => {
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

      it('are none where none are sent, and none unless asked for', async () => {
        const without = await spent({ exposeHeaders: true, headers: false })
        expect(exposed(await request(without.url).get('').expect(429))).toEqual(['Retry-After'])
        const silent = await serve({ app: [limit({ exposeHeaders: true, headers: false })] })
        for (const server of [silent, await serve({ app: [limit()] })]) {
          const response = await request(server.url).get('').expect(200)
          expect(response.headers).not.toHaveProperty('access-control-expose-headers')
        }
      })
    })

    describe('onDecision', () => {
      it.each([
        ['at once', (act: () => void) => act()],
        [
          'in a promise',
          async (act: () => void) => {
            await new Promise(setImmediate)
            act()
          },
        ],
      ])('is called once for each decision, %s, before anything comes of it', async (_, answered) => {
        const story: string[] = []
        const server = await spent(
          {
            onDecision: (req, { decision, refused }) =>
              answered(() => story.push(`${req.headers['x-n'] ?? 0} ${decision.allowed} ${refused}`)),
            onRefused: () => void story.push('refused'),
          },
          {
            handler: passage => {
              story.push('handled')
              passage.json({})
            },
          },
        )
        await request(server.url).get('').set('x-n', '1').expect(429)
        expect(story).toEqual(['0 true false', 'handled', '1 false true', 'refused'])
      })

      it('is not called for a request that is not limited', async () => {
        let calls = 0
        const onDecision = () => {
          calls++
        }
        const server = await serve({ app: [limit({ onDecision, key: () => null })] })
        await request(server.url).get('').expect(200)
        expect(calls).toBe(0)
      })

      it.each(rows([undefined, null, 5, {}, false]))('may return %o, which means nothing', async value => {
        for (const onDecision of [() => value, async () => value]) {
          const server = await spent({ onDecision })
          await request(server.url).get('').expect(429)
          expect(server.handled).toBe(1)
        }
      })

      it('is called once for a request that is held, with the decision at the end', async () => {
        const outcomes: Outcome[] = []
        const onDecision = (_: unknown, outcome: Outcome) => void outcomes.push(outcome)
        const server = await spent({ onDecision, maxWait: '20s' })
        const held = request(server.url).get('').expect(200).then()
        await vi.waitFor(() => expect(clock.alarms).toBe(1), { interval: 5 })
        expect(outcomes).toHaveLength(1)
        clock.advance('10s')
        await held
        expect(outcomes).toMatchObject([{}, { decision: { allowed: true, waitMs: 10_000 }, refused: false }])
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
        'of %s are the same for the last that passes and the first that does not',
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

      it('carry a keyed hash of the key, in both lists', async () => {
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

      it('of a window, paced, say for how long what is left should last', async () => {
        const algorithm = fixedWindow({ limit: 10, window: '10s' })
        const rate = { limit: 10, algorithm }
        const server = await serve({ app: [limit({ paced: true }, rate)] })
        await request(server.url).get('').expect(200)
        clock.advance('9s')
        const response = await request(server.url).get('').expect(200)
        // In an unpaced window 8 would be left for 1 second; a bucket has refilled by then.
        expect(fields(response).limit).toBe(door.takesLimiter ? '"default";r=8;t=8' : '"default";r=9;t=9')
      })

      it('that say of nothing left do not go out with a redirection', async () => {
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

    describe('a callback', () => {
      const CALLBACKS = ['key', 'cost', 'onDecision', 'onRefused', 'body'] as const

      it.each(
        errorRows(
          CALLBACKS.flatMap(callback => [
            [callback, 'throws', fail],
            [callback, 'rejects', failLater],
          ]) as [(typeof CALLBACKS)[number], string, () => never][],
        ),
      )('%s that %s is one error, and no refusal', async (callback, _, act) => {
        const server = await serve({ app: [limit({ [callback]: act }, { limit: 0 })] })
        const response = await request(server.url).get('').expect(500)
        expect(server.errors).toEqual([FAILURE])
        expect(server.handled).toBe(0)
        expect(response.text).not.toMatch(/undefined|NaN|quota-exceeded/)
      })

      // Errors that the guard itself has a meaning for, of somebody else's limiter.
      const others: [string, () => Limiter][] = [
        ['refusal', () => createLimiter(tokenBucket({ limit: 0, window: '1s' }))],
        [
          'closed limiter',
          () => {
            const closed = createLimiter(tokenBucket({ limit: 1, window: '1s' }))
            closed.close()
            return closed
          },
        ],
        [
          'failing store',
          () =>
            createLimiter(tokenBucket({ limit: 1, window: '1s' }), { store: scriptedStore(failsAt('book')) }),
        ],
      ]

      it.each(
        rows(
          others.flatMap(([what, make]) => [
            ['onDecision', what, make, 1],
            ['body', what, make, 0],
          ]) as ['onDecision' | 'body', string, () => Limiter, number][],
        ),
      )(
        '%s that fails of the %s of another limiter is one error, also when requests may be held',
        async (callback, _, make, limited) => {
          const other = make()
          for (const maxWait of [0, '1s'] as const) {
            let calls = 0
            const act = async () => {
              calls++
              await other.acquire('x', { maxWait: 0 })
            }
            const options = { [callback]: act, maxWait, onStoreError: 'allow' } as Partial<Limit>
            const server = await serve({ app: [limit(options, { limit: limited })] })
            const response = await request(server.url).get('')
            expect([response.status, calls, server.handled, server.errors.length]).toEqual([500, 1, 0, 1])
          }
        },
      )

      it.each(
        rows([
          ['key', 'ann'],
          ['cost', 1],
          ['onDecision', undefined],
          ['onRefused', undefined],
          ['body', 'soon'],
        ] as const),
      )('%s may return what is awaited like a promise, and is no way in', async (callback, value) => {
        const server = await serve({
          app: [limit({ [callback]: () => thenable(value) } as Partial<Limit>)],
        })
        const statuses = [await request(server.url).get(''), await request(server.url).get('')].map(
          ({ status }) => status,
        )
        expect(statuses).toEqual([200, 429])
        expect(server.handled).toBe(1)
        expect(server.errors).toEqual([])
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

  describe('a limiter function', () => {
    it('may return what is awaited like a promise, and is no way in', async () => {
      const limiter = createLimiter(tokenBucket({ limit: 1, window: '1m' }), { clock })
      const server = await serve({ app: [{ limiter: () => thenable(limiter) as never }] })
      await request(server.url).get('').expect(200)
      await request(server.url).get('').expect(429)
    })
  })

  describe('a limiter or a store of somebody else that answers nonsense', () => {
    const NONSENSE: [string, unknown][] = [
      ['undefined', undefined],
      ['5', 5],
      ['{}', {}],
      ['{ allowed: true }', { allowed: true }],
      ['{ allowed: false }', { allowed: false }],
    ]

    const expectOneError = async (limited: Limit) => {
      const server = await serve({ app: [limited] })
      const response = await request(server.url).get('')
      expect(JSON.stringify(response.headers) + response.text).not.toMatch(/undefined|NaN/)
      expect(response.status).toBe(500)
      expect(server.errors).toMatchObject([{ code: expect.stringMatching(/^SLUICE_/) }])
      expect(server.handled).toBe(0)
    }

    it.each(rowsOn(server)(NONSENSE))(
      '%s, in a limiter made by hand, is one coded error',
      async (_, value) => {
        const policy = { limit: 1, windowMs: 1000, smooth: true }
        for (const tryAcquire of [() => value, async () => value]) {
          const limiter = { name: 'theirs', policy, tryAcquire } as never
          await expectOneError({ limiter: () => limiter })
          const made = async () => serve({ app: [{ limiter }] })
          await expect(made()).rejects.toMatchObject({ code: 'SLUICE_INVALID_LIMITER', option: 'limiter' })
        }
      },
    )

    it.each(rowsOn(server)(NONSENSE))('%s, in a synchronous store, is one coded error', async (_, value) => {
      const ledger = { async: false, decide: () => value, book: () => value } as never
      await expectOneError({ limit: 1, window: '1m', name: 'x', store: { async: false, open: () => ledger } })
    })
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
