import { createLimiter, tokenBucket } from '@sluice/core'
import { manualClock } from '@sluice/core/testing'
import { rateLimit } from '@sluice/express'
import { rateLimit as fastifyRateLimit } from '@sluice/fastify'
import { rateLimit as koaRateLimit } from '@sluice/koa'
import { fastify } from 'fastify'
import request from 'supertest'
import { describe, expect, it } from 'vitest'
import { servers } from '../support/servers/index.js'

/** Every adapter's `rateLimit`, given what a user without types might write. All of them check options by the same code. */
const adapters: { name: string; make: (options?: unknown) => unknown }[] = [
  { name: 'express', make: options => rateLimit(options as Parameters<typeof rateLimit>[0]) },
  { name: 'koa', make: options => koaRateLimit(options as Parameters<typeof koaRateLimit>[0]) },
  {
    name: 'fastify',
    make: options => {
      let refused: Error | undefined
      fastifyRateLimit(fastify(), options as Parameters<typeof fastifyRateLimit>[1], error => {
        refused = error
      })
      if (refused !== undefined) throw refused
      return fastifyRateLimit
    },
  },
]

interface Bad {
  /** What is wrong, for the title. */
  given: string
  options: unknown
  error: typeof TypeError | typeof RangeError
  option: string
  code?: string
  /** What the message must say besides the option: what was expected, and what came. */
  says: (string | RegExp)[]
}

const EASY = { limit: 10, window: '1m' }
const limiter = createLimiter(tokenBucket({ limit: 10, window: '1m' }))

function bad(
  option: string,
  value: unknown,
  error: Bad['error'],
  expected: string | RegExp,
  came: string | RegExp,
): Bad {
  const given = `${option} ${typeof value === 'string' ? JSON.stringify(value) : describeValue(value)}`
  return { given, options: { ...EASY, [option]: value }, error, option, says: [expected, came] }
}

function describeValue(value: unknown): string {
  if (typeof value === 'bigint') return `${value}n`
  return typeof value === 'object' && value !== null ? JSON.stringify(value) : String(value)
}

const WHOLE = /a whole number/
const DURATION = /milliseconds|duration/
const NAME = /1 to 64 printable ASCII characters/

