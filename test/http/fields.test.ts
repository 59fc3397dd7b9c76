import { createLimiter, tokenBucket, unlimited } from '@sluice/core'
import { manualClock } from '@sluice/core/testing'
import fc from 'fast-check'
import { parseList, serializeList } from 'structured-headers'
import { describe, expect, it } from 'vitest'
import {
  ceilSeconds,
  floorUnits,
  limitField,
  policyField,
  reportOf,
  retryAfterSeconds,
} from '../../packages/core/src/http/response/ratelimit-fields.js'
import type { PolicyReport } from '../../packages/core/src/http/types.js'

declare global {
  /** A name of the DOM that the types of structured-headers use. */
  type BufferSource = ArrayBufferView | ArrayBuffer
}

type Times = { resetMs?: number; waitMs?: number }

/** A policy in the notation of the conformance table: `name q/window r reset`. */
function allowing(
  name: string,
  limit: number,
  windowMs: number | undefined,
  remaining: number,
  times?: Times,
) {
  return { name, limit, windowMs, remaining, violated: false, ...times } satisfies PolicyReport
}

function violated(
  name: string,
  limit: number,
  windowMs: number | undefined,
  remaining: number,
  times?: Times,
) {
  return { name, limit, windowMs, remaining, violated: true, ...times } satisfies PolicyReport
}

/** What a response with these reports says; every value has been read back by an independent parser. */
function fieldsOf(...reports: PolicyReport[]) {
  const policy = policyField(reports)
  const limit = limitField(reports)
  if (policy !== undefined) readBack(policy)
  if (limit !== undefined) expectWholeRemaining(limit)
  return { policy, limit }
}

function readBack(value: string) {
  const members = parseList(value)
  expect(serializeList(members)).toBe(value)
  return members
}

/** A parser cannot tell `r=5` from `r=5.0`, so the text of every member is looked at as well. */
function expectWholeRemaining(value: string) {
  for (const member of readBack(value)) expect(serializeList([member])).toMatch(/;r=\d{1,15}(;|,|$)/)
  expect(value).toMatch(/;r=\d{1,15}(;|,|$)/)
}

const MINUTE = 60_000
const DAY = 86_400_000

