import { invalid } from './errors.js'

/** Checks what an ask costs: a whole number of permits, 0 included. */
export function checkCost(cost: unknown): number {
  if (typeof cost !== 'number') throw invalid(TypeError, 'cost', EXPECTED, cost, 'SLUICE_INVALID_COST')
  if (!Number.isSafeInteger(cost) || cost < 0)
    throw invalid(RangeError, 'cost', EXPECTED, cost, 'SLUICE_INVALID_COST')
  return cost
}

const EXPECTED = 'a whole number of permits'