const BAD_OPTIONS: Bad[] = [
  bad('limit', '60', TypeError, WHOLE, /'60' \(a string\)/),
  bad('limit', Number.NaN, RangeError, WHOLE, /got NaN/),
  bad('limit', 0.5, RangeError, WHOLE, /got 0\.5/),
  bad('limit', -1, RangeError, WHOLE, /got -1/),
  bad('limit', Number.POSITIVE_INFINITY, RangeError, WHOLE, /got Infinity/),
  bad('limit', 10n, TypeError, WHOLE, /10n \(a bigint\)/),
  bad('limit', null, TypeError, WHOLE, /got null/),
  bad('limit', undefined, TypeError, WHOLE, /got undefined/),
  {
    given: 'no limit',
    options: { window: '1m' },
    error: TypeError,
    option: 'limit',
    says: [WHOLE, 'undefined'],
  },
  { given: 'nothing at all', options: {}, error: TypeError, option: 'limit', says: [WHOLE, 'undefined'] },

  bad('window', 'garbage', RangeError, DURATION, /'garbage'/),
  // A number without a unit could be anything; `now + '500'` was NaN and a block for good in a peer.
  bad('window', '500', RangeError, DURATION, /'500'/),
  bad('window', '', RangeError, DURATION, /''/),
  bad('window', '-1m', RangeError, DURATION, /'-1m'/),
  bad('window', 0, RangeError, DURATION, /got 0/),
  bad('window', -1, RangeError, DURATION, /got -1/),
  bad('window', Number.POSITIVE_INFINITY, RangeError, DURATION, /got Infinity/),
  bad('window', Number.NaN, RangeError, DURATION, /got NaN/),
  bad('window', 60_000n, TypeError, DURATION, /60000n \(a bigint\)/),
  bad('window', null, TypeError, DURATION, /got null/),
  bad('window', undefined, TypeError, DURATION, /got undefined/),
  {
    given: 'no window',
    options: { limit: 1 },
    error: TypeError,
    option: 'window',
    says: [DURATION, 'undefined'],
  },

  bad('name', 'a\r\nSet-Cookie: a=b', RangeError, NAME, /'a\\r\\nSet-Cookie: a=b'/),
  bad('name', 'a\nb', RangeError, NAME, /'a\\nb'/),
  // `$` of a regular expression matches before a last line break, in other languages.
  bad('name', 'a\n', RangeError, NAME, /'a\\n'/),
  bad('name', 'a\tb', RangeError, NAME, /'a\\tb'/),
  bad('name', '\x7f', RangeError, NAME, /got/),
  bad('name', '', RangeError, NAME, /got ''/),
  bad('name', 'x'.repeat(65), RangeError, NAME, /got 'x+/),
  bad('name', 'é', RangeError, NAME, /'é'/),
  bad('name', 5, TypeError, /a string/, /got 5/),
  bad('name', null, TypeError, /a string/, /got null/),

  bad('headers', 'latest', TypeError, /'draft-8', .* or false/, /'latest'/),
  bad('headers', true, TypeError, /'draft-8', .* or false/, /got true/),
  bad('headers', null, TypeError, /'draft-8', .* or false/, /got null/),
  bad('legacyHeaders', true, TypeError, /'epoch', 'delta' or false/, /got true/),
  bad('status', '429', TypeError, WHOLE, /'429' \(a string\)/),
  bad('status', 200, RangeError, /400 to 599/, /got 200/),
  bad('body', 5, TypeError, /a string, or an object/, /got 5/),
  bad('dryRun', 'no', TypeError, /true or false/, /'no'/),
  bad('skipPreflight', 1, TypeError, /true or false/, /got 1/),
  bad('exposeHeaders', 'all', TypeError, /true or false/, /'all'/),
  bad('hidden', 0, TypeError, /true or false/, /got 0/),
  bad('paced', null, TypeError, /true or false/, /got null/),
  bad('unit', 'bytes', TypeError, /'requests', 'content-bytes', 'concurrent-requests'/, /'bytes'/),
  bad('onStoreError', 'open', TypeError, /'throw', 'allow', 'refuse'/, /'open'/),
  bad('onDecision', true, TypeError, /a function/, /got true/),
  bad('partitionSecret', 5, TypeError, /a string/, /got a number/),
  bad('partitionSecret', 'short', RangeError, /at least 16 characters/, /got 5/),
  bad('ipv6Prefix', 24, RangeError, /32 to 128/, /got 24/),
  bad('trustedProxies', true, TypeError, /a list of addresses/, /got true/),
  bad('trustedProxies', ['10.0.0.0/33'], RangeError, /a list of addresses/, /'10.0.0.0\/33'/),
  bad('trustedProxies', ['proxy'], RangeError, /a list of addresses/, /'proxy'/),
  bad('hops', -1, RangeError, WHOLE, /got -1/),
  bad('forwardedHeader', 'x-real-ip', TypeError, /trustedProxies or hops/, /'x-real-ip'/),

  { ...bad('cost', '1', TypeError, WHOLE, /'1' \(a string\)/), code: 'SLUICE_INVALID_COST' },
  { ...bad('cost', Number.NaN, RangeError, WHOLE, /got NaN/), code: 'SLUICE_INVALID_COST' },
  { ...bad('cost', -1, RangeError, WHOLE, /got -1/), code: 'SLUICE_INVALID_COST' },
  { ...bad('cost', 0.5, RangeError, WHOLE, /got 0\.5/), code: 'SLUICE_INVALID_COST' },
  { ...bad('cost', 1n, TypeError, WHOLE, /1n \(a bigint\)/), code: 'SLUICE_INVALID_COST' },
  { ...bad('cost', null, TypeError, WHOLE, /got null/), code: 'SLUICE_INVALID_COST' },

  bad('key', 'ip', TypeError, /a function/, /'ip' \(a string\)/),
  bad('key', null, TypeError, /a function/, /got null/),
  bad('key', {}, TypeError, /a function/, /an object/),
  bad('onRefused', 'log', TypeError, /a function/, /'log' \(a string\)/),
  bad('onRefused', null, TypeError, /a function/, /got null/),

  ...[{}, 'free', 5, null, []].map(value => ({
    given: `limiter ${describeValue(value)}`,
    options: { limiter: value },
    error: TypeError,
    option: 'limiter',
    code: 'SLUICE_INVALID_LIMITER',
    says: ['createLimiter', /got (an object|'free'|5|null|an array)/],
  })),
  ...['limit', 'window', 'name'].map(option => ({
    given: `limiter together with ${option}`,
    options: { limiter, [option]: { limit: 10, window: '1m', name: 'a' }[option] },
    error: TypeError,
    option,
    says: [/'limiter'/],
  })),

  ...[undefined, null, 100, 'express', [100, '1m']].map(options => ({
    given: `options ${describeValue(options)}`,
    options,
    error: TypeError,
    option: 'rateLimit options',
    says: ['an object', /got (undefined|null|100|'express'|an array)/],
  })),
]

/** Options of other limiters, and slips of the pen: what came, and which of ours the message names. */
const UNKNOWN_OPTIONS = [
  ['windowMs', 'window'],
  ['max', 'limit'],
  ['keyGenerator', 'key'],
  ['limits', 'limit'],
  ['Window', 'window'],
  ['cosst', 'cost'],
  ['onRefuse', 'onRefused'],
  ['header', 'headers'],
] as const

/** The first of several rows about one option. */
const oneOfEach = BAD_OPTIONS.filter(
  ({ option }, index) => BAD_OPTIONS.findIndex(row => row.option === option) === index,
)

describe.each(adapters)('options of rateLimit on $name', ({ name, make }) => {
  it.each(name === 'express' ? BAD_OPTIONS : oneOfEach)(
    '$given is refused at construction',
    ({ options, error, option, code, says }) => {
      const thrown = thrownBy(() => make(options))
      expect(thrown).toBeInstanceOf(error)
      expect(thrown).toMatchObject({ code: code ?? 'SLUICE_INVALID_OPTION', option })
      for (const part of [option, ...says]) expect(thrown.message).toMatch(part)
      expect(thrown.message).not.toMatch(/[\r\n]/)
    },
  )

  it.each(name === 'express' ? UNKNOWN_OPTIONS : UNKNOWN_OPTIONS.slice(0, 1))(
    '%s is unknown, and the message names %s',
    (given, ours) => {
      const thrown = thrownBy(() => make({ ...EASY, [given]: 5 }))
      expect(thrown).toBeInstanceOf(TypeError)
      expect(thrown).toMatchObject({ code: 'SLUICE_UNKNOWN_OPTION', option: given })
      expect(thrown.message).toContain(`"${given}"`)
      expect(thrown.message).toContain(`'${ours}'`)
    },
  )

  it('an unknown option that resembles no known one gets the list of all options', () => {
    const thrown = thrownBy(() => make({ ...EASY, zzzzzz: 5 }))
    expect(thrown).toMatchObject({ code: 'SLUICE_UNKNOWN_OPTION', option: 'zzzzzz' })
    for (const ours of ['limit', 'window', 'limiter', 'key', 'cost', 'onRefused', 'headers'])
      expect(thrown.message).toMatch(new RegExp(`\\b${ours}\\b`))
  })

  it.each([
    ['store', 'redis'],
    ['store', {}],
    ['store', null],
    ['clock', Date],
    ['clock', null],
  ])('%s %o is refused at construction', (option, value) => {
    const thrown = thrownBy(() => make({ ...EASY, [option]: value }))
    expect(thrown).toBeInstanceOf(TypeError)
    expect(thrown).toMatchObject({ code: 'SLUICE_INVALID_OPTION' })
    expect(thrown.message).toContain(option)
  })

  it.each([
    ['the easy door', EASY],
    ['a window in milliseconds', { limit: 1, window: 60_000 }],
    ['a window of a microsecond', { limit: 1, window: 0.001 }],
    ['a window of 365 days', { limit: 5, window: '365d' }],
    ['the largest name', { ...EASY, name: 'x'.repeat(64) }],
    ['a name of every printable kind', { ...EASY, name: ' a"b\\c~' }],
    ['undefined for what is left out', { ...EASY, name: undefined, key: undefined, cost: undefined }],
    ['a limiter', { limiter }],
    ['a limiter, and undefined for the other door', { limiter, limit: undefined, window: undefined }],
    ['a choice of limiters', { limiter: () => limiter }],
    ['no headers', { ...EASY, headers: false }],
    ['the only dialect', { ...EASY, headers: 'draft-8' }],
    ['a cost of 0', { ...EASY, cost: 0 }],
  ])('%s is fine', (_, options) => {
    expect(make(options)).toBeTypeOf('function')
  })
})

describe.each(servers)('limit: 0 on $name', ({ start }) => {
  it('refuses every request, without Retry-After', async () => {
    const clock = manualClock()
    const server = await start({ app: [{ limit: 0, window: '1m', clock }] })
    try {
      for (const pause of ['0s', '1m', '365d'] as const) {
        clock.advance(pause)
        const response = await request(server.url).get('').expect(429)
        expect(response.headers).not.toHaveProperty('retry-after')
        expect(response.headers.ratelimit).toBe('"default";r=0')
        expect(response.headers['ratelimit-policy']).toBe('"default";q=0;w=60')
        expect(response.body).toMatchObject({ status: 429, 'violated-policies': ['default'] })
      }
      expect(server.handled).toBe(0)
      expect(server.errors).toEqual([])
    } finally {
      await server.close()
    }
  })
})

function thrownBy(act: () => unknown): Error {
  try {
    act()
  } catch (error) {
    return error as Error
  }
  throw new Error('nothing was thrown')
}
