import { type IncomingHttpHeaders, request } from 'node:http'
import { describe, expect, test } from 'vitest'
import { serverOf } from './server-of.js'

const withServer = serverOf('behind-proxy')
const LIMIT_OF_ONE = { LIMIT: '1' }

/** Sends a request as another proxy in front of ours would, or as a client that pretends to be a proxy. */
async function statusFor(url: string, forwardedFor?: string, localAddress = '127.0.0.1'): Promise<number> {
  const headers: IncomingHttpHeaders = forwardedFor === undefined ? {} : { 'X-Forwarded-For': forwardedFor }
  return new Promise((resolve, reject) => {
    const asking = request(url, { headers, localAddress, agent: false }, answer => {
      answer.resume().once('end', () => resolve(answer.statusCode as number))
    })
    asking.once('error', reject).end()
  })
}

test('each client that the proxy forwards has a limit of its own', async () => {
  await withServer(async url => {
    for (const client of ['203.0.113.1', '203.0.113.2', '2001:db8::1', '2001:db8:1::1', undefined]) {
      expect(await statusFor(url, client)).toBe(200)
      expect(await statusFor(url, client)).toBe(429)
    }
  }, LIMIT_OF_ONE)
})

test('a forged X-Forwarded-For does not get a client another limit', async () => {
  await withServer(async url => {
    expect(await statusFor(url, '203.0.113.1')).toBe(200)
    for (const forged of [
      '203.0.113.99',
      '127.0.0.1',
      '198.51.100.7',
      '::1',
      'nonsense',
      '203.0.113.99, 127.0.0.1',
    ])
      expect(await statusFor(url, `${forged}, 203.0.113.1`)).toBe(429)
    // A forged address is not charged.
    expect(await statusFor(url, '203.0.113.99')).toBe(200)
  }, LIMIT_OF_ONE)
})

test('a denied network is refused, except for an allowed address in it', async () => {
  await withServer(async url => {
    for (const client of ['198.51.100.1', '198.51.100.255', '203.0.113.1, 198.51.100.6'])
      expect(await statusFor(url, client)).toBe(429)
    for (let checks = 0; checks < 5; checks++) expect(await statusFor(url, '198.51.100.7')).toBe(200)
    expect(await statusFor(url, '198.51.100.7, 203.0.113.1')).toBe(200)
    expect(await statusFor(url, '198.51.100.7, 203.0.113.1')).toBe(429)
  }, LIMIT_OF_ONE)
})

test('a denied client gets no Retry-After and no RateLimit fields', async () => {
  await withServer(async url => {
    const answer = await fetch(url, { headers: { 'X-Forwarded-For': '198.51.100.1' } })
    expect(answer.status).toBe(429)
    expect([...answer.headers.keys()].filter(name => /retry|ratelimit/.test(name))).toEqual([])
    expect(await answer.json()).toMatchObject({ title: 'Abnormal Usage Detected' })
  })
})

// Elsewhere the loopback interface has one address only.
describe.runIf(process.platform === 'linux')('with clients of other addresses than the proxy', () => {
  test('each has a limit of its own, and a forged header does not change it', async () => {
    await withServer(async url => {
      expect(await statusFor(url, undefined, '127.0.0.2')).toBe(200)
      expect(await statusFor(url, undefined, '127.0.0.2')).toBe(429)
      for (const forged of ['203.0.113.99', '127.0.0.1', '198.51.100.7'])
        expect(await statusFor(url, forged, '127.0.0.2')).toBe(429)
      expect(await statusFor(url, '198.51.100.1', '127.0.0.3')).toBe(200)
    }, LIMIT_OF_ONE)
  })
})
