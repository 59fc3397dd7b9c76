import type { RequestListener } from 'node:http'
import { createLimiter, tokenBucket } from '@sluice/core'
import * as onNode from '@sluice/core/http'
import { describe, expect, it, vi } from 'vitest'
import { clock, closing } from '../support/each-test.js'
import { answerOf, errorOf, fail, guards, limit, teapot } from './support.js'

/*
 * A handler of node:http inside limitRoute answers as it does without a limit, in whatever way it answers.
 */

describe('on node:http', () => {
  const { limitRoute } = onNode

  const handlers: readonly (readonly [string, RequestListener])[] = [
    ['ends', (_request, response) => void response.end('ended')],
    ['answers later', (_request, response) => void setImmediate(() => response.end('later'))],
    ['is async', async (_request, response) => void response.end('async')],
    ['writes its head', (_request, response) => void response.writeHead(201, { 'X-A': 'b' }).end('made')],
    ['redirects', (_request, response) => void response.writeHead(303, { Location: '/elsewhere' }).end()],
  ]

  describe.each(guards)('decided %s', (when, guard) => {
    it.each(handlers)('a handler that %s does as it did', async (_, handler) => {
      expect(await answerOf(limitRoute(guard())(handler))).toEqual(await answerOf(handler))
    })

    it('the handler is given what it was, on what it was, and returns what it did', async () => {
      const seen = vi.fn((_request, response) => {
        response.end('ok')
        return 'a result'
      })
      const self = { seen: limitRoute(guard())(seen) as (...args: unknown[]) => unknown }
      const exchange: unknown[] = []
      let returned: unknown
      await answerOf((request, response) => {
        exchange.push(request, response)
        returned = self.seen(request, response)
      })
      expect(seen.mock.contexts[0]).toBe(self)
      for (const [index, argument] of (seen.mock.calls[0] as unknown[]).entries())
        expect(argument).toBe(exchange[index])
      if (when === 'at once') expect(returned).toBe('a result')
      expect(await returned).toBe('a result')
    })
  })

  it('onError is given the request and the response', async () => {
    const onError = vi.fn<NonNullable<onNode.NodeOptions['onError']>>((_error, _request, response) => {
      response.writeHead(400).end('mine')
    })
    const noUser = errorOf('no user')
    const handler = limitRoute(limit(1, { key: () => fail(noUser), onError }))((_request, _response) => {})
    const exchange: unknown[] = []
    expect(
      await answerOf((request, response) => {
        exchange.push(request, response)
        handler(request, response)
      }),
    ).toMatchObject({ status: 400, text: 'mine' })
    expect(onError.mock.calls).toHaveLength(1)
    expect(onError.mock.calls[0]?.[0]).toBe(noUser)
    expect(onError.mock.calls[0]?.[1]).toBe(exchange[0])
    expect(onError.mock.calls[0]?.[2]).toBe(exchange[1])
  })

  describe('without onError', () => {
    async function warnedOf(options: object) {
      const warn = vi.spyOn(process, 'emitWarning').mockImplementation(() => {})
      closing.push(() => warn.mockRestore())
      const answer = await answerOf(limitRoute(limit(0, options))(() => {}))
      return { ...answer, warnings: warn.mock.calls.map(([warning]) => warning) }
    }

    it.each([
      ['thrown', () => fail()],
      ['rejected', async () => fail()],
    ])('an error that is %s is a 500 and a warning', async (_, key) => {
      expect(await warnedOf({ key })).toMatchObject({
        status: 500,
        text: 'Internal Server Error',
        warnings: [errorOf('no user')],
      })
    })

    it('an error with a status is that status', async () => {
      expect(await warnedOf({ key: () => fail(teapot()) })).toMatchObject({ status: 418 })
    })

    it.each([200, 399, 600, 'none', Number.NaN])('an error with a status of %o is a 500', async status => {
      const key = () => fail(Object.assign(new Error('odd'), { status }))
      expect(await warnedOf({ key })).toMatchObject({ status: 500 })
    })

    it('a refusal that is thrown is its status, with every field, and no warning', async () => {
      const answer = await warnedOf({ throws: true })
      expect(answer).toMatchObject({ status: 429, text: 'Too Many Requests', warnings: [] })
    })
  })

  it.each([5, 'log', null, {}])('an onError of %o is refused at construction', onError => {
    expect(() => limitRoute(limit(1, { onError }))).toThrow(
      expect.objectContaining({ name: 'TypeError', code: 'SLUICE_INVALID_OPTION', option: 'onError' }),
    )
  })

  it('a limiter counts once around a handler that it limits already', async () => {
    const limiter = createLimiter(tokenBucket({ limit: 9, window: '1m' }), { clock })
    const once = limitRoute({ limiter })
    await answerOf(once(once((_request, response) => void response.end('ok'))))
    expect(limiter.peek('127.0.0.1').remaining).toBe(8)
  })
})
