import type { Algorithm } from '@sluice/core'
import { describe, expect, test } from 'vitest'

/** A value that an option does not accept, and the class of the error that is thrown. */
export type Faulty = readonly [value: unknown, ErrorClass: typeof RangeError | typeof TypeError]

/** Values that are not whole numbers. */
export const NOT_WHOLE: readonly Faulty[] = [
  ['60', TypeError],
  [10n, TypeError],
  [null, TypeError],
  [true, TypeError],
  [Number.NaN, RangeError],
  [Infinity, RangeError],
  [-1, RangeError],
  [0.5, RangeError],
  [2 ** 53, RangeError],
]

/** Values that are not the length of a wait, which is 0 or more. */
export const NOT_A_WAIT: readonly Faulty[] = [
  ['60', RangeError],
  ['soon', RangeError],
  [Number.NaN, RangeError],
  [-1, RangeError],
  ['-1s', RangeError],
  [10n, TypeError],
  [{ seconds: 1 }, TypeError],
]

/** Values that are not the length of a window, which is above 0 and finite. */
export const NOT_A_SPAN: readonly Faulty[] = [
  ...NOT_A_WAIT,
  [0, RangeError],
  ['0s', RangeError],
  [Infinity, RangeError],
  [1000 / 3, RangeError],
  [undefined, TypeError],
  [null, TypeError],
]

/** Tests the option values that an algorithm rejects, and the suggestions for unknown option names. */
export function describeFaults<Options extends object>(
  make: (options: Options) => Algorithm,
  good: Options,
  faults: { readonly [Option in keyof Options & string]: readonly Faulty[] },
  misspelt: Readonly<Record<string, keyof Options & string>>,
): void {
  describe('options', () => {
    const cases = Object.entries<readonly Faulty[]>(faults).flatMap(([option, values]) =>
      values.map(([value, ErrorClass]) => ({ option, value, ErrorClass })),
    )
    // express-rate-limit 8.7.5 reads a limit of NaN as no limit, fastify-rate-limit 11.2.0 reads '2' as 1000.
    test.each(cases)('$option: $value throws', ({ option, value, ErrorClass }) => {
      const error = thrownBy(() => make({ ...good, [option]: value }))
      expect(error).toBeInstanceOf(ErrorClass)
      expect(error).toMatchObject({ code: 'SLUICE_INVALID_OPTION', option })
    })

    test.each(Object.entries<string>(misspelt))(
      'unknown option %s throws an error that suggests %s',
      (unknown, meant) => {
        const error = thrownBy(() => make({ ...good, [unknown]: 1 }))
        expect(error).toBeInstanceOf(TypeError)
        expect(error).toMatchObject({ code: 'SLUICE_UNKNOWN_OPTION', option: unknown })
        expect(error.message).toContain(`did you mean '${meant}'?`)
      },
    )
  })
}

export function thrownBy(act: () => unknown): Error {
  try {
    act()
  } catch (error) {
    return error as Error
  }
  throw new Error('nothing was thrown')
}
