import { createHmac } from 'node:crypto'
import {
  createLimiter,
  cycle,
  type Duration,
  fixedWindow,
  type Limiter,
  memoryStore,
  tokenBucket,
  unlimited,
} from '@sluice/core'
import { createGuard, type Dialect, type HttpOptions, type PolicyOptions } from '@sluice/core/http'
import { manualClock } from '@sluice/core/testing'
import fc from 'fast-check'
import { parseList } from 'structured-headers'
import request from 'supertest'
import { describe, expect, it, vi } from 'vitest'
import { fieldsOf } from '../../packages/core/src/http/response/older-fields.js'
import { problemBody, refusalProblem } from '../../packages/core/src/http/response/problem.js'
import { reportOf, retryAfterSeconds } from '../../packages/core/src/http/response/ratelimit-fields.js'
import type { HeaderStyle, PolicyReport } from '../../packages/core/src/http/types.js'
import { asynchronous } from '../support/async-store.js'
import { clock, closing } from '../support/each-test.js'
import { type AnyRequest, type App, type Limit, servers } from '../support/servers/index.js'
import { NO_RESPONSE } from './no-response.js'
import { policy } from './notation.js'
import { limitsOf, readBack } from './read-back.js'
import { redirectingServers } from './redirects.js'

/*
 * The conformance table of the standard (section 11) row by row, and its rules that no row shows. Every field of every
 * answer is read back by an independent parser.
 */

const NOW = 1_700_000_000_123
const PROBLEM = 'https://iana.org/assignments/http-problem-types#'

const D8: HeaderStyle = { dialect: 'draft-8', legacy: undefined }
const D7: HeaderStyle = { dialect: 'draft-7', legacy: undefined }
const D6: HeaderStyle = { dialect: 'draft-6', legacy: undefined }
const EPOCH: HeaderStyle = { dialect: undefined, legacy: 'epoch' }
const DELTA: HeaderStyle = { dialect: undefined, legacy: 'delta' }
const OLDER: readonly (readonly [string, HeaderStyle])[] = [
  ['draft-6', D6],
  ['draft-7', D7],
]
const DIALECTS: readonly (readonly [string, HeaderStyle])[] = [['draft-8', D8], ...OLDER]

/** Policies by their notation, or as reports where that does not say everything. */
type Policies = readonly (string | PolicyReport)[]

function reportsOf(policies: Policies): PolicyReport[] {
  return policies.map(one => (typeof one === 'string' ? policy(one) : one))
}

/** Every rate-limit field of an answer, Retry-After included when it is a refusal. */
function said(style: HeaderStyle, ...policies: Policies): Record<string, string> {
  const reports = reportsOf(policies)
  const fields = Object.fromEntries(
    fieldsOf(reports, style, () => NOW).map(({ name, value }) => [name, value]),
  )
  const retryAfter = reports.some(({ violated }) => violated) ? retryAfterSeconds(reports) : undefined
  if (retryAfter !== undefined) fields['Retry-After'] = String(retryAfter)
  readBack(fields)
  return fields
}

/** The default body of a refusal. */
function bodyOf(...policies: Policies) {
  return problemBody(refusalProblem(429, reportsOf(policies)))
}

