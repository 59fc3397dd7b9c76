import { type Algorithm, createLimiter, memoryStore, type SluiceError, tokenBucket } from '@sluice/core'
import { manualClock } from '@sluice/core/testing'
import { describe, expect, test } from 'vitest'

interface Fault {
  readonly name: 'RangeError' | 'TypeError'
  readonly code: SluiceError['code']
  readonly option: string | RegExp
  /** The expected and the received value, as in the message. */
  readonly message: readonly (string | RegExp)[]
}

/** The error that `act` throws, checked in full; a promise, a value or nothing is a failure. */
function expectFault(act: () => unknown, { name, code, option, message }: Fault): SluiceError {
  let error: SluiceError | undefined
  try {
    act()
  } catch (thrown) {
    error = thrown as SluiceError
  }
  expect(error, 'nothing was thrown').toBeInstanceOf(Error)
  expect(error).toMatchObject({ name, code })
  expect(error?.option).toMatch(typeof option === 'string' ? new RegExp(`^${option}$`) : option)
  for (const part of message) expect(error?.message).toMatch(part)
  return error as SluiceError
}

/** The error of an invalid option: its message names the option, and the expected and the received value. */
function optionFault(
  name: Fault['name'],
  option: string,
  expected: string | RegExp,
  got: string | RegExp,
  code: Fault['code'] = 'SLUICE_INVALID_OPTION',
): Fault {
  const came = typeof got === 'string' ? `got ${got}` : got
  return { name, code, option, message: [option, /expected \S+/, expected, came] }
}

const WHOLE = 'whole number'
const DURATION = /milliseconds or a number with a unit|whole microseconds/
const good = { limit: 10, window: '1m' } as const

describe('tokenBucket', () => {
  const permits = [
    ['60', 'TypeError', "'60' (a string)"],
    [Number.NaN, 'RangeError', 'NaN'],
    [0.5, 'RangeError', '0.5'],
    [-1, 'RangeError', '-1'],
    [Infinity, 'RangeError', 'Infinity'],
    [2 ** 53, 'RangeError', '9007199254740992'],
    [10n, 'TypeError', '10n (a bigint)'],
    [null, 'TypeError', 'null'],
    [true, 'TypeError', 'true'],
    [[10], 'TypeError', 'an array'],
    [{}, 'TypeError', 'an object'],
    [() => 10, 'TypeError', 'a function'],
  ] as const

  test.each(permits)('limit %o is a %s (S48, S51)', (limit, name, got) => {
    expectFault(() => tokenBucket({ ...good, limit } as never), optionFault(name, 'limit', WHOLE, got))
  })

  test.each(permits)('burst %o is a %s', (burst, name, got) => {
    expectFault(() => tokenBucket({ ...good, burst } as never), optionFault(name, 'burst', WHOLE, got))
  })

  test('a missing limit is a TypeError', () => {
    expectFault(
      () => tokenBucket({ window: '1m' } as never),
      optionFault('TypeError', 'limit', WHOLE, 'undefined'),
    )
  })

  test.each([
    ['garbage', 'RangeError', "'garbage' (a string)"],
    ['500', 'RangeError', "'500' (a string)"],
    ['', 'RangeError', /got ('' \(a string\)|an empty string)/],
    [0, 'RangeError', '0'],
    [-1, 'RangeError', '-1'],
    ['0s', 'RangeError', "'0s' (a string)"],
    ['-1s', 'RangeError', "'-1s' (a string)"],
    [Infinity, 'RangeError', 'Infinity'],
    [Number.NaN, 'RangeError', 'NaN'],
    [1000 / 3, 'RangeError', '333.333'],
    ['201 years', 'RangeError', "'201 years' (a string)"],
    [201 * 365.25 * 86_400_000, 'RangeError', /got \d+/],
    [1000n, 'TypeError', '1000n (a bigint)'],
    [undefined, 'TypeError', 'undefined'],
    [null, 'TypeError', 'null'],
    [{ seconds: 1 }, 'TypeError', 'an object'],
    [new Date(0), 'TypeError', 'an object'],
  ] as const)('window %o is a %s (S13, S46)', (window, name, got) => {
    expectFault(() => tokenBucket({ limit: 10, window } as never), optionFault(name, 'window', DURATION, got))
  })

  test('a missing window is a TypeError', () => {
    expectFault(
      () => tokenBucket({ limit: 10 } as never),
      optionFault('TypeError', 'window', DURATION, 'undefined'),
    )
  })

  test.each([undefined, null, 5, 'x', []])('options %o are a TypeError', options => {
    expectFault(() => tokenBucket(options as never), {
      name: 'TypeError',
      code: 'SLUICE_INVALID_OPTION',
      option: /options/,
      message: ['tokenBucket', 'expected an object', 'got '],
    })
  })

  test.each([
    ['limt', 'limit'],
    ['Limit', 'limit'],
    ['windowMs', 'window'],
    ['timeWindow', 'window'],
    ['bursts', 'burst'],
  ])('an unknown option %s is an error that suggests %s', (unknown, nearest) => {
    expectFault(() => tokenBucket({ ...good, [unknown]: 5 } as never), {
      name: 'TypeError',
      code: 'SLUICE_UNKNOWN_OPTION',
      option: unknown,
      message: ['tokenBucket', `unknown option "${unknown}"`, `did you mean '${nearest}'?`],
    })
  })

  test.each([
    ['max', 'limit'],
    ['points', 'limit'],
    ['period', 'window'],
    ['duration', 'window'],
    ['capacity', 'burst'],
  ])('an option of another library, %s, is an error that suggests %s', (foreign, ours) => {
    expectFault(() => tokenBucket({ ...good, [foreign]: 5 } as never), {
      name: 'TypeError',
      code: 'SLUICE_UNKNOWN_OPTION',
      option: foreign,
      message: [`unknown option "${foreign}"`, new RegExp(`\\b${ours}\\b`)],
    })
  })

  test('an unknown option that resembles no known one is an error that lists them all', () => {
    expectFault(() => tokenBucket({ ...good, frobnicate: 5 } as never), {
      name: 'TypeError',
      code: 'SLUICE_UNKNOWN_OPTION',
      option: 'frobnicate',
      message: ['unknown option "frobnicate"', 'the options are limit, window, burst'],
    })
  })
})

