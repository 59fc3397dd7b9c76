import type { Algorithm } from '@sluice/core'
import { describe, expect, test } from 'vitest'

/** A value that an option does not take, and the class of the error it is answered with. */
export type Faulty = readonly [value: unknown, ErrorClass: typeof RangeError | typeof TypeError]

/** No whole number of permits, nor of anything. */
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

/** No length of a wait: anything but 0 and more. */
export const NOT_A_WAIT: readonly Faulty[] = [
  ['60', RangeError],
  ['soon', RangeError],
  [Number.NaN, RangeError],
  [-1, RangeError],
  ['-1s', RangeError],
  [10n, TypeError],
  [{ seconds: 1 }, TypeError],
]

/** No length of a window, which takes time and ends. */
export const NOT_A_SPAN: readonly Faulty[] = [
  ...NOT_A_WAIT,
  [0, RangeError],
  ['0s', RangeError],
  [Infinity, RangeError],
  [1000 / 3, RangeError],
  [undefined, TypeError],
  [null, TypeError],
]

/** What the options of an algorithm do not take, and what is said to one that it does not know. */
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
    // express-rate-limit 8.7.5 takes a limit of NaN for none, fastify-rate-limit 11.2.0 one of '2' for 1000.
    test.each(cases)('$option: $value is a fault', ({ option, value, ErrorClass }) => {
      const error = thrownBy(() => make({ ...good, [option]: value }))
      expect(error).toBeInstanceOf(ErrorClass)
      expect(error).toMatchObject({ code: 'SLUICE_INVALID_OPTION', option })
    })

    test.each(Object.entries<string>(misspelt))('%s is unknown, and %s is meant', (unknown, meant) => {
      const error = thrownBy(() => make({ ...good, [unknown]: 1 }))
      expect(error).toBeInstanceOf(TypeError)
      expect(error).toMatchObject({ code: 'SLUICE_UNKNOWN_OPTION', option: unknown })
      expect(error.message).toContain(`did you mean '${meant}'?`)
    })
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
