import { once } from 'node:events'
import { Agent, createServer, get, request as httpRequest } from 'node:http'
import { type AddressInfo, connect } from 'node:net'
import { setImmediate as nextTurn } from 'node:timers/promises'
import {
  type Algorithm,
  combine,
  createLimiter,
  type Duration,
  fixedWindow,
  type Limiter,
  leakyBucket,
  slidingLog,
  slidingWindow,
  tokenBucket,
} from '@sluice/core'
import { type Ending, limitRoute, type Outcome } from '@sluice/core/http'
import { parseList } from 'structured-headers'
import request from 'supertest'
import { describe, expect, it, test, vi } from 'vitest'
import { clock, closing } from '../support/each-test.js'
import { answersLate, failsAt, scriptedStore, unhandledDuring, works } from '../support/scripted-store.js'
import {
  type AnyRequest,
  type App,
  type Limit,
  type Passage,
  type RunningServer,
  servers,
} from '../support/servers/index.js'
import { rowsOn } from '../support/servers/rows.js'

/*
 * Permits are given back, kept, or taken when a request ends. Time stands still
 * unless a test moves it.
 */

const ann = () => 'ann'

/** A limiter, and what it has left for the only key. */
const limiterOf = (algorithm: Algorithm, name?: string) => createLimiter(algorithm, { name, clock })
const left = (limiter: Limiter<false>) => limiter.peek('ann').remaining

const bucket = (limit: number, window: Duration = '1m', name?: string) =>
  limiterOf(tokenBucket({ limit, window }), name)

/** Answers with the status that the request asks for, as an app may: past the framework. */
function answer({ req, res }: Passage): void {
  res.statusCode = Number(req.headers['x-status'] ?? 200)
  res.end()
}

/** Fails with the status that the request asks for, in words that every framework has an answer to. */
function failOr(passage: Passage): void {
  const status = Number(passage.req.headers['x-status'] ?? 200)
  if (status >= 400) throw Object.assign(new Error('wrong password'), { status, statusCode: status })
  passage.json({ ok: true })
}

const ask = ({ url }: RunningServer, status = 200) =>
  request(url).get('').set('x-status', String(status)).redirects(0)

/** Handlers that wait until they are let on, and answer then. */
function waiting() {
  let open = () => {}
  const opened = new Promise<void>(resolve => {
    open = resolve
  })
  const handler = async (passage: Passage) => {
    await opened
    answer(passage)
  }
  return { handler, open }
}

/** Waits for what sockets do on their own; the clock stands still meanwhile. */
const until = (expectation: () => void) => vi.waitFor(expectation, { timeout: 4000, interval: 5 })

/** A client whose request the handler works on, as one of so many. */
async function hung(server: RunningServer, handled = 1) {
  const client = get(server.url).on('error', () => {})
  await until(() => expect(server.handled).toBe(handled))
  return client
}

/** Parameters of the only member of RateLimit. */
function limitOf({ headers }: { headers: Record<string, string> }) {
  const [member] = parseList(headers.ratelimit ?? '')
  return { r: member?.[1].get('r') as number, t: member?.[1].get('t') as number }
}

const FINE = [200, 204, 301, 302, 304, 399]
const FAILED = [400, 401, 404, 422, 429, 500, 503]
const ONLY_FAILURES = { count: 'after', refund: { ifSuccessful: true } } as const
const IF_FAILED = { refund: { ifFailed: true } } as const

