import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { addressKey } from '../../packages/core/src/http/request/address.js'

describe('the conformance table of standards.md, section 11', () => {
  it.each([
    ['::ffff:c633:6409', '198.51.100.9'],
    ['2001:0DB8:1234:56FF::1', '2001:db8:1234:5600::/56'],
    ['2001:db8:1234:5678::1.2.3.4', '2001:db8:1234:5600::/56'],
  ])('I5 %s is %s', (text, key) => {
    expect(addressKey(text)).toBe(key)
  })
})

describe('IPv4', () => {
  it.each(['0.0.0.0', '1.2.3.4', '127.0.0.1', '255.255.255.255'])('%s is its own key', text => {
    expect(addressKey(text)).toBe(text)
  })

  // GHSA-46wh-pxpv-q5gq (CVE-2026-30827), Yeraze/meshmonitor#2001
  it.each([
    '::ffff:1.2.3.4',
    '::FFFF:1.2.3.4',
    '::ffff:102:304',
    '::ffff:0102:0304',
    '0:0:0:0:0:ffff:1.2.3.4',
    '0:0:0:0:0:ffff:102:304',
    '0000:0000:0000:0000:0000:ffff:0102:0304',
    '0::0:ffff:1.2.3.4',
    '[::ffff:1.2.3.4]',
    '[::ffff:1.2.3.4]:443',
    '::ffff:1.2.3.4%eth0',
  ])('mapped as %s is the IPv4 address', text => {
    expect(addressKey(text)).toBe('1.2.3.4')
  })

  // GHSA-46wh-pxpv-q5gq (CVE-2026-30827), Yeraze/meshmonitor#2001
  it('mapped addresses of two clients are two keys', () => {
    expect(addressKey('::ffff:5.6.7.8')).toBe('5.6.7.8')
    expect(addressKey('::ffff:1.2.3.4')).not.toBe(addressKey('::ffff:5.6.7.8'))
  })

  it.each(['64:ff9b::1.2.3.4', '64:FF9B::102:304', '0064:ff9b:0:0:0:0:0102:0304', '[64:ff9b::1.2.3.4]:80'])(
    'behind a NAT64 as %s is the IPv4 address',
    text => {
      expect(addressKey(text)).toBe('1.2.3.4')
    },
  )

  it('behind a NAT64 two clients are two keys', () => {
    expect(addressKey('64:ff9b::5.6.7.8')).toBe('5.6.7.8')
  })

  it.each([
    ['::1.2.3.4', '::/56'],
    ['2001:db8::1.2.3.4', '2001:db8::/56'],
    ['::ffff:0:1.2.3.4', '::/56'],
    ['::fffe:1.2.3.4', '::/56'],
    ['1::ffff:1.2.3.4', '1::/56'],
    ['64:ff9b:1::1.2.3.4', '64:ff9b:1::/56'],
    ['64:ff9b:0:0:0:1:1.2.3.4', '64:ff9b::/56'],
    ['65:ff9b::1.2.3.4', '65:ff9b::/56'],
  ])('bits decide, not spelling: %s is %s', (text, key) => {
    expect(addressKey(text)).toBe(key)
  })

  it('does not depend on the prefix of IPv6', () => {
    for (const prefix of [32, 48, 56, 64, 128]) {
      expect(addressKey('1.2.3.4', prefix)).toBe('1.2.3.4')
      expect(addressKey('::ffff:1.2.3.4', prefix)).toBe('1.2.3.4')
      expect(addressKey('64:ff9b::1.2.3.4', prefix)).toBe('1.2.3.4')
    }
  })
})

describe('what proxies and sockets write around an address', () => {
  // express-rate-limit/express-rate-limit#234
  it('a port is no part of the key', () => {
    expect(addressKey('203.0.113.7:51000')).toBe('203.0.113.7')
    expect(addressKey('203.0.113.7:51001')).toBe('203.0.113.7')
    expect(addressKey('[2001:db8::1]:443')).toBe(addressKey('2001:db8::1'))
    expect(addressKey('[2001:db8::1]:443', 128)).toBe('2001:db8::1')
  })

  it.each([
    [' 203.0.113.7 ', '203.0.113.7'],
    ['\t203.0.113.7', '203.0.113.7'],
    ['"203.0.113.7"', '203.0.113.7'],
    ['"203.0.113.7:8080"', '203.0.113.7'],
    [' "203.0.113.7:8080" ', '203.0.113.7'],
    ['"[2001:db8:cafe::17]:4711"', '2001:db8:cafe::/56'],
    ['"[2001:db8:cafe::17]"', '2001:db8:cafe::/56'],
    ['[2001:db8:1:2345::5]:443', '2001:db8:1:2300::/56'],
    ['[2001:db8:1:2345::5]', '2001:db8:1:2300::/56'],
    [' [2001:db8:1:2345::5] ', '2001:db8:1:2300::/56'],
    ['fe80::1%eth0', 'fe80::/56'],
    ['fe80::1%12', 'fe80::/56'],
    ['[fe80::1%eth0]:443', 'fe80::/56'],
    ['FE80::1', 'fe80::/56'],
  ])('%j is %s', (text, key) => {
    expect(addressKey(text)).toBe(key)
  })

  it('a group that looks like a port is a group', () => {
    expect(addressKey('2001:db8::1:443', 128)).toBe('2001:db8::1:443')
  })
})