describe('the conformance table of standards.md, section 11', () => {
  const burst = (remaining: number, resetMs: number) => allowing('burst', 100, MINUTE, remaining, { resetMs })
  const daily = (remaining: number, resetMs: number) => allowing('daily', 1000, DAY, remaining, { resetMs })
  const burstRefuses = violated('burst', 100, MINUTE, 0, { waitMs: 2500 })
  const dailyRefuses = violated('daily', 1000, DAY, 0, { waitMs: 36_000_000 })
  const BOTH = '"burst";q=100;w=60, "daily";q=1000;w=86400'

  interface Row {
    row: string
    reports: PolicyReport[]
    policy?: string
    limit?: string
    /** For refusals: what Retry-After says; null for none. */
    retryAfter?: number | null
  }

  const rows: Row[] = [
    {
      row: 'A1 allowed',
      reports: [allowing('default', 100, MINUTE, 50, { resetMs: 30_000 })],
      policy: '"default";q=100;w=60',
      limit: '"default";r=50;t=30',
    },
    {
      row: 'A2 the last unit',
      reports: [allowing('default', 100, MINUTE, 0, { resetMs: 12_001 })],
      policy: '"default";q=100;w=60',
      limit: '"default";r=0;t=13',
    },
    {
      row: 'A3 refused',
      reports: [violated('default', 100, MINUTE, 0, { waitMs: 4200 })],
      policy: '"default";q=100;w=60',
      limit: '"default";r=0;t=5',
      retryAfter: 5,
    },
    {
      row: 'A4 two policies allow',
      reports: [burst(98, 58_900), daily(412, 36_000_000)],
      policy: BOTH,
      limit: '"burst";r=98;t=59, "daily";r=412;t=36000',
    },
    {
      row: 'A5 one of two policies refuses, and the other does not bind',
      reports: [burstRefuses, daily(412, 36_000_000)],
      policy: BOTH,
      limit: '"burst";r=0;t=3, "daily";r=412;t=36000',
      retryAfter: 3,
    },
    {
      row: 'A6 both refuse',
      reports: [burstRefuses, dailyRefuses],
      policy: BOTH,
      limit: '"burst";r=0;t=3, "daily";r=0;t=36000',
      retryAfter: 36_000,
    },
    {
      row: 'A7 a cost above what is left',
      reports: [violated('tokens', 10, 10_000, 3.2, { waitMs: 1800 })],
      policy: '"tokens";q=10;w=10',
      limit: '"tokens";r=3;t=2',
      retryAfter: 2,
    },
    {
      row: 'A8 a lifetime quota',
      reports: [allowing('trial', 1000, undefined, 999)],
      policy: '"trial";q=1000',
      limit: '"trial";r=999',
    },
    {
      row: 'A9 a lifetime quota, used up',
      reports: [violated('trial', 1000, undefined, 0, { waitMs: Infinity })],
      policy: '"trial";q=1000',
      limit: '"trial";r=0',
      retryAfter: null,
    },
    {
      row: 'A11 a window of one and a half seconds',
      reports: [allowing('default', 5, 1500, 4, { resetMs: 1500 })],
      policy: '"default";q=5;w=2',
      limit: '"default";r=4;t=2',
    },
    {
      row: 'A11 a window below a second',
      reports: [allowing('default', 5, 500, 4, { resetMs: 250 })],
      policy: '"default";q=5;w=1',
      limit: '"default";r=4;t=1',
    },
    {
      row: 'A12 a negative balance',
      reports: [allowing('default', 10, MINUTE, -2, { resetMs: 1000 })],
      limit: '"default";r=0;t=1',
    },
    {
      row: 'A12 a reset in the past',
      reports: [allowing('default', 10, MINUTE, 0, { resetMs: -250 })],
      limit: '"default";r=0;t=1',
    },
    {
      row: 'A12 quota down, times up',
      reports: [allowing('default', 10, MINUTE, 3.999, { resetMs: 1 })],
      limit: '"default";r=3;t=1',
    },
    {
      row: 'A12 dust of floating point',
      reports: [allowing('default', 10, MINUTE, 2.9999999999, { resetMs: 1000.0000001 })],
      limit: '"default";r=3;t=1',
    },
    {
      row: 'A14 a name with a quote and a backslash',
      reports: [allowing('a"b\\c', 2, MINUTE, 1, { resetMs: MINUTE })],
      policy: '"a\\"b\\\\c";q=2;w=60',
      limit: '"a\\"b\\\\c";r=1;t=60',
    },
    {
      row: 'A16 an unlimited policy beside another',
      reports: [
        allowing('free', Infinity, undefined, Infinity, { resetMs: 0 }),
        allowing('default', 100, MINUTE, 50, { resetMs: 30_000 }),
      ],
      policy: '"default";q=100;w=60',
      limit: '"default";r=50;t=30',
    },
    {
      row: 'A17 more than an Integer can say',
      reports: [allowing('default', Number.MAX_SAFE_INTEGER, MINUTE, Number.MAX_SAFE_INTEGER - 1)],
      policy: '"default";q=999999999999999;w=60',
      limit: '"default";r=999999999999999',
    },
    {
      row: 'A20 a wait below a millisecond',
      reports: [violated('default', 100, MINUTE, 0, { waitMs: 0.4 })],
      limit: '"default";r=0;t=1',
      retryAfter: 1,
    },
    {
      row: 'A20 a wait of three hundred years',
      reports: [violated('default', 100, MINUTE, 0, { waitMs: 1e13 })],
      limit: '"default";r=0;t=2147483647',
      retryAfter: 2_147_483_647,
    },
  ]

  it.each(rows)('$row', ({ reports, policy, limit, retryAfter }) => {
    const fields = fieldsOf(...reports)
    if (policy !== undefined) expect(fields.policy).toBe(policy)
    expect(fields.limit).toBe(limit)
    if (retryAfter !== undefined) expect(retryAfterSeconds(reports)).toBe(retryAfter ?? undefined)
  })

  it('A16 an unlimited policy alone sends nothing', () => {
    const limiter = createLimiter(unlimited())
    const report = reportOf(limiter.name, limiter.policy, limiter.tryAcquire('ann'))
    expect(fieldsOf(report)).toEqual({ policy: undefined, limit: undefined })
    expect(fieldsOf()).toEqual({ policy: undefined, limit: undefined })
  })

  it('names read back as they were given', () => {
    const [member] = readBack(fieldsOf(allowing('a"b\\c', 2, MINUTE, 1)).policy as string)
    expect(member?.[0]).toBe('a"b\\c')
  })
})

