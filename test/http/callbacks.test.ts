import { createLimiter, type Limiter, tokenBucket } from '@sluice/core'
import type { Outcome } from '@sluice/core/http'
import request from 'supertest'
import { describe, expect, it, vi } from 'vitest'
import { clock } from '../support/each-test.js'
import { failsAt, scriptedStore } from '../support/scripted-store.js'
import { type Limit, reference, servers } from '../support/servers/index.js'
import { doorsOn, rowsOn } from '../support/servers/rows.js'
import { limitedOn, serveOn } from './limited.js'

/*
 * Functions of the app that a limit calls: when they are called, what they may return, and how they fail.
 */

const FAILURE = new Error('the audit log is down')
const fail = (): never => {
  throw FAILURE
}
const failLater = async (): Promise<never> => {
  await null
  return fail()
}

/** What does what a promise does, and no more: its `then` returns nothing. */
const thenable = <T>(value: T) => ({
  // biome-ignore lint/suspicious/noThenProperty: it is what is tested
  then(resolve: (value: T) => void) {
    resolve(value)
  },
})

describe.each(servers)('on $name', server => {
  describe.each(doorsOn(server))('behind $name', door => {
    const rows = rowsOn(server, door)
    const { serve, limit, spent } = limitedOn(server, door)

    /** Each framework has an error path of its own. */
    const errorRows = rowsOn(reference, door)

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

      it('is called once for a request that waits, with the decision after the wait', async () => {
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
        '%s that throws the %s of another limiter is one error, also when requests may wait',
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
      )('%s may return a thenable, which works like a promise', async (callback, value) => {
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
  })

  const serve = serveOn(server)

  it.each([undefined, null, false, '', 0, 'route', 'router'])(
    'a key that rejects with %j is one coded error, and the request does not pass',
    async nothing => {
      const server = await serve({
        app: [{ limit: 1, window: '1h', clock, key: () => Promise.reject(nothing) }],
      })
      await request(server.url).get('').expect(500)
      expect(server.handled).toBe(0)
      expect(server.errors).toMatchObject([{ code: 'SLUICE_CALLBACK_FAILED' }])
    },
  )

  it('an onRefused that rejects with nothing is an error, and the handler does not run', async () => {
    const server = await serve({
      app: [{ limit: 0, window: '1h', clock, onRefused: () => Promise.reject() }],
    })
    await request(server.url).get('').expect(500)
    expect(server.handled).toBe(0)
  })

  describe('a limiter function', () => {
    it('may return a thenable, which limits like a promise', async () => {
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
