import { get } from 'node:http'
import { combine, createLimiter, type Duration, fixedWindow, leakyBucket, tokenBucket } from '@sluice/core'
import type { Refusal } from '@sluice/core/http'
import { rateLimit } from '@sluice/express'
import { rateLimit as fastifyRateLimit } from '@sluice/fastify'
import { rateLimit as koaRateLimit } from '@sluice/koa'
import { fastify } from 'fastify'
import { parseList, serializeList } from 'structured-headers'
import request from 'supertest'
import { describe, expect, it, vi } from 'vitest'
import { clock, closing } from '../support/each-test.js'
import { scriptedStore, unhandledDuring } from '../support/scripted-store.js'
import { type AnyRequest, type App, type Limit, type Passage, servers } from '../support/servers/index.js'
import { type Rows, rowsOn } from '../support/servers/rows.js'

/*
 * Several policies on one route, and limits on several levels of an app. Time stands still unless a test moves it.
 */

const ann = () => 'ann'

function bucket(limit: number, window: Duration, name: string) {
  return createLimiter(tokenBucket({ limit, window }), { name, clock })
}

/** What a response says; both lists have been read back by an independent parser. */
function fields(response: { headers: Record<string, string> }) {
  const { 'ratelimit-policy': policy, ratelimit: limit, 'retry-after': retryAfter } = response.headers
  for (const value of [policy, limit])
    if (value !== undefined) expect(serializeList(parseList(value))).toBe(value)
  return { policy, limit, retryAfter }
}

const NO_FIELDS = { policy: undefined, limit: undefined, retryAfter: undefined }

/** Names of the policies in RateLimit, and what is left of each. */
function left(response: { headers: Record<string, string> }): Record<string, number> {
  const members = parseList(fields(response).limit ?? '')
  return Object.fromEntries(members.map(([name, parameters]) => [name, parameters.get('r') as number]))
}

const FAILURE = new Error('the session store is down')
const fail = (): never => {
  throw FAILURE
}
const failLater = async () => {
  await null
  return fail()
}

