import { createServer } from 'node:http'
import { createLimiter, tokenBucket } from '@sluice/core'
import * as onExpress from '@sluice/express'
import express, { type ErrorRequestHandler, type RequestHandler } from 'express'
import request from 'supertest'
import { describe, expect, it, vi } from 'vitest'
import { clock, listening } from '../support/each-test.js'
import { express4 } from '../support/servers/express.js'
import { answerOf, errorOf, fail, guards, limit, teapot } from './support.js'

/*
 * A handler of Express inside limitRoute answers as it does without a limit, in whatever way it answers.
 */

describe.each([
  ['express', express],
  ['express4', express4],
] as const)('on %s', (name, framework) => {
  const { limitRoute } = onExpress

  function appOf(...handlers: RequestHandler[]) {
    const errors: unknown[] = []
    const app = framework().set('env', 'test')
    app.get('/', ...handlers)
    app.get('/', (_req, res) => res.send('the next route'))
    const record: ErrorRequestHandler = (error, _req, _res, next) => {
      errors.push(error)
      next(error)
    }
    return { app: app.use(record), errors }
  }

  /** The second group is not looked at by Express 4 as it is. */
  const handlers: readonly (readonly [string, RequestHandler])[] = [
    ['sends', (_req, res) => void res.send('sent')],
    ['returns the response', (_req, res) => res.status(201).json({ made: true })],
    ['answers later', (_req, res) => void setImmediate(() => res.send('later'))],
    ['is async', async (_req, res) => void res.send('async')],
    ['goes on', (_req, _res, next) => next()],
    ['goes on later', (_req, _res, next) => void setImmediate(next)],
    ['goes on to the next route', (_req, _res, next) => next('route')],
    ['hands on an error', (_req, _res, next) => next(teapot())],
    ['redirects', (_req, res) => res.redirect(303, '/elsewhere')],
    ['throws', () => fail()],
    ['throws with a status', () => fail(teapot())],
    [
      'throws behind a status of its own',
      (_req, res) => {
        res.status(409)
        fail()
      },
    ],
  ]
  const rejecting: readonly (readonly [string, RequestHandler])[] = [
    ['rejects', async () => fail()],
    ['rejects with a status', async () => fail(teapot())],
    ['rejects with the next route', () => Promise.reject('route')],
    [
      'rejects behind a status of its own',
      async (_req, res) => {
        res.status(409)
        fail()
      },
    ],
  ]

  describe.each(guards)('decided %s', (when, guard) => {
    it.each([...handlers, ...(name === 'express' ? rejecting : [])])(
      'a handler that %s does as it did',
      async (_, handler) => {
        const bare = appOf(handler)
        const limited = appOf(limitRoute(guard())(handler))
        expect(await answerOf(limited.app)).toEqual(await answerOf(bare.app))
        expect(limited.errors).toEqual(bare.errors)
      },
    )

    it.runIf(name === 'express4' && when !== 'at once')(
      'the error handler gets what a handler rejects with',
      async () => {
        const { app, errors } = appOf(limitRoute(guard())(async () => fail(teapot())))
        expect(await answerOf(app)).toMatchObject({ status: 418 })
        expect(errors).toMatchObject([{ status: 418 }])
      },
    )

    it('the handler is given what it was, on what it was', async () => {
      const seen = vi.fn((_req: express.Request, res: express.Response, _next: express.NextFunction) =>
        res.send('ok'),
      )
      const self = { seen: limitRoute(guard())(seen) as RequestHandler }
      const exchange: unknown[] = []
      const { app } = appOf((req, res, next) => {
        exchange.push(req, res, next)
        return self.seen(req, res, next)
      })
      await answerOf(app)
      expect(seen.mock.contexts[0]).toBe(self)
      expect(seen.mock.calls).toHaveLength(1)
      for (const [index, argument] of (seen.mock.calls[0] as unknown[]).entries())
        expect(argument).toBe(exchange[index])
    })

    it('what a handler returns is returned', async () => {
      const promise = Promise.resolve('a result')
      const returned: unknown[] = []
      for (const result of ['a result', promise]) {
        const limited = limitRoute(guard())((_req, res) => {
          res.end()
          return result
        }) as RequestHandler
        const { app } = appOf((req, res, next) => {
          returned.push(limited(req, res, next))
        })
        await answerOf(app)
      }
      if (when === 'at once') expect(returned).toEqual(['a result', promise])
      expect(await Promise.all(returned)).toEqual(['a result', 'a result'])
    })

    it('a handler may be called without `next`, and its errors reach the app', async () => {
      const send: RequestHandler = (_req, res) => void res.send('ok')
      const limited = limitRoute(guard())(send) as (...args: unknown[]) => unknown
      expect(await answerOf(appOf((req, res) => void limited(req, res)).app)).toMatchObject({ text: 'ok' })

      const failing = limitRoute(guard())(() => fail(teapot())) as typeof limited
      const { app, errors } = appOf((req, res) => void failing(req, res))
      expect(await answerOf(app)).toMatchObject({ status: 418 })
      expect(errors).toEqual([teapot()])
    })
  })

  it.each([
    ['throws', () => fail()],
    ['rejects with', async () => fail()],
  ])('what a key %s reaches the app from a handler that is called without `next`', async (_, key) => {
    const limited = limitRoute(limit(1, { key }))(() => {}) as (...args: unknown[]) => unknown
    const { app, errors } = appOf((req, res) => void limited(req, res))
    expect(await answerOf(app)).toMatchObject({ status: 500 })
    expect(errors).toEqual([errorOf('no user')])
  })

  it('a limiter of the app counts once around a handler', async () => {
    const limiter = createLimiter(tokenBucket({ limit: 9, window: '1m' }), { clock })
    const app = framework().use(onExpress.rateLimit({ limiter }))
    app.get(
      '/',
      limitRoute({ limiter })((_req, res) => void res.send('ok')),
    )
    await answerOf(app)
    expect(limiter.peek('127.0.0.1').remaining).toBe(8)
  })

  it('limits nest, and the fields list all of them', async () => {
    const handler = limitRoute(limit(5, { name: 'outer' }))(
      limitRoute(limit(1, { name: 'inner' }))((req, res) => void res.json(req.rateLimit?.remaining)),
    )
    const url = await listening(createServer(appOf(handler).app))
    await request(url).get('/').expect(200, '0').expect('RateLimit', '"outer";r=4;t=48, "inner";r=0;t=60')
    await request(url).get('/').expect(429)
  })

  it('a response that has begun is left alone', async () => {
    const { app } = appOf(
      (_req, res, next) => {
        res.write('begun, ')
        next()
      },
      limitRoute(limit(0))((_req, res) => void res.end('done')),
    )
    expect(await answerOf(app)).toMatchObject({ status: 200, text: 'begun, done' })
  })
})
