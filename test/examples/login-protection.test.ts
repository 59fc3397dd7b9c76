import { expect, test } from 'vitest'
import { serverOf } from './server-of.js'

const withServer = serverOf('login-protection')

const HOME = '203.0.113.1'
const ELSEWHERE = '198.51.100.1'
const ATTACKER = '192.0.2.66'

/** Sends a login as the proxy would forward it. */
function login(url: string, from: string, account: unknown, password: unknown = 'a guess') {
  return fetch(`${url}/login`, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json', 'X-Forwarded-For': from },
    body: JSON.stringify({ account, password }),
  })
}

const times = <T>(count: number, act: () => Promise<T>) => Promise.all(Array.from({ length: count }, act))

async function oneByOne<T>(count: number, act: () => Promise<T>): Promise<T[]> {
  const results: T[] = []
  while (results.length < count) results.push(await act())
  return results
}

const statuses = (answers: readonly Response[]) => answers.map(({ status }) => status)

test('an attacker who guesses is blocked, and the owner still logs in from elsewhere', async () => {
  await withServer(async url => {
    const guesses = await oneByOne(9, () => login(url, ATTACKER, 'ann'))
    expect(statuses(guesses)).toEqual([401, 401, 401, 401, 401, 429, 429, 429, 429])
    const [, , , , , refused, , blocked] = guesses as [...Response[]]
    expect(await refused?.json()).toMatchObject({
      title: 'Quota Exceeded',
      'violated-policies': ['account-and-address'],
    })
    expect(await blocked?.json()).toMatchObject({ title: 'Abnormal Usage Detected' })
    expect(blocked?.headers.get('Retry-After')).toBe('900')

    expect((await login(url, ATTACKER, 'ann', 'ann secret')).status).toBe(429)
    expect((await login(url, HOME, 'ann', 'ann secret')).status).toBe(200)
    expect((await login(url, ELSEWHERE, 'ann', 'ann secret')).status).toBe(200)
  })
})

test('parallel guesses are all counted, and the owner can still log in', async () => {
  await withServer(async url => {
    const guesses = await times(150, () => login(url, ATTACKER, 'ann'))
    expect(statuses(guesses).filter(status => status === 401)).toHaveLength(5)
    expect((await login(url, HOME, 'ann', 'ann secret')).status).toBe(200)
  })
})

test('an address that tries many accounts is blocked, for longer than its limit', async () => {
  await withServer(async url => {
    const guesses: Response[] = []
    for (let number = 0; number < 15; number++) {
      guesses.push(await login(url, ATTACKER, `somebody-${number}`))
      // A login to the attacker's own account in between does not clear the limit.
      if (number === 8) expect((await login(url, ATTACKER, 'eve', 'eve secret')).status).toBe(200)
    }
    expect(statuses(guesses.slice(0, 10))).toEqual(Array(10).fill(401))
    expect(statuses(guesses.slice(10))).toEqual(Array(5).fill(429))
    expect(guesses.at(-1)?.headers.get('Retry-After')).toBe('300')
    expect(await guesses.at(-1)?.json()).toMatchObject({ 'violated-policies': ['address'] })
    expect((await login(url, ATTACKER, 'eve', 'eve secret')).status).toBe(429)
  })
})

test('successful logins are never refused, however many come at once from one address', async () => {
  await withServer(async url => {
    const office = ['ann', 'bob', 'eve'].flatMap(account => Array<string>(5).fill(account))
    const answers = await Promise.all(office.map(account => login(url, HOME, account, `${account} secret`)))
    expect(statuses(answers)).toEqual(Array(15).fill(200))
    expect((await login(url, HOME, 'ann')).headers.get('RateLimit')).toMatch(/^"address";r=9;/)
  })
})

test('a successful login resets the failures of its account and address', async () => {
  await withServer(async url => {
    for (let round = 0; round < 2; round++) {
      expect(statuses(await oneByOne(4, () => login(url, HOME, 'ann')))).toEqual([401, 401, 401, 401])
      expect((await login(url, HOME, 'ann', 'ann secret')).status).toBe(200)
    }
  })
})

test('different spellings of an account share its limits', async () => {
  await withServer(async url => {
    for (const spelling of ['ann', 'ANN', ' Ann ', 'ａｎｎ', '\tann'])
      expect((await login(url, ATTACKER, spelling)).status).toBe(401)
    expect((await login(url, ATTACKER, 'aNN')).status).toBe(429)
  })
})

test('an unknown account gets the same answers and limits as an existing one', async () => {
  await withServer(async url => {
    const guess = async (from: string, account: string) => {
      const answer = await login(url, from, account)
      const { date: _, ...fields } = Object.fromEntries(answer.headers)
      const text = JSON.stringify({ status: answer.status, fields, body: await answer.text() })
      // The wait depends on the time of the guess, by a few seconds.
      const seconds: number[] = []
      const same = text.replace(/(;t=|"retry-after":")(\d+)/g, (_, name, figure) => {
        seconds.push(Number(figure))
        return name
      })
      return { same, seconds }
    }
    for (let round = 0; round < 7; round++) {
      const [missing, real] = [await guess(ATTACKER, 'nobody'), await guess(ELSEWHERE, 'ann')]
      expect(missing.same).toEqual(real.same)
      for (const [index, seconds] of missing.seconds.entries())
        expect(Math.abs(seconds - (real.seconds[index] as number))).toBeLessThan(60)
    }
  })
})

test('an invalid account name is a bad request, and counts for the address', async () => {
  await withServer(async url => {
    const bad = [undefined, '', ' ', 17, { toString: 'ann' }, 'a'.repeat(255)]
    for (const account of bad) expect((await login(url, HOME, account)).status).toBe(400)
    expect(statuses(await oneByOne(5, () => login(url, HOME, '')))).toEqual([400, 400, 400, 400, 429])
  })
})