describe('the conformance table', () => {
  const A1 = 'default 100/60000 r50 30000'
  const A3 = 'default 100/60000 r0 !4200'
  const A4 = ['burst 100/60000 r98 58900', 'daily 1000/86400000 r412 36000000']
  const A5 = ['burst 100/60000 r0 !2500', 'daily 1000/86400000 r412 36000000']
  const A6 = ['burst 100/60000 r0 !2500', 'daily 1000/86400000 r0 !36000000']
  const A8 = 'trial 1000/– r999 –'
  const BOTH = '"burst";q=100;w=60, "daily";q=1000;w=86400'

  describe('draft-8', () => {
    it('A1 allows', () => {
      expect(said(D8, A1)).toEqual({
        'RateLimit-Policy': '"default";q=100;w=60',
        RateLimit: '"default";r=50;t=30',
      })
    })

    it('A2 allows the last one, without Retry-After', () => {
      expect(said(D8, 'default 100/60000 r0 12001')).toEqual({
        'RateLimit-Policy': '"default";q=100;w=60',
        RateLimit: '"default";r=0;t=13',
      })
    })

    it('A3 refuses', () => {
      expect(said(D8, A3)).toEqual({
        'RateLimit-Policy': '"default";q=100;w=60',
        RateLimit: '"default";r=0;t=5',
        'Retry-After': '5',
      })
      expect(bodyOf(A3)).toEqual({
        type: 'application/problem+json',
        text: `{"type":"${PROBLEM}quota-exceeded","title":"Quota Exceeded","status":429,"violated-policies":["default"]}`,
      })
    })

    it('A4 allows by two policies', () => {
      expect(said(D8, ...A4)).toEqual({
        'RateLimit-Policy': BOTH,
        RateLimit: '"burst";r=98;t=59, "daily";r=412;t=36000',
      })
    })

    it('A5 refuses by one of two, and the other does not bind', () => {
      expect(said(D8, ...A5)).toEqual({
        'RateLimit-Policy': BOTH,
        RateLimit: '"burst";r=0;t=3, "daily";r=412;t=36000',
        'Retry-After': '3',
      })
      expect(JSON.parse(bodyOf(...A5).text)).toHaveProperty('violated-policies', ['burst'])
    })

    it('A6 refuses by both', () => {
      expect(said(D8, ...A6)).toEqual({
        'RateLimit-Policy': BOTH,
        RateLimit: '"burst";r=0;t=3, "daily";r=0;t=36000',
        'Retry-After': '36000',
      })
      expect(JSON.parse(bodyOf(...A6).text)).toHaveProperty('violated-policies', ['burst', 'daily'])
    })

    it('A7 refuses a cost above what is left', () => {
      expect(said(D8, 'tokens 10/10000 r3.2 !1800')).toEqual({
        'RateLimit-Policy': '"tokens";q=10;w=10',
        RateLimit: '"tokens";r=3;t=2',
        'Retry-After': '2',
      })
    })

    it('A8 allows by a quota for a lifetime', () => {
      expect(said(D8, A8)).toEqual({ 'RateLimit-Policy': '"trial";q=1000', RateLimit: '"trial";r=999' })
    })

    it('A9 refuses for ever', () => {
      expect(said(D8, 'trial 1000/– r0 !∞')).toEqual({
        'RateLimit-Policy': '"trial";q=1000',
        RateLimit: '"trial";r=0',
      })
    })

    it('A10 refuses by a penalty', () => {
      const ban = { ...policy('ban 100/60000 r0 !3600000'), penalty: true }
      expect(said(D8, ban)).toEqual({
        'RateLimit-Policy': '"ban";q=100;w=60',
        RateLimit: '"ban";r=0;t=3600',
        'Retry-After': '3600',
      })
      expect(JSON.parse(bodyOf(ban).text)).toEqual({
        type: `${PROBLEM}abnormal-usage-detected`,
        title: 'Abnormal Usage Detected',
        status: 429,
        'violated-policies': ['ban'],
      })
    })

    it.each([
      ['default 5/1500 r4 1500', '"default";q=5;w=2', '"default";r=4;t=2'],
      ['default 5/500 r4 250', '"default";q=5;w=1', '"default";r=4;t=1'],
    ])('A11 rounds times up: %s', (allowed, quota, left) => {
      expect(said(D8, allowed)).toEqual({ 'RateLimit-Policy': quota, RateLimit: left })
    })

    it.each([
      ['r−2 1000', 'r=0;t=1'],
      ['r0 −250', 'r=0;t=1'],
      ['r3.999 1', 'r=3;t=1'],
      ['r2.9999999999 1000.0000001', 'r=3;t=1'],
    ])('A12 rounds what is left down: %s', (state, left) => {
      expect(said(D8, `default 10/60000 ${state}`)).toHaveProperty('RateLimit', `"default";${left}`)
    })

    it('A13 carries a partition key', () => {
      const report = { ...policy('peruser 100/60000 r50 30000'), partition: 'QXBwLTk5OQ==' }
      const fields = said(D8, report)
      expect(fields).toEqual({
        'RateLimit-Policy': '"peruser";q=100;w=60;pk=:QXBwLTk5OQ==:',
        RateLimit: '"peruser";r=50;t=30;pk=:QXBwLTk5OQ==:',
      })
      expect(partitionsIn(fields)).toEqual([Buffer.from('App-999'), Buffer.from('App-999')])
    })

    it('A14 escapes a name', () => {
      const fields = said(D8, 'a"b\\c 2/60000 r1 60000')
      expect(fields).toEqual({
        'RateLimit-Policy': '"a\\"b\\\\c";q=2;w=60',
        RateLimit: '"a\\"b\\\\c";r=1;t=60',
      })
      expect(parseList(fields.RateLimit as string)[0]?.[0]).toBe('a"b\\c')
    })

    describe('A15 throws at construction', () => {
      const rate = { limit: 10, window: '1m' } as const
      const limiter = createLimiter(tokenBucket(rate))
      const NAMES = ['é', 'a\tb', '']

      it.each(NAMES)('for the name %j of a limiter', name => {
        expect(() => createLimiter(tokenBucket(rate), { name })).toThrow(/^name: /)
      })

      it.each(NAMES)('for the name %j of a limit', name => {
        expect(() => guard({ ...rate, name })).toThrow(/^name: /)
      })

      it.each(NAMES)('for the name %j of a limit among policies', name => {
        expect(() => guard({ policies: [{ ...rate, name }] })).toThrow(/^name: /)
      })

      it.each(NAMES)('for the name %j of a limiter among policies', name => {
        expect(() => guard({ policies: [{ limiter, name }] })).toThrow(/^name: /)
      })

      it('for Burst beside burst among policies', () => {
        const names = ['burst', 'Burst']
        expect(() => guard({ policies: names.map(name => ({ ...rate, name })) })).toThrow(/^name: /)
      })

      it('for a unit that is none of the three', () => {
        const unit = 'bytes' as 'content-bytes'
        expect(() => guard({ ...rate, unit })).toThrow(/^unit: /)
        expect(() => guard({ policies: [{ ...rate, unit }] })).toThrow(/^unit: /)
      })
    })

    it('A16 says nothing of an unlimited policy', () => {
      expect(said(D8, 'free ∞/– r∞ 0', A1)).toEqual(said(D8, A1))
      expect(said(D8, 'free ∞/– r∞ 0')).toEqual({})
    })

    it('A17 says at most what an Integer can', () => {
      const [most, less] = [Number.MAX_SAFE_INTEGER, Number.MAX_SAFE_INTEGER - 1]
      expect(said(D8, `default ${most}/60000 r${less} 1`)).toEqual({
        'RateLimit-Policy': '"default";q=999999999999999;w=60',
        RateLimit: '"default";r=999999999999999;t=1',
      })
    })

    it('A18 counts bytes', () => {
      expect(said(D8, 'bandwidth 65535/10000 content-bytes r65000 9001')).toEqual({
        'RateLimit-Policy': '"bandwidth";q=65535;qu="content-bytes";w=10',
        RateLimit: '"bandwidth";r=65000;t=10',
      })
    })

    it('A19 counts what goes on at once', () => {
      expect(said(D8, 'parallel 10/– concurrent-requests r3')).toEqual({
        'RateLimit-Policy': '"parallel";q=10;qu="concurrent-requests"',
        RateLimit: '"parallel";r=3',
      })
    })

    it.each([
      ['!0.4', '1'],
      ['!1e13', '2147483647'],
    ])('A20 keeps a wait of %s in range', (wait, seconds) => {
      expect(said(D8, `default 100/60000 r0 ${wait}`)).toMatchObject({
        RateLimit: `"default";r=0;t=${seconds}`,
        'Retry-After': seconds,
      })
    })

    it('A21 says for how long the rest of a token bucket should last', () => {
      const clock = manualClock()
      const limiter = createLimiter(tokenBucket({ limit: 20, window: '12s' }), { name: 'tb', clock })
      limiter.tryAcquire('ann', { cost: 13 })
      clock.advance(180)
      expect(limiter.peek('ann').balance).toBeCloseTo(7.3)
      expect(said(D8, reportOf(limiter.name, limiter.policy, limiter.peek('ann')))).toEqual({
        'RateLimit-Policy': '"tb";q=20;w=12',
        RateLimit: '"tb";r=7;t=5',
      })
    })

    it('A24 says nothing of a hidden policy, but the wait', () => {
      const report = { ...policy('default 100/60000 r0 !2500'), hidden: true }
      expect(said(D8, report)).toEqual({ 'Retry-After': '3' })
      expect(JSON.parse(bodyOf(report).text)).not.toHaveProperty('violated-policies')
    })
  })

  describe('the older dialects', () => {
    it('D1 is A1', () => {
      expect(said(D7, A1)).toEqual({
        'RateLimit-Policy': '100;w=60',
        RateLimit: 'limit=100, remaining=50, reset=30',
      })
      expect(said(D6, A1)).toEqual({
        'RateLimit-Policy': '100;w=60',
        'RateLimit-Limit': '100',
        'RateLimit-Remaining': '50',
        'RateLimit-Reset': '30',
      })
    })

    it('D2 is A4: the limit that is closest to exhaustion', () => {
      expect(said(D7, ...A4)).toEqual({
        'RateLimit-Policy': '100;w=60, 1000;w=86400',
        RateLimit: 'limit=100, remaining=98, reset=59',
      })
    })

    it('D3 is A6: the longest wait', () => {
      expect(said(D7, ...A6)).toEqual({
        'RateLimit-Policy': '100;w=60, 1000;w=86400',
        RateLimit: 'limit=1000, remaining=0, reset=36000',
        'Retry-After': '36000',
      })
    })

    it('D4 has no two policies of one quota', () => {
      expect(said(D6, 'sec 10/1000 r9 700', 'min 10/60000 r3 41000')).toEqual({
        'RateLimit-Policy': '10;w=60',
        'RateLimit-Limit': '10',
        'RateLimit-Remaining': '3',
        'RateLimit-Reset': '41',
      })
    })

    it('D5 is A8: nothing without a window', () => {
      expect(said(D6, A8)).toEqual({})
      expect(said(D7, A8)).toEqual({})
    })

    it('L1 is A3: a time of day, or the seconds left', () => {
      const refused = (reset: string) => ({
        'X-RateLimit-Limit': '100',
        'X-RateLimit-Remaining': '0',
        'X-RateLimit-Reset': reset,
        'Retry-After': '5',
      })
      expect(said(EPOCH, A3)).toEqual(refused('1700000005'))
      expect(said(DELTA, A3)).toEqual(refused('5'))
    })
  })
})

