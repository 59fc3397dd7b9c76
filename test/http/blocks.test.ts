import { createServer } from 'node:http'
import { combine, createLimiter, type Decision, type Duration, tokenBucket } from '@sluice/core'
import { limitRoute, type Outcome, type Refusal, type RefusedError } from '@sluice/core/http'
import request from 'supertest'
import { describe, expect, it, test, vi } from 'vitest'
import { clock, closing } from '../support/each-test.js'
import { failsAt, scriptedStore } from '../support/scripted-store.js'
import { Log, running } from '../support/servers/app.js'
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
 * Clients that are refused for more than a mere excess, and refusals that are errors. Time stands still unless a test
 * moves it.
 */

const ABNORMAL = {
  type: 'https://iana.org/assignments/http-problem-types#abnormal-usage-detected',
  title: 'Abnormal Usage Detected',
  status: 429,
}
const EXCEEDED = { title: 'Quota Exceeded', status: 429 }

const user = (req: AnyRequest) => String(req.headers['x-user'] ?? 'ann')

function bucket(limit: number, window: Duration, name?: string) {
  return createLimiter(tokenBucket({ limit, window }), { name, clock })
}

const ask = ({ url }: RunningServer, who = 'ann') => request(url).get('').set('x-user', who)

/** What a response says. */
function fields({ headers }: { headers: Record<string, string> }) {
  const { 'ratelimit-policy': policy, ratelimit: limit, 'retry-after': retryAfter } = headers
  return { policy, limit, retryAfter }
}

const NO_FIELDS = { policy: undefined, limit: undefined, retryAfter: undefined }

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

/** Gives the connection the peer address of a header, for the framework to find where it looks. */
function peerOfHeader({ req }: Passage): void {
  const { 'x-peer': value } = req.headers
  Object.defineProperty(req.socket, 'remoteAddress', {
    value: value === 'none' ? undefined : value,
    configurable: true,
  })
}

