import { nodeNet } from './node-net.js'

/*
 * Makes a key of a client's address. One client must not have two keys, and two clients must not share one:
 *
 * - The same IPv4 address can arrive as 192.0.2.1, as ::ffff:192.0.2.1 from a dual-stack socket, and as
 *   64:ff9b::c000:201 through a NAT64.
 * - An IPv6 client can choose addresses from a whole network, commonly a /56 (RIPE-690).
 */

/**
 * The key of a client's address: an IPv4 address as it is, an IPv6 address as its network of `prefix` bits (default 56).
 * Accepts the spellings of proxies and sockets, with ports, brackets, zones and quotes. Undefined if the text is not an
 * IP address.
 *
 * @example
 * addressKey('::ffff:192.0.2.1') // '192.0.2.1'
 * addressKey('[2001:db8:1:2345::5]:443') // '2001:db8:1:2300::/56'
 */
export function addressKey(text: string, prefix = 56): string | undefined {
  const address = plainAddress(text)
  if (address === undefined || isIP(address) === 4) return address
  const groups = groupsOf(address)
  return prefix === 128 ? compressed(groups) : `${compressed(masked(groups, prefix))}/${prefix}`
}

/**
 * An address without port, brackets, zone and quotes, and an IPv6 form of an IPv4 address as that address. Undefined if the
 * text is not an IP address.
 */
export function plainAddress(text: string): string | undefined {
  if (isIP(text) === 4) return text
  const address = bareAddress(text)
  const version = isIP(address)
  if (version !== 6) return version === 4 ? address : undefined
  // A fast path for the form in which a dual-stack socket writes an IPv4 address.
  if (address.startsWith('::ffff:') && isIP(address.slice(7)) === 4) return address.slice(7)
  const groups = groupsOf(address)
  return hasPrefix(groups, MAPPED) || hasPrefix(groups, NAT64) ? dotted(groups) : address
}

/** The IPv4 form of an IPv6 network whose addresses all stand for IPv4 addresses: `::ffff:10.0.0.0/104` is 10.0.0.0/8. */
export function plainNetwork(address: string, prefix: number): readonly [address: string, prefix: number] {
  if (isIP(address) !== 6 || prefix < 96) return [address, prefix]
  const groups = groupsOf(address)
  const isIpv4 = hasPrefix(groups, MAPPED) || hasPrefix(groups, NAT64)
  return isIpv4 ? [dotted(groups), prefix - 96] : [address, prefix]
}

function isIP(text: string): number {
  return nodeNet('key').isIP(text)
}

/** ::ffff:0:0/96 (RFC 4291 2.5.5.2). */
const MAPPED = [0, 0, 0, 0, 0, 0xffff]
/** 64:ff9b::/96 (RFC 6052 2.1). */
const NAT64 = [0x64, 0xff9b, 0, 0, 0, 0]

/** Removes white space, quotes, brackets with a port, the port of an IPv4 address, and the zone. */
function bareAddress(text: string): string {
  const plain = text.trim().replace(/^"(.*)"$/, '$1')
  const bracketed = /^\[([^\]]*)\](?::\d{1,5})?$/.exec(plain)
  if (bracketed !== null) return withoutZone(bracketed[1] as string)
  const withPort = /^([\d.]+):\d{1,5}$/.exec(plain)
  return withPort === null ? withoutZone(plain) : (withPort[1] as string)
}

function withoutZone(address: string): string {
  const zone = address.indexOf('%')
  return zone === -1 ? address : address.slice(0, zone)
}

/** The eight 16-bit groups of a valid IPv6 address. */
function groupsOf(address: string): number[] {
  const [head = '', tail] = address.split('::')
  const first = groupsIn(head)
  if (tail === undefined) return first
  const last = groupsIn(tail)
  return [...first, ...new Array(8 - first.length - last.length).fill(0), ...last]
}

function groupsIn(text: string): number[] {
  if (text === '') return []
  return text.split(':').flatMap(group => {
    if (!group.includes('.')) return [Number.parseInt(group, 16)]
    const [a, b, c, d] = group.split('.').map(Number) as [number, number, number, number]
    return [a * 256 + b, c * 256 + d]
  })
}

function hasPrefix(groups: readonly number[], prefix: readonly number[]): boolean {
  return prefix.every((group, index) => groups[index] === group)
}

/** The IPv4 address in the last 32 bits. */
function dotted(groups: readonly number[]): string {
  const [high, low] = groups.slice(6) as [number, number]
  return `${high >> 8}.${high & 255}.${low >> 8}.${low & 255}`
}

function masked(groups: readonly number[], prefix: number): number[] {
  return groups.map((group, index) => {
    const bits = Math.min(Math.max(prefix - index * 16, 0), 16)
    return group & (0xffff << (16 - bits))
  })
}

/** The canonical text (RFC 5952): lower case, the longest run of at least two zero groups as `::`. */
function compressed(groups: readonly number[]): string {
  let start = -1
  let length = 1
  for (let from = 0; from < 8; from++) {
    let to = from
    while (groups[to] === 0) to++
    if (to - from > length) {
      start = from
      length = to - from
    }
  }
  const text = (part: readonly number[]) => part.map(group => group.toString(16)).join(':')
  return start === -1
    ? text(groups)
    : `${text(groups.slice(0, start))}::${text(groups.slice(start + length))}`
}