describe('the syntax of draft-8 (section 2)', () => {
  it('has its parameters in one order', () => {
    const report = { ...policy('a 10/60000 content-bytes r5 30000'), partition: 'QXBwLTk5OQ==' }
    expect(said(D8, report)).toEqual({
      'RateLimit-Policy': '"a";q=10;qu="content-bytes";w=60;pk=:QXBwLTk5OQ==:',
      RateLimit: '"a";r=5;t=30;pk=:QXBwLTk5OQ==:',
    })
  })

  it('has policies as they were declared, in both fields', () => {
    const fields = said(D8, 'b 2/1000 r1 1', 'c 3/1000 r0 !9', 'a 1/1000 r1 1')
    for (const name of ['RateLimit-Policy', 'RateLimit'])
      expect(parseList(fields[name] as string).map(([name]) => name)).toEqual(['b', 'c', 'a'])
  })

  it('does not write the unit of requests', () => {
    expect(said(D8, 'a 10/60000 requests r5 1')).toEqual(said(D8, 'a 10/60000 r5 1'))
  })

  it('is the same from draft-8 to draft-11', () => {
    for (const dialect of ['draft-9', 'draft-10', 'draft-11'] satisfies Dialect[])
      expect(said({ dialect, legacy: undefined }, 'a 10/60000 r5 1')).toEqual(said(D8, 'a 10/60000 r5 1'))
  })

  it('has neither w nor t for a policy without a window', () => {
    expect(said(D8, 'parallel 10/– r3 5000')).toEqual({
      'RateLimit-Policy': '"parallel";q=10',
      RateLimit: '"parallel";r=3',
    })
  })

  it.each(['–', '∞', 'NaN'])('has no t when the reset is %s', reset => {
    expect(said(D8, `a 10/60000 r3 ${reset}`)).toHaveProperty('RateLimit', '"a";r=3')
  })

  it.each([
    ['65 characters', 'x'.repeat(65)],
    ['DEL', 'a\x7f'],
    ['a line break', 'a\r\nSet-Cookie: a=b'],
    ['an emoji', '🚰'],
  ])('throws at construction for a name of %s', (_, name) => {
    expect(() => guard({ limit: 10, window: '1m', name })).toThrow(/^name: /)
  })

  it('takes names of 64 characters and of every printable kind', () => {
    for (const name of ['x'.repeat(64), ' ~"\\'])
      expect(() => guard({ limit: 10, window: '1m', name })).not.toThrow()
  })

  describe('never lets a limiter of somebody else name itself', () => {
    const own = createLimiter(tokenBucket({ limit: 10, window: '1m' }))
    const tryAcquire = own.tryAcquire.bind(own)
    const limiter = { ...own, policy: own.policy, tryAcquire, name: 'é' } as unknown as Limiter
    const fault = expect.objectContaining({ code: 'SLUICE_INVALID_LIMITER', option: 'limiter' })

    it('given once', () => {
      expect(() => guard({ limiter })).toThrow(fault)
      expect(() => guard({ policies: [{ limiter }] })).toThrow(fault)
    })

    it('chosen per request', () => {
      const decide = guard({ limiter: () => limiter, key: () => 'ann' })
      expect(() => decide(REQUEST)).toThrow(fault)
    })
  })

  it('makes a string of any printable name', () => {
    const names = fc.array(fc.integer({ min: 0x20, max: 0x7e }), { minLength: 1, maxLength: 64 })
    fc.assert(
      fc.property(names, codes => {
        const name = String.fromCharCode(...codes)
        const report = { ...policy('a 10/60000 r3 1'), name }
        const fields = said(D8, report)
        for (const field of ['RateLimit-Policy', 'RateLimit'])
          expect(parseList(fields[field] as string)[0]?.[0]).toBe(name)
      }),
    )
  })
})