describe.each(servers)('on $name', server => {
  const { start } = server
  const rows = rowsOn(server)

  async function serve(app: App) {
    const server = await start({ handler: answer, ...app })
    closing.push(server.close)
    return server
  }

  /** Behind one limiter, by which everybody is one. */
  const behind = (limiter: Limiter, options: Partial<Limit>, handler: App['handler'] = answer) =>
    serve({ app: [{ limiter, key: ann, ...options } as Limit], handler })

  describe('a refund', () => {
    const RULES: [string, NonNullable<Limit['refund']>, number[]][] = [
      ['{ ifFailed }', { ifFailed: true }, FAILED],
      ['{ ifSuccessful }', { ifSuccessful: true }, FINE],
      ['{ ifFailed, ifSuccessful }', { ifFailed: true, ifSuccessful: true }, [...FINE, ...FAILED]],
      ['{ ifFailed: false }', { ifFailed: false }, []],
      ['{}', {}, []],
      ['a function', (_, { status }) => status === 422, [422]],
      ['a function that answers later', async (_, { status }) => status === 422, [422]],
      ['a function of the request', ({ req }) => req.headers['x-status'] === '401', [401]],
    ]

    it.each(rows(RULES, 2))('by %s', async (_, refund, back) => {
      const limiter = bucket(20)
      const server = await serve({ app: [{ limiter, key: req => String(req.headers['x-status']), refund }] })
      for (const status of [...FINE, ...FAILED]) {
        await ask(server, status).expect(status)
        expect([status, limiter.peek(String(status)).remaining]).toEqual([
          status,
          back.includes(status) ? 20 : 19,
        ])
      }
      expect(server.errors).toEqual([])
    })

    it('gets the status of the response and whether the client aborted, with the arguments of handlers', async () => {
      const endings: [string, Ending][] = []
      const refund = ({ req, res }: Passage, ending: Ending) => {
        endings.push([`${req.method} ${res.statusCode}`, ending])
        return false
      }
      const server = await serve({ app: [{ limiter: bucket(20), refund }] })
      for (const status of [200, 404]) await ask(server, status).expect(status)
      await request(server.url).post('').expect(200)
      expect(endings).toEqual([
        ['GET 200', { status: 200, aborted: false }],
        ['GET 404', { status: 404, aborted: false }],
        ['POST 200', { status: 200, aborted: false }],
      ])
    })

    // express-rate-limit/express-rate-limit#429
    it('by a chosen status (S22)', async () => {
      const server = await serve({
        app: [{ limiter: bucket(2), refund: (_, { status }) => status === 422 }],
      })
      for (const status of [422, 422, 422, 500, 500]) await ask(server, status).expect(status)
      await ask(server, 500).expect(429)
      expect(server.handled).toBe(5)
    })

    it('has happened before the next request of the connection is decided', async () => {
      const { url } = await behind(bucket(1), IF_FAILED)
      const connection = sequence(url)
      for (let round = 0; round < 50; round++) expect(await connection.ask(404)).toBe(404)
      connection.close()
    })

    it('is given for a HEAD like for a GET', async () => {
      const limiter = bucket(1)
      const server = await serve({ app: [{ limiter, ...IF_FAILED }] })
      for (let round = 0; round < 3; round++)
        await request(server.url).head('').set('x-status', '404').expect(404)
      await request(server.url).head('').expect(200)
      await request(server.url).head('').expect(429)
    })

    it('is given for a handler that throws', async () => {
      const tokens = bucket(2)
      const failure = new Error('the handler has failed')
      const handler = () => {
        throw failure
      }
      const server = await behind(tokens, IF_FAILED, handler)
      for (let round = 0; round < 3; round++) await request(server.url).get('').expect(500)
      expect(left(tokens)).toBe(2)
      expect(server.errors).toEqual([failure, failure, failure])
    })

    it('is not called for a request that was refused or not limited', async () => {
      const tokens = bucket(1)
      const statuses: number[] = []
      const refund = (_: Passage, { status }: Ending) => statuses.push(status) === 0
      const server = await serve({
        app: [
          { limiter: () => null, refund },
          { limiter: bucket(1), key: () => null, refund },
          { limiter: tokens, key: ann, refund },
        ],
      })
      for (const status of [200, 429, 429]) await ask(server).expect(status)
      expect(statuses).toEqual([200])
      expect(left(tokens)).toBe(0)
    })

    it('is given once, also when the connection closes afterwards', async () => {
      const tokens = bucket(5)
      const server = await behind(tokens, IF_FAILED)
      const connection = sequence(server.url)
      for (const status of [500, 200, 500, 200]) expect(await connection.ask(status)).toBe(status)
      expect(left(tokens)).toBe(3)
      connection.close()
      await ask(server).expect(200)
      expect(left(tokens)).toBe(2)
    })

    it('is of the whole cost', async () => {
      const tokens = bucket(10)
      const cost = () => 7
      const server = await behind(tokens, { cost, ...IF_FAILED })
      for (const status of [500, 404, 500]) await ask(server, status).expect(status)
      expect(left(tokens)).toBe(10)
      await ask(server).expect(200)
      expect(left(tokens)).toBe(3)
    })

    it.each(
      rows([
        ['at once', 0, 0, 2],
        ['with half of it refilled', 15, 1, 2],
        ['with all of it refilled', 30, 2, 2],
        ['long after', 45, 3, 3],
      ]),
    )('is at most what has not been refilled: %s', async (_, seconds, before, after) => {
      const tokens = bucket(4)
      const { handler, open } = waiting()
      const server = await behind(tokens, { cost: 2, ...IF_FAILED }, handler)
      const slow = ask(server, 500).then()
      await until(() => expect(server.handled).toBe(1))
      tokens.drain('ann')
      clock.advance(seconds * 1000)
      expect(left(tokens)).toBe(before)
      open()
      expect((await slow).status).toBe(500)
      expect(left(tokens)).toBe(after)
    })

    // rhinobase/hono-rate-limiter PR#67
    it('has no effect once its window is over (S09)', async () => {
      const { handler, open } = waiting()
      const server = await behind(limiterOf(fixedWindow({ limit: 2, window: 200 })), IF_FAILED, passage =>
        passage.req.headers['x-status'] === '500' ? handler(passage) : answer(passage),
      )
      const slow = ask(server, 500).then()
      await until(() => expect(server.handled).toBe(1))
      clock.advance(230)
      await ask(server).expect(200)
      clock.advance(30)
      open()
      await slow
      clock.advance(5)
      await ask(server).expect(200)
      clock.advance(1)
      await ask(server).expect(429)
    })

    it('is given for requests that waited', async () => {
      const tokens = bucket(1, '1s')
      const server = await behind(tokens, { maxWait: '5s', ...IF_FAILED })
      await ask(server).expect(200)
      const held = ask(server, 500).then()
      await until(() => expect(clock.alarms).toBe(1))
      clock.advance('1s')
      expect((await held).status).toBe(500)
      expect(left(tokens)).toBe(1)
    })

    it('of several policies follows the rule of each policy, or else that of the route', async () => {
      const limiters = [...'abcd'].map(name => bucket(9, '1m', name))
      const onlyTeapots = (...args: unknown[]) => (args.at(-1) as Ending).status === 418
      const refunds = [undefined, { ifSuccessful: true }, {}, onlyTeapots as never]
      const policies = refunds.map((refund, index) => ({ limiter: limiters[index] as Limiter, refund }))
      const server = await serve({ app: [{ policies, key: ann, ...IF_FAILED }] })
      for (const [status, ...rest] of [
        [200, 8, 9, 8, 8],
        [500, 8, 8, 7, 7],
        [418, 8, 7, 6, 7],
      ] as const) {
        await ask(server, status).expect(status)
        expect(limiters.map(left)).toEqual(rest)
      }
    })

    it.each(
      rows([
        ['a combination', (limiter: Limit) => limiter],
        [
          'a combination among policies',
          (limiter: Limit) => ({ policies: [limiter, { limiter: () => null }] }),
        ],
        [
          'a combination beside another policy',
          (limiter: Limit) => ({ policies: [limiter, { name: 'other', limit: 9, window: '1m', clock }] }),
        ],
      ] as [string, (limiter: Limit) => Limit][]),
    )('of %s is given to all its members', async (_, limit) => {
      const [minute, day] = [bucket(5, '1m', 'minute'), bucket(9, '1d', 'day')]
      const server = await serve({
        app: [{ ...limit({ limiter: combine(minute, day) }), key: ann, ...IF_FAILED }],
      })
      await ask(server, 500).expect(500)
      expect([left(minute), left(day)]).toEqual([5, 9])
      await ask(server).expect(200)
      expect([left(minute), left(day)]).toEqual([4, 8])
    })

    it('of a limiter that a request passes twice is given once', async () => {
      const tokens = bucket(9)
      const limit = { limiter: tokens, key: ann, ...IF_FAILED }
      const server = await serve({ app: [limit], route: [limit] })
      await ask(server).expect(200)
      await ask(server, 500).expect(500)
      expect(left(tokens)).toBe(8)
      await ask(server).expect(200)
      expect(left(tokens)).toBe(7)
    })

    it('that the store fails to give changes no response and rejects no promise', async () => {
      const store = scriptedStore(failsAt('refund'))
      const limiter = createLimiter(tokenBucket({ limit: 5, window: '1m' }), { store, clock })
      const server = await behind(limiter, IF_FAILED)
      const unhandled = await unhandledDuring(async () => {
        for (const status of [500, 404, 200]) await ask(server, status).expect(status)
        await until(() => expect(limiter.stats().storeErrors).toBe(2))
      })
      expect(unhandled).toEqual([])
      expect(server.errors).toEqual([])
      expect((await limiter.peek('ann')).remaining).toBe(2)
    })

    it('is given for an answer that somebody else gave while the key was looked for', async () => {
      const tokens = bucket(5)
      let passing: Passage | undefined
      const key = async () => {
        const { res } = passing as Passage
        res.statusCode = 200
        res.end('early')
        if (!res.writableFinished) await once(res, 'finish')
        return 'ann'
      }
      const server = await serve({
        before: passage => {
          passing = passage
        },
        app: [{ limiter: tokens, key, refund: { ifSuccessful: true } }],
        handler: () => {},
      })
      const connection = sequence(server.url)
      expect(await connection.ask(200)).toBe(200)
      await until(() => expect(left(tokens)).toBe(5))
      connection.close()
    })
  })

  describe('a client that goes away', () => {
    // express-rate-limit/express-rate-limit#108
    it('before it is answered is given back what it was charged (S21)', async () => {
      const tokens = bucket(2)
      let aborted = false
      const server = await behind(tokens, IF_FAILED, passage => (aborted ? answer(passage) : undefined))
      for (let round = 1; round <= 3; round++) {
        const client = await hung(server, round)
        client.destroy()
        await until(() => expect(left(tokens)).toBe(2))
      }
      aborted = true
      await ask(server).expect(200)
      expect(server.errors).toEqual([])
    }, 10_000)

    it('is reported once as aborted, with the status that the response would have had', async () => {
      const endings: Ending[] = []
      const { handler, open } = waiting()
      const refund = (_: Passage, ending: Ending) => {
        endings.push(ending)
        return ending.aborted
      }
      const tokens = bucket(2)
      const server = await behind(tokens, { refund }, passage => {
        passage.res.statusCode = 202
        return handler(passage)
      })
      const client = await hung(server)
      client.destroy()
      await until(() => expect(endings).toEqual([{ status: 202, aborted: true }]))
      open()
      await ask(server).expect(200)
      expect(endings).toEqual([
        { status: 202, aborted: true },
        { status: 200, aborted: false },
      ])
      expect(left(tokens)).toBe(1)
    })

    it('is given back what it was charged itself, and nothing of what others were', async () => {
      const tokens = bucket(5)
      const server = await behind(tokens, IF_FAILED, passage =>
        passage.req.method === 'POST' ? new Promise(() => {}) : answer(passage),
      )
      const client = httpRequest(server.url, { method: 'POST' }).on('error', () => {})
      client.end()
      await until(() => expect(server.handled).toBe(1))
      for (let round = 0; round < 3; round++) await ask(server).expect(200)
      expect(left(tokens)).toBe(1)
      client.destroy()
      await until(() => expect(left(tokens)).toBeGreaterThan(1))
      expect(left(tokens)).toBe(2)
    })

    it.each([
      ['that hangs up in the middle of its answer', (res: Passage['res']) => void res.write('some of it, ')],
      ['whose answer is given up', (res: Passage['res']) => void res.destroy()],
    ])('%s has failed, whatever the status', async (_, act) => {
      const tokens = bucket(5)
      const server = await serve({
        app: [{ limiter: tokens, key: ann, ...IF_FAILED }],
        handler({ res }) {
          res.statusCode = 200
          act(res)
          return new Promise(() => {})
        },
      })
      const client = get(server.url, response => response.once('data', () => client.destroy()))
      client.on('error', () => {})
      await until(() => expect(server.handled).toBe(1))
      await until(() => expect(left(tokens)).toBe(5))
      expect(server.handled).toBe(1)
    })

    it('pays where only success is given back', async () => {
      const tokens = bucket(2)
      const server = await behind(tokens, ONLY_FAILURES, () => new Promise(() => {}))
      const client = await hung(server)
      expect(left(tokens)).toBe(2)
      client.destroy()
      await until(() => expect(left(tokens)).toBe(1))
    })

    it('with requests in line behind the first is given back all of them', async () => {
      const tokens = bucket(5)
      const server = await serve({
        app: [{ limiter: tokens, key: ann, ...IF_FAILED }],
        // The last is answered, and its answer never leaves.
        handler: passage =>
          passage.req.headers['x-status'] === '200' ? answer(passage) : new Promise(() => {}),
      })
      const socket = pipelined(server, [0, 0, 200])
      await until(() => expect(server.handled).toBe(3))
      expect(left(tokens)).toBe(2)
      socket.destroy()
      await until(() => expect(left(tokens)).toBe(5))
    })

    it.each([
      ['is given back what it was charged', IF_FAILED],
      ['pays for what the handler has done', { count: 'after' } as const],
    ])('while the store decides %s', async (_, options) => {
      const { script, answerNow, due } = answersLate()
      const store = scriptedStore(script)
      const limiter = createLimiter(tokenBucket({ limit: 5, window: '1m' }), { store, clock })
      let passing: Passage | undefined
      const server = await serve({
        before: passage => {
          passing ??= passage
        },
        app: [{ limiter, key: ann, ...options }],
      })
      const client = get(server.url).on('error', () => {})
      await until(() => expect(due).toHaveLength(1))
      client.destroy()
      await until(() => expect(passing?.req.socket.destroyed).toBe(true))
      store.script = works
      answerNow()
      // A request on another connection, so that whatever the first one has set off has happened.
      await ask(server).expect(200)
      const charged = options === IF_FAILED ? 1 : server.handled
      await vi.waitFor(async () => expect((await limiter.peek('ann')).remaining).toBe(5 - charged))
    })
  })

  it('requests in line on one connection are each settled by their own answer', async () => {
    const tokens = bucket(9)
    const server = await behind(tokens, IF_FAILED)
    const socket = pipelined(server, [200, 500, 200, 404, 200])
    await until(() => expect(socket.text.match(/HTTP\/1\.1 \d+/g)).toHaveLength(5))
    expect(left(tokens)).toBe(6)
    socket.destroy()
  })

  describe("count: 'after'", () => {
    it('of a login counts failures only, and good requests however many run at once', async () => {
      const tokens = bucket(3)
      const { handler, open } = waiting()
      const server = await serve({
        route: [{ limiter: tokens, key: ann, ...ONLY_FAILURES }],
        handler,
      })
      const good = Array.from({ length: 10 }, () => ask(server).then())
      await until(() => expect(server.handled).toBe(10))
      open()
      for (const { status } of await Promise.all(good)) expect(status).toBe(200)
      expect(left(tokens)).toBe(3)
      for (const status of [401, 200, 401, 200, 200, 401]) await ask(server, status).expect(status)
      expect(server.handled).toBe(16)
      for (const status of [401, 200]) await ask(server, status).expect(429)
      expect(server.handled).toBe(16)
      clock.advance('20s')
      await ask(server).expect(200)
    })

    it('without a refund counts every request when it is answered', async () => {
      const tokens = bucket(2)
      const { handler, open } = waiting()
      const server = await behind(tokens, { count: 'after' }, handler)
      const first = ask(server).then()
      await until(() => expect(server.handled).toBe(1))
      expect(left(tokens)).toBe(2)
      open()
      await first
      expect(left(tokens)).toBe(1)
      await ask(server).expect(200)
      await ask(server).expect(429)
    })

    it.each(
      rows([
        ['a bucket', tokenBucket],
        ['a fixed window', fixedWindow],
        ['a sliding window', slidingWindow],
        ['a sliding log', slidingLog],
      ]),
    )(
      'leaves nothing when more ran at once than were left, and says until when: %s',
      async (_, algorithm) => {
        const tokens = limiterOf(algorithm({ limit: 5, window: '1m' }))
        const { handler, open } = waiting()
        const server = await behind(tokens, { cost: 3, ...ONLY_FAILURES }, handler)
        const bad = Array.from({ length: 3 }, () => ask(server, 401).then())
        await until(() => expect(server.handled).toBe(3))
        open()
        for (const { status } of await Promise.all(bad)) expect(status).toBe(401)
        expect(left(tokens)).toBe(0)
        const single = await behind(tokens, {})
        const refused = await ask(single).expect(429)
        const { 'retry-after': retryAfter } = refused.headers
        expect(limitOf(refused)).toEqual({ r: 0, t: Number(retryAfter) })
        clock.advance((Number(retryAfter) - 1) * 1000)
        await ask(single).expect(429)
        clock.advance('1s')
        await ask(single).expect(200)
      },
    )

    it('of a cost asks for all of it, and takes all of it', async () => {
      const tokens = bucket(10)
      const server = await behind(tokens, { cost: 4, ...ONLY_FAILURES })
      const found: number[] = []
      for (const status of [200, 401, 200, 401, 429]) {
        await ask(server, status).expect(status)
        found.push(left(tokens))
      }
      expect(found).toEqual([10, 6, 6, 2, 2])
    })

    it('is in the stats of the limiter what was taken, and what was refused', async () => {
      const limiter = bucket(2)
      const server = await behind(limiter, ONLY_FAILURES)
      for (const status of [200, 200, 401]) await ask(server, status).expect(status)
      expect(limiter.stats()).toMatchObject({ granted: 1, refused: 0 })
      await ask(server, 401).expect(401)
      for (let round = 0; round < 3; round++) await ask(server).expect(429)
      expect(limiter.stats()).toMatchObject({ granted: 2, refused: 3 })
    })

    it('says what will be left if the request is counted', async () => {
      const server = await behind(bucket(3), ONLY_FAILURES, failOr)
      const said: number[] = []
      for (const status of [200, 200, 401, 200, 401, 401])
        said.push(limitOf(await ask(server, status).expect(status)).r)
      expect(said).toEqual([2, 2, 2, 1, 1, 0])
      expect(limitOf(await ask(server).expect(429))).toEqual({ r: 0, t: 20 })
    })

    it.each(
      rows([
        ['a bucket', tokenBucket],
        ['a fixed window', fixedWindow],
        ['a sliding window', slidingWindow],
        ['a sliding log', slidingLog],
      ]),
    )('says until when nothing is left: %s', async (_, algorithm) => {
      for (const limit of [1, 2]) {
        const key = () => `limit ${limit}`
        const limiter = limiterOf(algorithm({ limit, window: '1m' }))
        const server = await serve({ app: [{ limiter, key, ...ONLY_FAILURES }], handler: failOr })
        let last = { r: Number.NaN, t: Number.NaN }
        for (let round = 0; round < limit; round++) {
          clock.advance('10s')
          last = limitOf(await ask(server, 401).expect(401))
        }
        expect(last.r).toBe(0)
        clock.advance((last.t - 1) * 1000)
        await ask(server).expect(429)
        clock.advance('1s')
        await ask(server).expect(200)
      }
    })

    it('of one policy beside one that counts before takes permits from both or from none', async () => {
      const [total, failures] = [bucket(5, '1m', 'total'), bucket(1, '1m', 'failures')]
      const policies = [{ limiter: total }, { limiter: failures, ...ONLY_FAILURES }]
      const server = await serve({ app: [{ policies, key: ann }] })
      await ask(server).expect(200)
      expect([left(total), left(failures)]).toEqual([4, 1])
      await ask(server, 401).expect(401)
      expect([left(total), left(failures)]).toEqual([3, 0])
      const refused = await ask(server).expect(429)
      expect(refused.body['violated-policies']).toEqual(['failures'])
      expect([left(total), left(failures)]).toEqual([3, 0])
      expect(server.handled).toBe(2)
      clock.advance('1m')
      total.drain('ann')
      expect((await ask(server, 401).expect(429)).body['violated-policies']).toEqual(['total'])
      expect(left(failures)).toBe(1)
      expect(total.stats()).toMatchObject({ granted: 2, refused: 1 })
      expect(failures.stats()).toMatchObject({ granted: 1, refused: 1 })
    })

    it('says of each policy what will be left of it', async () => {
      const policies = [
        { limiter: bucket(5, '1m', 'total') },
        { limiter: bucket(5, '1m', 'failures'), ...ONLY_FAILURES, cost: 2 },
      ]
      const server = await serve({ app: [{ policies, key: ann }], handler: failOr })
      for (const total of [4, 3]) {
        const { headers } = await ask(server).expect(200)
        expect(headers.ratelimit).toMatch(new RegExp(`^"total";r=${total};t=\\d+, "failures";r=3;t=\\d+$`))
      }
    })

    it('of a combination charges all its members', async () => {
      const [minute, day] = [bucket(2, '1m', 'minute'), bucket(9, '1d', 'day')]
      const limiter = combine(minute, day)
      const server = await behind(limiter, ONLY_FAILURES)
      for (const status of [401, 200, 401]) await ask(server, status).expect(status)
      expect([left(minute), left(day)]).toEqual([0, 7])
      expect((await ask(server).expect(429)).body['violated-policies']).toEqual(['minute'])
      expect([left(minute), left(day)]).toEqual([0, 7])
    })

    it('of a limiter that a request passes twice charges once', async () => {
      const tokens = bucket(5)
      const limit = { limiter: tokens, key: ann, ...ONLY_FAILURES }
      const server = await serve({ app: [limit], router: [limit] })
      await ask(server, 401).expect(401)
      expect(left(tokens)).toBe(4)
    })

    it('in a dry run counts the same, and refuses no request', async () => {
      const tokens = bucket(2)
      const outcomes: boolean[][] = []
      const onDecision = (_: AnyRequest, { decision, refused }: Outcome) =>
        void outcomes.push([decision.allowed, refused])
      const server = await behind(tokens, { ...ONLY_FAILURES, dryRun: true, onDecision })
      for (const status of [401, 200, 401, 401, 200]) await ask(server, status).expect(status)
      expect(left(tokens)).toBe(0)
      expect(outcomes.map(([allowed]) => allowed)).toEqual([true, true, true, false, false])
      expect(outcomes.every(([, refused]) => refused === false)).toBe(true)
    })

    it('does not make requests wait, not even with a leaky bucket', async () => {
      for (const maxWait of [undefined, 0]) {
        const limiter = limiterOf(leakyBucket({ limit: 1, window: '1s', capacity: 5 }))
        const server = await behind(limiter, { count: 'after', maxWait })
        await ask(server).expect(200)
        await ask(server).expect(429).expect('Retry-After', '1')
      }
      expect(clock.alarms).toBe(0)
    })

    it('on a store that fails when it is to charge breaks nothing', async () => {
      const store = scriptedStore()
      const limiter = createLimiter(tokenBucket({ limit: 5, window: '1m' }), { store, clock })
      const server = await behind(limiter, { count: 'after' }, passage => {
        store.script = failsAt('decide', 'drain')
        answer(passage)
      })
      const unhandled = await unhandledDuring(async () => {
        await ask(server).expect(200)
        await until(() => expect(limiter.stats().storeErrors).toBe(1))
      })
      expect(unhandled).toEqual([])
      expect(server.errors).toEqual([])
    })
  })

  describe('throws at construction:', () => {
    const RATE = { limit: 5, window: '1m' } as const
    const BAD: [string, object, { code?: string; option: string }][] = [
      ["count 'after' with maxWait", { ...RATE, count: 'after', maxWait: '1s' }, { option: 'count' }],
      [
        "count 'after' of one policy with maxWait",
        { policies: [RATE, { ...RATE, name: 'b', count: 'after' }], maxWait: '1s' },
        { option: 'count' },
      ],
      ...['later', 'After', true, null, 1].map(count => bad('count', count, { option: 'count' })),
      ...[true, 'ifFailed', null, 5, [{ ifFailed: true }]].map(refund =>
        bad('refund', refund, { option: 'refund' }),
      ),
      bad('refund', { ifFail: true }, { option: 'ifFail', code: 'SLUICE_UNKNOWN_OPTION' }),
      bad('refund', { ifFailed: 'yes' }, { option: 'ifFailed' }),
      bad('refund', { ifSuccessful: 1 }, { option: 'ifSuccessful' }),
      ['a bad count of a policy', { policies: [{ ...RATE, count: 'later' }] }, { option: 'count' }],
      ['a bad refund of a policy', { policies: [{ ...RATE, refund: true }] }, { option: 'refund' }],
    ]
    function bad(
      name: string,
      value: unknown,
      error: { code?: string; option: string },
    ): (typeof BAD)[number] {
      return [`${name} ${JSON.stringify(value)}`, { ...RATE, [name]: value }, error]
    }

    it.each(rows(BAD))('%s', async (_, limit, error) => {
      const starting = async () => closing.push((await start({ app: [limit as Limit] })).close)
      await expect(starting()).rejects.toMatchObject({ code: 'SLUICE_INVALID_OPTION', ...error })
    })
  })
})