describe('createLimiter', () => {
  const make = (options: object) => createLimiter(tokenBucket(good), options as never)

  test.each([undefined, null, 5, 'token-bucket', {}, good, tokenBucket])(
    'algorithm %o is a TypeError',
    algorithm => {
      expectFault(() => createLimiter(algorithm as never), {
        name: 'TypeError',
        code: 'SLUICE_INVALID_OPTION',
        option: 'algorithm',
        message: ['algorithm', /expected .*tokenBucket/],
      })
    },
  )

  test.each([
    [undefined, 'undefined'],
    [null, 'null'],
    [good, 'an object'],
    [tokenBucket, 'a function'],
  ])('names the received value if the algorithm is invalid: %o', (algorithm, got) => {
    expect(() => createLimiter(algorithm as never)).toThrow(`got ${got}`)
  })

  test.each([
    ['two\nlines', 'RangeError', "'two\\nlines' (a string)"],
    ['a line\n', 'RangeError', "'a line\\n' (a string)"],
    ['', 'RangeError', /got ('' \(a string\)|an empty string)/],
    ['n'.repeat(65), 'RangeError', /got 'n{40}\.\.\.' \(a string\)/],
    ['benutzer-täglich', 'RangeError', "'benutzer-täglich' (a string)"],
    ['\x7f', 'RangeError', / \(a string\)/],
    [5, 'TypeError', '5'],
    [null, 'TypeError', 'null'],
    [{}, 'TypeError', 'an object'],
  ] as const)('name %j is a %s', (name, error, got) => {
    expectFault(
      () => make({ name }),
      optionFault(error, 'name', /a string|1 to 64 printable ASCII characters/, got),
    )
  })

  test.each([
    [-1, 'RangeError', '-1'],
    [Number.NaN, 'RangeError', 'NaN'],
    ['soon', 'RangeError', "'soon' (a string)"],
    ['500', 'RangeError', "'500' (a string)"],
    [5n, 'TypeError', '5n (a bigint)'],
    [null, 'TypeError', 'null'],
    [true, 'TypeError', 'true'],
  ] as const)('maxWait %o is a %s', (maxWait, error, got) => {
    expectFault(() => make({ maxWait }), optionFault(error, 'maxWait', DURATION, got))
  })

  test.each([5, 'memory', {}, new Map(), memoryStore, { open: 'yes' }])('store %o is a TypeError', store => {
    expectFault(() => make({ store }), {
      name: 'TypeError',
      code: 'SLUICE_INVALID_OPTION',
      option: /^store\b/,
      message: ['store', /expected \S+/, 'got '],
    })
  })

  test.each([5, 'system', {}, Date, { nowUs: 5 }, manualClock])('clock %o is a TypeError', clock => {
    expectFault(() => make({ clock }), {
      name: 'TypeError',
      code: 'SLUICE_INVALID_OPTION',
      option: /^clock\b/,
      message: ['clock', /expected \S+/, 'got '],
    })
  })

  test.each(['store', 'clock'])('a %s of null is an error, and does not mean the default', option => {
    expectFault(() => make({ [option]: null }), {
      name: 'TypeError',
      code: 'SLUICE_INVALID_OPTION',
      option: new RegExp(`^${option}\\b`),
      message: [option, 'got null'],
    })
  })

  test.each([null, 5, 'per-user', []])('options %o are a TypeError', options => {
    expectFault(() => createLimiter(tokenBucket(good), options as never), {
      name: 'TypeError',
      code: 'SLUICE_INVALID_OPTION',
      option: /options/,
      message: ['createLimiter', 'expected an object', 'got '],
    })
  })

  test.each([
    ['nam', 'name'],
    ['maxwait', 'maxWait'],
    ['maxWaitMs', 'maxWait'],
    ['stor', 'store'],
  ])('an unknown option %s is an error that suggests %s', (unknown, nearest) => {
    expectFault(() => make({ [unknown]: 5 }), {
      name: 'TypeError',
      code: 'SLUICE_UNKNOWN_OPTION',
      option: unknown,
      message: ['createLimiter', `unknown option "${unknown}"`, `did you mean '${nearest}'?`],
    })
  })
})