describe('rounding (section 3)', () => {
  const number = fc.oneof(
    fc.double({ noNaN: true }),
    fc.double({ min: -10, max: 1e7, noNaN: true }),
    fc.integer(),
    fc.constantFrom(
      -0,
      0,
      1e-9,
      -1e-9,
      0.999999999,
      1e21,
      1e300,
      Number.MAX_SAFE_INTEGER,
      -Infinity,
      Infinity,
    ),
  )
  const time = fc.oneof(number, fc.constantFrom(Number.NaN, undefined))
  const report: fc.Arbitrary<PolicyReport> = fc.record({
    name: fc.constantFrom('a', 'b "c"', '\\'),
    limit: number,
    windowMs: time,
    remaining: number,
    resetMs: time,
    violated: fc.boolean(),
    waitMs: time,
    unit: fc.constantFrom('requests', 'content-bytes', 'concurrent-requests', undefined),
    hidden: fc.boolean(),
  })
  const reports = fc.array(report, { maxLength: 4 })

  it.each([...DIALECTS, ['epoch', EPOCH], ['delta', DELTA]] as const)(
    'makes whole numbers in range of whatever comes, in %s',
    (_, style) => {
      fc.assert(
        fc.property(reports, reports => {
          for (const [name, value] of Object.entries(said(style, ...reports))) {
            const text = value.replace(/"(?:[^"\\]|\\.)*"/g, '""')
            expect(text, name).not.toMatch(/-\d|\d\.|\de|NaN|Infinity/)
            for (const [, seconds] of text.matchAll(/[;, ](?:w|t|reset)=(\d+)/g))
              expect(Number(seconds)).toBeLessThanOrEqual(2_147_483_647)
            expect(text).not.toMatch(/;w=0|;r=0;t=0/)
            if (name === 'Retry-After') expect(Number(value)).toBeGreaterThanOrEqual(1)
            if (/Retry-After|^RateLimit-Reset/.test(name))
              expect(Number(value)).toBeLessThanOrEqual(2_147_483_647)
          }
        }),
        { numRuns: 1000 },
      )
    },
  )

  it.each(['NaN/60000 r3 1', '10/60000 rNaN 1', '10/60000 rNaN !1'])(
    'makes a whole number of NaN: %s',
    state => {
      for (const [, style] of DIALECTS) said(style, `a ${state}`)
    },
  )

  it.each([
    ['r0 0', 1],
    ['r0.9 0', 1],
    ['r1 0', 0],
    ['r5 !0', 1],
    ['r5 9000 !2500', 3],
    ['r5 9000 !–', 9],
    ['r5 9000 !NaN', 9],
    ['r5 !–', 60],
    ['r5 ∞ !–', 60],
    ['r5 9000 !∞', undefined],
  ])('t of %s is %s', (state, t) => {
    const rest = /r(\d)/.exec(state)?.[1]
    expect(said(D8, `a 10/60000 ${state}`)).toHaveProperty(
      'RateLimit',
      t === undefined ? `"a";r=${rest}` : `"a";r=${rest};t=${t}`,
    )
  })

  it('Retry-After is the longest t of what is violated and of what has nothing left', () => {
    const [violated, empty, full] = ['a 10/60000 r5 !2500', 'b 11/60000 r0 7000', 'c 12/60000 r1 50000']
    expect(said(D8, violated, full)).toHaveProperty('Retry-After', '3')
    expect(said(D8, violated, empty, full)).toHaveProperty('Retry-After', '7')
  })

  it('Retry-After is absent when something violated can never pass, or has no t', () => {
    expect(said(D8, 'a 10/60000 r5 !∞', 'b 11/60000 r0 !2500')).not.toHaveProperty('Retry-After')
    expect(said(D8, 'a 10/– r0 !–')).not.toHaveProperty('Retry-After')
  })
})

describe('the older dialects and legacy fields (section 7)', () => {
  const A = 'a 10/60000 r3 20000'

  /** The limit that the answer is about. */
  function selected(style: HeaderStyle, ...policies: Policies): string | undefined {
    const fields = said(style, ...policies)
    return fields['RateLimit-Limit'] ?? /^limit=(\d+)/.exec(fields.RateLimit ?? '')?.[1]
  }

  describe.each(OLDER)('%s', (_, style) => {
    it('is about the lowest rest', () => {
      expect(selected(style, A, 'b 20/60000 r2 1000', 'c 30/60000 r4 50000')).toBe('20')
    })

    it('is about the longest reset of equal rests', () => {
      expect(selected(style, A, 'b 20/60000 r3 50000', 'c 30/60000 r3 40000')).toBe('20')
    })

    it('is about the first of equal rests and resets', () => {
      expect(selected(style, A, 'b 20/60000 r3 20000')).toBe('10')
    })

    it('is about the longest wait of a refusal, whatever else is left', () => {
      expect(selected(style, 'a 10/60000 r0 50000', 'b 20/60000 r2 !1000', 'c 30/60000 r9 !2000')).toBe('30')
    })

    it('is not about what is hidden or unlimited', () => {
      const hidden = { ...policy('h 5/60000 r0 50000'), hidden: true }
      expect(selected(style, 'free ∞/– r0 0', hidden, A)).toBe('10')
    })

    it('says the window when the reset is unknown', () => {
      expect(said(style, 'a 10/60000 r3 –')).toEqual(said(style, 'a 10/60000 r3 60000'))
    })

    it('says only the policies when there is neither a reset nor a window', () => {
      expect(said(style, 'a 10/– r1 –', 'b 20/60000 r3 1')).toEqual({ 'RateLimit-Policy': '20;w=60' })
    })

    it('says only the policies when a violated one can never pass', () => {
      expect(said(style, 'a 10/60000 r10 !∞')).toEqual({ 'RateLimit-Policy': '10;w=60' })
      expect(said(style, 'a 10/60000 r0 !9000', 'b 20/60000 r20 !∞')).toEqual({
        'RateLimit-Policy': '10;w=60, 20;w=60',
      })
    })

    it('has one policy of each quota: the selected one, else the first', () => {
      const [sec, min, day] = ['sec 10/1000 r9 700', 'min 10/60000 r3 41000', 'day 20/86400000 r1 1']
      expect(said(style, sec, min)['RateLimit-Policy']).toBe('10;w=60')
      expect(said(style, min, sec)['RateLimit-Policy']).toBe('10;w=60')
      expect(said(style, sec, min, day)['RateLimit-Policy']).toBe('10;w=1, 20;w=86400')
    })

    it('takes quotas for equal that are written alike', () => {
      expect(said(style, 'a 10.2/1000 r9 1', 'b 10.7/60000 r3 1')['RateLimit-Policy']).toBe('10;w=60')
    })

    it.each(['–', '∞', 'NaN'])('leaves out policies without a window (%s)', window => {
      expect(said(style, `trial 1000/${window} r999 –`, A)['RateLimit-Policy']).toBe('10;w=60')
    })

    it('names the moment of Retry-After when it refuses', () => {
      expect(reset(style, 'a 10/60000 r2 !1000')).toEqual(['1', '1'])
      expect(reset(style, 'a 10/60000 r2 !1000', 'b 20/60000 r0 20000')).toEqual(['20', '20'])
      const hidden = { ...policy('h 5/60000 r0 !30000'), hidden: true }
      expect(reset(style, 'a 10/60000 r2 !1000', hidden)).toEqual(['30', '30'])
    })

    it('names the moment of Retry-After also when only a hidden policy refuses', () => {
      const hidden = { ...policy('h 5/60000 r0 !30000'), hidden: true }
      expect(reset(style, A, hidden)).toEqual(['30', '30'])
    })
  })

  /** The reset and Retry-After. */
  function reset(style: HeaderStyle, ...policies: Policies) {
    const fields = said(style, ...policies)
    return [
      fields['RateLimit-Reset'] ?? /reset=(\d+)$/.exec(fields.RateLimit ?? '')?.[1],
      fields['Retry-After'],
    ]
  }

  describe('legacy', () => {
    it('goes with any dialect, or alone', () => {
      for (const [dialect, style] of DIALECTS)
        expect(said({ dialect: dialect as Dialect, legacy: 'delta' }, A)).toEqual({
          ...said(style, A),
          ...said(DELTA, A),
        })
    })

    it('is about the policy that the older dialects select', () => {
      for (const policies of [
        [A, 'b 20/60000 r2 1000'],
        ['a 10/60000 r0 50000', 'b 20/60000 r2 !1000'],
      ])
        expect(said(DELTA, ...policies)['X-RateLimit-Limit']).toBe('20')
    })

    it.each(['–', '∞', 'NaN'])('has no reset when that is %s', reset => {
      for (const style of [EPOCH, DELTA])
        expect(said(style, `a 10/60000 r3 ${reset}`)).toEqual({
          'X-RateLimit-Limit': '10',
          'X-RateLimit-Remaining': '3',
        })
    })

    it('has no reset when a violated policy can never pass', () => {
      for (const style of [EPOCH, DELTA])
        expect(said(style, 'a 10/60000 r3 9000 !∞')).not.toHaveProperty('X-RateLimit-Reset')
    })

    it.each([
      ['r3 877', 1_700_000_001],
      ['r3 877.001', 1_700_000_001],
      ['r3 878', 1_700_000_002],
      ['r0 !4877', 1_700_000_005],
    ])('the time of day of %s is %s', (state, at) => {
      expect(said(EPOCH, `a 10/60000 ${state}`)['X-RateLimit-Reset']).toBe(String(at))
    })

    it.each([
      ['its reset', 'r0 9000 !–', 'r0 9000'],
      ['its reset when the wait is NaN', 'r0 9000 !NaN', 'r0 9000'],
      ['its window', 'r0 !–', 'r0 60000'],
      ['its window when the reset is Infinity', 'r0 ∞ !–', 'r0 60000'],
      ['now', 'r3 −250', 'r3 0'],
    ])('an unknown wait or a negative reset is %s', (_, state, like) => {
      for (const style of [DELTA, EPOCH])
        expect(said(style, `a 10/60000 ${state}`)['X-RateLimit-Reset']).toBe(
          said(style, `a 10/60000 ${like}`)['X-RateLimit-Reset'],
        )
    })
  })
})