describe('a refund function that fails', () => {
  const SECRET = 's3cr3t'
  const FAILING = [
    ['throws', () => fail(SECRET)],
    ['throws nothing', () => fail(undefined)],
    ['rejects', async () => fail(new Error(SECRET))],
    ['rejects with nothing', () => Promise.reject()],
    ['answers undefined', () => undefined],
    ['answers undefined later', async () => {}],
    ['answers null', () => null],
    ['answers a text', () => 'true'],
    ['answers a number later', async () => 1],
  ] as [string, () => never][]

  /** What is warned of while failed requests are answered on a server of which no warning was given yet. */
  async function warningsOf(name: string, refunds: readonly (() => never)[]) {
    // Warnings are given once in a process.
    vi.resetModules()
    const { servers } = await import('../support/servers/index.js')
    const factory = servers.find(factory => factory.name === name)
    if (factory === undefined) throw new Error(`there is no ${name}`)
    const warnings: Error[] = []
    const note = (warning: Error) => warnings.push(warning)
    process.on('warning', note)
    try {
      const left = [...refunds]
      const refund = () => (left.shift() as () => never)()
      const limit = { limit: refunds.length, window: '1m', clock, refund } as const
      const server = await factory.start({ app: [limit], handler: answer })
      closing.push(server.close)
      const unhandled = await unhandledDuring(async () => {
        for (const _ of refunds) await ask(server, 500).expect(500)
        await ask(server).expect(429)
        await until(() => expect(warnings).not.toEqual([]))
      })
      expect(unhandled).toEqual([])
      expect(server.errors).toEqual([])
    } finally {
      process.off('warning', note)
    }
    return warnings
  }

  test.each(FAILING)('and %s is warned of, and gives nothing', async (_, refund) => {
    expect(await warningsOf('express', [refund])).toMatchObject([{ code: 'SLUICE_REFUND_FAILED' }])
  })

  test.each(servers.map(({ name }) => name))(
    'is warned of once on %s, without what it has thrown',
    async name => {
      const warnings = await warningsOf(
        name,
        FAILING.map(([, refund]) => refund),
      )
      expect(warnings).toMatchObject([{ name: 'SluiceWarning', code: 'SLUICE_REFUND_FAILED' }])
      expect(warnings[0]?.message).not.toContain(SECRET)
    },
  )
})

