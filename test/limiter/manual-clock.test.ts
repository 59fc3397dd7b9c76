import { createLimiter, tokenBucket } from '@sluice/core'
import { manualClock } from '@sluice/core/testing'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'

const invalid = (name: 'RangeError' | 'TypeError', option: string) =>
  expect.objectContaining({ name, code: 'SLUICE_INVALID_OPTION', option })

describe('a manual clock', () => {
  test('starts in 2025 by default', () => {
    expect(manualClock().nowMs).toBe(Date.UTC(2025, 0, 1))
    expect(manualClock({ startMs: 5 }).nowMs).toBe(5)
    expect(manualClock({ startMs: 0 }).nowUs()).toBe(0)
  })

  test('keeps its time until it is moved', () => {
    const clock = manualClock({ startMs: 1000 })
    for (let i = 0; i < 100; i++) expect(clock.nowUs()).toBe(1_000_000)
  })

  test('moves forward by a duration', () => {
    const clock = manualClock({ startMs: 0 })
    clock.advance(1)
    expect(clock.nowUs()).toBe(1000)
    clock.advance('1.5s')
    expect(clock.nowUs()).toBe(1_501_000)
    clock.advance(0.001)
    expect(clock.nowUs()).toBe(1_501_001)
    expect(clock.nowMs).toBe(1501.001)
    clock.advance(0)
    expect(clock.nowUs()).toBe(1_501_001)
  })

  test('can be set to any time, earlier or later', () => {
    const clock = manualClock()
    clock.set(2500.5)
    expect(clock.nowUs()).toBe(2_500_500)
    clock.set(0)
    expect(clock.nowUs()).toBe(0)
    clock.set(Date.UTC(2049, 0, 1))
    expect(clock.nowMs).toBe(Date.UTC(2049, 0, 1))
  })

  test('shows whole microseconds and adds them up without drift', () => {
    fc.assert(
      fc.property(fc.array(fc.nat(10_000_000), { maxLength: 50 }), steps => {
        const clock = manualClock()
        let expected = clock.nowUs()
        for (const us of steps) {
          clock.advance(us / 1000)
          expected += us
          expect(clock.nowUs()).toBe(expected)
        }
        clock.set(clock.nowMs)
        expect(clock.nowUs()).toBe(expected)
      }),
    )
  })

  test('is independent of other clocks', () => {
    const one = manualClock()
    const other = manualClock()
    one.advance('1h')
    expect(one.nowMs - other.nowMs).toBe(3_600_000)
  })

  test('lets limits be tested without sleeping', () => {
    const clock = manualClock()
    const limiter = createLimiter(tokenBucket({ limit: 1, window: '1m' }), { clock })
    expect(limiter.tryAcquire('ann').allowed).toBe(true)
    expect(limiter.tryAcquire('ann').allowed).toBe(false)
    clock.advance('1m')
    expect(limiter.tryAcquire('ann').allowed).toBe(true)
  })
})

describe('an invalid time', () => {
  test.each([-1, Number.NaN, Infinity, Number.MAX_SAFE_INTEGER])('%d is refused and moves nothing', ms => {
    expect(() => manualClock({ startMs: ms })).toThrow(invalid('RangeError', 'startMs'))
    const clock = manualClock({ startMs: 7 })
    expect(() => clock.set(ms)).toThrow(invalid('RangeError', 'set'))
    expect(() => clock.advance(ms)).toThrow(invalid('RangeError', 'advance'))
    expect(clock.nowMs).toBe(7)
  })

  test.each(['1', 1n, {}, new Date(0)])('%o is refused and moves nothing', value => {
    expect(() => manualClock({ startMs: value as never })).toThrow(invalid('TypeError', 'startMs'))
    const clock = manualClock({ startMs: 7 })
    expect(() => clock.set(value as never)).toThrow(invalid('TypeError', 'set'))
    expect(clock.nowMs).toBe(7)
  })

  test.each([
    ['500', 'RangeError'],
    ['garbage', 'RangeError'],
    [undefined, 'TypeError'],
    [null, 'TypeError'],
  ] as const)('no clock advances by %o', (duration, error) => {
    const clock = manualClock({ startMs: 7 })
    expect(() => clock.advance(duration as never)).toThrow(invalid(error, 'advance'))
    expect(clock.nowMs).toBe(7)
  })

  test('an unknown option is an error that suggests the nearest one', () => {
    expect(() => manualClock({ start: 5 } as never)).toThrow(
      expect.objectContaining({
        name: 'TypeError',
        code: 'SLUICE_UNKNOWN_OPTION',
        option: 'start',
        message: expect.stringContaining("did you mean 'startMs'?"),
      }),
    )
  })
})
