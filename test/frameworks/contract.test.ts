import { Agent, get, type IncomingMessage } from 'node:http'
import { inspect } from 'node:util'
import {
  combine,
  createLimiter,
  type Decision,
  type Duration,
  type Limiter,
  memoryStore,
  tokenBucket,
  unlimited,
} from '@sluice/core'
import { addressKey, type Refusal, type RequestKey } from '@sluice/core/http'
import { parseList, serializeList } from 'structured-headers'
import request from 'supertest'
import { describe, expect, it } from 'vitest'
import { clock, closing } from '../support/each-test.js'
import {
  type AnyRequest,
  type App,
  type Limit,
  type Passage,
  reference,
  servers,
} from '../support/servers/index.js'
import { rowsOn } from '../support/servers/rows.js'

/*
 * What every adapter promises, over a real socket. Time stands still unless a test moves it.
 */

const REFUSED_BODY =
  '{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota Exceeded",' +
  '"status":429,"violated-policies":["default"]}'

/** A limiter one can look into, and how much it has charged: nothing at all, if `keys` is 0. */
function watched(limit: number, window: Duration = '1m', name?: string) {
  const store = memoryStore()
  const limiter = createLimiter(tokenBucket({ limit, window }), { name, store, clock })
  return {
    limiter,
    get keys() {
      return store.size
    },
    left: (key: string) => limiter.peek(key).remaining,
  }
}

/** The fields of a response; both lists have been read back by an independent parser. */
function fields(response: { headers: Record<string, string> }) {
  const policy = response.headers['ratelimit-policy']
  const limit = response.headers.ratelimit
  for (const value of [policy, limit])
    if (value !== undefined) expect(serializeList(parseList(value))).toBe(value)
  return { policy, limit, retryAfter: response.headers['retry-after'] }
}

/** Parameter `r` of the only member of RateLimit. */
function remaining(response: { headers: Record<string, string> }): number {
  const [member, ...others] = parseList(fields(response).limit ?? '')
  expect(others).toEqual([])
  return member?.[1].get('r') as number
}

const header =
  (name: string) =>
  (req: AnyRequest): string =>
    String(req.headers[name] ?? 'nobody')

const NO_FIELDS = { policy: undefined, limit: undefined, retryAfter: undefined }

/** Gives the connection another peer address, for the framework to find where it looks. */
function peer(passage: Passage, address: string | undefined): void {
  Object.defineProperty(passage.req.socket, 'remoteAddress', { value: address, configurable: true })
}

/** The response for an app that answers past its framework, as a 200: Koa has 404 there until it knows better. */
function raw({ res }: Passage): Passage['res'] {
  res.statusCode = 200
  return res
}