describe.each(servers)('on $name', server => {
  const { start } = server
  const rows = rowsOn(server)

  async function serve(app: App) {
    const server = await start(app)
    closing.push(server.close)
    return server
  }

  describe('several policies', () => {
    it('are listed in their order, by a decision over all of them', async () => {
      const server = await serve({
        app: [
          {
            policies: [
              { name: 'burst', limit: 100, window: '1m', clock },
              { limiter: bucket(1000, '1d', 'daily'), key: ann },
            ],
          },
        ],
      })
      expect(fields(await request(server.url).get('').expect(200))).toEqual({
        policy: '"burst";q=100;w=60, "daily";q=1000;w=86400',
        limit: '"burst";r=99;t=60, "daily";r=999;t=86314',
        retryAfter: undefined,
      })
      expect(server.handled).toBe(1)
    })

    it('take permits from all of them or from none', async () => {
      const [burst, daily] = [bucket(3, '1m', 'burst'), bucket(2, '1d', 'daily')]
      const server = await serve({
        app: [{ policies: [{ limiter: burst }, { limiter: daily }], key: ann }],
      })
      const statuses: number[] = []
      for (let round = 0; round < 5; round++) statuses.push((await request(server.url).get('')).status)
      expect(statuses).toEqual([200, 200, 429, 429, 429])
      expect([burst.peek('ann').remaining, daily.peek('ann').remaining]).toEqual([1, 0])
      expect(server.handled).toBe(2)
      const refused = await request(server.url).get('').expect(429)
      expect(left(refused)).toEqual({ burst: 1, daily: 0 })
      expect(refused.body['violated-policies']).toEqual(['daily'])
    })

    it('that refuse are all named, with the longest of their waits as Retry-After', async () => {
      const server = await serve({
        app: [
          {
            policies: [
              { name: 'short', limit: 1, window: '10s', clock },
              { name: 'roomy', limit: 100, window: '1m', clock },
              { name: 'long', limit: 1, window: '1h', clock },
            ],
          },
        ],
      })
      await request(server.url).get('').expect(200)
      clock.advance(2500)
      const refused = await request(server.url).get('').expect(429)
      expect(fields(refused)).toMatchObject({
        limit: '"short";r=0;t=8, "roomy";r=100;t=60, "long";r=0;t=3598',
        retryAfter: '3598',
      })
      expect(refused.body).toEqual({
        type: 'https://iana.org/assignments/http-problem-types#quota-exceeded',
        title: 'Quota Exceeded',
        status: 429,
        'violated-policies': ['short', 'long'],
      })
      clock.advance('3597s')
      await request(server.url).get('').expect(429)
      clock.advance('1s')
      await request(server.url).get('').expect(200)
    })

    it('send no Retry-After when one of them can never grant the cost', async () => {
      const server = await serve({
        app: [
          {
            policies: [
              { name: 'small', limit: 2, window: '1m', cost: 3, clock },
              { name: 'spent', limit: 0, window: '1m', clock },
              { name: 'roomy', limit: 5, window: '1m', clock },
            ],
          },
        ],
      })
      const refused = await request(server.url).get('').expect(429)
      expect(fields(refused)).toMatchObject({ limit: '"small";r=2, "spent";r=0, "roomy";r=5;t=60' })
      expect(fields(refused).retryAfter).toBeUndefined()
      expect(refused.body['violated-policies']).toEqual(['small', 'spent'])
    })

    it('have a key and a cost each, or else those of the route', async () => {
      const [a, b, c, d] = [
        bucket(100, '1m', 'a'),
        bucket(100, '1m', 'b'),
        bucket(100, '1m', 'c'),
        bucket(100, '1m', 'd'),
      ]
      const server = await serve({
        app: [
          {
            policies: [
              { limiter: a },
              { limiter: b, key: async req => String(req.headers['x-user']) },
              { limiter: c, cost: async req => Number(req.headers['x-cost']) },
              { limiter: d, key: () => 7n, cost: 0 },
            ],
            key: ann,
            cost: 3,
          },
        ],
      })
      const response = await request(server.url).get('').set('x-user', 'bob').set('x-cost', '10').expect(200)
      expect(left(response)).toEqual({ a: 97, b: 97, c: 90, d: 100 })
      expect(a.peek('ann').remaining).toBe(97)
      expect(b.peek('bob').remaining).toBe(97)
      expect(c.peek('ann').remaining).toBe(90)
    })

    it('may be hidden and have a unit each, or else as the route says', async () => {
      const policies = (hidden: boolean): Limit => ({
        policies: [
          { name: 'a', limit: 10, window: '1m', clock },
          { name: 'b', limit: 10, window: '1m', clock, hidden: true, unit: 'requests' },
          { name: 'c', limit: 10, window: '1m', clock, hidden: false, unit: 'requests' },
        ],
        hidden,
        unit: 'content-bytes',
      })
      const shown = await request((await serve({ app: [policies(false)] })).url).get('')
      expect(fields(shown).policy).toBe('"a";q=10;qu="content-bytes";w=60, "c";q=10;w=60')
      const hidden = await request((await serve({ app: [policies(true)] })).url).get('')
      expect(fields(hidden).policy).toBe('"c";q=10;w=60')
    })

    it('send the fields of the others and Retry-After when a hidden one refuses', async () => {
      const server = await serve({
        app: [
          {
            policies: [
              { name: 'own', limit: 10, window: '1m', clock },
              { name: 'server', limit: 1, window: '10s', clock, hidden: true, key: () => 'all' },
            ],
          },
        ],
      })
      expect(fields(await request(server.url).get('').expect(200)).limit).toBe('"own";r=9;t=54')
      const refused = await request(server.url).get('').expect(429)
      expect(fields(refused)).toEqual({
        policy: '"own";q=10;w=60',
        limit: '"own";r=9;t=54',
        retryAfter: '10',
      })
      expect(refused.body).not.toHaveProperty('violated-policies')
      expect(refused.text).not.toContain('server')
    })

    it.each(
      rows([
        ['a key of null', { key: () => null }],
        ['a key of null, in a promise', { key: async () => null }],
      ]),
    )('go on without one that has %s', async (_, options) => {
      const skipped = bucket(0, '1m', 'skipped')
      const server = await serve({
        app: [
          {
            policies: [
              { limiter: skipped, ...options },
              { name: 'a', limit: 2, window: '1m', clock },
              { name: 'b', limit: 1, window: '1m', clock },
            ],
          },
        ],
      })
      expect(left(await request(server.url).get('').expect(200))).toEqual({ a: 1, b: 0 })
      const refused = await request(server.url).get('').expect(429)
      expect(refused.body['violated-policies']).toEqual(['b'])
    })

    it.each([
      ['at once', () => null],
      ['in a promise', async () => null],
    ])('go on without one whose limiter is null, %s, also when one is left', async (_, limiter) => {
      const server = await serve({
        app: [{ policies: [{ limiter }, { name: 'left', limit: 1, window: '1m', clock }] }],
      })
      expect(left(await request(server.url).get('').expect(200))).toEqual({ left: 0 })
      const refused = await request(server.url).get('').expect(429)
      expect(refused.body['violated-policies']).toEqual(['left'])
    })

    it('do not limit when none of them applies', async () => {
      const server = await serve({
        app: [
          {
            policies: [
              { limiter: () => null },
              { name: 'x', limit: 0, window: '1m', clock, key: () => null },
            ],
          },
        ],
      })
      expect(fields(await request(server.url).get('').expect(200))).toEqual(NO_FIELDS)
    })

    it.each([
      ['at once', <T>(value: T) => value],
      ['in a promise', async <T>(value: T) => value],
    ])('may choose limiters per request, %s, and name what they choose', async (_, answered) => {
      const plans: Record<string, ReturnType<typeof bucket>> = {
        free: bucket(1, '1m', 'free'),
        pro: bucket(5, '1m', 'pro'),
      }
      const plan = (req: AnyRequest) => answered(plans[String(req.headers['x-plan'])] ?? null)
      const server = await serve({
        app: [
          {
            policies: [
              { limiter: plan },
              { limiter: plan, name: 'named', key: () => 'other' },
              { limiter: bucket(9, '1m', 'all') },
            ],
            key: ann,
          },
        ],
      })
      const as = (name: string) => request(server.url).get('').set('x-plan', name)
      expect(left(await as('free').expect(200))).toEqual({ free: 0, named: 0, all: 8 })
      expect((await as('free').expect(429)).body['violated-policies']).toEqual(['free', 'named'])
      expect(left(await as('pro').expect(200))).toEqual({ pro: 4, named: 4, all: 7 })
      expect(left(await as('staff').expect(200))).toEqual({ all: 6 })
    })

    it('may have a combination among them, whose members are policies as well', async () => {
      const [second, minute, user] = [
        bucket(3, '1s', 'second'),
        bucket(2, '1m', 'minute'),
        bucket(10, '1h', 'user'),
      ]
      const server = await serve({
        app: [
          { policies: [{ limiter: user }, { limiter: combine(second, minute), key: () => 'all', cost: 2 }] },
        ],
      })
      expect(left(await request(server.url).get('').expect(200))).toEqual({ user: 9, second: 1, minute: 0 })
      const refused = await request(server.url).get('').expect(429)
      expect(refused.body['violated-policies']).toEqual(['second', 'minute'])
      expect(user.peek('127.0.0.1').remaining).toBe(9)
    })

    it.each(
      rows([
        ['alone', []],
        ['beside one that does not apply', [{ limiter: () => null }]],
        ['beside another', [{ name: 'other', limit: 5, window: '1m' } as const]],
      ]),
    )('of which one is a combination (%s) keep the names of its members', async (_, others) => {
      const limiter = combine(bucket(3, '1s', 'second'), bucket(2, '1m', 'minute'))
      const server = await serve({ app: [{ policies: [{ limiter, name: 'both' }, ...others] }] })
      expect(left(await request(server.url).get('').expect(200))).toMatchObject({ second: 2, minute: 1 })
    })

    it('of which two are the same limiter with the same key count once', async () => {
      const limiter = bucket(10, '1m', 'shared')
      const server = await serve({
        app: [{ policies: [{ limiter: () => limiter }, { limiter: () => limiter }, { limiter }], key: ann }],
      })
      expect(left(await request(server.url).get('').expect(200))).toEqual({ shared: 9 })
      expect(limiter.peek('ann').remaining).toBe(9)
    })

    it('of which two are the same limiter with other keys count each', async () => {
      const limiter = bucket(10, '1m', 'shared')
      const server = await serve({
        app: [
          {
            policies: [
              { limiter, key: ann, name: 'user' },
              { limiter, key: () => 'acme', name: 'tenant', cost: 2 },
            ],
          },
        ],
      })
      expect(left(await request(server.url).get('').expect(200))).toEqual({ user: 9, tenant: 8 })
      expect([limiter.peek('ann').remaining, limiter.peek('acme').remaining]).toEqual([9, 8])
    })

    it('are the names in onRefused, in the body, and in the fields', async () => {
      const refusals: Refusal[] = []
      const server = await serve({
        app: [
          {
            policies: [
              { limiter: bucket(0, '1m', 'mine'), name: 'yours' },
              { limiter: () => bucket(0, '1m', 'MINE') },
            ],
            onRefused: (_passage, refusal) => void refusals.push(refusal),
          },
        ],
      })
      const refused = await request(server.url).get('').expect(429)
      expect(fields(refused).limit).toBe('"yours";r=0, "MINE";r=0')
      expect(refused.body['violated-policies']).toEqual(['yours', 'MINE'])
      expect(refusals).toMatchObject([{ problem: { 'violated-policies': ['yours', 'MINE'] } }])
    })

    it('chosen per request under one name get different names in the fields', async () => {
      const [one, other] = [bucket(5, '1m', 'plan'), bucket(0, '1m', 'Plan')]
      const server = await serve({ app: [{ policies: [{ limiter: () => one }, { limiter: () => other }] }] })
      const refused = await request(server.url).get('').expect(429)
      expect(left(refused)).toEqual({ plan: 5, 'Plan-2': 0 })
      expect(refused.body['violated-policies']).toEqual(['Plan-2'])
    })

    it.each(['app', 'router', 'route'] as const)('limit on the level of the %s', async level => {
      const server = await serve({
        [level]: [
          {
            policies: [
              { name: 'a', limit: 5, window: '1m', clock },
              { name: 'b', limit: 1, window: '1m', clock },
            ],
          },
        ],
      })
      await request(server.url).get('').expect(200)
      await request(server.url).get('').expect(429)
      expect(server.handled).toBe(1)
    })
  })

  describe('several policies that wait', () => {
    const until = (expectation: () => void) => vi.waitFor(expectation, { timeout: 4000, interval: 5 })

    it('make a request wait until all of them grant, and take no permits before', async () => {
      const [fast, slow] = [bucket(1, '1s', 'fast'), bucket(1, '3s', 'slow')]
      const server = await serve({
        app: [{ policies: [{ limiter: fast }, { limiter: slow }], key: ann, maxWait: '5s' }],
      })
      await request(server.url).get('').expect(200)
      const held = request(server.url).get('').expect(200).then()
      await until(() => expect(clock.alarms).toBe(1))
      clock.advance('2s')
      expect(fast.peek('ann').remaining).toBe(1)
      expect(server.handled).toBe(1)
      clock.advance('1s')
      const response = await held
      expect(left(response)).toEqual({ fast: 0, slow: 0 })
      expect(fields(response).retryAfter).toBeUndefined()
      expect(server.handled).toBe(2)
    })

    it('refuse at once a request that would wait longer than maxWait, and name the policy', async () => {
      const [fast, slow] = [bucket(1, '1s', 'fast'), bucket(1, '10s', 'slow')]
      const server = await serve({
        app: [{ policies: [{ limiter: fast }, { limiter: slow }], key: ann, maxWait: '5s' }],
      })
      await request(server.url).get('').expect(200)
      clock.advance('2s')
      const refused = await request(server.url).get('').expect(429)
      expect(fields(refused)).toMatchObject({ limit: '"fast";r=1;t=1, "slow";r=0;t=8', retryAfter: '8' })
      expect(refused.body['violated-policies']).toEqual(['slow'])
      expect(fast.peek('ann').remaining).toBe(1)
    })

    it('let a client that hangs up go, and have taken nothing', async () => {
      const [fast, slow] = [bucket(5, '1s', 'fast'), bucket(1, '10s', 'slow')]
      const server = await serve({
        app: [{ policies: [{ limiter: fast }, { limiter: slow }], key: ann, maxWait: '20s' }],
      })
      await request(server.url).get('').expect(200)
      const client = get(server.url).on('error', () => {})
      await until(() => expect(clock.alarms).toBe(1))
      client.destroy()
      await until(() => expect(clock.alarms).toBe(0))
      clock.advance('30s')
      expect([fast.peek('ann').remaining, slow.peek('ann').remaining]).toEqual([5, 1])
      expect(server.handled).toBe(1)
      expect(server.errors).toEqual([])
    })

    it('make a request wait by a leaky bucket among them without maxWait, like a leaky bucket alone', async () => {
      const queue = createLimiter(leakyBucket({ limit: 1, window: '1s', capacity: 2 }), {
        name: 'queue',
        clock,
      })
      const server = await serve({
        app: [{ policies: [{ limiter: queue }, { limiter: bucket(9, '1m', 'user') }], key: ann }],
      })
      await request(server.url).get('').expect(200)
      const second = request(server.url).get('').then()
      await Promise.race([second, until(() => expect(clock.alarms).toBe(1))])
      clock.advance('1s')
      expect((await second).status).toBe(200)
      expect(server.handled).toBe(2)
    })
  })

  describe('callbacks of several policies', () => {
    const CALLBACKS = ['key', 'cost', 'limiter'] as const
    /** A policy one of whose callbacks does this. */
    const policy = (callback: (typeof CALLBACKS)[number], act: () => unknown, name: string) =>
      ({
        limiter: bucket(5, '1m', name),
        ...{ key: { key: act }, cost: { cost: act }, limiter: { limiter: act, name } }[callback],
      }) as never

    it.each(
      rows(
        CALLBACKS.flatMap(callback => [
          [callback, 'throws', fail],
          [callback, 'rejects', failLater],
        ]) as [(typeof CALLBACKS)[number], string, () => never][],
        2,
      ),
    )('a %s that %s is one error, and takes no permit', async (callback, _, act) => {
      const other = bucket(5, '1m', 'other')
      const server = await serve({
        app: [
          {
            policies: [{ limiter: other }, policy(callback, act, 'bad'), { limiter: () => other }],
            key: ann,
          },
        ],
      })
      const response = await request(server.url).get('').expect(500)
      expect(fields(response)).toEqual(NO_FIELDS)
      expect(server.errors).toEqual([FAILURE])
      expect(server.handled).toBe(0)
      expect(other.peek('ann').remaining).toBe(5)
    })

    it.each(
      rows([
        ['key', undefined, 'SLUICE_INVALID_KEY'],
        ['key', {}, 'SLUICE_INVALID_KEY'],
        ['cost', '1', 'SLUICE_INVALID_COST'],
        ['cost', Number.NaN, 'SLUICE_INVALID_COST'],
        ['limiter', undefined, 'SLUICE_INVALID_LIMITER'],
        ['limiter', {}, 'SLUICE_INVALID_LIMITER'],
        ['limiter', { name: 'mine', tryAcquire: () => ({ allowed: true }) }, 'SLUICE_INVALID_LIMITER'],
      ] as const),
    )('a %s that comes up with %o is one coded error', async (callback, value, code) => {
      for (const act of [() => value, async () => value]) {
        const other = bucket(5, '1m', 'other')
        const server = await serve({
          app: [{ policies: [{ limiter: other }, policy(callback, act, 'bad')], key: ann }],
        })
        await request(server.url).get('').expect(500)
        expect(server.errors).toMatchObject([{ code, option: callback }])
        expect(server.handled).toBe(0)
        expect(other.peek('ann').remaining).toBe(5)
      }
    })

    it.each(rows(CALLBACKS.flatMap(first => CALLBACKS.map(second => [first, second] as const))))(
      'a %s that rejects beside a %s that throws leaves no unhandled rejection',
      async (first, second) => {
        const server = await serve({
          app: [{ policies: [policy(first, failLater, 'a'), policy(second, fail, 'b')], key: ann }],
        })
        const unhandled = await unhandledDuring(async () => {
          await request(server.url).get('').expect(500)
        })
        expect(unhandled).toEqual([])
        expect(server.errors).toEqual([FAILURE])
        expect(server.handled).toBe(0)
      },
    )
  })

  describe('limits on several levels', () => {
    it('all send the draft of the first one', async () => {
      const server = await serve({
        app: [{ name: 'app', limit: 9, window: '1m', headers: 'draft-7', clock }],
        route: [{ name: 'route', limit: 3, window: '1m', clock }],
      })
      const { headers } = await request(server.url).get('').expect(200)
      expect(headers).toMatchObject({
        ratelimit: 'limit=3, remaining=2, reset=40',
        'ratelimit-policy': expect.not.stringContaining('"'),
      })
    })

    it('compose: of several policies on each, every one is listed and the first that refuse answer', async () => {
      const server = await serve({
        app: [
          {
            policies: [
              { name: 'second', limit: 9, window: '1s', clock },
              { name: 'day', limit: 99, window: '1d', clock },
            ],
          },
        ],
        router: [{ name: 'router', limit: 5, window: '1m', clock }],
        route: [
          {
            policies: [
              { limiter: bucket(3, '1m', 'user'), key: ann },
              { limiter: bucket(1, '1m', 'tenant'), key: ann },
            ],
          },
        ],
      })
      const passed = await request(server.url).get('').expect(200)
      expect(left(passed)).toEqual({ second: 8, day: 98, router: 4, user: 2, tenant: 0 })
      const refused = await request(server.url).get('').expect(429)
      expect(left(refused)).toEqual({ second: 7, day: 97, router: 3, user: 2, tenant: 0 })
      expect(refused.body['violated-policies']).toEqual(['tenant'])
      expect(server.handled).toBe(1)
    })

    it('count a limiter once that is on both, alone or among several policies', async () => {
      const [shared, other] = [bucket(4, '1m', 'shared'), bucket(9, '1m', 'other')]
      const server = await serve({
        app: [{ limiter: shared, key: ann }],
        route: [{ policies: [{ limiter: shared }, { limiter: other }], key: ann }],
      })
      expect(left(await request(server.url).get('').expect(200))).toEqual({ shared: 3, other: 8 })
      expect([shared.peek('ann').remaining, other.peek('ann').remaining]).toEqual([3, 8])
    })

    it('count a limiter once that is among several policies on both', async () => {
      const [a, b, c] = [bucket(4, '1m', 'a'), bucket(9, '1m', 'b'), bucket(2, '1m', 'c')]
      const server = await serve({
        app: [{ policies: [{ limiter: a }, { limiter: b }], key: ann }],
        route: [{ policies: [{ limiter: b }, { limiter: c }, { limiter: a, key: () => 'bob' }], key: ann }],
      })
      expect(left(await request(server.url).get('').expect(200))).toEqual({ a: 3, b: 8, c: 1, 'a-2': 3 })
      expect([a.peek('ann').remaining, b.peek('ann').remaining, c.peek('ann').remaining]).toEqual([3, 8, 1])
    })

    it.each(
      rows([
        ['the combination first', true],
        ['the member first', false],
      ]),
    )('count a limiter once that is in a combination too (%s)', async (_, combinedFirst) => {
      const [a, b] = [bucket(4, '1m', 'a'), bucket(9, '1m', 'b')]
      const levels: Limit[] = [
        { limiter: combine(a, b), key: ann },
        { limiter: a, key: ann },
      ]
      const [first, second] = (combinedFirst ? levels : levels.toReversed()) as [Limit, Limit]
      const server = await serve({ app: [first], route: [second] })
      await request(server.url).get('').expect(200)
      expect([a.peek('ann').remaining, b.peek('ann').remaining]).toEqual([3, 8])
    })

    it('still refuse after a dry run of the same limiter on an outer level has refused', async () => {
      const limiter = bucket(1, '1m', 'shared')
      const server = await serve({
        app: [{ limiter, key: ann, dryRun: true }],
        route: [{ limiter, key: ann }],
      })
      await request(server.url).get('').expect(200)
      await request(server.url).get('').expect(429)
      expect(server.handled).toBe(1)
    })

    it('number limiters of the same name, ignoring case, in fields and body', async () => {
      const server = await serve({
        app: [{ limit: 9, window: '1m', clock }],
        router: [{ name: 'DEFAULT', limit: 8, window: '1m', clock }],
        route: [
          {
            policies: [
              { name: 'default', limit: 7, window: '1m', clock },
              { name: 'default-2', limit: 0, window: '1m', clock },
            ],
          },
        ],
      })
      const refused = await request(server.url).get('').expect(429)
      const names = Object.keys(left(refused))
      expect(names.slice(0, 2)).toEqual(['default', 'DEFAULT-2'])
      expect(new Set(names.map(name => name.toLowerCase())).size).toBe(4)
      expect(parseList(fields(refused).policy ?? '').map(([name]) => name)).toEqual(names)
      expect(refused.body['violated-policies']).toEqual(names.slice(3))
    })

    it('start again with every request of a connection', async () => {
      const server = await serve({
        app: [{ limit: 9, window: '1m', clock }],
        route: [{ limit: 9, window: '1m', clock }],
      })
      const agent = request.agent(server.url)
      for (const r of [8, 7]) expect(left(await agent.get(''))).toEqual({ default: r, 'default-2': r })
    })

    // RL-06 3.1: older dialects carry one limit, the one closest to exhaustion
    it.each(rows(['draft-6', 'draft-7'] as const))(
      'send in %s what is left of the tightest',
      async headers => {
        const server = await serve({
          app: [{ name: 'tight', limit: 3, window: '10s', clock, headers }],
          route: [{ name: 'wide', limit: 100, window: '1m', clock, headers }],
        })
        const { headers: sent } = await request(server.url).get('').expect(200)
        expect(sent['ratelimit-policy']).toBe('3;w=10, 100;w=60')
        if (headers === 'draft-7') expect(sent.ratelimit).toMatch(/^limit=3, remaining=2, reset=\d+$/)
        else expect(sent).toMatchObject({ 'ratelimit-limit': '3', 'ratelimit-remaining': '2' })
      },
    )

    // RL-06 3.2: no two policies with the same quota
    it.each(rows(['draft-6', 'draft-7'] as const))('never say the same quota twice in %s', async headers => {
      const server = await serve({
        app: [{ name: 'a', limit: 10, window: '1s', clock, headers }],
        route: [{ name: 'b', limit: 10, window: '1m', clock, headers }],
      })
      const { headers: sent } = await request(server.url).get('').expect(200)
      expect(sent['ratelimit-policy']).toMatch(/^10;w=(1|60)$/)
    })

    it('send the tightest of several policies in the older fields', async () => {
      const policies = [
        { name: 'wide', limit: 100, window: '1m', clock },
        { limiter: createLimiter(fixedWindow({ limit: 5, window: '1h' }), { name: 'tight', clock }) },
      ] as const
      const server = await serve({ app: [{ policies, headers: 'draft-7', legacyHeaders: 'delta' }] })
      const { headers } = await request(server.url).get('').expect(200)
      expect(headers).toMatchObject({
        'ratelimit-policy': '100;w=60, 5;w=3600',
        ratelimit: 'limit=5, remaining=4, reset=3600',
        'x-ratelimit-limit': '5',
        'x-ratelimit-remaining': '4',
        'x-ratelimit-reset': '3600',
      })
    })
  })

  it('Retry-After is the longest wait of all limits of the response that have nothing left', async () => {
    const hour = bucket(1, '1h', 'hour')
    const burst = bucket(1, '5s', 'burst')
    burst.tryAcquire('all')
    const server = await serve({
      app: [{ limiter: hour, key: () => 'all' }],
      route: [{ limiter: burst, key: () => 'all' }],
    })
    const response = await request(server.url).get('').expect(429)
    expect(response.headers).toMatchObject({
      ratelimit: '"hour";r=0;t=3600, "burst";r=0;t=5',
      'retry-after': '3600',
    })
  })

  it('the decision over several policies is left on the request', async () => {
    const seen: Passage['decision'][] = []
    const server = await serve({
      app: [
        {
          policies: [
            { name: 'a', limit: 5, window: '1m', clock },
            { name: 'b', limit: 2, window: '1m', clock },
          ],
        },
      ],
      handler: passage => {
        seen.push(passage.decision)
        passage.json({})
      },
    })
    await request(server.url).get('').expect(200)
    expect(seen).toMatchObject([
      { allowed: true, limit: 2, remaining: 1, refusedBy: [], parts: [{ limiter: 'a' }, { limiter: 'b' }] },
    ])
  })
})