describe('what a limiter decides', () => {
  const clock = manualClock()

  function tokens(name: string, limit: number, window: '1m' | '10s' | '12s', burst = limit) {
    const limiter = createLimiter(tokenBucket({ limit, window, burst }), { name, clock })
    return {
      take: (cost: number) => reportOf(name, limiter.policy, limiter.tryAcquire('ann', { cost })),
      peek: () => reportOf(name, limiter.policy, limiter.peek('ann')),
    }
  }

  it('A21 a token bucket says for how long the rest should last', () => {
    const tb = tokens('tb', 20, '12s')
    tb.take(13)
    clock.advance(180)
    const report = tb.peek()
    expect(fieldsOf(report)).toEqual({ policy: '"tb";q=20;w=12', limit: '"tb";r=7;t=5' })
  })

  it('A21 says the same of the request that leaves 7.3 tokens', () => {
    const tb = tokens('tb', 20, '12s')
    tb.take(12)
    clock.advance(180)
    expect(fieldsOf(tb.take(1)).limit).toBe('"tb";r=7;t=5')
  })

  it('A7 a cost above what is left, refused by a token bucket', () => {
    const bucket = tokens('tokens', 10, '10s')
    bucket.take(7)
    clock.advance(200)
    const report = bucket.take(5)
    expect(fieldsOf(report)).toEqual({ policy: '"tokens";q=10;w=10', limit: '"tokens";r=3;t=2' })
    expect(retryAfterSeconds([report])).toBe(2)
  })

  it('an empty bucket names the next whole token, not the full bucket', () => {
    const bucket = tokens('tokens', 10, '1m')
    expect(fieldsOf(bucket.take(10)).limit).toBe('"tokens";r=0;t=6')
    clock.advance(4999)
    expect(fieldsOf(bucket.peek()).limit).toBe('"tokens";r=0;t=2')
  })

  it('advertises the capacity and the time it takes to fill', () => {
    // 600 a minute with a burst of 50: 50 in 5 seconds.
    const bucket = tokens('burst', 600, '1m', 50)
    const report = bucket.take(30)
    expect(fieldsOf(report)).toEqual({ policy: '"burst";q=50;w=5', limit: '"burst";r=20;t=2' })
  })

  it('a cost that can never pass has no t and no Retry-After (example 6)', () => {
    const bucket = tokens('default', 10, '1m')
    const report = bucket.take(15)
    expect(fieldsOf(report)).toEqual({ policy: '"default";q=10;w=60', limit: '"default";r=10' })
    expect(retryAfterSeconds([report])).toBeUndefined()
  })

  it('a limit of 0 has no t and no Retry-After', () => {
    const closed = tokens('closed', 0, '1m')
    const report = closed.take(1)
    expect(fieldsOf(report)).toEqual({ policy: '"closed";q=0;w=60', limit: '"closed";r=0' })
    expect(retryAfterSeconds([report])).toBeUndefined()
  })
})

describe('rounding', () => {
  it.each([
    [3.999, 3],
    [-2, 0],
    [-0, 0],
    [-1e-10, 0],
    [0.9999999, 0],
    [0.9999999999, 1],
    [2.9999999999, 3],
    [3, 3],
    [Number.MAX_SAFE_INTEGER, 999_999_999_999_999],
    [999_999_999_999_999, 999_999_999_999_999],
    [1e21, 999_999_999_999_999],
    [Infinity, 999_999_999_999_999],
    [-Infinity, 0],
  ])('%d units are %d', (units, whole) => {
    expect(floorUnits(units)).toBe(whole)
  })

  it.each([
    [0, 0],
    [1, 1],
    [999, 1],
    [1000, 1],
    [1001, 2],
    [4200, 5],
    [0.001, 1],
    // Whole microseconds decide: one too many is a promise broken by a microsecond ...
    [1000.001, 2],
    // ... and what is no microsecond is no time.
    [1000.0000001, 1],
    [0.0001, 0],
    [-0.1, 0],
    [-250, 0],
    [1e13, 2_147_483_647],
    [Number.MAX_VALUE, 2_147_483_647],
  ])('%d ms are %d seconds', (ms, seconds) => {
    expect(ceilSeconds(ms)).toBe(seconds)
  })

  it.each([undefined, Number.NaN, Infinity])('%s is no time', ms => {
    expect(ceilSeconds(ms)).toBeUndefined()
  })

  it.each([
    [0, 1],
    [0.0001, 1],
    [0.001, 1],
    [500, 1],
    [1000, 1],
    [1500, 2],
    [1e300, 2_147_483_647],
  ])('a window of %d ms is w=%d', (windowMs, w) => {
    expect(fieldsOf(allowing('default', 5, windowMs, 4)).policy).toBe(`"default";q=5;w=${w}`)
  })

  it.each([undefined, Infinity, Number.NaN])('a window of %s has no w', windowMs => {
    expect(fieldsOf(allowing('default', 5, windowMs, 4)).policy).toBe('"default";q=5')
  })

  it('every report makes fields that parse', () => {
    const number = fc.oneof(fc.double({ noNaN: true }), fc.integer(), fc.constantFrom(0, 1, Infinity))
    const time = fc.option(fc.oneof(number, fc.constant(Number.NaN)), { nil: undefined })
    const report: fc.Arbitrary<PolicyReport> = fc.record({
      name: fc.string({ unit: 'binary-ascii', minLength: 1 }).map(name => name.replace(/[^\x20-\x7e]/g, '_')),
      limit: fc.oneof(fc.nat(), fc.double({ min: 0, noNaN: true })),
      windowMs: time,
      remaining: number,
      resetMs: time,
      violated: fc.boolean(),
      waitMs: time,
    })
    fc.assert(
      fc.property(fc.array(report, { maxLength: 4 }), reports => {
        const { policy, limit } = fieldsOf(...reports)
        const limiting = reports.filter(({ limit }) => limit !== Infinity).length
        expect(policy === undefined ? 0 : parseList(policy).length).toBe(limiting)
        expect(limit === undefined ? 0 : parseList(limit).length).toBe(limiting)
        const retryAfter = retryAfterSeconds(reports)
        if (retryAfter !== undefined) expect(String(retryAfter)).toMatch(/^[1-9]\d{0,9}$/)
      }),
    )
  })
})

