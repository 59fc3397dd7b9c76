import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { createLimiter, type Decision, type OnStoreError, tokenBucket } from '@sluice/core'
import type { Outcome } from '@sluice/core/http'
import request from 'supertest'
import { describe, expect, it, vi } from 'vitest'
import { clock, closing } from '../support/each-test.js'
import {
  answersLate,
  DOWN,
  failsAt,
  failures,
  neverSettles,
  type ScriptedStore,
  scriptedStore,
  unhandledDuring,
  works,
} from '../support/scripted-store.js'
import type { App, Door, Limit, Rate } from '../support/servers/app.js'
import { servers } from '../support/servers/index.js'
import { doorsOn, rowsOn } from '../support/servers/rows.js'

/*
 * What requests are answered while an asynchronous store fails. The time of limits stands still unless a
 * test moves it; deadlines of stores are short, and in real time.
 */

const UNAVAILABLE =
  '{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",' +
  '"title":"Temporary Reduced Capacity","status":503}'

/** Where it is said what a failure means. */
type Where = 'limiter' | 'route'

/** A limit on a store, with what a failure means said by the limiter or by the route. */
function limitOn(
  store: ScriptedStore,
  { limitOf }: Door,
  onStoreError: OnStoreError | undefined,
  where: Where = 'route',
  options: Partial<Limit> = {},
  rate: Partial<Rate> = {},
): Limit {
  const given = { limit: 2, window: '1m', name: 'shared', store, clock, deadline: '30ms', ...rate } as Rate
  return where === 'limiter'
    ? limitOf({ ...given, onStoreError }, options)
    : limitOf(given, { ...options, onStoreError })
}

const wheresOf = ({ takesLimiter }: Door): Where[] => (takesLimiter ? ['limiter', 'route'] : ['route'])

interface Response {
  readonly status: number
  readonly headers: Record<string, string>
  readonly text: string
}

/** While the store fails, a response has no fields of limits, and neither `undefined` nor `NaN` in it. */
function expectNoFigures({ headers, text }: Response): void {
  expect(Object.keys(headers).filter(name => /ratelimit|retry-after/.test(name))).toEqual([])
  expect(JSON.stringify(headers) + text).not.toMatch(/undefined|NaN/)
}

function expectUnavailable(response: Response): void {
  expect(response.status).toBe(503)
  expect(response.text).toBe(UNAVAILABLE)
  expect(response.headers).toMatchObject({
    'content-type': 'application/problem+json',
    'cache-control': 'no-store',
  })
  expectNoFigures(response)
}

