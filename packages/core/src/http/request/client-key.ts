import { coded } from '../../shared/errors.js'
import { warnOnce } from '../../shared/warnings.js'
import type { Closing } from '../lifecycle/response-end.js'
import type { Exchange } from '../options.js'
import { addressKey } from './address.js'
import type { FindClient, Headers } from './forwarded.js'

/** A request as node:http has it. */
export interface Message {
  readonly method?: string | undefined
  readonly headers: Headers
  readonly socket?: Socket | undefined
  /** Whether its client has gone before it was answered. */
  readonly aborted?: boolean | undefined
}

/** The connection of a request. */
export interface Socket {
  readonly remoteAddress?: string | undefined
  readonly destroyed?: boolean
  once?(event: 'close', listener: () => void): unknown
  off?(event: 'close', listener: () => void): unknown
}

/** What the room must know of a framework's requests and responses. */
export interface Host<X extends Exchange> {
  /** The client's address as the framework sees it; undefined when there is none. */
  address(request: X[0]): string | undefined
  /** The request below the framework's. */
  message(request: X[0]): Message
  /** The response below the framework's. */
  response(...exchange: X): Closing
  /** Whose word the framework takes in a forwarded header. */
  trusts(request: X[0]): 'nobody' | 'some' | 'anybody'
}

/** The default key of requests: the client's address, by the framework or by the proxies that are trusted. */
export class ClientKeys<X extends Exchange> {
  private readonly host: Host<X>
  private readonly findClient: FindClient | undefined
  private readonly prefix: number
  private looksOut = true

  constructor(host: Host<X>, findClient: FindClient | undefined, prefix: number) {
    this.host = host
    this.findClient = findClient
    this.prefix = prefix
  }

  /** Throws when there is no address that could be a key. */
  of(request: X[0], message: Message): string {
    const address = this.addressOf(request, message)
    const key = address === undefined ? undefined : addressKey(address, this.prefix)
    if (key !== undefined) return key
    const trouble =
      address === undefined
        ? 'the request has no client address to be limited by'
        : "the framework's client address is not an IP address (check how it trusts proxies)"
    throw coded(
      new Error(`key: ${trouble}; set the key option, such as key: req => req.user.id`),
      'SLUICE_NO_CLIENT_ADDRESS',
      'key',
    )
  }

  /** Undefined when there is none. */
  addressOf(request: X[0], message: Message): string | undefined {
    if (this.findClient !== undefined) return this.findClient(message.socket?.remoteAddress, message.headers)
    const address = this.host.address(request)
    if (this.looksOut) this.lookOut(request, message)
    return address
  }

  /** Warns of what makes one client of all, or lets one client be many. */
  private lookOut(request: X[0], { headers }: Message): void {
    if (headers['x-forwarded-for'] === undefined && headers.forwarded === undefined) return
    this.looksOut = false
    const trusts = this.host.trusts(request)
    if (trusts === 'anybody')
      warnOnce(
        'SLUICE_TRUSTS_ANYBODY',
        'The framework believes whatever a forwarded header says, so that every client may choose its key. Name the ' +
          'proxies: trustedProxies of rateLimit, or the trust setting of the framework.',
      )
    else if (trusts === 'nobody')
      warnOnce(
        'SLUICE_PROXY_NOT_TRUSTED',
        'A request has a forwarded header, and no proxy is trusted: behind a proxy all clients are limited as one. Name ' +
          'the proxies: trustedProxies of rateLimit, or the trust setting of the framework.',
      )
  }
}
