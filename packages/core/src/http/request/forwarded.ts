import { invalid } from '../../shared/errors.js'
import { wholeNumber } from '../../shared/validate.js'
import { plainAddress } from './address.js'
import { networksOf } from './cidr.js'

/*
 * Who the client is behind proxies. What a header says is believed as far as the proxies that wrote it are: from the peer
 * of the socket one step to the left for each address that is a known proxy, and no further.
 */

/** Options that say which proxies to believe. */
export interface ProxyOptions {
  /** Addresses and networks of proxies (`'10.0.0.0/8'`) whose word is taken for who their client is. */
  readonly trustedProxies?: readonly string[] | undefined
  /**
   * How many proxies stand in front, instead of `trustedProxies`: the client is that many entries from the right. Safe
   * only if nobody can reach this server past them.
   */
  readonly hops?: number | undefined
  /** The one header that is read: `'x-forwarded-for'`, the default, `'forwarded'`, or a header with one address. */
  readonly forwardedHeader?: string | undefined
}

/** Finds the client of a request from the peer of its socket and its headers; undefined when there is no address. */
export type FindClient = (peer: string | undefined, headers: Headers) => string | undefined

/** Headers as node:http has them. */
export interface Headers {
  readonly [name: string]: string | string[] | undefined
}

/** How to find clients; undefined when no option says so, and it is the framework's affair. */
export function clientFinder(options: ProxyOptions): FindClient | undefined {
  const { trustedProxies, hops, forwardedHeader } = options
  if (trustedProxies === undefined && hops === undefined) {
    if (forwardedHeader !== undefined)
      throw invalid(TypeError, 'forwardedHeader', 'trustedProxies or hops beside it', forwardedHeader)
    return undefined
  }
  if (trustedProxies !== undefined && hops !== undefined)
    throw invalid(TypeError, 'hops', 'either trustedProxies or hops', hops)
  const entriesOf = entriesIn(headerName(forwardedHeader))
  if (hops !== undefined) return byHops(wholeNumber('hops', hops), entriesOf)
  const prefixOf = networksOf('trustedProxies', trustedProxies)
  return byTrust(address => prefixOf(address) !== -1, entriesOf)
}

/** The forwarded addresses of a request, from the left; what is none is in its place. */
type Entries = (headers: Headers) => readonly string[]

function byTrust(isTrusted: (address: string) => boolean, entriesOf: Entries): FindClient {
  return (peer, headers) => {
    let client = peer === undefined ? undefined : plainAddress(peer)
    if (client === undefined || !isTrusted(client)) return client
    for (const entry of entriesOf(headers).slice(-MOST_ENTRIES).reverse()) {
      const address = plainAddress(entry)
      if (address === undefined) return client
      client = address
      if (!isTrusted(address)) return client
    }
    return client
  }
}

function byHops(hops: number, entriesOf: Entries): FindClient {
  return (peer, headers) => {
    const entry = hops === 0 ? undefined : entriesOf(headers).at(-hops)
    const address = entry === undefined ? undefined : plainAddress(entry)
    return address ?? (peer === undefined ? undefined : plainAddress(peer))
  }
}

/** A walk reads no further. */
const MOST_ENTRIES = 32

function headerName(name: unknown): string {
  if (name === undefined) return 'x-forwarded-for'
  if (typeof name !== 'string') throw invalid(TypeError, 'forwardedHeader', 'the name of a header', name)
  if (!/^[!#$%&'*+.^_`|~0-9a-z-]+$/i.test(name))
    throw invalid(RangeError, 'forwardedHeader', 'the name of a header', name)
  return name.toLowerCase()
}

function entriesIn(name: string): Entries {
  return headers => {
    const value = Object.hasOwn(headers, name) ? headers[name] : undefined
    if (value === undefined) return []
    const text = typeof value === 'string' ? value : value.join(',')
    if (name === 'forwarded') return forwardedFor(text)
    return text
      .split(',')
      .map(entry => entry.trim())
      .filter(entry => entry !== '')
  }
}

/**
 * The `for` of each element (RFC 7239). An element without one, and one that is not well formed, is an entry that is no
 * address: an open quote of the client's must not swallow what a proxy has written behind it.
 */
function forwardedFor(text: string): string[] {
  return split(text, ',').map(element => {
    const pairs = split(element, ';').map(pair => PAIR.exec(pair))
    if (pairs.includes(null)) return ''
    const found = pairs.find(pair => pair?.[1]?.toLowerCase() === 'for')
    return unquoted(found?.[2] ?? '')
  })
}

/** A name, and a value in quotes or of letters that need none. */
const PAIR = /^([\w!#$%&'*+.^`|~-]+)=("(?:[^"\\]|\\.)*"|[^\s",;=\\]+)$/s

/** Splits at a separator outside of quoted strings; empty parts do not count. */
function split(text: string, separator: string): string[] {
  const parts: string[] = []
  let part = ''
  let quoted = false
  for (let index = 0; index < text.length; index++) {
    const letter = text[index] as string
    if (quoted && letter === '\\') part += letter + (text[++index] ?? '')
    else if (letter === separator && !quoted) {
      parts.push(part)
      part = ''
    } else {
      if (letter === '"') quoted = !quoted
      part += letter
    }
  }
  return [...parts, part].map(part => part.trim()).filter(part => part !== '')
}

function unquoted(value: string): string {
  return value.startsWith('"') && value.endsWith('"') ? value.slice(1, -1).replace(/\\(.)/gs, '$1') : value
}
