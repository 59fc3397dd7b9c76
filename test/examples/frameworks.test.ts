import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { folderOf, serverOf } from './server-of.js'

describe.each(['express', 'koa', 'fastify'])('the example for %s', name => {
  const withServer = serverOf(name)

  test('is short enough to copy', async () => {
    const lines = (await readFile(join(folderOf(name), 'server.js'), 'utf8')).trimEnd().split('\n')
    expect(lines.length).toBeLessThan(40)
  })

  test('limits the app: 200 with the last permit, then 429 with Retry-After', async () => {
    await withServer(
      async url => {
        const first = await fetch(url)
        expect([first.status, await first.text()]).toEqual([200, 'Hello\n'])
        expect(first.headers.get('RateLimit')).toMatch(/^"default";r=0;t=\d+$/)
        expect(first.headers.get('RateLimit-Policy')).toBe('"default";q=1;w=60')

        const second = await fetch(url)
        expect(second.status).toBe(429)
        expect(Number(second.headers.get('Retry-After'))).toBeGreaterThanOrEqual(1)
        expect(second.headers.get('Cache-Control')).toBe('no-store')
        expect(second.headers.get('Content-Type')).toBe('application/problem+json')
        expect(await second.json()).toMatchObject({
          title: 'Quota Exceeded',
          'violated-policies': ['default'],
        })
      },
      { LIMIT: '1' },
    )
  })
})

test('the example for express limits one route with its own limiter and a cost', async () => {
  await serverOf('express')(async url => {
    const search = await fetch(`${url}/search?export=1`)
    expect(await search.json()).toEqual({ found: [], remaining: 0 })
    expect((await fetch(`${url}/search`)).status).toBe(429)
  })
})

test.each(['koa', 'fastify'])('the example for %s makes a request wait for its permit', async name => {
  await serverOf(name)(async url => {
    expect(await (await fetch(`${url}/report`)).json()).toEqual({ waitedMs: 0 })
    const waiting = await fetch(`${url}/report`)
    expect(waiting.status).toBe(200)
    const { waitedMs } = (await waiting.json()) as { waitedMs: number }
    expect(waitedMs).toBeGreaterThan(0)
    expect(waitedMs).toBeLessThanOrEqual(2000)
  })
})