/** Every adapter's `rateLimit`, given what a user without types might write. */
const adapters: { name: string; make: (options: unknown) => unknown }[] = [
  { name: 'express', make: options => rateLimit(options as never) },
  { name: 'koa', make: options => koaRateLimit(options as never) },
  {
    name: 'fastify',
    make: options => {
      let refused: Error | undefined
      fastifyRateLimit(fastify(), options as never, error => {
        refused = error
      })
      if (refused !== undefined) throw refused
      return undefined
    },
  },
]

describe.each(adapters)('policies given to $name', ({ name: adapter, make }) => {
  /** All adapters check policies by the same code. */
  const rows: Rows = <Row>(all: readonly Row[]) => (adapter === 'express' ? all : all.slice(0, 1))
  const A = { name: 'a', limit: 1, window: '1m' } as const
  const limiter = createLimiter(tokenBucket({ limit: 1, window: '1m' }), { name: 'b' })

  it.each(
    rows([
      ['no list', { policies: 5 }, 'policies', 'SLUICE_INVALID_OPTION'],
      ['undefined', { policies: undefined }, 'policies', 'SLUICE_INVALID_OPTION'],
      ['an empty list', { policies: [] }, 'policies', 'SLUICE_INVALID_OPTION'],
      ['a hole', { policies: [A, undefined] }, 'policies options', 'SLUICE_INVALID_OPTION'],
      ['a limiter bare', { policies: [A, 5] }, 'policies options', 'SLUICE_INVALID_OPTION'],
      ['a limit beside', { policies: [A], limit: 5 }, 'limit', 'SLUICE_INVALID_OPTION'],
      ['a limiter beside', { policies: [A], limiter }, 'limiter', 'SLUICE_INVALID_OPTION'],
      ['a name beside', { policies: [A], name: 'x' }, 'name', 'SLUICE_INVALID_OPTION'],
      ['a bad limit', { policies: [{ ...A, limit: '1' }] }, 'limit', 'SLUICE_INVALID_OPTION'],
      ['a bad name', { policies: [{ limiter, name: 'é' }] }, 'name', 'SLUICE_INVALID_OPTION'],
      ['a bad key', { policies: [{ ...A, key: 'ip' }] }, 'key', 'SLUICE_INVALID_OPTION'],
      ['a bad cost', { policies: [{ ...A, cost: -1 }] }, 'cost', 'SLUICE_INVALID_COST'],
      ['a bad unit', { policies: [{ ...A, unit: 'bytes' }] }, 'unit', 'SLUICE_INVALID_OPTION'],
      ['a bad hidden', { policies: [{ ...A, hidden: 1 }] }, 'hidden', 'SLUICE_INVALID_OPTION'],
      ['no limiter', { policies: [{ limiter: {} }] }, 'limiter', 'SLUICE_INVALID_LIMITER'],
      ['an undefined limiter', { policies: [{ limiter: undefined }] }, 'limiter', 'SLUICE_INVALID_LIMITER'],
      ['an option of the route', { policies: [{ ...A, status: 403 }] }, 'status', 'SLUICE_UNKNOWN_OPTION'],
      ['a limit and a limiter', { policies: [{ ...A, limiter }] }, 'limit', 'SLUICE_INVALID_OPTION'],
      ['one name twice', { policies: [A, A] }, 'name', 'SLUICE_INVALID_OPTION'],
      ['one name in two cases', { policies: [A, { ...A, name: 'A' }] }, 'name', 'SLUICE_INVALID_OPTION'],
      [
        'no names',
        {
          policies: [
            { limit: 1, window: '1m' },
            { limit: 2, window: '1h' },
          ],
        },
        'name',
        'SLUICE_INVALID_OPTION',
      ],
      ['one limiter twice', { policies: [{ limiter }, { limiter }] }, 'name', 'SLUICE_INVALID_OPTION'],
      ["a limiter's name", { policies: [{ limiter }, { ...A, name: 'B' }] }, 'name', 'SLUICE_INVALID_OPTION'],
    ]),
  )('%s is refused at construction', (_, options, option, code) => {
    expect(() => make(options)).toThrow(expect.objectContaining({ option, code }))
  })

  it.each(
    rows([
      ['one', { policies: [A] }],
      ['a limiter under another name', { policies: [{ limiter }, { limiter, name: 'c' }] }],
      ['a name that a function may come up with', { policies: [{ limiter: () => limiter }, { limiter }] }],
      ['undefined for other doors', { policies: [A], limit: undefined, limiter: undefined }],
      ['what is said beside', { policies: [A], key: ann, cost: 2, hidden: true, unit: 'requests' }],
    ]),
  )('%s is fine', (_, options) => {
    expect(() => make(options)).not.toThrow()
  })

  it('a limit on a shared store has to have a name, here or at the door', () => {
    const { name, ...nameless } = { ...A, store: scriptedStore() }
    for (const options of [nameless, { policies: [nameless] }])
      expect(() => make(options)).toThrow(expect.objectContaining({ option: 'name' }))
    expect(() => make({ ...nameless, name })).not.toThrow()
  })
})
