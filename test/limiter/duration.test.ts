import { type Duration, parseDuration } from '@sluice/core'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { MAX_SPAN_US, spanToUs, waitToUs } from '../../packages/core/src/shared/duration.js'

const invalid = (name: 'RangeError' | 'TypeError', option: string) =>
  expect.objectContaining({ name, code: 'SLUICE_INVALID_OPTION', option })

describe('parseDuration', () => {
  const texts: readonly (readonly [string, number])[] = [
    ['250ms', 250],
    ['30s', 30_000],
    ['1m', 60_000],
    ['12h', 43_200_000],
    ['30d', 2_592_000_000],
    ['2w', 1_209_600_000],
    ['1.5s', 1500],
    ['0.5ms', 0.5],
    ['0s', 0],
    ['007s', 7000],
    ['1 ms', 1],
    ['1 minute', 60_000],
    ['2 minutes', 120_000],
    ['1 millisecond', 1],
    ['10 seconds', 10_000],
    ['24hours', 86_400_000],
    ['1 day', 86_400_000],
    ['3 weeks', 1_814_400_000],
    [' 1m\n', 60_000],
  ]
  test.each(texts)('%j is %d ms', (text, ms) => {
    expect(parseDuration(text)).toBe(ms)
  })

  test.each([0, 0.001, 1, 1000 / 3, Number.MAX_VALUE, Infinity])('a number is milliseconds: %d', ms => {
    expect(parseDuration(ms)).toBe(ms)
  })

  const notDurations = [
    '',
    ' ',
    '500',
    '1',
    's',
    'garbage',
    '-1s',
    '+1s',
    '1e3s',
    '1,5s',
    '.5s',
    '5.s',
    '1.2.3s',
  ]
  const norThese = [
    '1S',
    '1M',
    '1 fortnight',
    '1y',
    '1month',
    '1  s',
    '1s 1s',
    '1h30m',
    '1\ns',
    'Infinity',
    'NaN',
    '١s',
  ]
  test.each([...notDurations, ...norThese])('refuses %j', text => {
    expect(() => parseDuration(text)).toThrow(invalid('RangeError', 'duration'))
  })

  test.each([-1, -0.001, -Infinity, Number.NaN])('refuses %d ms', ms => {
    expect(() => parseDuration(ms)).toThrow(invalid('RangeError', 'duration'))
  })

  test.each([undefined, null, true, 1n, [], ['1s'], {}, new Date(0), Symbol('1s'), () => 1])(
    'refuses %o',
    value => {
      expect(() => parseDuration(value as never)).toThrow(invalid('TypeError', 'duration'))
    },
  )

  test('names the option, the expected and the received value', () => {
    expect(() => parseDuration('500', 'window')).toThrow(invalid('RangeError', 'window'))
    expect(() => parseDuration('500', 'window')).toThrow(
      "window: expected milliseconds or a number with a unit ('250ms', '30s', '1m', '12h', '1d'), got '500' (a string)",
    )
    expect(() => parseDuration(5n as never, 'window')).toThrow('got 5n (a bigint)')
  })

  test('does not repeat a long string in its message', () => {
    expect(() => parseDuration('x'.repeat(10_000))).toThrow(
      expect.objectContaining({ message: expect.stringMatching(/^.{1,200}$/) }),
    )
  })

  test('reads whole numbers of every unit exactly', () => {
    const units = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000, w: 604_800_000 }
    fc.assert(
      fc.property(fc.nat(1_000_000), fc.constantFrom('ms', 's', 'm', 'h', 'd', 'w'), (count, unit) => {
        const text: Duration = `${count}${unit as keyof typeof units}`
        expect(parseDuration(text)).toBe(count * units[unit as keyof typeof units])
      }),
    )
  })
})

describe('a span', () => {
  test.each([
    ['1m', 60_000_000],
    [0.001, 1],
    [1.001, 1001],
    ['0.3ms', 300],
    [333.333, 333_333],
    ['365d', 31_536_000_000_000],
    [MAX_SPAN_US / 1000, MAX_SPAN_US],
  ] as const)('of %o is %d us', (span, us) => {
    expect(spanToUs('window', span)).toBe(us)
  })

  test.each([
    0,
    '0s',
    0.0001,
    1000 / 3,
    '0.0005ms',
    1.0005,
    Infinity,
    MAX_SPAN_US / 1000 + 1,
    -1,
    '500',
    Number.NaN,
  ])('must be positive, finite and a whole number of microseconds: not %o', span => {
    expect(() => spanToUs('window', span)).toThrow(invalid('RangeError', 'window'))
  })

  test('given in milliseconds is exact for every whole number of microseconds up to 2^50', () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 2 ** 50 }), us => {
        expect(spanToUs('window', us / 1000)).toBe(us)
      }),
      { numRuns: 1000 },
    )
  })

  test('added to a time in 2049 stays below 2^53 microseconds', () => {
    expect(Date.UTC(2049, 11, 31) * 1000 + MAX_SPAN_US).toBeLessThan(Number.MAX_SAFE_INTEGER)
  })
})

describe('a wait', () => {
  test.each([
    [0, 0],
    ['0s', 0],
    ['1.5s', 1_500_000],
    [0.001, 1],
    [1000 / 3, 333_333],
    [Infinity, Infinity],
  ] as const)('of %o is %d us', (wait, us) => {
    expect(waitToUs('maxWait', wait)).toBe(us)
  })

  test.each([-1, 'soon', Number.NaN])('cannot be %o', wait => {
    expect(() => waitToUs('maxWait', wait)).toThrow(invalid('RangeError', 'maxWait'))
  })

  test.each([null, undefined, 1n])('cannot be %o', wait => {
    expect(() => waitToUs('maxWait', wait)).toThrow(invalid('TypeError', 'maxWait'))
  })
})
