import { combine, createLimiter, type Decision, tokenBucket } from '@sluice/core'
import type { Outcome } from '@sluice/core/http'
import { describe, expect, it, vi } from 'vitest'
import { clock } from '../support/each-test.js'
import { failsAt, scriptedStore } from '../support/scripted-store.js'
import { type Limit, type RunningServer, servers } from '../support/servers/index.js'
import { rowsOn } from '../support/servers/rows.js'
import { ABNORMAL, ask, bucket, fields, perUserOn, user } from './limited.js'

/*
 * Clients that go on after refusals are blocked for longer. Time stands still unless a test moves it.
 */

const EXCEEDED = { title: 'Quota Exceeded', status: 429 }

/** Refused until exactly so many seconds from now. */
async function isRefusedFor(server: RunningServer, seconds: number) {
  await ask(server).expect(429).expect('Retry-After', String(seconds))
  clock.advance((seconds - 1) * 1000)
  await ask(server).expect(429).expect('Retry-After', '1')
  clock.advance('1s')
  await ask(server).expect(200)
}

/** Waits for what sockets do on their own; the clock stands still meanwhile. */
const until = (expectation: () => void) => vi.waitFor(expectation, { timeout: 4000, interval: 5 })

describe.each(servers)('on $name', server => {
  const rows = rowsOn(server)
  const { serve, limited, starting } = perUserOn(server)

  describe('a block', () => {
    it('begins with the refusal that reaches `after`, whose answer is that of the block', async () => {
      const decisions: Decision[] = []
      const server = await limited({
        block: { after: 3, for: '1m' },
        onDecision: (_, { decision }) => void decisions.push(decision),
      })
      await ask(server).expect(200)
      for (let round = 0; round < 2; round++) {
        const refused = await ask(server).expect(429).expect('Retry-After', '10')
        expect(refused.body).toMatchObject(EXCEEDED)
      }
      const blocked = await ask(server).expect(429)
      expect(fields(blocked)).toEqual({
        policy: '"default";q=1;w=10',
        limit: '"default";r=0;t=60',
        retryAfter: '60',
      })
      expect(blocked.headers).toMatchObject({
        'cache-control': 'no-store',
        'content-type': 'application/problem+json',
      })
      expect(blocked.body).toEqual({ ...ABNORMAL, 'violated-policies': ['default'] })
      expect(decisions.map(({ code }) => code)).toEqual([undefined, undefined, undefined, 'SLUICE_BLOCKED'])
      expect(decisions[3]).toMatchObject({ allowed: false, remaining: 0, waitMs: 60_000 })
      expect(server.handled).toBe(1)
      expect(server.errors).toEqual([])
    })

    it('ends exactly after its Retry-After, however many requests come meanwhile', async () => {
      const server = await limited({ block: { after: 1, for: '1m' } })
      await ask(server).expect(200)
      await ask(server).expect(429).expect('Retry-After', '60')
      clock.advance('20s')
      for (let round = 0; round < 10; round++) {
        const blocked = await ask(server).expect(429)
        expect(fields(blocked)).toMatchObject({ limit: '"default";r=0;t=40', retryAfter: '40' })
        expect(blocked.body.type).toBe(ABNORMAL.type)
      }
      await isRefusedFor(server, 40)
      expect(server.handled).toBe(2)
    })

    it('that is shorter than the wait for a permit sends the longer wait', async () => {
      const server = await limited({ window: '1h', block: { after: 2, for: '1m' } } as Partial<Limit>)
      await ask(server).expect(200)
      for (const problem of [EXCEEDED, ABNORMAL]) {
        const refused = await ask(server).expect(429).expect('Retry-After', '3600')
        expect(refused.body).toMatchObject(problem)
      }
      clock.advance('1m')
      expect((await ask(server).expect(429).expect('Retry-After', '3540')).body).toMatchObject(EXCEEDED)
      clock.advance('3540s')
      await ask(server).expect(200)
    })

    it('applies to one key and to no other', async () => {
      const server = await limited({ block: { after: 1, for: '1m' } })
      for (const status of [200, 429]) await ask(server).expect(status)
      clock.advance('30s')
      await ask(server).expect(429)
      expect(fields(await ask(server, 'bob').expect(200)).limit).toBe('"default";r=0;t=10')
    })

    it('grows by the list of durations, repeats the last one, and starts again after the longest one', async () => {
      const server = await limited({ block: { after: 2, for: ['1m', '5m', '2m'] } })
      const offend = async () => {
        await ask(server).expect(200)
        await ask(server).expect(429).expect('Retry-After', '10')
        const { retryAfter } = fields(await ask(server).expect(429))
        clock.advance(Number(retryAfter) * 1000)
        return retryAfter
      }
      const steps: unknown[] = []
      for (let round = 0; round < 5; round++) steps.push(await offend())
      expect(steps).toEqual(['60', '300', '120', '120', '120'])
      clock.advance('299s')
      expect(await offend()).toBe('120')
      clock.advance('300s')
      expect(await offend()).toBe('60')
    })

    it('does not begin when the refusals are too far apart', async () => {
      const server = await limited({ block: { after: 2, for: '20s' } })
      for (let round = 0; round < 4; round++) {
        await ask(server).expect(200)
        await ask(server).expect(429).expect('Retry-After', '10')
        clock.advance('20s')
      }
    })

    it('applies to the policy that refuses and not to the other policies', async () => {
      const [login, all] = [bucket(1, '10s', 'login'), bucket(3, '1m', 'all')]
      const policies = [{ limiter: login }, { limiter: all }]
      const server = await serve({ app: [{ policies, key: user, block: { after: 2, for: '1m' } }] })
      for (const status of [200, 429]) await ask(server).expect(status)
      const blocked = await ask(server).expect(429)
      expect(fields(blocked)).toMatchObject({ limit: '"login";r=0;t=60, "all";r=2;t=40', retryAfter: '60' })
      expect(blocked.body).toEqual({ ...ABNORMAL, 'violated-policies': ['login'] })
      expect(login.peek('ann')).toMatchObject({ allowed: false, code: 'SLUICE_BLOCKED' })
      expect(all.peek('ann')).toMatchObject({ allowed: true, code: undefined, remaining: 2 })
      await isRefusedFor(server, 60)
    })

    it('uses the block of each policy, or else the block of the route', async () => {
      const [strict, usual, none] = [
        bucket(1, '10s', 'strict'),
        bucket(1, '10s', 'usual'),
        bucket(1, '10s', 'none'),
      ]
      const server = await serve({
        app: [
          {
            policies: [
              { limiter: strict, block: { after: 1, for: '1m' } },
              { limiter: usual },
              { limiter: none, block: { after: 100, for: '1h' } },
            ],
            key: user,
            block: { after: 2, for: '5m' },
          },
        ],
      })
      const codes = () => [strict, usual, none].map(limiter => limiter.peek('ann').code)
      await ask(server).expect(200)
      const first = await ask(server).expect(429).expect('Retry-After', '60')
      expect(first.body).toEqual({ ...ABNORMAL, 'violated-policies': ['strict', 'usual', 'none'] })
      expect(codes()).toEqual(['SLUICE_BLOCKED', undefined, undefined])
      await ask(server).expect(429).expect('Retry-After', '300')
      expect(codes()).toEqual(['SLUICE_BLOCKED', 'SLUICE_BLOCKED', undefined])
      clock.advance('1m')
      const left = await ask(server).expect(429).expect('Retry-After', '240')
      expect(left.body['violated-policies']).toEqual(['usual'])
      await isRefusedFor(server, 240)
    })

    it('of combined limiters applies to the member that refuses', async () => {
      const [second, day] = [bucket(1, '1s', 'second'), bucket(9, '1d', 'day')]
      const server = await serve({
        app: [{ limiter: combine(second, day), key: user, block: { after: 1, for: '1m' } }],
      })
      await ask(server).expect(200)
      const blocked = await ask(server).expect(429).expect('Retry-After', '60')
      expect(blocked.body).toEqual({ ...ABNORMAL, 'violated-policies': ['second'] })
      expect([second.peek('ann').code, day.peek('ann').code]).toEqual(['SLUICE_BLOCKED', undefined])
      await isRefusedFor(server, 60)
      expect(day.peek('ann').remaining).toBe(7)
    })

    it('of a hidden policy is answered without the name of the policy', async () => {
      const policies = [
        { name: 'own', limit: 9, window: '1m', clock },
        { name: 'secret', limit: 1, window: '10s', clock, hidden: true, block: { after: 1, for: '1m' } },
      ] as const
      const server = await serve({ app: [{ policies, key: user }] })
      await ask(server).expect(200)
      const blocked = await ask(server).expect(429)
      expect(fields(blocked)).toMatchObject({ policy: '"own";q=9;w=60', retryAfter: '60' })
      expect(blocked.body).toEqual(ABNORMAL)
      expect(JSON.stringify([blocked.headers, blocked.text])).not.toContain('secret')
    })

    it('begins with limiter.block and ends with limiter.unblock', async () => {
      const limiter = bucket(5, '1m')
      const server = await serve({ app: [{ limiter, key: user }] })
      limiter.block('ann', '5m')
      const blocked = await ask(server).expect(429)
      expect(fields(blocked)).toMatchObject({ limit: '"default";r=0;t=300', retryAfter: '300' })
      expect(blocked.body).toMatchObject(ABNORMAL)
      await ask(server, 'bob').expect(200)
      await isRefusedFor(server, 300)
      limiter.block('ann', '5m')
      await ask(server).expect(429)
      limiter.unblock('ann')
      expect(fields(await ask(server).expect(200)).limit).toBe('"default";r=3;t=36')
    })

    it('ends with limiter.unblock, after which the durations start again', async () => {
      const limiter = bucket(1, '10s')
      const server = await serve({ app: [{ limiter, key: user, block: { after: 1, for: ['1m', '1h'] } }] })
      await ask(server).expect(200)
      await ask(server).expect(429).expect('Retry-After', '60')
      limiter.unblock('ann')
      expect(limiter.peek('ann').code).toBeUndefined()
      clock.advance('10s')
      await ask(server).expect(200)
      await ask(server).expect(429).expect('Retry-After', '60')
      clock.advance('1m')
      await ask(server).expect(200)
      await ask(server).expect(429).expect('Retry-After', '3600')
    })

    it('refuses a waiting request at once', async () => {
      const limiter = bucket(1, '10s')
      const server = await serve({ app: [{ limiter, key: user, maxWait: '30s' }] })
      await ask(server).expect(200)
      const held = ask(server).then()
      await until(() => expect(clock.alarms).toBe(1))
      limiter.block('ann', '2m')
      const response = await held
      expect(response.status).toBe(429)
      expect(fields(response).retryAfter).toBe('120')
      expect(response.body).toMatchObject(ABNORMAL)
      await isRefusedFor(server, 120)
      expect(server.handled).toBe(2)
    })

    it('refuses waiting requests too when another refusal starts it', async () => {
      const limiter = bucket(1, '10s')
      const block = { after: 1, for: '2m' } as const
      const server = await serve({ app: [{ limiter, key: user, maxWait: '10s', block }] })
      await ask(server).expect(200)
      const held = ask(server).then()
      await until(() => expect(clock.alarms).toBe(1))
      await ask(server).expect(429).expect('Retry-After', '120')
      expect(await held).toMatchObject({ status: 429, body: ABNORMAL })
      expect(server.handled).toBe(1)
      expect(clock.alarms).toBe(0)
    })

    it('in a dry run does not block the other routes of the same limiter', async () => {
      const limiter = bucket(1, '1h')
      const dry = await serve({
        app: [{ limiter, key: user, dryRun: true, block: { after: 2, for: '1d' } }],
      })
      const live = await serve({ app: [{ limiter, key: user }] })
      for (let round = 0; round < 6; round++) await ask(dry).expect(200)
      clock.advance('1h')
      await ask(live).expect(200)
    })

    it('in a dry run is given to onDecision, and refuses no request', async () => {
      const outcomes: Outcome[] = []
      const server = await limited({
        dryRun: true,
        block: { after: 2, for: '1m' },
        onDecision: (_, outcome) => void outcomes.push(outcome),
      })
      for (let round = 0; round < 4; round++)
        expect(fields(await ask(server).expect(200)).retryAfter).toBeUndefined()
      expect(outcomes.map(({ decision, refused }) => [decision.code, refused])).toEqual([
        [undefined, false],
        [undefined, false],
        ['SLUICE_BLOCKED', false],
        ['SLUICE_BLOCKED', false],
      ])
      expect(server.handled).toBe(4)
    })

    it('works on an asynchronous store', async () => {
      const store = scriptedStore()
      const limiter = createLimiter(tokenBucket({ limit: 1, window: '10s' }), { store, clock })
      const server = await serve({ app: [{ limiter, key: user, block: { after: 2, for: '1m' } }] })
      for (const status of [200, 429]) await ask(server).expect(status)
      const blocked = await ask(server).expect(429).expect('Retry-After', '60')
      expect(blocked.body).toMatchObject(ABNORMAL)
      await isRefusedFor(server, 60)
      await limiter.block('bob', '1h')
      await ask(server, 'bob').expect(429).expect('Retry-After', '3600')
      await limiter.unblock('bob')
      await ask(server, 'bob').expect(200)
    })

    it.each(['allow', 'refuse'] as const)(
      'that its store fails to note leaves the refusal what it was (%s)',
      async onStoreError => {
        const limiter = createLimiter(tokenBucket({ limit: 1, window: '10s' }), {
          store: scriptedStore(failsAt('strike')),
          clock,
        })
        const server = await serve({
          app: [{ limiter, key: user, onStoreError, block: { after: 1, for: '1m' } }],
        })
        await ask(server).expect(200)
        expect((await ask(server).expect(429).expect('Retry-After', '10')).body).toMatchObject(EXCEEDED)
        expect(server.errors).toEqual([])
      },
    )

    it.each(
      rows([
        [true, 'block'],
        ['1m', 'block'],
        [null, 'block'],
        [[], 'block'],
        [{ for: '1m' }, 'after'],
        [{ after: 0, for: '1m' }, 'after'],
        [{ after: 1.5, for: '1m' }, 'after'],
        [{ after: '3', for: '1m' }, 'after'],
        [{ after: 3 }, 'for'],
        [{ after: 3, for: [] }, 'for'],
        [{ after: 3, for: 0 }, 'for'],
        [{ after: 3, for: ['1m', 'soon'] }, 'for'],
        [{ after: 3, for: Infinity }, 'for'],
        [{ after: 3, for: '1m', forever: true }, 'forever'],
      ]),
    )('%j throws at construction', async (block, option) => {
      const code = expect.stringMatching(/^SLUICE_(INVALID|UNKNOWN)_OPTION$/)
      await expect(starting({ block })).rejects.toMatchObject({ option, code })
    })
  })
})
