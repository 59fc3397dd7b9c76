import { createLimiter, tokenBucket } from '@sluice/core'
import type { Outcome } from '@sluice/core/http'
import request from 'supertest'
import { describe, expect, it } from 'vitest'
import { clock } from '../support/each-test.js'
import { type Passage, servers } from '../support/servers/index.js'
import { doorsOn, rowsOn } from '../support/servers/rows.js'
import { exposed, fields, limitedOn, serveOn } from './limited.js'

/*
 * A dry run decides and counts, and refuses no request. Time stands still unless a test moves it.
 */

import { memoryStore } from '@sluice/core'
import { asynchronous } from '../support/async-store.js'

describe.each(servers)('on $name', server => {
  describe.each(doorsOn(server))('behind $name', door => {
    const rows = rowsOn(server, door)
    const { serve, limit, spent } = limitedOn(server, door)

    describe('a dry run', () => {
      it('sends the fields, counts, and lets every request pass', async () => {
        const outcomes: Outcome[] = []
        const decisions: Passage['decision'][] = []
        let answered = 0
        const note = () => {
          answered++
          return 'refused'
        }
        const server = await serve({
          app: [
            limit({
              dryRun: true,
              status: 503,
              body: note,
              onRefused: note,
              onDecision: (_request, outcome) => void outcomes.push(outcome),
            }),
          ],
          handler: passage => {
            decisions.push(passage.decision)
            passage.json({ ok: true })
          },
        })
        for (const status of [200, 200]) await request(server.url).get('').expect(status)
        const passed = await request(server.url).get('').expect(200, { ok: true })
        expect(fields(passed)).toEqual({
          policy: '"default";q=1;w=10',
          limit: '"default";r=0;t=10',
          retryAfter: undefined,
        })
        expect(passed.headers).not.toHaveProperty('cache-control')
        expect(outcomes.map(({ decision, refused }) => [decision.allowed, refused])).toEqual([
          [true, false],
          [false, false],
          [false, false],
        ])
        expect(decisions.map(decision => decision?.allowed)).toEqual([true, false, false])
        expect(server.handled).toBe(3)
        expect(answered).toBe(0)
      })

      it.each(rows(['draft-6', 'draft-7'] as const))('sends no Retry-After in %s either', async headers => {
        const server = await spent({ dryRun: true, headers, legacyHeaders: 'delta', exposeHeaders: true })
        const passed = await request(server.url).get('').expect(200)
        expect(passed.headers['x-ratelimit-remaining']).toBe('0')
        expect(passed.headers['retry-after']).toBeUndefined()
        expect(exposed(passed)).not.toContain('Retry-After')
      })
    })
  })

  describe('a dry run', () => {
    const serve = serveOn(server)

    it('lets a request pass at once that would have to wait', async () => {
      const limiter = createLimiter(tokenBucket({ limit: 1, window: '1h' }), { clock })
      const server = await serve({ app: [{ limiter, key: () => 'all', maxWait: '60s', dryRun: true }] })
      await request(server.url).get('').expect(200)
      await request(server.url).get('').expect(200)
    })

    it('lets requests pass while the store fails', async () => {
      const store = asynchronous(memoryStore())
      store.failWith(new Error('down'))
      const server = await serve({
        app: [{ limit: 1, window: '1h', name: 'dry', clock, store, dryRun: true }],
      })
      await request(server.url).get('').expect(200)
      expect(server.errors).toEqual([])
    })
  })
})