describe('t', () => {
  it('of an allowing policy may be 0 while quota is left', () => {
    expect(fieldsOf(allowing('default', 5, 1000, 5, { resetMs: 0 })).limit).toBe('"default";r=5;t=0')
  })

  it('is at least 1 when nothing is left, also when a fraction of a permit is', () => {
    expect(fieldsOf(allowing('default', 5, 1000, 0.7, { resetMs: 0 })).limit).toBe('"default";r=0;t=1')
  })

  it.each([undefined, Infinity, Number.NaN])('is left out when the reset is %s', resetMs => {
    const report = { ...allowing('default', 5, 1000, 4), resetMs }
    expect(fieldsOf(report).limit).toBe('"default";r=4')
  })

  it('of a violated policy is the wait of this request, not the reset', () => {
    const report = violated('default', 5, MINUTE, 2, { waitMs: 7000, resetMs: 1000 })
    expect(fieldsOf(report).limit).toBe('"default";r=2;t=7')
  })

  it('of a violated policy is at least 1', () => {
    expect(fieldsOf(violated('default', 5, MINUTE, 2, { waitMs: 0 })).limit).toBe('"default";r=2;t=1')
  })

  it.each([
    ['the reset', { resetMs: 2500 }, MINUTE, 3],
    ['the window', {}, MINUTE, 60],
    ['nothing', {}, undefined, undefined],
    // NaN counts as absent (section 3), and so does a reset that never comes.
    ['the reset when the wait is NaN', { waitMs: Number.NaN, resetMs: 2500 }, MINUTE, 3],
    ['the window when wait and reset are NaN', { waitMs: Number.NaN, resetMs: Number.NaN }, MINUTE, 60],
    ['the window when the reset is Infinity', { resetMs: Infinity }, MINUTE, 60],
  ])('of a violated policy of unknown wait is %s', (_, times, windowMs, t) => {
    const report = violated('default', 5, windowMs, 0, times)
    expect(fieldsOf(report).limit).toBe(t === undefined ? '"default";r=0' : `"default";r=0;t=${t}`)
    expect(retryAfterSeconds([report])).toBe(t)
  })
})

describe('Retry-After', () => {
  it('is the longest t of the violated policies and of those with nothing left', () => {
    const short = violated('short', 5, 1000, 0, { waitMs: 700 })
    const long = violated('long', 50, MINUTE, 1, { waitMs: 9000 })
    const empty = allowing('empty', 500, DAY, 0, { resetMs: 20_000 })
    expect(retryAfterSeconds([short, long])).toBe(9)
    expect(retryAfterSeconds([long, short])).toBe(9)
    expect(retryAfterSeconds([short, empty, long])).toBe(20)
  })

  it('is not bound by a policy that has quota left', () => {
    const short = violated('short', 5, 1000, 0, { waitMs: 700 })
    expect(retryAfterSeconds([short, allowing('long', 50, MINUTE, 1, { resetMs: 40_000 })])).toBe(1)
  })

  it('is absent when one violated policy can never pass, whatever the others say', () => {
    const never = violated('cost', 5, MINUTE, 5, { waitMs: Infinity })
    const soon = violated('soon', 5, MINUTE, 0, { waitMs: 700 })
    expect(retryAfterSeconds([soon, never])).toBeUndefined()
    expect(retryAfterSeconds([never, soon])).toBeUndefined()
  })

  it('is absent when no policy that binds has a t', () => {
    const unknown = violated('trial', 5, undefined, 0)
    expect(retryAfterSeconds([unknown])).toBeUndefined()
    expect(retryAfterSeconds([unknown, allowing('b', 5, MINUTE, 3, { resetMs: 9000 })])).toBeUndefined()
  })

  it('is never 0', () => {
    expect(retryAfterSeconds([violated('default', 5, MINUTE, 0, { waitMs: 0 })])).toBe(1)
    expect(retryAfterSeconds([violated('default', 5, MINUTE, 0, { waitMs: -3 })])).toBe(1)
  })
})