describe.each(servers)('on $name', server => {
  const { start } = server
  const rows = rowsOn(server)

  async function serve(app: App) {
    const server = await start(app)
    closing.push(server.close)
    return server
  }

  /** One request in ten seconds for each user. */
  const limited = (options: Partial<Limit> = {}) =>
    serve({ app: [{ limit: 1, window: '10s', clock, key: user, ...options } as Limit] })

  const starting = async (limit: object) =>
    closing.push((await start({ app: [{ limit: 1, window: '10s', ...limit } as Limit] })).close)

  describe('a block', () => {
    it('begins with the refusal that is one too many, which says so', async () => {
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

    it('refuses until exactly the time it has told, however often it is asked', async () => {
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

    it('that is shorter than the wait for a permit says the longer of them', async () => {
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

    it('is of one key, and leaves others alone', async () => {
      const server = await limited({ block: { after: 1, for: '1m' } })
      for (const status of [200, 429]) await ask(server).expect(status)
      clock.advance('30s')
      await ask(server).expect(429)
      expect(fields(await ask(server, 'bob').expect(200)).limit).toBe('"default";r=0;t=10')
    })

    it('climbs a ladder, whose last step repeats and which is forgotten after the longest one', async () => {
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

    it('is not brought about by refusals that lie too far apart', async () => {
      const server = await limited({ block: { after: 2, for: '20s' } })
      for (let round = 0; round < 4; round++) {
        await ask(server).expect(200)
        await ask(server).expect(429).expect('Retry-After', '10')
        clock.advance('20s')
      }
    })

    it('is of the policy that refuses, and holds up none beside it', async () => {
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

    it('is by the ladder of each policy, or by that beside them', async () => {
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

    it('of a combination is of the member that refuses', async () => {
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

    it('of a hidden policy is told without naming it', async () => {
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

    it('is laid on and lifted by hand', async () => {
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

    it('of a ladder is lifted by hand, and the ladder with it', async () => {
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

    it('refuses who is held, at once', async () => {
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

    it('that refusals of other waits bring about refuses who is held as well', async () => {
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

    it('on a dry run by the limiter of others blocks nobody there', async () => {
      const limiter = bucket(1, '1h')
      const dry = await serve({
        app: [{ limiter, key: user, dryRun: true, block: { after: 2, for: '1d' } }],
      })
      const live = await serve({ app: [{ limiter, key: user }] })
      for (let round = 0; round < 6; round++) await ask(dry).expect(200)
      clock.advance('1h')
      await ask(live).expect(200)
    })

    it('on a dry run is told of, and refuses nobody', async () => {
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

    it('is kept on a store that answers later', async () => {
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
    )('%j is an error when it is made', async (block, option) => {
      const code = expect.stringMatching(/^SLUICE_(INVALID|UNKNOWN)_OPTION$/)
      await expect(starting({ block })).rejects.toMatchObject({ option, code })
    })
  })

  describe('lists of addresses', () => {
    const from = (server: RunningServer, address: string) =>
      request(server.url).get('').set('x-peer', address)
    const listed = (options: Partial<Limit>, app: App = {}) =>
      serve({ before: peerOfHeader, app: [{ limit: 1, window: '1m', clock, ...options } as Limit], ...app })

    /** What becomes of clients of an address. */
    async function fateOf(server: RunningServer, address: string) {
      const [first, second] = [await from(server, address), await from(server, address)]
      if (first.status === 429) return 'denied'
      return second.status === 429 ? 'limited' : 'allowed'
    }

    it.each(
      rows([
        [
          { allow: ['10.0.0.1'] },
          { '10.0.0.1': 'allowed', '10.0.0.2': 'limited', '::ffff:10.0.0.1': 'allowed' },
        ],
        [
          { allow: ['10.0.0.0/8'], deny: ['192.0.2.0/24', '2001:db8::/32'] },
          {
            '10.255.255.255': 'allowed',
            '11.0.0.0': 'limited',
            '192.0.2.77': 'denied',
            '::ffff:192.0.2.78': 'denied',
            '::ffff:c000:24f': 'denied',
            '192.0.3.1': 'limited',
            '2001:db8:ffff::1': 'denied',
            '2001:DB8:0:0::2': 'denied',
            '2001:db9::1': 'limited',
          },
        ],
        // A dual-stack socket writes an IPv4 address so, and a list may as well.
        [{ deny: ['::ffff:10.0.0.0/104'] }, { '10.1.2.3': 'denied', '11.0.0.1': 'limited' }],
        [{ allow: ['10.0.0.1'] }, { '64:ff9b::a00:1': 'allowed' }],
        [{ deny: ['fe80::/16', 'fe81::1%eth0'] }, { 'fe80::1%eth0': 'denied', 'fe81::1': 'denied' }],
        [{ deny: ['10.1.2.3/8'] }, { '10.200.0.1': 'denied' }],
        [{ deny: ['0.0.0.0/0'] }, { '10.0.0.1': 'denied', '2001:db8::1': 'limited' }],
        [{ deny: ['::/0'] }, { '10.0.0.1': 'limited', '2001:db8::1': 'denied' }],
        [
          { allow: ['10.1.0.0/16', '10.1.2.3'], deny: ['10.0.0.0/8', '10.1.2.0/24'] },
          { '10.1.9.9': 'allowed', '10.2.0.1': 'denied', '10.1.2.4': 'denied', '10.1.2.3': 'allowed' },
        ],
        [{ allow: ['10.0.0.1'], deny: ['10.0.0.1'] }, { '10.0.0.1': 'denied' }],
        [{ allow: ['10.0.0.0/8'], deny: ['::ffff:10.0.0.0/104'] }, { '10.0.0.1': 'denied' }],
        [{ allow: [], deny: [] }, { '10.0.0.1': 'limited' }],
      ] as [Partial<Limit>, Record<string, string>][]),
    )('%j', async (lists, fates) => {
      const server = await listed(lists)
      const found: Record<string, string> = {}
      for (const address of Object.keys(fates)) found[address] = await fateOf(server, address)
      expect(found).toEqual(fates)
      expect(server.errors).toEqual([])
    })

    it('refuse with 429 and no hope, without any figure', async () => {
      const server = await listed({ deny: ['10.0.0.0/8'] })
      const denied = await from(server, '10.0.0.1').expect(429)
      expect(fields(denied)).toEqual(NO_FIELDS)
      expect(denied.headers).toMatchObject({
        'cache-control': 'no-store',
        'content-type': 'application/problem+json',
      })
      expect(denied.body).toEqual(ABNORMAL)
      expect(server.handled).toBe(0)
    })

    it('let pass without fields and uncounted, whatever the key and the limiter are', async () => {
      const limiter = bucket(0, '1m')
      let keys = 0
      const key = () => {
        keys++
        return 'ann'
      }
      const onDecision = () => {
        throw new Error('there is no decision')
      }
      const server = await listed({}, { app: [{ limiter, key, allow: ['10.0.0.0/8'], onDecision }] })
      for (let round = 0; round < 3; round++)
        expect(fields(await from(server, '10.0.0.1').expect(200))).toEqual(NO_FIELDS)
      expect(keys).toBe(0)
      expect(limiter.stats()).toMatchObject({ granted: 0, refused: 0 })
    })

    it.each(
      rows([
        ['a key of null', { limit: 9, window: '1m', key: () => null }],
        ['a limiter of null', { limiter: () => null }],
        ['policies', { policies: [{ limit: 9, window: '1m', key: () => null }] }],
      ] as [string, Limit][]),
    )('refuse whatever else is said: %s', async (_, limit) => {
      const server = await listed({}, { app: [{ ...limit, deny: ['10.0.0.0/8'] }] })
      await from(server, '10.0.0.1').expect(429)
      await from(server, '11.0.0.1').expect(200)
    })

    it('go by the client that trusted proxies tell of, and by no other header', async () => {
      const lists = { allow: ['198.51.100.7'], deny: ['198.51.100.8'] }
      const forwarded = (server: RunningServer, peer: string, client: string) =>
        from(server, peer).set('X-Forwarded-For', client)
      const server = await listed({ ...lists, trustedProxies: ['10.0.0.0/8'] })
      await forwarded(server, '10.0.0.1', '198.51.100.8').expect(429)
      for (let round = 0; round < 3; round++) await forwarded(server, '10.0.0.1', '198.51.100.7').expect(200)
      await forwarded(server, '192.0.2.1', '198.51.100.8').expect(200)
      await forwarded(server, '192.0.2.1', '198.51.100.7').expect(429)
    })

    it('tell onDecision and onRefused, and take the status and the body of the route', async () => {
      const outcomes: Outcome[] = []
      const refusals: Refusal[] = []
      const server = await listed({
        deny: ['10.0.0.0/8'],
        status: 403,
        body: (_: AnyRequest, { problem, retryAfter }: Omit<Refusal, 'body'>) => ({
          no: problem.title,
          retryAfter,
        }),
        onDecision: (_: AnyRequest, outcome: Outcome) => void outcomes.push(outcome),
        onRefused: (_: Passage, refusal: Refusal) => void refusals.push(refusal),
      } as Partial<Limit>)
      await from(server, '10.0.0.1').expect(403, { no: 'Abnormal Usage Detected' })
      expect(outcomes).toMatchObject([
        {
          refused: true,
          decision: { allowed: false, code: 'SLUICE_BLOCKED', remaining: 0, waitMs: Infinity },
        },
      ])
      expect(refusals).toMatchObject([
        {
          status: 403,
          retryAfter: undefined,
          problem: { ...ABNORMAL, status: 403 },
          decision: outcomes[0]?.decision,
        },
      ])
    })

    it('leave the answer to onRefused, and the decision where users of the framework look', async () => {
      let decision: Decision | undefined
      const server = await listed({
        deny: ['10.0.0.0/8'],
        onRefused: passage => {
          decision = passage.decision
          passage.json({ go: 'away' })
        },
      })
      await from(server, '10.0.0.1').expect(429, { go: 'away' })
      expect(decision).toMatchObject({ allowed: false, code: 'SLUICE_BLOCKED' })
    })

    it('on a dry run tell, and let pass', async () => {
      const outcomes: Outcome[] = []
      const server = await listed({
        deny: ['10.0.0.0/8'],
        dryRun: true,
        onDecision: (_, outcome) => void outcomes.push(outcome),
      })
      expect(fields(await from(server, '10.0.0.1').expect(200))).toEqual(NO_FIELDS)
      expect(outcomes).toMatchObject([
        { refused: false, decision: { allowed: false, code: 'SLUICE_BLOCKED' } },
      ])
      expect(server.handled).toBe(1)
    })

    it.each(['none', '/run/app.sock', 'unknown'])(
      'do not hold a client without an address (%s)',
      async address => {
        const lists = { allow: ['0.0.0.0/0', '::/0'], deny: ['0.0.0.0/0', '::/0'] }
        const server = await listed({ ...lists, key: () => 'ann' })
        await from(server, address).expect(200).expect('RateLimit', '"default";r=0;t=60')
        await from(server, address).expect(429)
        const keyless = await listed(lists)
        await from(keyless, address).expect(500)
        expect(keyless.errors).toMatchObject([{ code: 'SLUICE_NO_CLIENT_ADDRESS', option: 'key' }])
      },
    )

    it.each(
      rows(
        ['allow', 'deny'].flatMap(option =>
          [
            '10.0.0.1',
            null,
            5,
            {},
            [5],
            [null],
            [''],
            ['localhost'],
            ['10.0.0'],
            ['10.0.0.1:80'],
            ['10.0.0.0/33'],
            ['10.0.0.0/'],
            ['10.0.0.0/-1'],
            ['10.0.0.0/255.0.0.0'],
            ['2001:db8::/129'],
            ['[2001:db8::]/32'],
            ['10.0.0.1', 'nobody'],
          ].map(list => [option, list] as const),
        ),
      ),
    )('%s %j is an error when it is made', async (option, list) => {
      await expect(starting({ [option]: list })).rejects.toMatchObject({
        code: 'SLUICE_INVALID_OPTION',
        option,
      })
    })
  })

  describe('throws: true', () => {
    it("hands a refusal to the framework's error handling, whose answer has the status and the fields", async () => {
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

    it('takes the status and the body of the route along', async () => {
      const server = await limited({ throws: true, status: 503, body: { busy: true } })
      for (const status of [200, 503]) await ask(server).expect(status)
      expect(server.errors).toMatchObject([{ status: 503, statusCode: 503, body: { text: '{"busy":true}' } }])
    })

    it('throws what is blocked and what is denied alike', async () => {
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

    it('tells of what other limits have said as well', async () => {
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
    )('%s is an error when it is made', async (_, options) => {
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

  test('is the status in words without a framework, and no warning', async () => {
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
