import type { BlockList } from 'node:net'
import { invalid } from '../../shared/errors.js'
import { plainNetwork } from './address.js'
import { nodeNet } from './node-net.js'

/** The longest prefix, among addresses and networks, that contains an address of `plainAddress`; -1 for none. */
export type LongestPrefix = (address: string) => number

/** Reads an option that lists addresses and networks. Throws a TypeError or RangeError for anything else. */
export function networksOf(option: string, list: unknown): LongestPrefix {
  const expected = "a list of addresses and networks such as ['10.0.0.0/8']"
  if (!Array.isArray(list)) throw invalid(TypeError, option, expected, list)
  const { BlockList, isIP } = nodeNet(option)
  // One set for each family: a BlockList with both compares IPv4 addresses with IPv6 networks.
  const ipv4 = prefixes('ipv4', BlockList)
  const ipv6 = prefixes('ipv6', BlockList)
  for (const network of list) {
    if (typeof network !== 'string') throw invalid(TypeError, option, expected, network)
    const [, address = '', length] = /^([^/]+)(?:\/(\d{1,3}))?$/.exec(network) ?? []
    const version = isIP(address)
    const bits = version === 4 ? 32 : 128
    const prefix = length === undefined ? bits : Number(length)
    if (version === 0 || prefix > bits) throw invalid(RangeError, option, expected, network)
    const [plain, plainPrefix] = plainNetwork(address, prefix)
    const family = isIP(plain) === 4 ? ipv4 : ipv6
    family.add(plain, plainPrefix)
  }
  return address => (isIP(address) === 4 ? ipv4 : ipv6).longest(address)
}

/** Networks of one family, grouped by the length of their prefixes, the longest first. */
function prefixes(family: 'ipv4' | 'ipv6', List: typeof BlockList) {
  let byLength: { readonly length: number; readonly networks: BlockList }[] = []
  return {
    add(address: string, length: number): void {
      let found = byLength.find(prefix => prefix.length === length)
      if (found === undefined) {
        found = { length, networks: new List() }
        byLength = [...byLength, found].toSorted((a, b) => b.length - a.length)
      }
      found.networks.addSubnet(address, length, family)
    },
    longest(address: string): number {
      return byLength.find(({ networks }) => networks.check(address, family))?.length ?? -1
    },
  }
}