describe('the figures of algorithms (section 4)', () => {
  it('windows can be paced', () => {
    const clock = manualClock()
    const limiter = createLimiter(fixedWindow({ limit: 100, window: '1m' }), { clock })
    limiter.tryAcquire('ann', { cost: 60 })
    clock.advance('50s')
    const report = (paced: boolean) => reportOf('a', limiter.policy, limiter.peek('ann'), paced)
    expect(said(D8, report(false))).toHaveProperty('RateLimit', '"a";r=40;t=10')
    expect(said(D8, report(true))).toHaveProperty('RateLimit', '"a";r=40;t=24')
  })

  it('a cycle ends with its period', () => {
    const clock = manualClock()
    const limiter = createLimiter(cycle({ limit: 2, period: '1m' }), { clock })
    clock.advance('10s')
    limiter.tryAcquire('ann')
    expect(said(D8, reportOf('a', limiter.policy, limiter.peek('ann')))).toEqual({
      'RateLimit-Policy': '"a";q=2;w=60',
      RateLimit: '"a";r=1;t=50',
    })
  })
})

interface Spending {
  readonly name?: string
  readonly window?: Duration
  /** What `ann` has taken before. */
  readonly used?: number
}

/** A token bucket out of which `ann` has taken something before. */
function bucket(limit: number, { name, window = '1m', used = 0 }: Spending = {}): Limiter<false> {
  const limiter = createLimiter(tokenBucket({ limit, window }), { name, clock })
  limiter.tryAcquire('ann', { cost: used })
  return limiter
}

/** A limit that takes everybody for `ann`. */
function by(limiter: Limiter, options: Partial<Limit> = {}): Limit {
  return { limiter, key: () => 'ann', ...options } as Limit
}

/** Several policies that take everybody for `ann`. */
function policies(list: readonly PolicyOptions<[AnyRequest]>[], options: Partial<Limit> = {}): Limit {
  return { policies: list, key: () => 'ann', ...options } as Limit
}

/** Every field of a response by lower-case name, those that tell of its body and its time left out. */
function headersOf({ headers }: { headers: Record<string, string> }) {
  const { date: _, ...others } = headers
  return others
}

