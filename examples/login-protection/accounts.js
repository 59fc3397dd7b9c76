// Three accounts for this example. The password of each is its name, a space and 'secret'.
import { randomBytes, scrypt, timingSafeEqual } from 'node:crypto'
import { promisify } from 'node:util'

/** @type {(password: string, salt: Buffer, length: number) => Promise<Buffer>} */
const hashOf = promisify(scrypt)

/** @type {Map<string, { salt: Buffer, hash: Buffer }>} */
const secrets = new Map()
for (const account of ['ann', 'bob', 'eve']) {
  const salt = randomBytes(16)
  secrets.set(account, { salt, hash: await hashOf(`${account} secret`, salt, 32) })
}

/** Used for unknown accounts, so that a check takes the same time. No password matches. */
const nobody = { salt: randomBytes(16), hash: randomBytes(32) }

/**
 * @param {string} account
 * @param {string} password
 */
export async function isPassword(account, password) {
  const { salt, hash } = secrets.get(account) ?? nobody
  return timingSafeEqual(hash, await hashOf(password, salt, hash.length))
}
