import fc from 'fast-check'
import { expect } from 'vitest'

/**
 * Checks a law that has a premise: `law` returns whether a run fulfilled it. A law whose premise is rarely true proves
 * little, so at least `least` of the runs must fulfil it; 0 where that is impossible.
 */
export function checkWhere<T>(
  arbitrary: fc.Arbitrary<T>,
  law: (value: T) => boolean,
  { runs = 150, least = 0.2 }: { readonly runs?: number; readonly least?: number } = {},
): void {
  let met = 0
  fc.assert(
    fc.property(arbitrary, value => {
      if (law(value)) met++
    }),
    { numRuns: runs },
  )
  if (least === 0) expect(met, 'the premise was met after all').toBe(0)
  else expect(met, `runs of ${runs} that met the premise`).toBeGreaterThanOrEqual(runs * least)
}