function fail(error: unknown): never {
  throw error
}

/** A connection on which requests of these statuses are sent before the first is answered, and what has come back. */
function pipelined({ url }: RunningServer, statuses: readonly number[]) {
  const socket = connect(Number(new URL(url).port), '127.0.0.1')
  const connection = { text: '', destroy: () => socket.destroy() }
  socket.setEncoding('latin1').on('data', text => {
    connection.text += text
  })
  const requests = statuses.map(status => `GET /api/items HTTP/1.1\r\nHost: x\r\nx-status: ${status}\r\n\r\n`)
  socket.write(requests.join(''))
  return connection
}

/** A connection on which requests are sent one after the other, each as soon as there is an answer. */
function sequence(url: string) {
  const agent = new Agent({ keepAlive: true, maxSockets: 1 })
  const ask = (status: number) =>
    new Promise((resolve, reject) => {
      get(url, { agent, headers: { 'x-status': status } }, response =>
        response.resume().once('end', () => resolve(response.statusCode)),
      ).once('error', reject)
    })
  return { ask, close: () => agent.destroy() }
}

test("count: 'after' takes the permit before the next request of the connection, also behind a slow one", async () => {
  const limiter = createLimiter(tokenBucket({ limit: 5, window: '1h' }), { name: 'guesses', clock })
  const limit = limitRoute({ limiter, key: () => 'k', count: 'after', refund: { ifSuccessful: true } })
  let guesses = 0
  let answerSlow = () => {}
  const server = createServer(
    limit((request, response) => {
      if (request.url === '/slow') answerSlow = () => response.end()
      else {
        guesses++
        response.writeHead(401).end()
      }
    }),
  ).listen(0, '127.0.0.1')
  closing.push(() => new Promise(resolve => server.close(resolve)))
  await once(server, 'listening')
  const socket = connect((server.address() as AddressInfo).port, '127.0.0.1')
  socket.resume()
  const head = (path: string) => `GET ${path} HTTP/1.1\r\nHost: x\r\n\r\n`
  socket.write(head('/slow'))
  for (let guess = 0; guess < 20; guess++) {
    socket.write(head('/guess'))
    await nextTurn()
  }
  await vi.waitFor(() => expect(limiter.stats().refused).toBe(15), 5000)
  expect(guesses).toBe(5)
  answerSlow()
  socket.end()
  await once(socket, 'close')
})