describe('memoryStore', () => {
  test.each([
    ['5', 'TypeError', "'5' (a string)"],
    [0, 'RangeError', '0'],
    [-1, 'RangeError', '-1'],
    [1.5, 'RangeError', '1.5'],
    [Number.NaN, 'RangeError', 'NaN'],
    [Infinity, 'RangeError', 'Infinity'],
    [2 ** 23 + 1, 'RangeError', '8388609'],
    [5n, 'TypeError', '5n (a bigint)'],
  ] as const)('maxKeys %o is a %s', (maxKeys, name, got) => {
    expectFault(
      () => memoryStore({ maxKeys } as never),
      optionFault(name, 'maxKeys', /whole number|2\^23/, got),
    )
  })

  test.each([
    ['evict', "'evict' (a string)"],
    ['', /got ('' \(a string\)|an empty string)/],
    [5, '5'],
    [true, 'true'],
  ])('onFull %o is a TypeError', (onFull, got) => {
    expectFault(
      () => memoryStore({ onFull } as never),
      optionFault('TypeError', 'onFull', "'forget' or 'refuse'", got),
    )
  })

  test('an unknown option is an error that suggests the nearest one', () => {
    expectFault(() => memoryStore({ maxkeys: 5 } as never), {
      name: 'TypeError',
      code: 'SLUICE_UNKNOWN_OPTION',
      option: 'maxkeys',
      message: ['memoryStore', `unknown option "maxkeys"`, "did you mean 'maxKeys'?"],
    })
  })
})

