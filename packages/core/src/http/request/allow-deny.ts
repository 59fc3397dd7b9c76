import type { RequestOptions } from '../options.js'
import { plainAddress } from './address.js'
import { networksOf } from './cidr.js'

/** What lists of addresses say to a client; undefined for nothing. */
export type Access = (address: string | undefined) => 'allow' | 'deny' | undefined

/** Undefined when there are no lists. Of two networks that hold an address the longer prefix decides, of equal ones `deny`. */
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
    const toAllow = allowed(address)
    const toDeny = denied(address)
    if (toAllow === -1 && toDeny === -1) return undefined
    return toAllow > toDeny ? 'allow' : 'deny'
  }
}