describe('what is not an address', () => {
  it.each([
    '',
    ' ',
    '""',
    '[]',
    '[]:80',
    'unknown',
    '_x',
    '_hidden',
    'undefined',
    'null',
    'localhost',
    'example.com',
    '/var/run/app.sock',
    '@',
    '010.0.0.1',
    '1.2.3',
    '1.2.3.4.5',
    '1.2.3.256',
    '1.2.3.4.',
    '0x7f.0.0.1',
    '2130706433',
    '1.2.3.4:',
    '1.2.3.4:port',
    '1.2.3.4:123456',
    '1.2.3.4, 5.6.7.8',
    '1.2.3.4/32',
    '-1.2.3.4',
    '١.٢.٣.٤',
    '2001:db8',
    '2001:db8:::1',
    '1::2::3',
    '1:2:3:4:5:6:7:8:9',
    '1:2:3:4:5:6:7',
    '12345::1',
    'g::1',
    '2001:db8::/32',
    '[2001:db8::1',
    '2001:db8::1]',
    '[2001:db8::1]443',
    '[2001:db8::1]:',
    '[2001:db8::1]:https',
    '::ffff:1.2.3',
    '::ffff:1.2.3.256',
    '::ffff:010.0.0.1',
    '"1.2.3.4',
    '%eth0',
    '1.2.3.4\n5.6.7.8',
  ])('%j has no key', text => {
    expect(addressKey(text)).toBeUndefined()
  })

  it('a header of 100,000 characters has no key', () => {
    for (const text of ['9', ':', '[', '"', '1.', '1.2.3.4, ', '%'])
      expect(addressKey(text.repeat(100_000 / text.length))).toBeUndefined()
  })
})

describe('the text of a network (RFC 5952)', () => {
  it.each([
    // 4.1 leading zeros, 4.3 lower case
    ['2001:0DB8:0001:0002:0003:0004:0005:ABCD', '2001:db8:1:2:3:4:5:abcd'],
    // 4.2.1 as short as possible
    ['2001:db8:0:0:0:0:2:1', '2001:db8::2:1'],
    ['2001:db8::0:1', '2001:db8::1'],
    // 4.2.2 one group of zeros is not shortened
    ['2001:db8:0:1:1:1:1:1', '2001:db8:0:1:1:1:1:1'],
    ['2001:db8::1:1:1:1:1', '2001:db8:0:1:1:1:1:1'],
    ['0:1:1:1:1:1:1:1', '0:1:1:1:1:1:1:1'],
    ['1:1:1:1:1:1:1:0', '1:1:1:1:1:1:1:0'],
    // 4.2.3 the longest run, the first of two
    ['2001:0:0:1:0:0:0:1', '2001:0:0:1::1'],
    ['2001:db8:0:0:1:0:0:1', '2001:db8::1:0:0:1'],
    ['0:0:1:1:0:0:1:1', '::1:1:0:0:1:1'],
    ['1:0:0:1:1:1:0:0', '1::1:1:1:0:0'],
    ['1:1:0:1:1:1:0:0', '1:1:0:1:1:1::'],
    ['0:0:0:0:0:0:0:0', '::'],
    ['0:0:0:0:0:0:0:1', '::1'],
    ['1:0:0:0:0:0:0:0', '1::'],
    ['::102:304', '::102:304'],
    ['::1.2.3.4', '::102:304'],
  ])('%s is %s', (text, key) => {
    expect(addressKey(text, 128)).toBe(key)
  })

  it.each([
    [32, '2001:db8::/32'],
    [33, '2001:db8:8000::/33'],
    [47, '2001:db8:fffe::/47'],
    [48, '2001:db8:ffff::/48'],
    [52, '2001:db8:ffff:f000::/52'],
    [56, '2001:db8:ffff:ff00::/56'],
    [60, '2001:db8:ffff:fff0::/60'],
    [64, '2001:db8:ffff:ffff::/64'],
    [65, '2001:db8:ffff:ffff:8000::/65'],
    [127, '2001:db8:ffff:ffff:ffff:ffff:ffff:fffe/127'],
    [128, '2001:db8:ffff:ffff:ffff:ffff:ffff:ffff'],
  ])('of %d bits', (prefix, key) => {
    expect(addressKey('2001:db8:ffff:ffff:ffff:ffff:ffff:ffff', prefix)).toBe(key)
  })

  it('loopback and link-local follow the same rule', () => {
    expect(addressKey('::1')).toBe('::/56')
    expect(addressKey('fe80::1')).toBe('fe80::/56')
    expect(addressKey('::1', 128)).toBe('::1')
  })
})