describe.each(servers)('on $name', ({ start }) => {
  async function serve(app: App) {
    const server = await start(app)
    closing.push(server.close)
    return server
  }

  const given =
    (fields: Record<string, string>): NonNullable<App['before']> =>
    passage => {
      for (const [name, value] of Object.entries(fields)) passage.setHeader(name, value)
    }

  const A1 = { 'RateLimit-Policy': '"default";q=100;w=60', RateLimit: '"default";r=50;t=30' }

  describe('the conformance table', () => {
    it('A1 allows', async () => {
      const server = await serve({ app: [by(bucket(100, { used: 49 }))] })
      expect(limitsOf(await request(server.url).get('').expect(200))).toEqual(A1)
    })

    it('A3 refuses', async () => {
      const server = await serve({ app: [by(bucket(100, { used: 100 }), { cost: 7 })] })
      const response = await request(server.url).get('').expect(429)
      expect(limitsOf(response)).toEqual({
        'RateLimit-Policy': '"default";q=100;w=60',
        RateLimit: '"default";r=0;t=5',
        'Retry-After': '5',
      })
      expect(response.headers['cache-control']).toBe('no-store')
      expect(response.headers['content-type']).toBe('application/problem+json')
      expect(response.text).toBe(
        `{"type":"${PROBLEM}quota-exceeded","title":"Quota Exceeded","status":429,"violated-policies":["default"]}`,
      )
    })

    it('A13 carries a partition key, a keyed hash of the key in bytes', async () => {
      const partitionSecret = 'a secret of the server'
      const limiter = bucket(100, { name: 'peruser', used: 49 })
      const server = await serve({ app: [by(limiter, { partitionSecret })] })
      const fields = limitsOf(await request(server.url).get('').expect(200))
      const hash = createHmac('sha256', partitionSecret).update('ann').digest().subarray(0, 9)
      expect(partitionsIn(fields)).toEqual([hash, hash])
      expect(fields['RateLimit-Policy']).toMatch(/^"peruser";q=100;w=60;pk=:[\w+/]{12}:$/)
      expect(fields.RateLimit).toMatch(/^"peruser";r=50;t=30;pk=:[\w+/]{12}:$/)
    })

    it('A16 says nothing of an unlimited policy', async () => {
      const free = { limiter: createLimiter(unlimited(), { name: 'free' }) }
      const both = await serve({ app: [policies([free, { limiter: bucket(100, { used: 49 }) }])] })
      const alone = await serve({ app: [policies([free], { exposeHeaders: true })] })
      expect(limitsOf(await request(both.url).get('').expect(200))).toEqual(A1)
      const response = await request(alone.url).get('').expect(200)
      expect(limitsOf(response)).toEqual({})
      expect(response.headers).not.toHaveProperty('access-control-expose-headers')
    })

    it('A22 appends to what is there already', async () => {
      const server = await serve({
        before: given({ RateLimit: '"edge";r=1;t=1', 'RateLimit-Policy': '"edge";q=10;w=1' }),
        app: [by(bucket(100, { used: 49 }))],
      })
      expect(limitsOf(await request(server.url).get('').expect(200))).toEqual({
        'RateLimit-Policy': '"edge";q=10;w=1, "default";q=100;w=60',
        RateLimit: '"edge";r=1;t=1, "default";r=50;t=30',
      })
    })

    describe('A23 the store is down', () => {
      function failing(onStoreError?: 'allow' | 'refuse') {
        const store = asynchronous(memoryStore())
        store.failWith(new Error('no connection'))
        return createLimiter(tokenBucket({ limit: 10, window: '1m' }), { store, clock, onStoreError })
      }

      it.each([
        ['the limiter', () => by(failing('allow'), { exposeHeaders: true })],
        ['the route', () => by(failing(), { onStoreError: 'allow', exposeHeaders: true })],
      ])('and %s fails open: the status of the app, no fields', async (_, limit) => {
        const server = await serve({ app: [limit()] })
        const response = await request(server.url).get('').expect(200, { ok: true })
        expect(limitsOf(response)).toEqual({})
        expect(response.headers).not.toHaveProperty('access-control-expose-headers')
        expect(server.errors).toEqual([])
      })

      it.each([
        ['the limiter', () => by(failing('refuse'))],
        ['the route', () => by(failing(), { onStoreError: 'refuse' })],
        [
          'the route of several policies',
          () =>
            policies([{ limiter: failing() }, { limiter: bucket(9, { name: 'b' }) }], {
              onStoreError: 'refuse',
            }),
        ],
      ])('and %s fails closed: 503, no fields', async (_, limit) => {
        const server = await serve({
          before: given({ 'Cache-Control': 'public, max-age=60' }),
          app: [limit()],
        })
        const response = await request(server.url).get('').expect(503)
        expect(limitsOf(response)).toEqual({})
        expect(response.headers['cache-control']).toBe('no-store')
        expect(response.headers['content-type']).toBe('application/problem+json')
        expect(response.text).toBe(
          `{"type":"${PROBLEM}temporary-reduced-capacity","title":"Temporary Reduced Capacity","status":503}`,
        )
        expect(server.handled).toBe(0)
      })
    })

    it('A24 says nothing of a hidden policy, but the wait', async () => {
      const server = await serve({
        app: [by(bucket(24, { used: 24 }), { hidden: true, legacyHeaders: 'delta' })],
      })
      const response = await request(server.url).get('').expect(429)
      expect(limitsOf(response)).toEqual({ 'Retry-After': '3' })
      expect(response.text).toBe(`{"type":"${PROBLEM}quota-exceeded","title":"Quota Exceeded","status":429}`)
    })

    it.each(['X-Total', 'X-Total, ratelimit, Retry-AFTER'])(
      'C1 exposes the names once each, beside %s',
      async before => {
        const server = await serve({
          before: given({ 'Access-Control-Expose-Headers': before }),
          app: [by(bucket(1, { used: 1 }), { exposeHeaders: true })],
        })
        const response = await request(server.url).get('').expect(429)
        expect(exposedBy(response)).toEqual(['ratelimit', 'ratelimit-policy', 'retry-after', 'x-total'])
      },
    )

    it('C2 keeps a refusal out of caches, and leaves what is allowed to the app', async () => {
      const before = given({ 'Cache-Control': 'public, max-age=60' })
      const server = await serve({ before, app: [by(bucket(1))] })
      await request(server.url).get('').expect(200).expect('Cache-Control', 'public, max-age=60')
      await request(server.url).get('').expect(429).expect('Cache-Control', 'no-store')
    })

    it('C3 lets preflights pass uncounted when it is told to', async () => {
      const limiter = bucket(1)
      const server = await serve({ app: [by(limiter, { skipPreflight: true })] })
      const preflight = () =>
        request(server.url)
          .options('')
          .set('Origin', 'https://a.example')
          .set('Access-Control-Request-Method', 'PUT')
      expect(limitsOf(await preflight().expect(200))).toEqual({})
      expect(limiter.peek('ann').remaining).toBe(1)
      await request(server.url).get('').expect(200)
      expect(limitsOf(await preflight().expect(200))).toEqual({})
      await request(server.url).options('').expect(429)
      await request(server.url).options('').set('Origin', 'https://a.example').expect(429)
      await request(server.url).options('').set('Access-Control-Request-Method', 'PUT').expect(429)
    })

    it('C3 counts preflights unless it is told not to', async () => {
      const server = await serve({ app: [by(bucket(1, { used: 1 }))] })
      await request(server.url)
        .options('')
        .set('Origin', 'https://a.example')
        .set('Access-Control-Request-Method', 'PUT')
        .expect(429)
    })

    it.each<[string, Error, number]>([
      ['an error', new Error('broken'), 500],
      ['an error of a status', Object.assign(new Error('gone'), { status: 410, statusCode: 410 }), 410],
      [
        'an error of headers',
        Object.assign(new Error('busy'), { status: 503, statusCode: 503, headers: { 'X-Own': '1' } }),
        503,
      ],
    ])('C4 keeps the fields when the handler throws %s', async (_, error, status) => {
      const server = await serve({
        before: given({ RateLimit: '"edge";r=1;t=1', 'RateLimit-Policy': '"edge";q=10;w=1' }),
        app: [by(bucket(100, { used: 49 }), { legacyHeaders: 'delta', exposeHeaders: true })],
        handler: () => {
          throw error
        },
      })
      const response = await request(server.url).get('').expect(status)
      expect(limitsOf(response)).toEqual({
        'RateLimit-Policy': '"edge";q=10;w=1, "default";q=100;w=60',
        RateLimit: '"edge";r=1;t=1, "default";r=50;t=30',
        'X-RateLimit-Limit': '100',
        'X-RateLimit-Remaining': '50',
        'X-RateLimit-Reset': '30',
      })
      expect(exposedBy(response)).toContain('ratelimit')
    })
  })

  describe('section 2', () => {
    it('the fields have no partition key unless there is a secret', async () => {
      const server = await serve({ app: [by(bucket(100))] })
      expect(JSON.stringify(limitsOf(await request(server.url).get('')))).not.toContain('pk')
    })

    it('units are those of the options', async () => {
      const server = await serve({
        app: [by(bucket(65_535, { name: 'bandwidth', window: '10s' }), { unit: 'content-bytes', cost: 535 })],
      })
      expect(limitsOf(await request(server.url).get('').expect(200))).toEqual({
        'RateLimit-Policy': '"bandwidth";q=65535;qu="content-bytes";w=10',
        RateLimit: '"bandwidth";r=65000;t=10',
      })
    })
  })

  describe('section 5', () => {
    it('the status of the body is that of the answer', async () => {
      const server = await serve({ app: [by(bucket(1, { used: 1 }), { status: 503 })] })
      const response = await request(server.url).get('').expect(503)
      expect(response.body).toHaveProperty('status', 503)
    })

    it('the date is not ours', async () => {
      const date = 'Tue, 15 Nov 1994 08:12:31 GMT'
      const server = await serve({ before: given({ Date: date }), app: [by(bucket(1))] })
      await request(server.url).get('').expect(200).expect('Date', date)
      await request(server.url).get('').expect(429).expect('Date', date)
    })

    it('a request that is held has the figures of afterwards and no Retry-After (example 5)', async () => {
      const limiter = bucket(10, { window: '14s', used: 10 })
      const server = await serve({ app: [by(limiter, { maxWait: '1400ms' })] })
      const held = request(server.url).get('').expect(200).then()
      await vi.waitFor(() => expect(clock.alarms).toBe(1))
      const refused = await request(server.url).get('').expect(429)
      expect(limitsOf(refused)).toHaveProperty('Retry-After', '3')
      clock.advance(1400)
      expect(limitsOf(await held)).toEqual({
        'RateLimit-Policy': '"default";q=10;w=14',
        RateLimit: '"default";r=0;t=2',
      })
    })

    it('a wait beyond what is allowed is refused, and given back (example 5)', async () => {
      const limiter = bucket(10, { window: '14s', used: 10 })
      const server = await serve({ app: [by(limiter, { maxWait: '1s' })] })
      for (let round = 0; round < 2; round++) {
        const response = await request(server.url).get('').expect(429)
        expect(limitsOf(response)).toHaveProperty('Retry-After', '2')
      }
      expect(limiter.peek('ann').balance).toBe(0)
    })

    it('a dry run sends neither Retry-After nor Cache-Control', async () => {
      const server = await serve({ app: [by(bucket(1, { used: 1 }), { dryRun: true })] })
      const response = await request(server.url).get('').expect(200, { ok: true })
      expect(limitsOf(response)).toEqual({
        'RateLimit-Policy': '"default";q=1;w=60',
        RateLimit: '"default";r=0;t=60',
      })
      expect(response.headers).not.toHaveProperty('cache-control')
    })
  })

  describe('section 6', () => {
    it("the framework's own 404 has the fields", async () => {
      const server = await serve({ app: [by(bucket(100, { used: 49 }))] })
      const response = await request(server.url.replace('/api/items', '/nowhere')).get('').expect(404)
      expect(limitsOf(response)).toEqual(A1)
    })

    it('HEAD has the fields of GET and no body', async () => {
      const server = await serve({ app: [by(bucket(100, { used: 49 }))] })
      const allowed = await request(server.url).head('').expect(200)
      expect(limitsOf(allowed)).toEqual(A1)
      expect(allowed.text ?? '').toBe('')

      const closed = await serve({ app: [by(bucket(1, { used: 1 }), { exposeHeaders: true })] })
      const asGet = await request(closed.url).get('').expect(429)
      const asHead = await request(closed.url).head('').expect(429)
      expect(headersOf(asHead)).toEqual(headersOf(asGet))
      expect(asHead.text ?? '').toBe('')
    })

    it('a limiter that a request meets twice adds its fields once', async () => {
      const limiter = bucket(100, { used: 49 })
      const server = await serve({ app: [by(limiter)], route: [by(limiter)] })
      expect(limitsOf(await request(server.url).get('').expect(200))).toEqual(A1)
    })

    it('another limiter of the same name gets a number, and has it in the body too', async () => {
      const server = await serve({
        app: [by(bucket(100, { used: 49 }))],
        router: [by(bucket(1, { name: 'Default' }))],
      })
      const allowed = await request(server.url).get('').expect(200)
      expect(limitsOf(allowed)).toEqual({
        'RateLimit-Policy': '"default";q=100;w=60, "Default-2";q=1;w=60',
        RateLimit: '"default";r=50;t=30, "Default-2";r=0;t=60',
      })
      const refused = await request(server.url).get('').expect(429)
      expect(limitsOf(refused).RateLimit).toMatch(/^"default";r=49;t=30, "Default-2";r=0;t=60$/)
      expect(refused.body['violated-policies']).toEqual(['Default-2'])
    })

    it('a name is free again for the next request', async () => {
      const server = await serve({ app: [by(bucket(100))] })
      const agent = request.agent(server.url)
      for (let round = 0; round < 2; round++)
        expect(limitsOf(await agent.get(''))['RateLimit-Policy']).toBe('"default";q=100;w=60')
    })

    it('names in the body are those in the fields', async () => {
      const limit = policies(['a"b', 'c\\d', 'e f'].map(name => ({ limiter: bucket(1, { name, used: 1 }) })))
      const server = await serve({ app: [limit] })
      const response = await request(server.url).get('').expect(429)
      const names = parseList(limitsOf(response).RateLimit as string).map(([name]) => name)
      expect(response.body['violated-policies']).toEqual(names)
      expect(names).toEqual(['a"b', 'c\\d', 'e f'])
    })

    it('RateLimit lists policies that were evaluated, RateLimit-Policy all that are configured', async () => {
      const limit = policies([
        { limiter: bucket(100, { used: 49 }) },
        { limit: 5, window: '1s', name: 'writes', key: () => null },
      ])
      const server = await serve({ app: [limit] })
      expect(limitsOf(await request(server.url).get('').expect(200))).toEqual({
        'RateLimit-Policy': '"default";q=100;w=60, "writes";q=5;w=1',
        RateLimit: '"default";r=50;t=30',
      })
    })

    it('a refused request consumes nothing from the policies that allow it', async () => {
      const generous = bucket(100, { name: 'burst', used: 40 })
      const limit = policies([{ limiter: generous }, { limiter: bucket(1, { name: 'daily', used: 1 }) }])
      const server = await serve({ app: [limit] })
      for (let round = 0; round < 3; round++)
        expect(limitsOf(await request(server.url).get('').expect(429))).toEqual({
          'RateLimit-Policy': '"burst";q=100;w=60, "daily";q=1;w=60',
          RateLimit: '"burst";r=60;t=36, "daily";r=0;t=60',
          'Retry-After': '60',
        })
      expect(generous.peek('ann').remaining).toBe(60)
    })

    it('a hidden policy is left out beside one that is not', async () => {
      const limit = policies(
        [
          { limiter: bucket(1, { name: 'all', used: 1 }), hidden: true },
          { limiter: bucket(2, { name: 'each', used: 2 }) },
        ],
        { exposeHeaders: true },
      )
      const server = await serve({ app: [limit] })
      const response = await request(server.url).get('').expect(429)
      expect(limitsOf(response)).toEqual({
        'RateLimit-Policy': '"each";q=2;w=60',
        RateLimit: '"each";r=0;t=30',
        'Retry-After': '60',
      })
      expect(response.body['violated-policies']).toEqual(['each'])
    })

    it('a hidden policy takes no name from another', async () => {
      const server = await serve({
        app: [by(bucket(7), { hidden: true }), by(bucket(100, { used: 49 }))],
      })
      expect(limitsOf(await request(server.url).get('').expect(200))).toEqual(A1)
    })

    it('a skipped request has what it had before', async () => {
      const before = { RateLimit: '"edge";r=1;t=1', 'RateLimit-Policy': '"edge";q=10;w=1' }
      const server = await serve({ before: given(before), app: [by(bucket(1), { key: () => null })] })
      expect(limitsOf(await request(server.url).get('').expect(200))).toEqual(before)
    })
  })

  describe('section 7', () => {
    it.each([
      [
        'draft-6',
        {
          'RateLimit-Policy': '100;w=60',
          'RateLimit-Limit': '100',
          'RateLimit-Remaining': '50',
          'RateLimit-Reset': '30',
        },
      ],
      ['draft-7', { 'RateLimit-Policy': '100;w=60', RateLimit: 'limit=100, remaining=50, reset=30' }],
      ['draft-9', A1],
      ['draft-10', A1],
      ['draft-11', A1],
    ] as const)('%s is the only dialect that is sent', async (headers, fields) => {
      const server = await serve({ app: [by(bucket(100, { used: 49 }), { headers })] })
      expect(limitsOf(await request(server.url).get('').expect(200))).toEqual(fields)
    })

    it('legacy fields come in addition, by the clock of the limiter', async () => {
      const limiter = bucket(100, { used: 100 })
      const server = await serve({ app: [by(limiter, { legacyHeaders: 'epoch', cost: 7 })] })
      expect(limitsOf(await request(server.url).get('').expect(429))).toEqual({
        'RateLimit-Policy': '"default";q=100;w=60',
        RateLimit: '"default";r=0;t=5',
        'X-RateLimit-Limit': '100',
        'X-RateLimit-Remaining': '0',
        'X-RateLimit-Reset': String(Math.ceil((clock.nowMs + 4200 - 0.001) / 1000)),
        'Retry-After': '5',
      })
    })

    it('legacy fields may be all there is', async () => {
      const server = await serve({
        app: [by(bucket(100, { used: 49 }), { headers: false, legacyHeaders: 'delta' })],
      })
      expect(limitsOf(await request(server.url).get('').expect(200))).toEqual({
        'X-RateLimit-Limit': '100',
        'X-RateLimit-Remaining': '50',
        'X-RateLimit-Reset': '30',
      })
    })
  })
})