describe('a method', () => {
  const SECRET = 'ann@example.org'

  function setUp() {
    const clock = manualClock()
    const store = memoryStore()
    const limiter = createLimiter(tokenBucket({ limit: 10, window: '1h' }), { store, clock })
    limiter.tryAcquire(SECRET, { cost: 3 })
    const unchanged = limiter.peek(SECRET).toJSON()
    return {
      limiter,
      expectNothingCharged() {
        expect(limiter.peek(SECRET).toJSON()).toEqual(unchanged)
        expect(limiter.peek(SECRET).remaining).toBe(7)
        expect(store.size).toBe(1)
      },
    }
  }

  const verbs = ['tryAcquire', 'reserve', 'peek'] as const

  describe.each(verbs)('%s', verb => {
    test.each([
      [Number.NaN, 'RangeError', 'NaN'],
      [Infinity, 'RangeError', 'Infinity'],
      [-Infinity, 'RangeError', '-Infinity'],
      [-1, 'RangeError', '-1'],
      [0.5, 'RangeError', '0.5'],
      [2 ** 53, 'RangeError', '9007199254740992'],
      ['1', 'TypeError', "'1' (a string)"],
      [1n, 'TypeError', '1n (a bigint)'],
      [null, 'TypeError', 'null'],
      [true, 'TypeError', 'true'],
      [[1], 'TypeError', 'an array'],
      [new Number(1), 'TypeError', 'an object'],
    ] as const)('refuses cost %o with a %s and charges nothing (S49)', (cost, name, got) => {
      const { limiter, expectNothingCharged } = setUp()
      const error = expectFault(
        () => limiter[verb](SECRET, { cost } as never),
        optionFault(name, 'cost', WHOLE, got, 'SLUICE_INVALID_COST'),
      )
      expect(error.message).not.toContain(SECRET)
      expectNothingCharged()
    })

    test.each([5, 0, Number.NaN, '5', 5n, null, true, [5]])(
      'refuses a positional %o and charges nothing',
      options => {
        const { limiter, expectNothingCharged } = setUp()
        const error = expectFault(() => limiter[verb](SECRET, options as never), {
          name: 'TypeError',
          code: 'SLUICE_INVALID_OPTION',
          option: /options/,
          message: ['options', /expected an object/, 'got '],
        })
        expect(error.message).not.toContain(SECRET)
        expectNothingCharged()
      },
    )

    test('explains how to pass a cost if it gets a number instead of options', () => {
      const { limiter } = setUp()
      expect(() => limiter[verb](SECRET, 5 as never)).toThrow('expected an object such as { cost: 5 }, got 5')
    })

    test.each([
      ['costs', 'cost'],
      ['Cost', 'cost'],
      ['cots', 'cost'],
      ['cost ', 'cost'],
    ])('refuses a misspelt { %s: 5 }, names %s and charges nothing', (misspelt, nearest) => {
      const { limiter, expectNothingCharged } = setUp()
      expectFault(() => limiter[verb](SECRET, { [misspelt]: 5 } as never), {
        name: 'TypeError',
        code: 'SLUICE_UNKNOWN_OPTION',
        option: misspelt,
        message: [`unknown option "${misspelt}"`, `did you mean '${nearest}'?`],
      })
      expectNothingCharged()
    })
  })

  test.each([
    [-1, 'RangeError', '-1'],
    [Number.NaN, 'RangeError', 'NaN'],
    ['soon', 'RangeError', "'soon' (a string)"],
    ['500', 'RangeError', "'500' (a string)"],
    [5n, 'TypeError', '5n (a bigint)'],
    [null, 'TypeError', 'null'],
  ] as const)('reserve refuses maxWait %o with a %s and books nothing', (maxWait, name, got) => {
    const { limiter, expectNothingCharged } = setUp()
    for (const more of [{}, { cost: 2 }])
      expectFault(
        () => limiter.reserve(SECRET, { ...more, maxWait } as never),
        optionFault(name, 'maxWait', DURATION, got),
      )
    expectNothingCharged()
  })

  test.each([{}, { cost: 2 }])(
    'reserve refuses a misspelt maxWait beside %o, instead of waiting without limit',
    more => {
      const { limiter, expectNothingCharged } = setUp()
      expectFault(() => limiter.reserve(SECRET, { ...more, maxwait: '1s' } as never), {
        name: 'TypeError',
        code: 'SLUICE_UNKNOWN_OPTION',
        option: 'maxwait',
        message: ['unknown option "maxwait"', "did you mean 'maxWait'?"],
      })
      expectNothingCharged()
    },
  )

  describe.each([...verbs, 'reset'] as const)('%s', verb => {
    test.each([
      [undefined, 'undefined'],
      [null, 'null'],
      ['', 'an empty string'],
      [42, 'a number'],
      [Number.NaN, 'NaN'],
      [[], 'an array'],
      [[SECRET], 'an array'],
      [{}, 'an object'],
      [{ toString: () => SECRET }, 'an object'],
      [new String(SECRET), 'an object'],
      [Buffer.from(SECRET), 'an object'],
      [Symbol(SECRET), 'a symbol'],
      [987654321n, 'a bigint'],
      [false, 'a boolean'],
    ])('refuses key %o with a TypeError and touches nothing (S27, BCUK-Bot-4#133)', (key, got) => {
      const { limiter, expectNothingCharged } = setUp()
      const error = expectFault(
        () => limiter[verb](key as never),
        optionFault('TypeError', 'key', 'a non-empty string', got, 'SLUICE_INVALID_KEY'),
      )
      for (const text of [SECRET, '42', '987654321']) expect(error.message).not.toContain(text)
      expectNothingCharged()
    })
  })

  test.each([undefined, null, {}, good, tokenBucket])(
    'update refuses algorithm %o and keeps the old one',
    algorithm => {
      const { limiter, expectNothingCharged } = setUp()
      expectFault(() => limiter.update(algorithm as unknown as Algorithm), {
        name: 'TypeError',
        code: 'SLUICE_INVALID_OPTION',
        option: 'algorithm',
        message: ['algorithm', /expected /],
      })
      expect(limiter.policy.limit).toBe(10)
      expectNothingCharged()
    },
  )
})

describe('a clock that returns no valid time is an error, and disables no limit', () => {
  test.each([
    ['NaN', () => Number.NaN],
    ['undefined', () => undefined],
    ['a Date', () => new Date()],
    ['decimals', () => 120_432_713.543],
    ['a time before the epoch', () => -5],
  ])('%s', (_, nowUs) => {
    const make = () => createLimiter(tokenBucket({ limit: 1, window: '1s' }), { clock: { nowUs } as never })
    expect(make).toThrow(RangeError)
    expect(make).toThrow(/^clock: expected a clock whose nowUs\(\) is whole microseconds/)
  })
})