describe.each(servers)('on $name', server => {
  const { start } = server
  const rows = rowsOn(server)

  async function serve(app: App) {
    const server = await start(app)
    closing.push(server.close)
    return server
  }

  const limit = (limit: number, window: Duration = '1m', options: Partial<Limit> = {}): Limit =>
    ({ limit, window, clock, ...options }) as Limit

  describe('an allowed request', () => {
    it('reaches the handler, with RateLimit fields', async () => {
      const server = await serve({ app: [limit(100, '1m')] })
      const response = await request(server.url).get('').expect(200, { ok: true })
      expect(fields(response)).toEqual({
        policy: '"default";q=100;w=60',
        limit: '"default";r=99;t=60',
        retryAfter: undefined,
      })
      expect(server.handled).toBe(1)
    })

    it('has no Retry-After when it takes the last permit', async () => {
      const server = await serve({ app: [limit(1, '10s')] })
      const response = await request(server.url).get('').expect(200)
      expect(fields(response)).toEqual({
        policy: '"default";q=1;w=10',
        limit: '"default";r=0;t=10',
        retryAfter: undefined,
      })
    })

    it('keeps the Cache-Control of the app', async () => {
      const server = await serve({
        before: passage => passage.setHeader('Cache-Control', 'public, max-age=60'),
        app: [limit(1)],
      })
      await request(server.url).get('').expect(200).expect('Cache-Control', 'public, max-age=60')
    })

    it('has no Cache-Control of ours', async () => {
      const server = await serve({ app: [limit(1)] })
      const response = await request(server.url).get('').expect(200)
      expect(response.headers).not.toHaveProperty('cache-control')
    })

    it('keeps the fields when the handler throws', async () => {
      const failure = new Error('the handler has failed')
      const server = await serve({
        app: [limit(100)],
        handler: () => {
          throw failure
        },
      })
      const response = await request(server.url).get('').expect(500)
      expect(fields(response)).toEqual({
        policy: '"default";q=100;w=60',
        limit: '"default";r=99;t=60',
        retryAfter: undefined,
      })
      expect(server.errors).toEqual([failure])
    })
  })

  describe('a refused request', () => {
    it('is answered with 429, the wait, and a problem', async () => {
      const server = await serve({ app: [limit(1, '5s')] })
      await request(server.url).get('').expect(200)
      clock.advance(800)
      const response = await request(server.url).get('').expect(429)
      expect(fields(response)).toEqual({
        policy: '"default";q=1;w=5',
        limit: '"default";r=0;t=5',
        retryAfter: '5',
      })
      expect(response.headers['cache-control']).toBe('no-store')
      expect(response.headers['content-type']).toBe('application/problem+json')
      expect(response.text).toBe(REFUSED_BODY)
      expect(server.errors).toEqual([])
    })

    it('never reaches the handler', async () => {
      const server = await serve({ app: [limit(2)] })
      for (const status of [200, 200, 429, 429, 429]) await request(server.url).get('').expect(status)
      expect(server.handled).toBe(2)
    })

    it('is not to be cached, whatever the app has said', async () => {
      const server = await serve({
        before: passage => passage.setHeader('Cache-Control', 'public, max-age=60'),
        app: [limit(0)],
      })
      const response = await request(server.url).get('').expect(429)
      expect(response.headers['cache-control']).toBe('no-store')
    })

    it('has one Retry-After, also when the app has set one', async () => {
      const server = await serve({
        before: passage => passage.setHeader('Retry-After', '1'),
        app: [limit(1, '10s')],
      })
      await request(server.url).get('').expect(200)
      await request(server.url).get('').expect(429).expect('Retry-After', '10')
    })

    it('is framed by its own body, also when the app has announced another', async () => {
      const server = await serve({
        before: passage => passage.setHeader('Content-Length', '3'),
        app: [limit(0)],
      })
      const response = await request(server.url).get('').expect(429)
      expect(response.text).toBe(REFUSED_BODY)
      expect(response.headers['content-length'] ?? String(REFUSED_BODY.length)).toBe(
        String(REFUSED_BODY.length),
      )
    })

    it('names the limiter in the body', async () => {
      const server = await serve({ app: [limit(0, '1m', { name: 'a"b\\c' })] })
      const response = await request(server.url).get('').expect(429)
      expect(response.body['violated-policies']).toEqual(['a"b\\c'])
      expect(fields(response).limit).toBe('"a\\"b\\\\c";r=0')
    })

    it('contains neither the key nor the address of the client', async () => {
      const server = await serve({ app: [limit(1, '1m', { key: () => 'ann@example.org' })] })
      await request(server.url).get('').expect(200)
      const response = await request(server.url).get('').expect(429)
      expect(JSON.stringify([response.headers, response.text])).not.toMatch(/ann|127\.0\.0\.1/)
    })

    it('changes nothing', async () => {
      const tokens = watched(10)
      const server = await serve({ app: [{ limiter: tokens.limiter, key: () => 'ann', cost: () => cost }] })
      let cost = 8
      await request(server.url).get('').expect(200)
      cost = 5
      await request(server.url).get('').expect(429)
      expect(tokens.left('ann')).toBe(2)
    })

    it('passes once Retry-After seconds have gone by', async () => {
      const server = await serve({ app: [limit(1, '10s')] })
      await request(server.url).get('').expect(200)
      clock.advance(400)
      // nestjs/throttler#2074: rounded down, so that clients came back too early
      const { retryAfter } = fields(await request(server.url).get('').expect(429))
      expect(retryAfter).toBe('10')
      clock.advance(`${Number(retryAfter)}s`)
      await request(server.url).get('').expect(200)
    })
  })

  describe('HEAD', () => {
    it('is counted like GET', async () => {
      const server = await serve({ app: [limit(2)] })
      const head = await request(server.url).head('').expect(200)
      expect(remaining(head)).toBe(1)
      expect(remaining(await request(server.url).get('').expect(200))).toBe(0)
    })

    it('is refused with the headers of GET and no body', async () => {
      const server = await serve({ app: [limit(1, '5s')] })
      await request(server.url).head('').expect(200)
      const asGet = await request(server.url).get('').expect(429)
      const asHead = await request(server.url).head('').expect(429)
      const compared = ({ headers }: { headers: Record<string, string> }) => {
        const { date, ...others } = headers
        return others
      }
      expect(compared(asHead)).toEqual(compared(asGet))
      expect(asHead.headers).toMatchObject({
        'cache-control': 'no-store',
        'content-type': 'application/problem+json',
        'retry-after': '5',
      })
      expect(asHead.text ?? '').toBe('')
      expect(asGet.text).toBe(REFUSED_BODY)
    })
  })

  const parallel = server === reference ? 1000 : 200

  it(`lets exactly the limit through out of ${parallel} parallel requests`, async () => {
    const permits = parallel / 10
    const server = await serve({ app: [limit(permits, '30d')] })
    const agent = new Agent({ keepAlive: true, maxSockets: 50 })
    const statusOf = () =>
      new Promise<number | undefined>((resolve, reject) => {
        const answered = (response: IncomingMessage) => {
          response.resume().once('end', () => resolve(response.statusCode))
        }
        get(server.url, { agent }, answered).once('error', reject)
      })
    const statuses = await Promise.all(Array.from({ length: parallel }, statusOf))
    agent.destroy()
    expect(statuses.filter(status => status === 200)).toHaveLength(permits)
    expect(statuses.filter(status => status === 429)).toHaveLength(parallel - permits)
    expect(server.handled).toBe(permits)
  })

  describe('the key', () => {
    it.each([
      ['at once', header('x-user')],
      ['in a promise', async (req: AnyRequest) => header('x-user')(req)],
    ])('tells clients apart, given %s', async (_, key) => {
      const server = await serve({ app: [limit(1, '1m', { key })] })
      await request(server.url).get('').set('x-user', 'ann').expect(200)
      await request(server.url).get('').set('x-user', 'ann').expect(429)
      await request(server.url).get('').set('x-user', 'bob').expect(200)
    })

    it.each(
      rows([
        ['a number', 42, '42'],
        ['zero', 0, '0'],
        ['a bigint', 2n ** 64n, '18446744073709551616'],
      ]),
    )('may be %s', async (_, key, text) => {
      const tokens = watched(2)
      const server = await serve({ app: [{ limiter: tokens.limiter, key: () => key }] })
      await request(server.url).get('').expect(200)
      expect(tokens.left(text)).toBe(1)
    })

    it.each([
      ['at once', () => null],
      ['in a promise', async () => null],
    ])('null, given %s, is not limited', async (_, key) => {
      const tokens = watched(0)
      const seen: (Decision | undefined)[] = []
      const server = await serve({
        app: [{ limiter: tokens.limiter, key }],
        handler: passage => {
          seen.push(passage.decision)
          passage.json({})
        },
      })
      const response = await request(server.url).get('').expect(200)
      expect(fields(response)).toEqual(NO_FIELDS)
      expect(seen).toEqual([undefined])
      expect(tokens.keys).toBe(0)
    })

    // animir/node-rate-limiter-flexible and others take `__proto__` for a property: NaN, and never limited
    it.each(rows(['__proto__', 'constructor', 'toString', 'hasOwnProperty']))(
      '%s is like any other',
      async key => {
        const server = await serve({ app: [limit(2, '1m', { key: () => key })] })
        const first = await request(server.url).get('').expect(200)
        expect(remaining(first)).toBe(1)
        await request(server.url).get('').expect(200)
        await request(server.url).get('').expect(429)
      },
    )

    const SECRET = 's3cr3t'
    const BAD_KEYS: [string, unknown][] = [
      // Battle-Cattle/BCUK-Bot-4#133: an undefined key threw after the hit was stored
      ['undefined', undefined],
      ['an empty string', ''],
      ['an array', [SECRET]],
      ['an empty array', []],
      ['an object', { id: SECRET }],
      ['an object with a text', { toString: () => SECRET }],
      ['a String object', Object(SECRET)],
      ['NaN', Number.NaN],
      ['Infinity', Number.POSITIVE_INFINITY],
      ['true', true],
      ['a symbol', Symbol(SECRET)],
      ['a function', () => SECRET],
    ]

    it.each(
      rows(
        BAD_KEYS.flatMap(([kind, key]) => [
          [kind, 'at once', () => key],
          [kind, 'in a promise', async () => key],
        ]) as [string, string, () => RequestKey][],
        2,
      ),
    )('%s, given %s, is an error and never a shared bucket', async (_kind, _when, key) => {
      const tokens = watched(5)
      const server = await serve({ app: [{ limiter: tokens.limiter, key }] })
      const response = await request(server.url).get('').expect(500)
      expect(server.errors).toHaveLength(1)
      expect(server.errors[0]).toBeInstanceOf(TypeError)
      expect(server.errors[0]).toMatchObject({ code: 'SLUICE_INVALID_KEY', option: 'key' })
      expect(server.handled).toBe(0)
      expect(tokens.keys).toBe(0)
      expect(fields(response).limit).toBeUndefined()
      expect(inspect(server.errors[0], { showHidden: true }) + response.text).not.toContain(SECRET)
    })

    it.each([
      ['throws', () => fail()],
      ['rejects', async () => fail()],
    ])('that %s is an error, once, and charges nothing', async (_, key) => {
      const tokens = watched(5)
      const server = await serve({ app: [{ limiter: tokens.limiter, key }] })
      await request(server.url).get('').expect(500)
      expect(server.errors).toEqual([FAILURE])
      expect(server.handled).toBe(0)
      expect(tokens.keys).toBe(0)
    })
  })

  describe('the client address', () => {
    const byAddress = (app: App = {}): Promise<{ url: string; errors: readonly unknown[] }> =>
      serve({
        before: passage => peer(passage, header('x-peer')(passage.req)),
        app: [limit(1)],
        ...app,
      })
    const from = (url: string, address: string) => request(url).get('').set('x-peer', address)

    it('is the key by default', async () => {
      const tokens = watched(5)
      const server = await serve({ app: [{ limiter: tokens.limiter }] })
      await request(server.url).get('').expect(200)
      expect(tokens.left('127.0.0.1')).toBe(4)
      expect(tokens.keys).toBe(1)
    })

    it('is not what a forwarded header says', async () => {
      const server = await serve({ app: [limit(1)] })
      await request(server.url).get('').set('X-Forwarded-For', '6.6.6.6').expect(200)
      await request(server.url).get('').set('X-Forwarded-For', '7.7.7.7').expect(429)
    })

    // GHSA-46wh-pxpv-q5gq, Yeraze/meshmonitor#2001
    it('of IPv4 is one client, also as a dual-stack socket shows it', async () => {
      const server = await byAddress()
      await from(server.url, '::ffff:203.0.113.7').expect(200)
      await from(server.url, '203.0.113.7').expect(429)
      await from(server.url, '::ffff:cb00:7107').expect(429)
      await from(server.url, '::ffff:203.0.113.8').expect(200)
    })

    it('of IPv6 counts by its /56 network', async () => {
      const server = await byAddress()
      await from(server.url, '2001:db8:1:2345::5').expect(200)
      await from(server.url, '2001:db8:1:23ff:abcd::1').expect(429)
      await from(server.url, '2001:db8:1:2400::5').expect(200)
    })

    it.each([undefined, '', 'unknown', '/run/app.sock'])(
      'that is no address (%j) on a live socket is an error that names the key option',
      async address => {
        const tokens = watched(5)
        const server = await serve({
          before: passage => peer(passage, address),
          app: [{ limiter: tokens.limiter }],
        })
        await request(server.url).get('').expect(500)
        expect(server.errors).toHaveLength(1)
        expect(server.errors[0]).toMatchObject({
          code: 'SLUICE_NO_CLIENT_ADDRESS',
          option: 'key',
          message: expect.stringMatching(/\bkey\b/),
        })
        expect(server.handled).toBe(0)
        expect(tokens.keys).toBe(0)
      },
    )

    it('of a client that has gone ends the request quietly', async () => {
      const tokens = watched(5)
      let gone = true
      const server = await serve({
        before: passage => {
          if (!gone) return
          passage.req.socket.destroy()
          peer(passage, undefined)
        },
        app: [{ limiter: tokens.limiter }],
      })
      await expect(request(server.url).get('')).rejects.toThrow(/hang up|ECONNRESET/)
      gone = false
      // A request on another connection, so that whatever the first one has set off has happened.
      await request(server.url).get('').expect(200)
      expect(server.handled).toBe(1)
      expect(server.errors).toEqual([])
      expect(tokens.keys).toBe(1)
      expect(tokens.left('127.0.0.1')).toBe(4)
    })

    it('is not looked for when there is a key', async () => {
      const server = await byAddress({
        before: passage => peer(passage, undefined),
        app: [limit(1, '1m', { key: () => 'ann' })],
      })
      await request(server.url).get('').expect(200)
      expect(server.errors).toEqual([])
    })
  })

  it('requests without an address share a bucket when the key says so (S28, denoland/deno#21980)', async () => {
    const server = await serve({
      before: passage => peer(passage, undefined),
      app: [limit(1, '1m', { key: () => addressKey('') ?? 'no address' })],
    })
    await request(server.url).get('').expect(200)
    await request(server.url).get('').expect(429)
    expect(server.errors).toEqual([])
  })

  describe('the cost', () => {
    const stated = (req: AnyRequest) => Number(req.headers['x-cost'])

    it('is 1 unless stated, and may be a number', async () => {
      const server = await serve({ app: [limit(10, '1m', { cost: 3 })] })
      expect(remaining(await request(server.url).get('').expect(200))).toBe(7)
    })

    it.each([
      ['at once', stated],
      ['in a promise', async (req: AnyRequest) => stated(req)],
    ])('may be decided per request, %s', async (_, cost) => {
      const server = await serve({ app: [limit(10, '1m', { cost })] })
      const costing = (cost: number) => request(server.url).get('').set('x-cost', String(cost))
      expect(remaining(await costing(4).expect(200))).toBe(6)
      expect(remaining(await costing(1).expect(200))).toBe(5)
      const refused = await costing(6).expect(429)
      expect(fields(refused)).toMatchObject({ limit: '"default";r=5;t=6', retryAfter: '6' })
      expect(remaining(await costing(5).expect(200))).toBe(0)
    })

    it('of 0 always passes and changes nothing', async () => {
      const tokens = watched(1)
      const server = await serve({ app: [{ limiter: tokens.limiter, key: () => 'ann', cost: stated }] })
      const costing = (cost: number) => request(server.url).get('').set('x-cost', String(cost))
      await costing(0).expect(200)
      expect(tokens.keys).toBe(0)
      await costing(1).expect(200)
      await costing(0).expect(200)
      await costing(1).expect(429)
    })

    it('that can never pass is refused without a Retry-After', async () => {
      const server = await serve({ app: [limit(10, '1m', { cost: 15 })] })
      const response = await request(server.url).get('').expect(429)
      expect(fields(response)).toEqual({
        policy: '"default";q=10;w=60',
        limit: '"default";r=10',
        retryAfter: undefined,
      })
    })

    it.each(
      rows(
        [Number.NaN, -1, 0.5, Number.POSITIVE_INFINITY, 2 ** 53, '1', undefined, null, true, 1n, {}].flatMap(
          cost => [
            [cost, 'at once', () => cost],
            [cost, 'in a promise', async () => cost],
          ],
        ) as [unknown, string, () => number][],
        2,
      ),
    )('of %o, given %s, is an error and charges nothing', async (_cost, _when, cost) => {
      const tokens = watched(5)
      const server = await serve({ app: [{ limiter: tokens.limiter, key: () => 'ann', cost }] })
      await request(server.url).get('').expect(500)
      expect(server.errors).toHaveLength(1)
      expect(server.errors[0]).toMatchObject({ code: 'SLUICE_INVALID_COST', option: 'cost' })
      expect(server.handled).toBe(0)
      expect(tokens.keys).toBe(0)
      expect(tokens.left('ann')).toBe(5)
    })

    it.each([
      ['throws', () => fail()],
      ['rejects', async () => fail()],
    ])('that %s is an error, once, and charges nothing', async (_, cost) => {
      const tokens = watched(5)
      const server = await serve({ app: [{ limiter: tokens.limiter, cost }] })
      await request(server.url).get('').expect(500)
      expect(server.errors).toEqual([FAILURE])
      expect(server.handled).toBe(0)
      expect(tokens.keys).toBe(0)
    })
  })

  describe('the limiter', () => {
    it.each([
      ['at once', (plan: Limiter | null) => plan],
      ['in a promise', async (plan: Limiter | null) => plan],
    ])('is chosen per request, %s; null is not limited', async (_, answered) => {
      const free = watched(1, '1m', 'free')
      const pro = watched(2, '1h', 'pro')
      const plans: Record<string, Limiter | null> = { free: free.limiter, pro: pro.limiter, staff: null }
      const server = await serve({
        app: [{ limiter: req => answered(plans[header('x-plan')(req)] ?? null), key: () => 'ann' }],
      })
      const as = (plan: string) => request(server.url).get('').set('x-plan', plan)
      expect(fields(await as('free').expect(200)).policy).toBe('"free";q=1;w=60')
      await as('free').expect(429)
      expect(fields(await as('pro').expect(200))).toMatchObject({
        policy: '"pro";q=2;w=3600',
        limit: '"pro";r=1;t=1800',
      })
      for (let i = 0; i < 3; i++) expect(fields(await as('staff').expect(200))).toEqual(NO_FIELDS)
      expect(free.left('ann')).toBe(0)
      expect(pro.left('ann')).toBe(1)
    })

    it.each(
      rows(
        [undefined, 'free', {}, 0, false].flatMap(value => [
          [value, 'at once', () => value],
          [value, 'in a promise', async () => value],
        ]) as unknown as [unknown, string, () => null][],
        2,
      ),
    )('%o, chosen %s, is an error and not a way in', async (_value, _when, limiter) => {
      const server = await serve({ app: [{ limiter }] })
      await request(server.url).get('').expect(500)
      expect(server.errors).toHaveLength(1)
      expect(server.errors[0]).toBeInstanceOf(TypeError)
      expect(server.errors[0]).toMatchObject({ code: 'SLUICE_INVALID_LIMITER', option: 'limiter' })
      expect(server.handled).toBe(0)
    })

    it.each([
      ['throws', () => fail()],
      ['rejects', async () => fail()],
    ])('whose choice %s is an error, once', async (_, limiter) => {
      const server = await serve({ app: [{ limiter }] })
      await request(server.url).get('').expect(500)
      expect(server.errors).toEqual([FAILURE])
      expect(server.handled).toBe(0)
    })

    it('may be unlimited, and then nothing is advertised', async () => {
      const server = await serve({ app: [{ limiter: createLimiter(unlimited()) }] })
      const response = await request(server.url).get('').expect(200)
      expect(fields(response)).toEqual(NO_FIELDS)
    })

    it('that is updated advertises its new policy', async () => {
      const { limiter } = watched(1)
      const server = await serve({ app: [{ limiter }] })
      expect(fields(await request(server.url).get('')).policy).toBe('"default";q=1;w=60')
      limiter.update(tokenBucket({ limit: 5, window: '10s' }))
      expect(fields(await request(server.url).get('')).policy).toBe('"default";q=5;w=10')
    })

    it('is shared by all apps that are given it', async () => {
      const { limiter } = watched(2)
      const one = await serve({ app: [{ limiter }] })
      const other = await serve({ route: [{ limiter }] })
      await request(one.url).get('').expect(200)
      await request(other.url).get('').expect(200)
      await request(one.url).get('').expect(429)
      limiter.reset('127.0.0.1')
      await request(other.url).get('').expect(200)
    })
  })

  describe('headers: false', () => {
    it('sends no RateLimit fields', async () => {
      const server = await serve({ app: [limit(1, '1m', { headers: false })] })
      expect(fields(await request(server.url).get('').expect(200))).toEqual(NO_FIELDS)
    })

    it('keeps the rest of a refusal', async () => {
      const server = await serve({ app: [limit(1, '1m', { headers: false })] })
      await request(server.url).get('')
      const response = await request(server.url).get('').expect(429)
      expect(fields(response)).toEqual({ policy: undefined, limit: undefined, retryAfter: '60' })
      expect(response.headers['cache-control']).toBe('no-store')
      expect(response.text).toBe(REFUSED_BODY)
    })
  })

  describe('onRefused', () => {
    async function refuse(onRefused: (passage: Passage, refusal: Refusal) => unknown) {
      const server = await serve({ app: [limit(1, '5s', { onRefused })] })
      await request(server.url).get('').expect(200)
      return { server, response: await request(server.url).get('') }
    }

    it.each([
      ['at once', (passage: Passage) => passage.json({ slow: 'down' })],
      [
        'in a promise',
        async (passage: Passage) => {
          await null
          passage.json({ slow: 'down' })
        },
      ],
    ])('may answer %s, with a body and content type of its own', async (_, onRefused) => {
      const { server, response } = await refuse(onRefused)
      expect(response.status).toBe(429)
      expect(response.text).toBe('{"slow":"down"}')
      expect(response.headers['content-type']).toMatch(/^application\/json\b/)
      expect(fields(response)).toEqual({
        policy: '"default";q=1;w=5',
        limit: '"default";r=0;t=5',
        retryAfter: '5',
      })
      expect(response.headers['cache-control']).toBe('no-store')
      expect(server.handled).toBe(1)
      expect(server.errors).toEqual([])
    })

    it.each([
      ['at once', (refusals: Refusal[], refusal: Refusal) => void refusals.push(refusal)],
      ['in a promise', async (refusals: Refusal[], refusal: Refusal) => void refusals.push(refusal)],
    ])('that only looks, %s, leaves the answer to us', async (_, look) => {
      const refusals: Refusal[] = []
      const { server, response } = await refuse((_passage, refusal) => look(refusals, refusal))
      expect(response.status).toBe(429)
      expect(response.text).toBe(REFUSED_BODY)
      expect(response.headers['content-type']).toBe('application/problem+json')
      expect(refusals).toHaveLength(1)
      expect(refusals[0]).toMatchObject({
        status: 429,
        retryAfter: 5,
        problem: JSON.parse(REFUSED_BODY),
        decision: { allowed: false, limit: 1, remaining: 0, waitMs: 5000 },
      })
      expect(server.handled).toBe(1)
    })

    it.each([
      ['throws', () => fail()],
      [
        'rejects',
        async () => {
          await null
          fail()
        },
      ],
    ])('that %s is an error of the server, reported once', async (_, onRefused) => {
      const { server, response } = await refuse(onRefused)
      expect(response.status).toBe(500)
      expect(server.errors).toEqual([FAILURE])
      expect(server.handled).toBe(1)
    })

    it('is not called for a request that passes', async () => {
      let calls = 0
      const onRefused = () => {
        calls++
      }
      const server = await serve({ app: [limit(1, '5s', { onRefused })] })
      await request(server.url).get('').expect(200)
      expect(calls).toBe(0)
      await request(server.url).get('').expect(429)
      expect(calls).toBe(1)
    })
  })

  describe('several limits', () => {
    it.each(['app', 'router', 'route'] as const)('work on the level of the %s', async level => {
      const server = await serve({ [level]: [limit(1)] })
      await request(server.url).get('').expect(200)
      await request(server.url).get('').expect(429)
      expect(server.handled).toBe(1)
    })

    it('append to the fields, in the order in which they decide', async () => {
      const server = await serve({
        app: [limit(100, '1m', { name: 'burst' })],
        router: [limit(1000, '1d', { name: 'daily' })],
        route: [limit(1, '10s', { name: 'route' })],
      })
      expect(fields(await request(server.url).get('').expect(200))).toEqual({
        policy: '"burst";q=100;w=60, "daily";q=1000;w=86400, "route";q=1;w=10',
        limit: '"burst";r=99;t=60, "daily";r=999;t=86314, "route";r=0;t=10',
        retryAfter: undefined,
      })
      const refused = await request(server.url).get('').expect(429)
      expect(fields(refused)).toEqual({
        policy: '"burst";q=100;w=60, "daily";q=1000;w=86400, "route";q=1;w=10',
        limit: '"burst";r=98;t=59, "daily";r=998;t=86228, "route";r=0;t=10',
        retryAfter: '10',
      })
      expect(refused.body['violated-policies']).toEqual(['route'])
    })

    it('do not go on after one has refused', async () => {
      const second = watched(5, '1m', 'second')
      const server = await serve({ app: [limit(0, '1m', { name: 'first' }), { limiter: second.limiter }] })
      const response = await request(server.url).get('').expect(429)
      expect(fields(response).policy).toBe('"first";q=0;w=60')
      expect(second.keys).toBe(0)
    })

    it.each([
      ['one line', '"edge";r=1;t=1', '"edge";r=1;t=1'],
      ['two lines', ['"edge";r=1;t=1', '"cdn";r=2;t=2'], '"edge";r=1;t=1, "cdn";r=2;t=2'],
    ])("append to a gateway's field of %s (A22)", async (_, given, kept) => {
      const server = await serve({
        before: passage => {
          passage.setHeader('RateLimit', given)
          passage.setHeader('RateLimit-Policy', '"edge";q=10;w=1')
        },
        app: [limit(100)],
      })
      expect(fields(await request(server.url).get('').expect(200))).toEqual({
        policy: '"edge";q=10;w=1, "default";q=100;w=60',
        limit: `${kept}, "default";r=99;t=60`,
        retryAfter: undefined,
      })
    })

    it('take an empty field for an absent one', async () => {
      const server = await serve({ before: passage => passage.setHeader('RateLimit', ''), app: [limit(100)] })
      expect(fields(await request(server.url).get('').expect(200)).limit).toBe('"default";r=99;t=60')
    })

    it('leave the field of a gateway alone when they do not limit', async () => {
      const server = await serve({
        before: passage => passage.setHeader('RateLimit', '"edge";r=1;t=1'),
        app: [limit(1, '1m', { key: () => null })],
      })
      expect(fields(await request(server.url).get('').expect(200)).limit).toBe('"edge";r=1;t=1')
    })
  })

  describe('a combination of limiters', () => {
    const both = (...rates: [limit: number, window: Duration, name: string][]) =>
      rates.map(([limit, window, name]) => createLimiter(tokenBucket({ limit, window }), { name, clock }))

    // unkeyed/unkey#1995
    it('takes no permit from any when one refuses, and lists them all', async () => {
      const [first, second] = both([100, '1m', 'p1'], [2, '1m', 'p2']) as [Limiter<false>, Limiter<false>]
      const server = await serve({ app: [{ limiter: combine(first, second), key: () => 'ann' }] })
      const statuses: number[] = []
      for (let round = 0; round < 5; round++) statuses.push((await request(server.url).get('')).status)
      expect(statuses).toEqual([200, 200, 429, 429, 429])
      expect(first.peek('ann').remaining).toBe(98)
      const refused = await request(server.url).get('').expect(429)
      expect(fields(refused)).toEqual({
        policy: '"p1";q=100;w=60, "p2";q=2;w=60',
        limit: '"p1";r=98;t=59, "p2";r=0;t=30',
        retryAfter: '30',
      })
      expect(refused.body['violated-policies']).toEqual(['p2'])
    })

    // laravel/framework#51967
    it('counts each request once in each of them, though they share a key', async () => {
      const limiters = both([5, '1m', 'minute'], [50, '1d', 'day'])
      const server = await serve({ app: [{ limiter: combine(...limiters) }] })
      for (let round = 0; round < 5; round++) await request(server.url).get('').expect(200)
      const refused = await request(server.url).get('').expect(429)
      expect(fields(refused).limit).toBe('"minute";r=0;t=12, "day";r=45;t=77760')
    })
  })

  describe('a limiter that a request passes twice', () => {
    // express-rate-limit/express-rate-limit#395
    it('counts once, and adds its fields once', async () => {
      const { limiter } = watched(4)
      const server = await serve({ app: [{ limiter }], route: [{ limiter }] })
      const left: number[] = []
      for (let round = 0; round < 4; round++)
        left.push(remaining(await request(server.url).get('').expect(200)))
      expect(left).toEqual([3, 2, 1, 0])
      await request(server.url).get('').expect(429)
    })

    it('counts twice for two keys', async () => {
      const { limiter, left } = watched(4)
      const server = await serve({
        app: [{ limiter, key: () => 'ann' }],
        route: [{ limiter, key: () => 'ann of acme' }],
      })
      await request(server.url).get('').expect(200)
      expect([left('ann'), left('ann of acme')]).toEqual([3, 3])
    })

    it('is not remembered by the next request of the same connection', async () => {
      const { limiter, left } = watched(4)
      const server = await serve({ app: [{ limiter, key: () => 'ann' }] })
      const agent = request.agent(server.url)
      await agent.get('').expect(200)
      await agent.get('').expect(200)
      expect(left('ann')).toBe(2)
    })
  })

  // express-rate-limit/express-rate-limit#161
  describe('a response that has begun before the limiter', () => {
    const WATCHED_HANDLER = (passage: Passage) => {
      if (!passage.res.writableEnded) passage.res.end('late')
    }

    it.each([5, 0])('and has ended is left alone (limit %d)', async allowed => {
      const server = await serve({
        before: passage => raw(passage).end('early'),
        app: [limit(allowed)],
        handler: WATCHED_HANDLER,
      })
      const response = await request(server.url).get('').expect(200)
      expect(response.text).toBe('early')
      expect(fields(response)).toEqual(NO_FIELDS)
      expect(server.handled).toBeLessThanOrEqual(1)
      expect(server.errors).toEqual([])
    })

    it('and has sent its headers goes on without fields, uncounted', async () => {
      const tokens = watched(5)
      const server = await serve({
        before: passage => raw(passage).write('early, '),
        app: [{ limiter: tokens.limiter }],
        handler: WATCHED_HANDLER,
      })
      const response = await request(server.url).get('').expect(200)
      expect(response.text).toBe('early, late')
      expect(fields(response)).toEqual(NO_FIELDS)
      expect(server.handled).toBe(1)
      expect(server.errors).toEqual([])
      expect(tokens.keys).toBe(0)
    })

    it.each([5, 0])('or while it looks for the key is left alone (limit %d)', async allowed => {
      let passing: Passage | undefined
      const server = await serve({
        before: passage => {
          passing = passage
        },
        app: [
          limit(allowed, '1m', {
            key: async () => {
              if (passing !== undefined) raw(passing).end('early')
              return 'ann'
            },
          }),
        ],
        handler: WATCHED_HANDLER,
      })
      const response = await request(server.url).get('').expect(200)
      expect(response.text).toBe('early')
      expect(fields(response)).toEqual(NO_FIELDS)
      expect(server.handled).toBeLessThanOrEqual(1)
      expect(server.errors).toEqual([])
    })

    it('while it looks for the key comes to an end when the request is refused', {
      timeout: 1500,
    }, async () => {
      let passing: Passage | undefined
      const server = await serve({
        before: passage => {
          passing = passage
        },
        app: [
          limit(0, '1m', {
            key: async () => {
              if (passing !== undefined) raw(passing).write('early')
              return 'ann'
            },
          }),
        ],
      })
      // Cut short or completed: the client must not be left waiting.
      await Promise.allSettled([request(server.url).get('')])
      expect(passing?.res.writableEnded || passing?.res.destroyed).toBe(true)
      expect(server.handled).toBe(0)
      expect(server.errors).toEqual([])
    })
  })

  describe('the decision', () => {
    it('is left on the request', async () => {
      const decisions: (Decision | undefined)[] = []
      const server = await serve({
        app: [limit(3, '1m')],
        handler: passage => {
          decisions.push(passage.decision)
          passage.json({})
        },
      })
      await request(server.url).get('').expect(200)
      await request(server.url).get('').expect(200)
      expect(decisions).toMatchObject([
        { allowed: true, limit: 3, remaining: 2, waitMs: 0, resetAfterMs: 20_000 },
        { allowed: true, limit: 3, remaining: 1, waitMs: 0, resetAfterMs: 40_000 },
      ])
    })

    it('is there for onRefused as well', async () => {
      let decision: Decision | undefined
      const onRefused = (passage: Passage) => {
        decision = passage.decision
      }
      const server = await serve({ app: [limit(1, '1m', { onRefused })] })
      await request(server.url).get('').expect(200)
      await request(server.url).get('').expect(429)
      expect(decision).toMatchObject({ allowed: false, waitMs: 60_000 })
    })
  })

  describe('is honest', () => {
    const LIMITS: [number, Duration][] = [
      [1, '1s'],
      [3, '10s'],
      [7, '1m'],
      [100, '1m'],
      [1000, '7s'],
    ]
    // Idle times between requests, among them none, fractions of a millisecond, and more than a window.
    const PAUSES = [0, 0, 333.333, 0, 0.001, 999.999, 1500, 0, 2857.142, 0, 10_007, 61_000, 0, 0]

    it.each(rows(LIMITS))(
      '%d per %s: where r is at least 1, the next request passes',
      async (permits, window) => {
        const cost = Math.ceil(permits / 3)
        const limiter = createLimiter(tokenBucket({ limit: permits, window }), { clock })
        const server = await serve({ app: [{ limiter, cost: req => (req.headers['x-big'] ? cost : 1) }] })
        let promised = 0
        for (const pause of PAUSES) {
          const response = await request(server.url).get('').set('x-big', '1')
          if (remaining(response) >= 1) {
            promised++
            await request(server.url).get('').expect(200)
          }
          clock.advance(pause)
        }
        if (permits > 1) expect(promised).toBeGreaterThan(0)
        else expect(promised).toBe(0)
      },
    )

    it.each(rows(LIMITS))(
      '%d per %s: a refused request passes after Retry-After, and not a second earlier',
      async (permits, window) => {
        const server = await serve({
          app: [limit(permits, window, { cost: req => Number(req.headers['x-cost'] ?? 1) })],
        })
        const costing = (cost: number) => request(server.url).get('').set('x-cost', String(cost))
        const costs = [...new Set([1, Math.ceil(permits / 2), permits])]
        let refused = 0
        await costing(permits).expect(200)
        for (const pause of PAUSES) {
          for (const cost of costs) {
            const response = await costing(cost)
            if (response.status === 200) continue
            refused++
            const seconds = Number(fields(response).retryAfter)
            expect(seconds).toBeGreaterThanOrEqual(1)
            if (seconds >= 2) {
              clock.advance((seconds - 1) * 1000)
              await costing(cost).expect(429)
              clock.advance('1s')
            } else {
              clock.advance(seconds * 1000)
            }
            await costing(cost).expect(200)
          }
          clock.advance(pause)
        }
        expect(refused).toBeGreaterThan(PAUSES.length / 2)
      },
    )
  })
})

const FAILURE = new Error('the session store is down')

function fail(): never {
  throw FAILURE
}