describe.each(redirectingServers)('on $name', ({ start }) => {
  describe('section 6, redirections', () => {
    /** The answer of an app that ends every request in one way, behind a bucket of so many. */
    async function answered(
      limit: number,
      ending: Parameters<typeof start>[1],
      options: Partial<Limit> = {},
    ) {
      const server = await start(by(bucket(limit), options), ending)
      closing.push(server.close)
      return request(server.url)
        .get('')
        .redirects(0)
        .expect(ending === 'a 304' ? 304 : 302)
    }

    it.each(['a redirect', 'a 304'] as const)('%s with nothing left has the policy alone', async ending => {
      expect(limitsOf(await answered(1, ending))).toEqual({ 'RateLimit-Policy': '"default";q=1;w=60' })
    })

    it.each(['a redirect', 'a 304'] as const)('%s with something left has both fields', async ending => {
      expect(limitsOf(await answered(2, ending))).toEqual({
        'RateLimit-Policy': '"default";q=2;w=60',
        RateLimit: '"default";r=1;t=30',
      })
    })

    it('a redirect with nothing left has the policy alone in draft-7', async () => {
      expect(limitsOf(await answered(1, 'a redirect', { headers: 'draft-7' }))).toEqual({
        'RateLimit-Policy': '1;w=60',
      })
    })

    it('a refusal that is answered with a redirect has the policy and the wait', async () => {
      expect(limitsOf(await answered(0, 'a redirect'))).toEqual({ 'RateLimit-Policy': '"default";q=0;w=60' })
      const server = await start(by(bucket(1, { used: 1 })), 'a redirect')
      closing.push(server.close)
      expect(limitsOf(await request(server.url).get('').redirects(0).expect(302))).toEqual({
        'RateLimit-Policy': '"default";q=1;w=60',
        'Retry-After': '60',
      })
    })

    it('a field that is dropped is not exposed', async () => {
      const response = await answered(1, 'a redirect', { exposeHeaders: true })
      expect(exposedBy(response)).toEqual(['ratelimit-policy'])
    })
  })
})

/** A request for guards without a framework. */
const REQUEST = { headers: {} }

function guard(options: HttpOptions<[typeof REQUEST]>) {
  return createGuard(options, {
    address: () => '203.0.113.7',
    message: request => request,
    response: () => NO_RESPONSE,
    trusts: () => 'nobody',
  })
}

/** The names that scripts may read, in lower case and order. */
function exposedBy(response: { headers: Record<string, string> }): string[] {
  const names = response.headers['access-control-expose-headers'] ?? ''
  return names
    .split(',')
    .map(name => name.trim().toLowerCase())
    .sort()
}

/** The bytes of every partition key. */
function partitionsIn(fields: Readonly<Record<string, string>>): Buffer[] {
  return ['RateLimit-Policy', 'RateLimit'].flatMap(name =>
    parseList(fields[name] as string).map(([, parameters]) =>
      Buffer.from(parameters.get('pk') as ArrayBuffer),
    ),
  )
}
