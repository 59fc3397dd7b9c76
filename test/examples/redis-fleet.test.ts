import { afterAll, beforeAll, expect, test } from 'vitest'
import { type RedisServer, startRedis } from '../support/redis-server.js'
import { serverOf } from './server-of.js'

const withServer = serverOf('redis-fleet')

let redis: RedisServer
beforeAll(async () => {
  redis = await startRedis()
})
afterAll(() => redis.stop())

interface Answer {
  readonly status: number
  readonly server?: number
  readonly remaining?: number | null
}

async function ask(url: string): Promise<Answer> {
  const answer = await fetch(url)
  return { status: answer.status, ...((await answer.json()) as object) }
}

const onRedis = () => ({ REDIS_URL: `redis://127.0.0.1:${redis.port}` })

test('two servers share one limit, and so does a server that starts later', async () => {
  await withServer(async first => {
    await withServer(async second => {
      const answers: Answer[] = []
      for (const url of [first, second, first, second, first]) answers.push(await ask(url))
      expect(answers.map(({ status }) => status)).toEqual([200, 200, 200, 200, 200])
      expect(answers.map(({ remaining }) => remaining)).toEqual([4, 3, 2, 1, 0])
      expect(new Set(answers.map(({ server }) => server)).size).toBe(2)

      for (const url of [first, second]) {
        const refused = await fetch(url)
        expect(refused.status).toBe(429)
        expect(Number(refused.headers.get('Retry-After'))).toBeLessThanOrEqual(12)
        expect(refused.headers.get('RateLimit')).toMatch(/^"per-client";r=0;t=\d+$/)
        expect(await refused.json()).toMatchObject({ 'violated-policies': ['per-client'] })
      }
      await withServer(async third => expect((await ask(third)).status).toBe(429), onRedis())
    }, onRedis())
  }, onRedis())
})

test('without Redis every request is granted; when Redis is back, requests are limited again', async () => {
  await withServer(async url => {
    await redis.stop()
    for (let asks = 0; asks < 7; asks++) expect((await ask(url)).status).toBe(200)
    await redis.restart()
    let last: Answer = { status: 200 }
    while (last.status === 200) last = await ask(url)
    expect(last.status).toBe(429)
  }, onRedis())
})
