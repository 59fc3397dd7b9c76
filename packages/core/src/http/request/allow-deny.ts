import type { RequestOptions } from '../options.js'
import type { Access } from '../types.js'
import { plainAddress } from './address.js'
import { networksOf } from './cidr.js'

/** The `allow` and `deny` lists as a function; undefined if there is neither. Of equal prefixes, `deny` decides. */
export function accessOf({
  allow,
  deny,
}: Pick<RequestOptions<[unknown]>, 'allow' | 'deny'>): Access | undefined {
  if (allow === undefined && deny === undefined) return undefined
  const allowed = networksOf('allow', allow === undefined ? [] : allow)
  const denied = networksOf('deny', deny === undefined ? [] : deny)
  return text => {
    const address = text === undefined ? undefined : plainAddress(text)
    if (address === undefined) return undefined
    const allowPrefix = allowed(address)
    const denyPrefix = denied(address)
    if (allowPrefix === -1 && denyPrefix === -1) return undefined
    return allowPrefix > denyPrefix ? 'allow' : 'deny'
  }
}
