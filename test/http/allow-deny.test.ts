import type { Decision } from '@sluice/core'
import type { Outcome, Refusal } from '@sluice/core/http'
import request from 'supertest'
import { describe, expect, it } from 'vitest'
import { clock } from '../support/each-test.js'
import {
  type AnyRequest,
  type App,
  type Limit,
  type Passage,
  type RunningServer,
  servers,
} from '../support/servers/index.js'
import { rowsOn } from '../support/servers/rows.js'
import { ABNORMAL, bucket, fields, NO_FIELDS, peerOfHeader, perUserOn } from './limited.js'

/*
 * Addresses that are never limited, and addresses that are always refused.
 */

describe.each(servers)('on $name', server => {
  const rows = rowsOn(server)
  const { serve, starting } = perUserOn(server)

  describe('lists of addresses', () => {
    const from = (server: RunningServer, address: string) =>
      request(server.url).get('').set('x-peer', address)
    const listed = (options: Partial<Limit>, app: App = {}) =>
      serve({ before: peerOfHeader, app: [{ limit: 1, window: '1m', clock, ...options } as Limit], ...app })

    /** Whether clients of an address are allowed, limited or denied. */
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

    it('refuse with 429, without Retry-After or RateLimit fields', async () => {
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

    it('let a request pass without fields and without counting it, whatever the key and the limiter are', async () => {
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
    )('refuse although another option lets the request pass: %s', async (_, limit) => {
      const server = await listed({}, { app: [{ ...limit, deny: ['10.0.0.0/8'] }] })
      await from(server, '10.0.0.1').expect(429)
      await from(server, '11.0.0.1').expect(200)
    })

    it('apply to the client address that a trusted proxy forwards, and ignore the header of any other peer', async () => {
      const lists = { allow: ['198.51.100.7'], deny: ['198.51.100.8'] }
      const forwarded = (server: RunningServer, peer: string, client: string) =>
        from(server, peer).set('X-Forwarded-For', client)
      const server = await listed({ ...lists, trustedProxies: ['10.0.0.0/8'] })
      await forwarded(server, '10.0.0.1', '198.51.100.8').expect(429)
      for (let round = 0; round < 3; round++) await forwarded(server, '10.0.0.1', '198.51.100.7').expect(200)
      await forwarded(server, '192.0.2.1', '198.51.100.8').expect(200)
      await forwarded(server, '192.0.2.1', '198.51.100.7').expect(429)
    })

    it('call onDecision and onRefused, and answer with the status and body of the route', async () => {
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

    it('let onRefused answer, and leave the decision on the request', async () => {
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

    it('in a dry run call onDecision and let the request pass', async () => {
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
      'do not apply to a client without an address (%s)',
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
    )('%s %j throws at construction', async (option, list) => {
      await expect(starting({ [option]: list })).rejects.toMatchObject({
        code: 'SLUICE_INVALID_OPTION',
        option,
      })
    })
  })
})
