import { invalid } from '../../shared/errors.js'
import { wholeNumber } from '../../shared/validate.js'
import type { ProxyOptions } from '../options.js'
import type { FindClient, Headers } from '../types.js'
import { plainAddress } from './address.js'
import { networksOf } from './cidr.js'

/*
 * Finds a client's address behind proxies. A forwarded header can be believed as far as trusted proxies wrote it: the search
 * starts at the connection's address and goes one entry to the left for each address that is a trusted proxy.
 */

/** Checks the proxy options. Undefined if there are none, and the framework's own setting applies. */
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

/** The entries of a forwarded header, from left to right, including those that are not addresses. */
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

/** The most entries that are read of one header. */
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
 * The `for` value of each element (RFC 7239). An element that has none, or that is malformed, becomes an empty entry: an
 * unclosed quote from the client must not hide the elements that a proxy appended.
 */
function forwardedFor(text: string): string[] {
  return split(text, ',').map(element => {
    const pairs = split(element, ';').map(pair => PAIR.exec(pair))
    if (pairs.includes(null)) return ''
    const found = pairs.find(pair => pair?.[1]?.toLowerCase() === 'for')
    return unquoted(found?.[2] ?? '')
  })
}

/** A name, and a value that is a token or a quoted string. */
const PAIR = /^([\w!#$%&'*+.^`|~-]+)=("(?:[^"\\]|\\.)*"|[^\s",;=\\]+)$/s

/** Splits at separators outside quoted strings, and drops empty parts. */
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
