import { coded } from '../../shared/errors.js'
import type { Exchange } from '../options.js'
import type { FindClient, Host, Message } from '../types.js'
import { addressKey } from './address.js'
import { proxyWarning } from './proxy-warning.js'

/** The client's address of a request, and the default key that is made of it. */
export interface Clients<X extends Exchange> {
  /** Undefined if the request has no address. */
  addressOf(request: X[0], message: Message): string | undefined
  /** Throws if the request has no address, or one that is not an IP address. */
  keyOf(request: X[0], message: Message): string
}

/** Finds the address by `findClient`, or without it as the framework does. `prefix` is for IPv6 addresses. */
export function createClients<X extends Exchange>(
  host: Host<X>,
  findClient: FindClient | undefined,
  prefix: number,
): Clients<X> {
  const warnAboutProxies = proxyWarning(host)

  function addressOf(request: X[0], message: Message): string | undefined {
    if (findClient !== undefined) return findClient(message.socket?.remoteAddress, message.headers)
    const address = host.address(request)
    warnAboutProxies(request, message)
    return address
  }

  function keyOf(request: X[0], message: Message): string {
    const address = addressOf(request, message)
    const key = address === undefined ? undefined : addressKey(address, prefix)
    if (key !== undefined) return key
    const trouble =
      address === undefined
        ? 'the request has no client address'
        : "the framework's client address is not an IP address (check which proxies it trusts)"
    throw coded(
      new Error(`key: ${trouble}; set the key option, such as key: req => req.user.id`),
      'SLUICE_NO_CLIENT_ADDRESS',
      'key',
    )
  }

  return { addressOf, keyOf }
}
