import { BlockList, isIP } from 'node:net'
import { invalid } from '../../shared/errors.js'
import { plainNetwork } from './address.js'

/** The longest prefix of the addresses and networks of an option that holds an address of `plainAddress`; -1 for none. */
export type LongestPrefix = (address: string) => number

/** Throws for what is no list of addresses and networks. */
export function networksOf(option: string, list: unknown): LongestPrefix {
  const expected = "a list of addresses and networks such as ['10.0.0.0/8']"
  if (!Array.isArray(list)) throw invalid(TypeError, option, expected, list)
  // One list for each family: a list that holds both compares IPv4 addresses with IPv6 networks.
  const ipv4 = new Prefixes('ipv4')
  const ipv6 = new Prefixes('ipv6')
  for (const network of list) {
    if (typeof network !== 'string') throw invalid(TypeError, option, expected, network)
    const [, address = '', length] = /^([^/]+)(?:\/(\d{1,3}))?$/.exec(network) ?? []
    const version = isIP(address)
    const bits = version === 4 ? 32 : 128
    const prefix = length === undefined ? bits : Number(length)
    if (version === 0 || prefix > bits) throw invalid(RangeError, option, expected, network)
    const [plain, plainPrefix] = plainNetwork(address, prefix)
    const prefixes = isIP(plain) === 4 ? ipv4 : ipv6
    prefixes.add(plain, plainPrefix)
  }
  return address => (isIP(address) === 4 ? ipv4 : ipv6).longest(address)
}

/** Networks of one family, by the length of their prefixes. */
class Prefixes {
  private readonly family: 'ipv4' | 'ipv6'
  /** The longest first. */
  private byLength: { readonly length: number; readonly networks: BlockList }[] = []

  constructor(family: 'ipv4' | 'ipv6') {
    this.family = family
  }

  add(address: string, length: number): void {
    let found = this.byLength.find(prefix => prefix.length === length)
    if (found === undefined) {
      found = { length, networks: new BlockList() }
      this.byLength = [...this.byLength, found].toSorted((a, b) => b.length - a.length)
    }
    found.networks.addSubnet(address, length, this.family)
  }

  longest(address: string): number {
    const found = this.byLength.find(({ networks }) => networks.check(address, this.family))
    return found?.length ?? -1
  }
}
