import { expect, test } from 'vitest'
import { serverOf } from './server-of.js'

const withServer = serverOf('plans')

const ask = (url: string, key?: string, method = 'GET') =>
  fetch(url, { method, headers: key === undefined ? {} : { 'X-API-Key': key } })

const ANN = 'key-of-ann'
const BOB = 'key-of-bob'
const CLEO = 'key-of-cleo'
const HEALTH_CHECKER = 'key-of-the-health-checker'

const remaining = (answer: Response) => answer.headers.get('RateLimit')

test('each plan has its own limit in the RateLimit-Policy header', async () => {
  await withServer(async url => {
    const policy = async (key?: string) => (await ask(`${url}/items`, key)).headers.get('RateLimit-Policy')
    expect(await policy()).toBe('"free";q=10;w=600')
    expect(await policy(ANN)).toBe('"free";q=10;w=600')
    expect(await policy(BOB)).toBe('"pro";q=100;w=60')
    expect(await policy(CLEO)).toBeNull()
    expect(await policy('a key of nobody')).toBe('"free";q=10;w=600')
  })
})

test('a request has the cost of its route, and a POST costs 5', async () => {
  await withServer(async url => {
    expect(remaining(await ask(`${url}/items`, ANN))).toMatch(/r=9;/)
    expect(remaining(await ask(`${url}/search`, ANN))).toMatch(/r=6;/)
    expect(remaining(await ask(`${url}/items`, ANN, 'POST'))).toMatch(/r=1;/)
    expect((await ask(`${url}/search`, ANN)).status).toBe(429)
    expect((await ask(`${url}/items`, ANN)).status).toBe(200)
  })
})

test('customers and guests do not share permits', async () => {
  await withServer(async url => {
    for (let posts = 0; posts < 2; posts++) expect((await ask(`${url}/items`, ANN, 'POST')).status).toBe(201)
    expect((await ask(`${url}/items`, ANN)).status).toBe(429)
    expect((await ask(`${url}/items`)).status).toBe(200)
  })
})

test('exports share one limit on every plan; the health checker is not limited', async () => {
  await withServer(async url => {
    for (const key of [undefined, ANN, BOB, CLEO]) {
      expect((await ask(`${url}/exports/csv`, key)).status).toBe(200)
      expect((await ask(`${url}/exports/xml`, key)).status).toBe(200)
      const third = await ask(`${url}/exports/csv`, key)
      expect(third.status).toBe(429)
      expect(await third.json()).toMatchObject({ 'violated-policies': ['exports'] })
    }
    for (let exports = 0; exports < 5; exports++)
      expect((await ask(`${url}/exports/csv`, HEALTH_CHECKER)).status).toBe(200)
  })
})

test('a plan without a limit, and the health checker, are never refused', async () => {
  await withServer(async url => {
    for (const key of [CLEO, HEALTH_CHECKER]) {
      const answers = await Promise.all(Array.from({ length: 120 }, () => ask(`${url}/search`, key)))
      expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([200]))
      expect(answers.map(remaining)).toEqual(Array(120).fill(null))
    }
  })
})

test('refusals are counted by plan', async () => {
  await withServer(async url => {
    for (let searches = 0; searches < 5; searches++) await ask(`${url}/search`, ANN)
    for (let exports = 0; exports < 3; exports++) await ask(`${url}/exports/csv`, CLEO)
    expect(await (await ask(`${url}/refusals`)).json()).toEqual({ free: 2, pro: 0, unlimited: 1 })
  })
})
