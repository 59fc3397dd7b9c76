import assert from 'node:assert/strict'
import { algorithmContract } from '@sluice/core/testing'
import fc from 'fast-check'
import { test } from 'vitest'
import { ALGORITHMS } from '../support/algorithms.js'

for (const { name, algorithm, counts, unreachable } of ALGORITHMS)
  algorithmContract(
    { name, algorithms: fc.sample(algorithm, { numRuns: 300, seed: 1 }), counts, unreachable },
    { test, assert },
  )
