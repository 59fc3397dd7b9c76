import type * as Crypto from 'node:crypto'
import { invalid, invalidPrivately } from '../../shared/errors.js'
import { builtinFor } from '../../shared/node-module.js'
import type { Partition } from '../types.js'

/** Hashes keys with a secret. Without one, an address could be found by hashing every address. */
export function partitionOf(secret: unknown): Partition {
  if (typeof secret !== 'string')
    throw invalidPrivately(TypeError, 'partitionSecret', 'a string', secret, 'SLUICE_INVALID_OPTION')
  if (secret.length < LEAST_SECRET)
    throw invalid(RangeError, 'partitionSecret', `at least ${LEAST_SECRET} characters`, secret.length)
  const { createHmac } = builtinFor<typeof Crypto>('node:crypto', 'partitionSecret')
  return key => createHmac('sha256', secret).update(key).digest().subarray(0, BYTES).toString('base64')
}

const BYTES = 9
const LEAST_SECRET = 16