describe.each(servers)('on $name', server => {
  const { start } = server

  async function serve(app: App) {
    const server = await start(app)
    closing.push(server.close)
    return server
  }

  describe.each(doorsOn(server))('a store behind $name', door => {
    const rows = rowsOn(server, door)

    describe.each(rows(failures, 2))('that $how', ({ script, cause }) => {
      const fail = async (
        onStoreError: OnStoreError | undefined,
        where: Where,
        options: Partial<Limit> = {},
      ) => {
        const server = await serve({
          app: [limitOn(scriptedStore(script), door, onStoreError, where, options)],
        })
        return { server, response: await request(server.url).get('') }
      }

      // S31 animir/node-rate-limiter-flexible#184; S35 express-rate-limit 7.4.1, which went on after next()
      it.each(wheresOf(door))(
        "lets requests pass, once and without fields, with 'allow' of the %s",
        async where => {
          const { server, response } = await fail('allow', where)
          expect(response.status).toBe(200)
          expect(response.text).toBe('{"ok":true}')
          expectNoFigures(response)
          expect(server.handled).toBe(1)
          expect(server.errors).toEqual([])
        },
      )

      // S31 animir/node-rate-limiter-flexible#184; S33 firecrawl/firecrawl#3728, where it was a 429 with "undefined" in it
      it.each(wheresOf(door))("is a 503, and never a 429, with 'refuse' of the %s", async where => {
        const { server, response } = await fail('refuse', where)
        expectUnavailable(response)
        expect(server.handled).toBe(0)
        expect(server.errors).toEqual([])
      })

      it.each([...wheresOf(door).map(where => ['throw', where] as const), [undefined, 'route'] as const])(
        'is one coded error with %j of the %s',
        async (onStoreError, where) => {
          const { server, response } = await fail(onStoreError, where)
          expect(response.status).toBe(500)
          expectNoFigures(response)
          expect(server.handled).toBe(0)
          expect(server.errors).toHaveLength(1)
          expect(server.errors[0]).toBeInstanceOf(Error)
          expect(server.errors[0]).toMatchObject({ code: 'SLUICE_STORE_ERROR', option: 'store' })
          expect((server.errors[0] as Error).cause).toBe(cause)
        },
      )

      it.each(wheresOf(door))(
        'fails in the same ways while requests may wait, set by the %s',
        async where => {
          const allowed = await fail('allow', where, { maxWait: '10s' })
          expect(allowed.response.status).toBe(200)
          expectNoFigures(allowed.response)
          expect(allowed.server.handled).toBe(1)

          const refused = await fail('refuse', where, { maxWait: '10s' })
          expectUnavailable(refused.response)
          expect(refused.server.handled).toBe(0)

          const thrown = await fail('throw', where, { maxWait: '10s' })
          expect(thrown.response.status).toBe(500)
          expect(thrown.server.errors).toMatchObject([{ code: 'SLUICE_STORE_ERROR' }])
          expect(thrown.server.handled).toBe(0)
        },
      )
    })

    it.each(['allow', 'refuse', 'throw'] as const)(
      'ignores an answer of the store that arrives after the response (%s)',
      async onStoreError => {
        const late = answersLate()
        const store = scriptedStore(late.script)
        const server = await serve({ app: [limitOn(store, door, onStoreError)] })
        const unhandled = await unhandledDuring(async () => {
          const { status } = await request(server.url).get('')
          expect(status).toBe({ allow: 200, refuse: 503, throw: 500 }[onStoreError])
          expect(late.due).not.toHaveLength(0)
          late.answerNow()
          await nextTurn()
        })
        expect(unhandled).toEqual([])
        expect(server.handled).toBe(onStoreError === 'allow' ? 1 : 0)
        expect(server.errors).toHaveLength(onStoreError === 'throw' ? 1 : 0)

        store.script = works
        const next = await request(server.url).get('').expect(200)
        expect(next.headers.ratelimit).toMatch(/^"shared";r=[01];t=\d+$/)
      },
    )

    it.each(['allow', 'refuse', 'throw'] as const)(
      'ignores a store error that arrives after the response (%s)',
      async onStoreError => {
        const failing: (() => void)[] = []
        const store = scriptedStore(() => new Promise((_, reject) => failing.push(() => reject(DOWN))))
        const server = await serve({ app: [limitOn(store, door, onStoreError)] })
        const unhandled = await unhandledDuring(async () => {
          await request(server.url).get('')
          for (const fail of failing) fail()
        })
        expect(unhandled).toEqual([])
        expect(server.handled).toBe(onStoreError === 'allow' ? 1 : 0)
        expect(server.errors).toHaveLength(onStoreError === 'throw' ? 1 : 0)
      },
    )

    it('limits the next request once it works again', async () => {
      const store = scriptedStore(failsAt('decide', 'book'))
      const server = await serve({ app: [limitOn(store, door, 'allow')] })
      for (let request_ = 0; request_ < 3; request_++) await request(server.url).get('').expect(200)
      store.script = works
      for (const status of [200, 200, 429]) await request(server.url).get('').expect(status)
      expect(server.handled).toBe(5)
    })

    it('is called once for a request that it fails', async () => {
      const store = scriptedStore(failsAt('decide', 'book'))
      const server = await serve({ app: [limitOn(store, door, 'refuse')] })
      expectUnavailable(await request(server.url).get(''))
      expect(store.calls).toHaveLength(1)
    })

    it('that fails publishes sluice:store-error, also if requests pass', async () => {
      const events: unknown[] = []
      const note = (event: unknown) => events.push(event)
      subscribe('sluice:store-error', note)
      try {
        const store = scriptedStore(failsAt('decide', 'book'))
        const server = await serve({ app: [limitOn(store, door, 'allow')] })
        await request(server.url).get('').expect(200)
      } finally {
        unsubscribe('sluice:store-error', note)
      }
      expect(events).toEqual([
        { limiter: 'shared', error: expect.objectContaining({ code: 'SLUICE_STORE_ERROR', cause: DOWN }) },
      ])
    })

    it.each(wheresOf(door))('refuses no request in a dry run, though the %s refuses', async where => {
      const store = scriptedStore(failsAt('decide', 'book'))
      const server = await serve({ app: [limitOn(store, door, 'refuse', where, { dryRun: true })] })
      const response = await request(server.url).get('').expect(200)
      expectNoFigures(response)
      expect(server.handled).toBe(1)
    })

    it.each(wheresOf(door))('that refuses by the %s calls onDecision and onRefused', async where => {
      const outcomes: Outcome[] = []
      const refusals: (Decision | undefined)[] = []
      const onDecision = (_: unknown, outcome: Outcome) => void outcomes.push(outcome)
      const store = scriptedStore(failsAt('decide', 'book'))
      const server = await serve({
        app: [
          limitOn(store, door, 'refuse', where, {
            onDecision,
            onRefused: (passage, { status, retryAfter, problem }) => {
              refusals.push(passage.decision)
              expect({ status, retryAfter, problem }).toEqual({
                status: 503,
                retryAfter: undefined,
                problem: JSON.parse(UNAVAILABLE),
              })
            },
          }),
        ],
      })
      expectUnavailable(await request(server.url).get(''))
      expect(refusals).toMatchObject([{ allowed: false, code: 'SLUICE_STORE_ERROR' }])
      expect(outcomes).toMatchObject([{ decision: { allowed: false }, refused: true }])
    })

    it.each(wheresOf(door))(
      'that refuses by the %s sends the body of the route, with 503 for its status',
      async where => {
        const store = scriptedStore(failsAt('decide', 'book'))
        const options = { status: 403, body: { slow: 'down' }, exposeHeaders: true } as const
        const server = await serve({ app: [limitOn(store, door, 'refuse', where, options)] })
        const response = await request(server.url).get('').expect(503)
        expect(response.body).toEqual({ slow: 'down' })
        expect(response.headers['cache-control']).toBe('no-store')
        expectNoFigures(response)
      },
    )

    describe('and a request that waits', () => {
      /** A server with one request through and one that is held. */
      async function holding(onStoreError: OnStoreError, where: Where) {
        const store = scriptedStore()
        const server = await serve({
          app: [
            limitOn(
              store,
              door,
              onStoreError,
              where,
              { maxWait: '10s', key: () => 'all' },
              {
                limit: 1,
                window: '1s',
              },
            ),
          ],
        })
        await request(server.url).get('').expect(200)
        const held = request(server.url).get('').then()
        await vi.waitFor(() => expect(clock.alarms).toBe(1), { interval: 5 })
        return { store, server, held }
      }

      it.each(
        wheresOf(door).flatMap(where =>
          (['allow', 'refuse', 'throw'] as const).map(mode => [mode, where] as const),
        ),
      )(
        'ends when the store fails at the end of the wait (%s by the %s)',
        {
          timeout: 1000,
        },
        async (onStoreError, where) => {
          const { store, server, held } = await holding(onStoreError, where)
          store.script = failsAt('decide', 'book')
          clock.advance('1s')
          const response = await held
          // A limiter has booked the permit before its store failed, and refuses no request that has its permit.
          const isBooked = onStoreError === 'refuse' && where === 'limiter' && !door.hasSeveralPolicies
          const status = isBooked ? 200 : { allow: 200, refuse: 503, throw: 500 }[onStoreError]
          expect(response.status).toBe(status)
          expectNoFigures(response)
          expect(server.handled).toBe(status === 200 ? 2 : 1)
        },
      )
    })
  })

  describe('of several policies, one on a store that fails', () => {
    function policies(onStoreError: OnStoreError, where: Where, limit = 2) {
      const store = scriptedStore()
      const rate = tokenBucket({ limit: 10, window: '1m' })
      const failing = createLimiter(rate, {
        name: 'failing',
        store,
        clock,
        deadline: '30ms',
        ...(where === 'limiter' ? { onStoreError } : {}),
      })
      const healthy = createLimiter(tokenBucket({ limit, window: '1m' }), { name: 'healthy', clock })
      const options = where === 'route' ? { onStoreError } : {}
      const key = () => 'ann'
      const route: Limit = { policies: [{ limiter: healthy }, { limiter: failing }], key, ...options }
      return { store, route, left: () => healthy.peek('ann').remaining }
    }

    it('the other policies limit alone if its limiter allows', async () => {
      const { store, route } = policies('allow', 'limiter', 1)
      store.script = failsAt('decide', 'book')
      const server = await serve({ app: [route] })
      const passed = await request(server.url).get('').expect(200)
      expect(passed.headers).toMatchObject({
        'ratelimit-policy': '"healthy";q=1;w=60',
        ratelimit: '"healthy";r=0;t=60',
      })
      const refused = await request(server.url).get('').expect(429)
      expect(refused.body['violated-policies']).toEqual(['healthy'])
      expect(refused.headers['retry-after']).toBe('60')
      expect(server.handled).toBe(1)
    })

    it.each([
      ['refuse', 'limiter', ['decide', 'book']],
      ['refuse', 'limiter', ['book']],
      ['throw', 'limiter', ['decide', 'book']],
      ['throw', 'limiter', ['book']],
      ['refuse', 'route', ['decide', 'book']],
      ['refuse', 'route', ['book']],
      ['allow', 'route', ['decide', 'book']],
      ['allow', 'route', ['book']],
    ] as const)(
      'no permit is taken from the other policies (%s by the %s, failing at %j)',
      async (mode, where, verbs) => {
        const { store, route, left } = policies(mode, where)
        const server = await serve({ app: [route] })
        store.script = failsAt(...verbs)
        const response = await request(server.url).get('')
        expect(response.status).toBe({ allow: 200, refuse: 503, throw: 500 }[mode])
        expectNoFigures(response)
        expect(server.handled).toBe(mode === 'allow' ? 1 : 0)
        expect(server.errors).toHaveLength(mode === 'throw' ? 1 : 0)
        expect(left()).toBe(2)
        store.script = works
        const next = await request(server.url).get('').expect(200)
        expect(next.headers['ratelimit-policy']).toBe('"healthy";q=2;w=60, "failing";q=10;w=60')
        expect(left()).toBe(1)
      },
    )

    it('the other policies refuse if its limiter allows, also when requests may wait', async () => {
      const { store, route } = policies('allow', 'limiter', 0)
      store.script = neverSettles
      for (const options of [{}, { maxWait: '1s' }] as const) {
        const server = await serve({ app: [{ ...route, ...options } as Limit] })
        const response = await request(server.url).get('').expect(429)
        expect(response.body['violated-policies']).toEqual(['healthy'])
        expect(response.headers).toMatchObject({ ratelimit: '"healthy";r=0' })
      }
    })

    it('two stores that fail at once are one error, and no unhandled rejection', async () => {
      const failing = (name: string) => ({
        limiter: createLimiter(tokenBucket({ limit: 1, window: '1m' }), {
          name,
          store: scriptedStore(failsAt('decide', 'book')),
        }),
      })
      const server = await serve({ app: [{ policies: [failing('a'), failing('b'), failing('c')] }] })
      const unhandled = await unhandledDuring(async () => {
        await request(server.url).get('').expect(500)
      })
      expect(unhandled).toEqual([])
      expect(server.errors).toMatchObject([{ code: 'SLUICE_STORE_ERROR', cause: DOWN }])
    })
  })

  it('a limiter that has failed for a request still limits it on the next level', async () => {
    const store = scriptedStore(failsAt('decide'))
    const limiter = createLimiter(tokenBucket({ limit: 1, window: '1m' }), { store, clock })
    const server = await serve({
      app: [{ limiter, onStoreError: 'allow' }],
      route: [{ limiter, onStoreError: 'refuse' }],
    })
    expectUnavailable(await request(server.url).get(''))
    expect(server.handled).toBe(0)
  })
})