describe('one client, one key', () => {
  const group = fc.oneof(fc.constant(0), fc.integer({ min: 0, max: 0xffff }))
  const address = fc.array(group, { minLength: 8, maxLength: 8 })
  const bits = (groups: number[]) => groups.reduce((sum, group) => (sum << 16n) | BigInt(group), 0n)
  const groupsOf = (value: bigint) =>
    Array.from({ length: 8 }, (_, i) => Number((value >> BigInt(112 - 16 * i)) & 0xffffn))
  const embedsIPv4 = (groups: number[]) =>
    [0xffffn, 0x64_ff9b_0000_0000_0000_0000n].includes(bits(groups) >> 32n)

  /** The address in every spelling that is one: cases, padding, each run of zeros as `::`, a dotted tail. */
  function spellings(groups: number[]): string[] {
    const hex = groups.map(group => group.toString(16))
    const [high, low] = groups.slice(6) as [number, number]
    const tail = [high >> 8, high & 255, low >> 8, low & 255].join('.')
    const texts = [
      hex.join(':'),
      hex.map(group => group.padStart(4, '0')).join(':'),
      [...hex.slice(0, 6), tail].join(':'),
    ]
    for (let from = 0; from < 8; from++) {
      for (let to = from + 1; to <= 8 && groups[to - 1] === 0; to++) {
        texts.push(`${hex.slice(0, from).join(':')}::${hex.slice(to).join(':')}`)
        if (to <= 6) texts.push(`${hex.slice(0, from).join(':')}::${[...hex.slice(to, 6), tail].join(':')}`)
      }
    }
    return texts.flatMap(text => [text, text.toUpperCase(), `[${text}]:443`, `"[${text}]"`, `${text}%eth0`])
  }

  /** What the URL standard, which writes addresses like RFC 5952, makes of the first bits of an address. */
  function networkText(groups: number[], prefix: number): string {
    const host = 128n - BigInt(prefix)
    const network = groupsOf((bits(groups) >> host) << host)
    const { hostname } = new URL(`http://[${network.map(group => group.toString(16)).join(':')}]/`)
    return `${hostname.slice(1, -1)}/${prefix}`
  }

  it('however the address is spelled', () => {
    fc.assert(
      fc.property(address, groups => {
        const keys = new Set(spellings(groups).map(text => addressKey(text)))
        expect([...keys]).toEqual([addressKey(groups.map(group => group.toString(16)).join(':'))])
        expect(keys).not.toContain(undefined)
      }),
    )
  })

  it('and it is the network as the URL standard writes it', () => {
    fc.assert(
      fc.property(address, fc.integer({ min: 32, max: 127 }), (groups, prefix) => {
        fc.pre(!embedsIPv4(groups))
        const [text = ''] = spellings(groups)
        expect(addressKey(text, prefix)).toBe(networkText(groups, prefix))
      }),
    )
  })

  it('two addresses share a key exactly when they share their first 56 bits', () => {
    const network = fc.bigInt({ min: 0n, max: (1n << 56n) - 1n })
    const host = fc.bigInt({ min: 0n, max: (1n << 72n) - 1n })
    const flipped = fc.integer({ min: 0, max: 55 })
    fc.assert(
      fc.property(network, host, host, flipped, (network, one, other, bit) => {
        const at = (network: bigint, host: bigint) => groupsOf((network << 72n) | host)
        const keyOf = (groups: number[]) => addressKey(groups.map(group => group.toString(16)).join(':'))
        const neighbour = network ^ (1n << BigInt(bit))
        const addresses = [at(network, one), at(network, other), at(neighbour, one)] as const
        fc.pre(!addresses.some(embedsIPv4))
        expect(keyOf(addresses[0])).toBe(keyOf(addresses[1]))
        expect(keyOf(addresses[0])).not.toBe(keyOf(addresses[2]))
      }),
    )
  })

  it('every IPv4 address has one key, plain, mapped or behind a NAT64', () => {
    fc.assert(
      fc.property(fc.ipV4(), fc.integer({ min: 0, max: 65_535 }), (text, port) => {
        const hex = text.split('.').map(Number) as [number, number, number, number]
        const low = `${(hex[0] * 256 + hex[1]).toString(16)}:${(hex[2] * 256 + hex[3]).toString(16)}`
        for (const spelling of [
          text,
          `${text}:${port}`,
          `::ffff:${text}`,
          `::ffff:${low}`,
          `[::FFFF:${low.toUpperCase()}]:${port}`,
          `64:ff9b::${text}`,
          `64:ff9b::${low}`,
        ])
          expect(addressKey(spelling)).toBe(text)
      }),
    )
  })
})
