import { createHmac } from 'node:crypto'
import { invalid } from '../../shared/errors.js'

/** The partition key of a key, in base64. */
export type Partition = (key: string) => string

/** Hashes keys with a secret: without it, an unkeyed hash of an address is found by trying all addresses. */
export function partitionOf(secret: unknown): Partition {
  if (typeof secret !== 'string') throw invalid(TypeError, 'partitionSecret', 'a text', kindOnly(secret))
  if (secret.length < LEAST_SECRET)
    throw invalid(RangeError, 'partitionSecret', `at least ${LEAST_SECRET} characters`, secret.length)
  return key => createHmac('sha256', secret).update(key).digest().subarray(0, BYTES).toString('base64')
}

const BYTES = 9
const LEAST_SECRET = 16

/** A secret is not for an error text. */
function kindOnly(secret: unknown): string {
  return secret === null ? 'null' : typeof secret
}
