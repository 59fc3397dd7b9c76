import { once } from 'node:events'
import { createServer, request as httpRequest, type IncomingHttpHeaders } from 'node:http'
import { createRequire } from 'node:module'
import type { AddressInfo, ListenOptions } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createGuard, type Host, type ProxyOptions } from '@sluice/core/http'
import express, { type Express } from 'express'
import fc from 'fast-check'
import { fastify } from 'fastify'
import ipaddr from 'ipaddr.js'
import Koa from 'koa'
import { afterEach, beforeEach, describe, expect, it, type MockInstance, vi } from 'vitest'
import { addressKey, plainAddress } from '../../packages/core/src/http/request/address.js'
import { createClients } from '../../packages/core/src/http/request/client-key.js'
import { clientFinder } from '../../packages/core/src/http/request/forwarded.js'
import type { Headers, Message } from '../../packages/core/src/http/types.js'
import { run } from '../support/process.js'
import { NO_RESPONSE } from './no-response.js'

const require = createRequire(import.meta.url)
const TEST = join(import.meta.dirname, '..')

let emitWarning: MockInstance<typeof process.emitWarning>
beforeEach(() => {
  emitWarning = vi.spyOn(process, 'emitWarning').mockImplementation(() => {})
})
afterEach(() => {
  emitWarning.mockRestore()
})

interface Given {
  readonly peer: string | undefined
  readonly options?: ProxyOptions
  readonly prefix?: number
  /** What the framework takes for the client's address; default the peer. */
  readonly address?: string | undefined
}

/** The key of a request with these headers. */
function keyOf(headers: Headers, { peer, options = {}, prefix = 56, address = peer }: Given): string {
  const message: Message = { headers, socket: { remoteAddress: peer } }
  const host: Host<[Message]> = { ...NODE, address: () => address, message: () => message }
  return createClients(host, clientFinder(options), prefix).keyOf(message, message)
}

/** The client of a request with this header, whose peer 10.0.0.1 is a proxy, as all of 10.0.0.0/8 are. */
function behindTen(value: string | string[], name = 'x-forwarded-for'): string {
  return keyOf({ [name]: value }, { peer: '10.0.0.1', options: { ...TEN, forwardedHeader: name } })
}

const TEN = { trustedProxies: ['10.0.0.0/8'] } as const

describe('the conformance table of standards.md, section 11', () => {
  it('I1 a header counts for nothing when nothing is trusted', () => {
    expect(keyOf({ 'x-forwarded-for': '6.6.6.6' }, { peer: '203.0.113.7' })).toBe('203.0.113.7')
  })

  it('I2 the first untrusted address from the right is the client', () => {
    const headers = { 'x-forwarded-for': '6.6.6.6, 198.51.100.9:51234, 10.0.0.2' }
    expect(keyOf(headers, { peer: '::ffff:10.0.0.1', options: TEN })).toBe('198.51.100.9')
  })

  it('I3 an IPv6 client is its network', () => {
    expect(behindTen('[2001:db8:1:2345::5]:443')).toBe('2001:db8:1:2300::/56')
  })

  it.each([
    ['6.6.6.6, unknown', '10.0.0.1'],
    ['10.9.9.9, 10.0.0.2', '10.9.9.9'],
    ['6.6.6.6, , 198.51.100.9,', '198.51.100.9'],
  ])('I4 of %j the client is %s', (value, key) => {
    expect(behindTen(value)).toBe(key)
  })

  it.each([
    ['::ffff:c633:6409', '198.51.100.9'],
    ['2001:0DB8:1234:56FF::1', '2001:db8:1234:5600::/56'],
    ['2001:db8:1234:5678::1.2.3.4', '2001:db8:1234:5600::/56'],
  ])('I5 the peer %s is %s', (peer, key) => {
    expect(keyOf({}, { peer })).toBe(key)
    expect(keyOf({}, { peer, options: TEN })).toBe(key)
    expect(keyOf({}, { peer, options: { hops: 1 } })).toBe(key)
  })

  it.each<[ProxyOptions, Headers]>([
    [{}, { 'x-forwarded-for': '6.6.6.6' }],
    [TEN, { 'x-forwarded-for': '6.6.6.6' }],
    [{ hops: 1 }, {}],
    [{ hops: 1 }, { 'x-forwarded-for': 'unknown' }],
  ])('I5 no peer is a coded error that says to set the key, with %j and %j', (options, headers) => {
    expect(() => keyOf(headers, { peer: undefined, options })).toThrow(
      expect.objectContaining({
        code: 'SLUICE_NO_CLIENT_ADDRESS',
        option: 'key',
        message: expect.stringContaining('set the key option'),
      }),
    )
  })

  it.each([
    [1, '10.0.0.1', '6.6.6.6, 198.51.100.9', '198.51.100.9'],
    [2, '203.0.113.7', '6.6.6.6', '203.0.113.7'],
  ])('I6 with hops %d the client of peer %s and %j is %s', (hops, peer, value, key) => {
    expect(keyOf({ 'x-forwarded-for': value }, { peer, options: { hops } })).toBe(key)
  })

  it.each([
    ['for=192.0.2.43, for="[2001:db8:cafe::17]:4711"', '2001:db8:cafe::/56'],
    ['for=192.0.2.43, for="[2001:db8:cafe::17]:4711", for=_hidden', '10.0.0.1'],
  ])('I7 of Forwarded: %s the client is %s', (value, key) => {
    expect(behindTen(value, 'forwarded')).toBe(key)
  })
})

describe('which peers may forward a client address', () => {
  const address = '198.51.100.9'

  it('by default the address of the framework is the key, in its canonical form', () => {
    const headers = { 'x-forwarded-for': '6.6.6.6' }
    expect(keyOf(headers, { peer: '10.0.0.1', address })).toBe(address)
    expect(keyOf(headers, { peer: '10.0.0.1', address: `${address}:51234` })).toBe(address)
    expect(keyOf(headers, { peer: '10.0.0.1', address: `::ffff:${address}` })).toBe(address)
  })

  it.each(['unknown', '_x', '', '010.0.0.1'])('an address %j of the framework is a coded error', text => {
    expect(() => keyOf({}, { peer: '10.0.0.1', address: text })).toThrow(
      expect.objectContaining({
        code: 'SLUICE_NO_CLIENT_ADDRESS',
        message: expect.not.stringContaining('_x'),
      }),
    )
  })

  it.each([TEN, { trustedProxies: [] }, { hops: 0 }, { hops: 1 }])(
    'with %j it is the peer of the socket',
    options => {
      expect(keyOf({}, { peer: '10.0.0.1', address, options })).toBe('10.0.0.1')
    },
  )

  it('the header of a peer that is no proxy counts for nothing', () => {
    const headers = { 'x-forwarded-for': '6.6.6.6, 10.0.0.2' }
    expect(keyOf(headers, { peer: '203.0.113.7', options: TEN })).toBe('203.0.113.7')
    expect(keyOf(headers, { peer: '10.0.0.1', options: { trustedProxies: [] } })).toBe('10.0.0.1')
  })

  it('one header is read, and never another', () => {
    const headers = {
      'x-forwarded-for': '192.0.2.1',
      forwarded: 'for=192.0.2.2',
      'x-real-ip': '192.0.2.3',
    }
    const read = (forwardedHeader: string | undefined, given: Headers = headers) =>
      keyOf(given, { peer: '10.0.0.1', options: { ...TEN, forwardedHeader } })
    expect(read(undefined)).toBe('192.0.2.1')
    expect(read('x-forwarded-for')).toBe('192.0.2.1')
    expect(read('Forwarded')).toBe('192.0.2.2')
    expect(read('X-Real-IP')).toBe('192.0.2.3')
    for (const name of Object.keys(headers))
      expect(read(name, { ...headers, [name]: undefined })).toBe('10.0.0.1')
  })

  it('hops read the header that is named', () => {
    const headers = { 'x-forwarded-for': '192.0.2.1', forwarded: 'for=192.0.2.2', 'x-real-ip': '192.0.2.3' }
    const read = (forwardedHeader: string) =>
      keyOf(headers, { peer: '10.0.0.1', options: { hops: 1, forwardedHeader } })
    expect(['x-forwarded-for', 'forwarded', 'x-real-ip'].map(read)).toEqual([
      '192.0.2.1',
      '192.0.2.2',
      '192.0.2.3',
    ])
  })
})

describe('the walk', () => {
  it.each([
    // One entry, with all that proxies write around an address.
    ['198.51.100.9', '198.51.100.9'],
    ['198.51.100.9:80', '198.51.100.9'],
    ['"198.51.100.9"', '198.51.100.9'],
    ['"198.51.100.9:80"', '198.51.100.9'],
    ['\t198.51.100.9 ', '198.51.100.9'],
    ['::ffff:198.51.100.9', '198.51.100.9'],
    ['[::ffff:198.51.100.9]:80', '198.51.100.9'],
    ['::FFFF:C633:6409', '198.51.100.9'],
    ['0:0:0:0:0:ffff:c633:6409', '198.51.100.9'],
    ['64:ff9b::198.51.100.9', '198.51.100.9'],
    ['64:ff9b::c633:6409', '198.51.100.9'],
    ['::198.51.100.9', '::/56'],
    ['2001:db8::198.51.100.9', '2001:db8::/56'],
    ['fe80::1%eth0', 'fe80::/56'],
    ['"[fe80::1%eth0]:80"', 'fe80::/56'],
    ['::1', '::/56'],
    // Proxies in every spelling are proxies.
    ['198.51.100.9, 10.0.0.2', '198.51.100.9'],
    ['198.51.100.9, 10.0.0.3:80, 10.0.0.2:443', '198.51.100.9'],
    ['198.51.100.9, ::ffff:10.0.0.2', '198.51.100.9'],
    ['198.51.100.9, ::ffff:a00:2', '198.51.100.9'],
    ['198.51.100.9, "[::FFFF:10.0.0.2]:80"', '198.51.100.9'],
    ['198.51.100.9, 64:ff9b::10.0.0.2', '198.51.100.9'],
    ['198.51.100.9, ::10.0.0.2', '::/56'],
    // Empty members do not count.
    ['', '10.0.0.1'],
    [' , ,', '10.0.0.1'],
    [',198.51.100.9', '198.51.100.9'],
    ['198.51.100.9,,', '198.51.100.9'],
    ['198.51.100.9 ,, , 10.0.0.2 , ,', '198.51.100.9'],
    // An invalid entry ends it at the last valid address.
    ['198.51.100.9, unknown', '10.0.0.1'],
    ['198.51.100.9, _x', '10.0.0.1'],
    ['198.51.100.9, 010.0.0.1', '10.0.0.1'],
    ['198.51.100.9, 1.2.3', '10.0.0.1'],
    ['198.51.100.9, 10.0.0.256', '10.0.0.1'],
    ['198.51.100.9, 10.0.0.0/8', '10.0.0.1'],
    ['198.51.100.9, ""', '10.0.0.1'],
    ['198.51.100.9, unknown, 10.0.0.2', '10.0.0.2'],
    ['198.51.100.9, unknown, 10.0.0.3, 10.0.0.2', '10.0.0.3'],
    ['unknown, 198.51.100.9', '198.51.100.9'],
    // All are trusted: the left-most.
    ['10.0.0.4, 10.0.0.3, 10.0.0.2', '10.0.0.4'],
  ])('of X-Forwarded-For: %j the client is %s', (value, key) => {
    expect(behindTen(value)).toBe(key)
  })

  // tdurieux/anonymous_github#750
  it('finds the same client through one, two and three proxies', () => {
    for (const proxies of ['', ', 10.0.0.2', ', 10.0.0.3, 10.0.0.2'])
      expect(behindTen(`6.6.6.6, 198.51.100.9${proxies}`)).toBe('198.51.100.9')
  })

  it('goes over all lines of the header, in order', () => {
    expect(behindTen(['6.6.6.6', '198.51.100.9', '10.0.0.2'])).toBe('198.51.100.9')
    expect(behindTen(['6.6.6.6, 198.51.100.9', '', '10.0.0.3, 10.0.0.2'])).toBe('198.51.100.9')
    expect(behindTen(['for=6.6.6.6', 'for=198.51.100.9', 'for=10.0.0.2'], 'forwarded')).toBe('198.51.100.9')
    expect(behindTen(['6.6.6.6', '198.51.100.9'], 'x-real-ip')).toBe('198.51.100.9')
  })

  it('reads 32 entries and no more', () => {
    const proxies = (count: number) => Array.from({ length: count }, (_, index) => `10.1.0.${count - index}`)
    expect(behindTen(['198.51.100.9', ...proxies(31)].join(','))).toBe('198.51.100.9')
    expect(behindTen(['198.51.100.9', ...proxies(32)].join(','))).toBe('10.1.0.32')
    expect(behindTen(['198.51.100.9', ...proxies(100)].join(','))).toBe('10.1.0.32')
    expect(behindTen(['for=198.51.100.9', ...proxies(40).map(at => `for=${at}`)].join(), 'forwarded')).toBe(
      '10.1.0.32',
    )
  })

  it('does not count empty members among the 32', () => {
    expect(behindTen(`198.51.100.9${','.repeat(1000)}10.0.0.2`)).toBe('198.51.100.9')
  })

  // Steps that grow with the square of the length would take minutes.
  it('reads a header of 100,000 characters in steps that grow with its length', { timeout: 10_000 }, () => {
    for (const part of ['10.0.0.2,', ',', '"', '[', ' ', '1', ':', 'for=', ';', '\\"'])
      for (const name of ['x-forwarded-for', 'forwarded', 'x-real-ip'])
        expect(() => behindTen(part.repeat(100_000 / part.length), name)).not.toThrow()
  })
})

describe('trusted networks', () => {
  const through = (trustedProxies: string[], peer: string) =>
    keyOf({ 'x-forwarded-for': '198.51.100.9' }, { peer, options: { trustedProxies } }) === '198.51.100.9'

  it.each([
    ['10.0.0.0/8', '10.255.255.255'],
    ['10.1.2.3/8', '10.0.0.1'],
    ['10.0.0.1', '10.0.0.1'],
    ['10.0.0.1/32', '10.0.0.1'],
    ['0.0.0.0/0', '203.0.113.7'],
    ['10.0.0.0/8', '::ffff:10.0.0.1'],
    ['10.0.0.0/8', '::ffff:a00:1'],
    // A mapped network means its IPv4 form.
    ['::ffff:10.0.0.0/104', '10.0.0.1'],
    ['::ffff:10.0.0.0/104', '::ffff:10.0.0.1'],
    ['::FFFF:a00:0/104', '10.0.0.1'],
    ['0:0:0:0:0:ffff:a00:0/104', '10.0.0.1'],
    ['::ffff:10.0.0.1', '10.0.0.1'],
    ['::ffff:10.0.0.1/128', '10.0.0.1'],
    ['::ffff:0:0/96', '203.0.113.7'],
    ['2001:db8::/32', '2001:db8:ffff::1'],
    ['2001:DB8::1', '2001:db8:0:0::1'],
    ['fd00::/8', 'fdff::1'],
    ['fe80::/10', 'fe80::1%eth0'],
    ['::1', '::1'],
    ['::1/128', '::1'],
    ['::/0', '2001:db8::1'],
  ])('%s has %s', (network, peer) => {
    expect(through([network], peer)).toBe(true)
    expect(through(['192.0.2.0/24', network, '2001:db8:1::/48'], peer)).toBe(true)
  })

  it.each([
    ['10.0.0.0/8', '11.0.0.1'],
    ['10.0.0.1', '10.0.0.2'],
    ['10.0.0.0/31', '10.0.0.2'],
    ['::ffff:10.0.0.0/104', '11.0.0.1'],
    ['::ffff:10.0.0.0/104', '::10.0.0.1'],
    ['::ffff:10.0.0.1', '10.0.0.2'],
    ['10.0.0.0/8', '::10.0.0.1'],
    ['10.0.0.0/8', '2001:db8::10.0.0.1'],
    ['0.0.0.0/0', '2001:db8::1'],
    ['2001:db8::/32', '2001:db9::1'],
    ['2001:db8::/127', '2001:db8::2'],
    ['::1', '::2'],
    ['::1', '127.0.0.1'],
    // Networks of IPv6 have no IPv4 address in them, although the mapped ones are in their bits.
    ['::/64', '203.0.113.7'],
    ['::1/64', '::ffff:203.0.113.7'],
  ])('%s does not have %s', (network, peer) => {
    expect(through([network], peer)).toBe(false)
  })

  it('a NAT64 address in the list is the IPv4 address that it is as a peer', () => {
    expect(through(['64:ff9b::10.0.0.1'], '64:ff9b::10.0.0.1')).toBe(true)
  })
})

describe('hops', () => {
  it.each([
    [0, '6.6.6.6, 198.51.100.9', '10.0.0.1'],
    [1, '6.6.6.6, 198.51.100.9', '198.51.100.9'],
    [2, '6.6.6.6, 198.51.100.9, 10.0.0.2', '198.51.100.9'],
    [2, '198.51.100.9', '10.0.0.1'],
    [3, '198.51.100.9, 10.0.0.2', '10.0.0.1'],
    [1, '', '10.0.0.1'],
    [1, ',,', '10.0.0.1'],
    [2, '6.6.6.6, , 198.51.100.9, 10.0.0.2,', '198.51.100.9'],
    [1, '6.6.6.6, unknown', '10.0.0.1'],
    [2, '6.6.6.6, _x, 10.0.0.2', '10.0.0.1'],
    [2, '198.51.100.9, unknown', '198.51.100.9'],
    [1, '[2001:db8:1:2345::5]:443', '2001:db8:1:2300::/56'],
    [1, '::ffff:c633:6409', '198.51.100.9'],
    [1, '010.0.0.1', '10.0.0.1'],
    [2 ** 53 - 1, '6.6.6.6', '10.0.0.1'],
  ])('%d of %j is %s', (hops, value, key) => {
    expect(keyOf({ 'x-forwarded-for': value }, { peer: '10.0.0.1', options: { hops } })).toBe(key)
  })

  it('go over all lines of the header', () => {
    const headers = { 'x-forwarded-for': ['6.6.6.6', '198.51.100.9', '10.0.0.2'] }
    expect(keyOf(headers, { peer: '10.0.0.1', options: { hops: 2 } })).toBe('198.51.100.9')
  })

  it('without the header are the peer', () => {
    expect(keyOf({}, { peer: '::ffff:203.0.113.7', options: { hops: 1 } })).toBe('203.0.113.7')
  })
})

describe('Forwarded (RFC 7239)', () => {
  it.each([
    ['for=198.51.100.9', '198.51.100.9'],
    ['For="198.51.100.9:4711"', '198.51.100.9'],
    ['FOR="[2001:db8:cafe::17]"', '2001:db8:cafe::/56'],
    ['for=198.51.100.9;proto=http;by=203.0.113.43', '198.51.100.9'],
    ['proto=http ; by=203.0.113.43 ; for=198.51.100.9', '198.51.100.9'],
    ['by=6.6.6.6;for=198.51.100.9', '198.51.100.9'],
    ['for=6.6.6.6, for=198.51.100.9', '198.51.100.9'],
    ['for=6.6.6.6,for=198.51.100.9,for=10.0.0.2', '198.51.100.9'],
    // What is in quotes is not split.
    ['for=198.51.100.9;by="a, for=6.6.6.6"', '198.51.100.9'],
    ['for=198.51.100.9;by="a;for=6.6.6.6"', '198.51.100.9'],
    ['by="a;for=6.6.6.6";for=198.51.100.9', '198.51.100.9'],
    ['by="a\\", for=6.6.6.6";for=198.51.100.9', '198.51.100.9'],
    ['for=198.51.100.9;by="\\\\", for=10.0.0.2', '198.51.100.9'],
    ['for="\\1\\98.51.100.9"', '198.51.100.9'],
    // Empty elements and pairs do not count.
    [', for=198.51.100.9 ,,', '198.51.100.9'],
    [';;for=198.51.100.9;', '198.51.100.9'],
    // What is no address ends the walk.
    ['for=6.6.6.6, for=unknown', '10.0.0.1'],
    ['for=6.6.6.6, for=_hidden', '10.0.0.1'],
    ['for=6.6.6.6, for="_SEVKISEK:80"', '10.0.0.1'],
    ['for=6.6.6.6, for=', '10.0.0.1'],
    ['for=6.6.6.6, for=""', '10.0.0.1'],
    ['for=6.6.6.6, proto=http', '10.0.0.1'],
    ['for=6.6.6.6, for', '10.0.0.1'],
    ['for=6.6.6.6, 198.51.100.9', '10.0.0.1'],
    ['for=6.6.6.6, xfor=198.51.100.9', '10.0.0.1'],
    ['for=6.6.6.6, for="198.51.100.9', '10.0.0.1'],
    ['for=6.6.6.6, for="198.51.100.9\\', '10.0.0.1'],
    ['for=6.6.6.6, for=010.0.0.1', '10.0.0.1'],
  ])('%s is %s', (value, key) => {
    expect(behindTen(value, 'forwarded')).toBe(key)
  })

  it.each([
    'for=6.6.6.6;by=", for=198.51.100.9',
    'for=6.6.6.6;by="\\, for=198.51.100.9',
    'for=6.6.6.6;by=", for="[2001:db8::1]:80"',
    'for=6.6.6.6;", for=198.51.100.9',
  ])('a client that leaves a quote open does not choose its address: %s', value => {
    expect(behindTen(value, 'forwarded')).not.toBe('6.6.6.6')
    expect(
      keyOf({ forwarded: value }, { peer: '10.0.0.1', options: { hops: 1, forwardedHeader: 'forwarded' } }),
    ).not.toBe('6.6.6.6')
  })
})

describe('bad options', () => {
  it.each([
    ['trustedProxies', true, TypeError],
    ['trustedProxies', false, TypeError],
    ['trustedProxies', null, TypeError],
    ['trustedProxies', 1, TypeError],
    ['trustedProxies', '10.0.0.0/8', TypeError],
    ['trustedProxies', { 0: '10.0.0.0/8', length: 1 }, TypeError],
    ['trustedProxies', [true], TypeError],
    ['trustedProxies', [10], TypeError],
    ['trustedProxies', [['10.0.0.0/8']], TypeError],
    ['trustedProxies', [''], RangeError],
    ['trustedProxies', ['loopback'], RangeError],
    ['trustedProxies', ['10.0.0.0/33'], RangeError],
    ['trustedProxies', ['10.0.0.0/-1'], RangeError],
    ['trustedProxies', ['10.0.0.0/'], RangeError],
    ['trustedProxies', ['10.0.0.0/8/8'], RangeError],
    ['trustedProxies', ['10.0.0.0/8.0'], RangeError],
    ['trustedProxies', ['10.0.0.0/255.0.0.0'], RangeError],
    ['trustedProxies', ['10/8'], RangeError],
    ['trustedProxies', ['010.0.0.0/8'], RangeError],
    ['trustedProxies', ['10.0.0.1:80'], RangeError],
    ['trustedProxies', ['10.0.0.0/8, 192.168.0.0/16'], RangeError],
    ['trustedProxies', ['2001:db8::/129'], RangeError],
    ['trustedProxies', ['[2001:db8::1]'], RangeError],
    ['trustedProxies', ['10.0.0.0/8', 'proxy'], RangeError],
    ['hops', -1, RangeError],
    ['hops', 1.5, RangeError],
    ['hops', Number.NaN, RangeError],
    ['hops', Infinity, RangeError],
    ['hops', '1', TypeError],
    ['hops', true, TypeError],
    ['hops', null, TypeError],
    ['forwardedHeader', 5, TypeError],
    ['forwardedHeader', null, TypeError],
    ['forwardedHeader', '', RangeError],
    ['forwardedHeader', 'x real ip', RangeError],
    ['forwardedHeader', 'x-real-ip:', RangeError],
    ['forwardedHeader', 'x-real-ip\n', RangeError],
  ])('%s %j', (option, value, error) => {
    const options = { ...(option === 'forwardedHeader' ? TEN : {}), [option]: value } as ProxyOptions
    expect(() => clientFinder(options)).toThrow(error)
    expect(() => clientFinder(options)).toThrow(
      expect.objectContaining({ code: 'SLUICE_INVALID_OPTION', option }),
    )
  })

  it('trustedProxies and hops together, and a header for neither', () => {
    expect(() => clientFinder({ trustedProxies: [], hops: 0 })).toThrow(/^hops: .*either/)
    expect(() => clientFinder({ forwardedHeader: 'forwarded' })).toThrow(/^forwardedHeader: /)
  })

  it.each([
    [31, RangeError],
    [0, RangeError],
    [129, RangeError],
    [56.5, RangeError],
    ['56', TypeError],
    [null, TypeError],
  ])('ipv6Prefix %j', (ipv6Prefix, error) => {
    const make = () => createGuard({ limit: 5, window: '1m', ipv6Prefix: ipv6Prefix as never }, NODE)
    expect(make).toThrow(error)
    expect(make).toThrow(expect.objectContaining({ option: 'ipv6Prefix' }))
  })
})

/** node:http, as an adapter sees it. */
const NODE: Host<[Message]> = {
  address: (message: Message) => message.socket?.remoteAddress,
  message: (message: Message) => message,
  response: () => NO_RESPONSE,
  trusts: () => 'nobody' as const,
}

describe('requests', () => {
  /** How many of the peers, each asking once of a limit of one, are allowed. */
  async function allowed(ipv6Prefix: number | undefined, peers: string[]): Promise<number> {
    const guard = createGuard<[Message]>({ limit: 1, window: '1m', ipv6Prefix }, NODE)
    const verdicts = peers.map(remoteAddress => guard({ headers: {}, socket: { remoteAddress } }))
    return (await Promise.all(verdicts)).filter(({ outcome }) => outcome === 'allowed').length
  }

  it.each([
    [32, ['2001:db8::1', '2001:db8:ffff::1', '2001:db9::1'], 2],
    [48, ['2001:db8:0:1::1', '2001:db8:0:2::1', '2001:db8:1::1'], 2],
    [undefined, ['2001:db8:0:1::1', '2001:db8:0:ff::1', '2001:db8:0:100::1'], 2],
    [64, ['2001:db8:0:1::1', '2001:db8:0:1::2', '2001:db8:0:2::1'], 2],
    [128, ['2001:db8::1', '2001:db8::2', '2001:db8:0::2'], 2],
    [undefined, ['203.0.113.7', '::ffff:203.0.113.7', '64:ff9b::203.0.113.7', '203.0.113.8'], 2],
  ])('with ipv6Prefix %j of %j there are as many clients as networks', async (prefix, peers, clients) => {
    expect(await allowed(prefix, peers)).toBe(clients)
  })

  it('without an address are an error, and neither allowed nor in one bucket', () => {
    const guard = createGuard<[Message]>({ limit: 5, window: '1m' }, NODE)
    expect(() => guard({ headers: {}, socket: {} })).toThrow(/set the key option/)
    expect(() => guard({ headers: {} })).toThrow(/set the key option/)
  })

  it.each([{}, TEN, { hops: 1 }])(
    'whose socket is destroyed are given up quietly, with %j',
    async options => {
      const guard = createGuard<[Message]>({ limit: 5, window: '1m', ...options }, NODE)
      const gone = { headers: {}, socket: { remoteAddress: undefined, destroyed: true } }
      expect(await guard(gone)).toEqual({ outcome: 'abandoned' })
    },
  )

  it('over a Unix socket are a coded error in the framework', async () => {
    const { rateLimit } = await import('@sluice/express')
    const errors: unknown[] = []
    const app = express()
      .set('env', 'test')
      .use(rateLimit({ limit: 5, window: '1m' }))
    app.use(((error, _req, res, _next) => {
      errors.push(error)
      res.status(500).end()
    }) satisfies express.ErrorRequestHandler)
    const path = join(tmpdir(), `sluice-proxies-${process.pid}.sock`)
    expect(await asked(app, { path }, {})).toBe(500)
    expect(errors).toEqual([expect.objectContaining({ code: 'SLUICE_NO_CLIENT_ADDRESS', option: 'key' })])
  })
})

/*
 * The key of an address, compared with ipaddr.js.
 */

type Address = ipaddr.IPv4 | ipaddr.IPv6

/** Who a client is by the contract, with the bits and the texts of ipaddr.js. */
function expectedKey(address: Address, prefix = 56): string {
  const plain = folded(address)
  if (plain.kind() === 'ipv4') return plain.toString()
  const network = ipaddr.IPv6.networkAddressFromCIDR(`${plain.toNormalizedString()}/${prefix}`)
  return prefix === 128 ? plain.toString() : `${network.toRFC5952String()}/${prefix}`
}

function folded(address: Address): Address {
  if (address.kind() === 'ipv4') return address
  const v6 = address as ipaddr.IPv6
  if (v6.isIPv4MappedAddress()) return v6.toIPv4Address()
  return v6.match(NAT64, 96) ? new ipaddr.IPv4(v6.toByteArray().slice(12)) : v6
}

const NAT64 = ipaddr.IPv6.parse('64:ff9b::')

/** Reads an address; decimals at the end as hexadecimals, because ipaddr.js takes `::1.2.3.4` for mapped. */
function parsed(text: string): Address {
  const [, head, tail] = /^(.*:)([\d.]+\.\d+)$/.exec(text) ?? []
  if (head === undefined || tail === undefined) return ipaddr.parse(text)
  const [high, low] = ipaddr.IPv4.parse(tail).toIPv4MappedAddress().parts.slice(6) as [number, number]
  return ipaddr.parse(`${head}${high.toString(16)}:${low.toString(16)}`)
}

const byte = fc.integer({ min: 0, max: 255 })
const v4 = fc.array(byte, { minLength: 4, maxLength: 4 }).map(bytes => new ipaddr.IPv4(bytes))
const group = fc.oneof(
  fc.constant(0),
  fc.constantFrom(1, 0xffff, 0x64, 0xff9b),
  fc.integer({ min: 0, max: 0xffff }),
)
const anyV6 = fc.array(group, { minLength: 8, maxLength: 8 })
const withPrefix = (prefix: number[]) => anyV6.map(groups => [...prefix, ...groups.slice(prefix.length)])
const v6 = fc
  .oneof(
    { arbitrary: anyV6, weight: 6 },
    withPrefix([0, 0, 0, 0, 0, 0xffff]),
    withPrefix([0x64, 0xff9b, 0, 0, 0, 0]),
    withPrefix([0, 0, 0, 0, 0xffff, 0]),
    withPrefix([0, 0, 0, 0, 0, 0]),
    withPrefix([0x2001, 0xdb8]),
  )
  .map(groups => new ipaddr.IPv6(groups))
const anyAddress: fc.Arbitrary<Address> = fc.oneof(v4, v6)

/** A text of an IPv6 address: any case, padding, any run of zeros as `::`, the last 32 bits in decimals. */
function spelled(address: ipaddr.IPv6): fc.Arbitrary<string> {
  const { parts } = address
  const runs = parts.flatMap((_, from) =>
    parts.flatMap((_, to) =>
      to >= from && parts.slice(from, to + 1).every(part => part === 0) ? [[from, to + 1] as const] : [],
    ),
  )
  return fc
    .record({
      digits: fc.array(fc.constantFrom(1, 2, 3, 4), { minLength: 8, maxLength: 8 }),
      isUpper: fc.boolean(),
      isDotted: fc.boolean(),
      run: fc.constantFrom(undefined, ...runs),
    })
    .map(({ digits, isUpper, isDotted, run }) => {
      const texts = parts.map((part, index) => part.toString(16).padStart(digits[index] as number, '0'))
      const dotted = address.toByteArray().slice(12).join('.')
      const dots = isDotted && (run === undefined || run[1] <= 6)
      const part = (from: number, to: number) =>
        (dots && to === 8 ? [...texts.slice(from, 6), dotted] : texts.slice(from, to)).join(':')
      const text = run === undefined ? part(0, 8) : `${part(0, run[0])}::${part(run[1], 8)}`
      return isUpper ? text.toUpperCase() : text
    })
}

const port = fc.integer({ min: 0, max: 65_535 })
const zone = fc.constantFrom('%eth0', '%1', '%en-0.1', '%wlan0')

/** A text of an address, with what sockets and proxies write around it. */
function written(address: Address): fc.Arbitrary<string> {
  const bare =
    address.kind() === 'ipv4'
      ? v4Written(address as ipaddr.IPv4)
      : spelled(address as ipaddr.IPv6).chain(text =>
          fc.oneof(
            fc.constant(text),
            zone.map(zone => text + zone),
            fc.constant(`[${text}]`),
            port.map(port => `[${text}]:${port}`),
            fc.tuple(zone, port).map(([zone, port]) => `[${text}${zone}]:${port}`),
          ),
        )
  return bare.chain(text => fc.constantFrom(text, text, ` ${text}`, `${text}\t `, `"${text}"`, ` "${text}" `))
}

/** An IPv4 address as such, and mapped. */
function v4Written(address: ipaddr.IPv4): fc.Arbitrary<string> {
  const text = address.toString()
  return fc.oneof(
    fc.constant(text),
    port.map(port => `${text}:${port}`),
    spelled(address.toIPv4MappedAddress()),
    fc.tuple(spelled(address.toIPv4MappedAddress()), port).map(([text, port]) => `[${text}]:${port}`),
  )
}

const addressAndText = anyAddress.chain(address => fc.tuple(fc.constant(address), written(address)))

describe('the key of an address, compared with ipaddr.js', () => {
  it('every address in every writing has the key of the contract', () => {
    fc.assert(
      fc.property(addressAndText, fc.integer({ min: 32, max: 128 }), ([address, text], prefix) => {
        expect(addressKey(text, prefix)).toBe(expectedKey(address, prefix))
        expect(addressKey(text)).toBe(expectedKey(address))
      }),
      { numRuns: 2000 },
    )
  })

  it('the plain address of every writing is the same address', () => {
    fc.assert(
      fc.property(addressAndText, ([address, text]) => {
        const plain = plainAddress(text)
        expect(parsed(plain as string).toNormalizedString()).toBe(folded(address).toNormalizedString())
      }),
      { numRuns: 2000 },
    )
  })

  it('two writings are one key exactly when they are one client', () => {
    const neighbours = anyAddress.chain(address =>
      fc
        .tuple(written(address), neighbourOf(address))
        .chain(([text, other]) =>
          fc.tuple(fc.constant(address), fc.constant(text), fc.constant(other), written(other)),
        ),
    )
    fc.assert(
      fc.property(
        neighbours,
        fc.integer({ min: 32, max: 128 }),
        ([one, oneText, other, otherText], prefix) => {
          const [a, b] = [folded(one), folded(other)]
          const isSame =
            a.kind() === b.kind() &&
            (a as ipaddr.IPv6).match(b as ipaddr.IPv6, a.kind() === 'ipv4' ? 32 : prefix)
          expect(addressKey(oneText, prefix) === addressKey(otherText, prefix)).toBe(isSame)
        },
      ),
      { numRuns: 2000 },
    )
  })

  it('a key is the key of itself', () => {
    fc.assert(
      fc.property(addressAndText, ([, text]) => {
        const key = addressKey(text) as string
        // The first address of the network that NAT64 addresses lie in is one of them.
        if (key !== '64:ff9b::/56') expect(addressKey(key.replace(/\/56$/, ''))).toBe(key)
      }),
    )
  })

  /** The same, or the one with another bit, or another. */
  function neighbourOf(address: Address): fc.Arbitrary<Address> {
    const bytes = address.toByteArray()
    const flipped = fc.integer({ min: 0, max: bytes.length * 8 - 1 }).map(bit => {
      const other = [...bytes]
      other[bit >> 3] = (other[bit >> 3] as number) ^ (128 >> (bit & 7))
      return ipaddr.fromByteArray(other)
    })
    return fc.oneof(fc.constant(address), { arbitrary: flipped, weight: 4 }, anyAddress)
  }
})

describe('hostile text', () => {
  const ALPHABET = [...'0123456789abcdefABCDEFxX:.[]%"/ ,;=\\-_\t']
  const soup = fc.string({ unit: fc.constantFrom(...ALPHABET), maxLength: 50 })
  const broken = fc
    .tuple(
      addressAndText,
      fc.nat(),
      fc.constantFrom('insert', 'remove', 'replace', 'double'),
      fc.constantFrom(...ALPHABET),
    )
    .map(([[, text], place, act, letter]) => {
      const at = place % (text.length + 1)
      if (act === 'insert') return text.slice(0, at) + letter + text.slice(at)
      if (act === 'double') return text.slice(0, at) + text.slice(Math.max(0, at - 3))
      return text.slice(0, at) + (act === 'replace' ? letter : '') + text.slice(at + 1)
    })
  const hostile = fc.oneof(
    { arbitrary: broken, weight: 4 },
    soup,
    fc.string({ unit: 'binary', maxLength: 60 }),
    fc.ipV6().map(text => `${text}:${text}`),
  )

  /** The address in a string, without brackets, port and quotes. */
  function candidates(text: string): Address[] {
    const trimmed = text.trim()
    const bare = /^"(.*)"$/s.exec(trimmed)?.[1] ?? trimmed
    return [bare, /^\[(.*)\](:\d+)?$/s.exec(bare)?.[1], /^([\d.]+):\d+$/.exec(bare)?.[1]].flatMap(text => {
      const [address = ''] = text?.split('%') ?? []
      if (ipaddr.IPv4.isValidFourPartDecimal(address)) return [ipaddr.IPv4.parse(address)]
      return address.includes(':') && ipaddr.IPv6.isValid(address) ? [parsed(address)] : []
    })
  }

  it('never throws, and has a key only as an address', () => {
    fc.assert(
      fc.property(hostile, text => {
        const key = addressKey(text)
        if (key !== undefined) expect(candidates(text).map(address => expectedKey(address))).toContain(key)
        expect(plainAddress(text) === undefined).toBe(key === undefined)
      }),
      { numRuns: 5000 },
    )
  })

  it('in a header never throws, and is never a client that is no address', () => {
    const headers = fc.record({
      'x-forwarded-for': fc.oneof(hostile, fc.array(hostile, { maxLength: 4 })),
      forwarded: fc.oneof(hostile, fc.array(hostile, { maxLength: 4 })),
    })
    const options = fc.constantFrom<ProxyOptions>(
      TEN,
      { trustedProxies: ['0.0.0.0/0', '::/0'] },
      { hops: 1 },
      { trustedProxies: ['0.0.0.0/0', '::/0'], forwardedHeader: 'forwarded' },
      { hops: 2, forwardedHeader: 'forwarded' },
    )
    fc.assert(
      fc.property(headers, options, (headers, options) => {
        const client = clientFinder(options)?.('10.0.0.1', headers)
        expect(ipaddr.isValid(client as string)).toBe(true)
      }),
      { numRuns: 2000 },
    )
  })

  /** What a client sends; the proxy appends who that was. */
  const fragments = fc
    .array(
      fc.constantFrom(
        'for=6.6.6.6',
        '6.6.6.6',
        'for="6.6.6.6"',
        'for=',
        'by=',
        'x',
        '"',
        '\\',
        ',',
        ';',
        '=',
        ' ',
        '[',
        ']',
      ),
      { maxLength: 10 },
    )
    .map(parts => parts.join(''))

  it.each([
    ['x-forwarded-for', '198.51.100.9'],
    ['forwarded', 'for=198.51.100.9'],
    ['forwarded', 'for="198.51.100.9:80";proto=https'],
    ['forwarded', 'by=10.0.0.1;for="[::ffff:198.51.100.9]:80"'],
  ])('in %s before what a proxy has appended, %s, does not choose the client', (name, appended) => {
    fc.assert(
      fc.property(fragments, fc.boolean(), (sent, isOneLine) => {
        const value = isOneLine ? `${sent}, ${appended}` : [sent, appended]
        for (const options of [TEN, { hops: 1 }])
          expect(['198.51.100.9', '10.0.0.1']).toContain(
            keyOf({ [name]: value }, { peer: '10.0.0.1', options: { ...options, forwardedHeader: name } }),
          )
      }),
      { numRuns: 3000 },
    )
  })
})

describe('the search for the client in a header, compared with a model', () => {
  const network = fc.oneof(
    fc.tuple(v4, fc.integer({ min: 0, max: 32 })).map(([address, bits]) => `${address}/${bits}`),
    fc.tuple(v4, fc.integer({ min: 0, max: 32 })).map(([address, bits]) => `::ffff:${address}/${bits + 96}`),
    fc
      .tuple(withPrefix([0x2001]), fc.integer({ min: 16, max: 128 }))
      .map(([groups, bits]) => `${new ipaddr.IPv6(groups)}/${bits}`),
    fc.constantFrom('10.0.0.0/8', '2001:db8::/32', '0.0.0.0/0', '::ffff:10.0.0.0/104'),
  )
  const proxy = fc.tuple(byte, byte, byte).map(([b, c, d]) => new ipaddr.IPv4([10, b, c, d]))
  const entry = fc.oneof(
    { arbitrary: proxy.chain(written), weight: 4 },
    addressAndText.map(([, text]) => text),
    fc.constantFrom('unknown', '_x', '010.0.0.1', '1.2.3', ''),
  )
  const lines = fc.array(
    fc.array(entry, { maxLength: 5 }).map(entries => entries.join(',')),
    { minLength: 1, maxLength: 3 },
  )

  function isIn(address: Address, network: string): boolean {
    const [base, bits] = ipaddr.parseCIDR(network)
    const isMapped = base.kind() === 'ipv6' && (base as ipaddr.IPv6).isIPv4MappedAddress() && bits >= 96
    const [plain, prefix] = isMapped ? [folded(base), bits - 96] : [base, bits]
    return address.kind() === plain.kind() && (address as ipaddr.IPv4).match(plain as ipaddr.IPv4, prefix)
  }

  /** The address of an entry that is written as one. */
  function addressOf(entry: string): Address | undefined {
    const bare = entry.trim().replace(/^"(.*)"$/, '$1')
    const text =
      /^\[(.*)\](?::\d+)?$/.exec(bare)?.[1] ?? (/^[\d.]+:\d+$/.test(bare) ? bare.split(':')[0] : bare)
    const [address = ''] = text?.split('%') ?? []
    const isAddress = address.includes(':')
      ? ipaddr.isValid(address)
      : ipaddr.IPv4.isValidFourPartDecimal(address)
    return isAddress ? folded(parsed(address)) : undefined
  }

  const entriesOf = (lines: string[]) =>
    lines
      .join(',')
      .split(',')
      .map(entry => entry.trim())
      .filter(entry => entry !== '')

  function walked(peer: string, lines: string[], networks: string[]): string {
    let client = addressOf(peer) as Address
    for (const entry of entriesOf(lines).reverse().slice(0, 32)) {
      if (!networks.some(network => isIn(client, network))) break
      const next = addressOf(entry)
      if (next === undefined) break
      client = next
    }
    return expectedKey(client)
  }

  const peer = fc.oneof(proxy.chain(v4Written), v6.chain(spelled)).filter(text => !text.startsWith('['))

  it('with trusted networks', () => {
    fc.assert(
      fc.property(peer, lines, fc.array(network, { maxLength: 4 }), (peer, lines, trustedProxies) => {
        const value = lines.length === 1 ? (lines[0] as string) : lines
        expect(keyOf({ 'x-forwarded-for': value }, { peer, options: { trustedProxies } })).toBe(
          walked(peer, lines, trustedProxies),
        )
      }),
      { numRuns: 2000 },
    )
  })

  it('with hops', () => {
    fc.assert(
      fc.property(peer, lines, fc.nat(6), (peer, lines, hops) => {
        const entry = hops === 0 ? undefined : entriesOf(lines).at(-hops)
        const address = (entry === undefined ? undefined : addressOf(entry)) ?? (addressOf(peer) as Address)
        expect(keyOf({ 'x-forwarded-for': lines }, { peer, options: { hops } })).toBe(expectedKey(address))
      }),
      { numRuns: 2000 },
    )
  })
})

describe('the parser of Forwarded, compared with what was written', () => {
  const token = fc.string({ unit: fc.constantFrom(..."!#$%&'*+-.^_`|~09azAZ"), minLength: 1, maxLength: 8 })
  const text = fc.string({ unit: fc.constantFrom(...',;="\\ \tfor6.:[]é'), maxLength: 12 })
  const space = fc.constantFrom('', ' ', '\t', '  ')

  /** Quotes a string: escapes what has to be escaped, and sometimes other characters. */
  const quoted = (text: string) =>
    fc
      .array(fc.boolean(), { minLength: text.length, maxLength: text.length })
      .map(
        escapes =>
          `"${[...text].map((letter, i) => (escapes[i] || '"\\'.includes(letter) ? `\\${letter}` : letter)).join('')}"`,
      )

  const other = fc
    .tuple(
      fc.oneof(fc.constantFrom('by', 'host', 'proto', 'secret', 'xfor', 'for1'), token),
      fc.oneof(token, text.chain(quoted)),
    )
    .filter(([name]) => name.toLowerCase() !== 'for')
    .map(([name, value]) => `${name}=${value}`)

  /** The `for` of an element, and the client that it names. */
  const node: fc.Arbitrary<readonly [value: string, key: string | undefined]> = fc.oneof(
    v4.chain(address => {
      const plain = address.toString()
      const texts = fc.oneof(
        quoted(plain),
        port.chain(port => quoted(`${plain}:${port}`)),
      )
      return fc.tuple(fc.oneof(fc.constant(plain), texts), fc.constant(expectedKey(address)))
    }),
    v6.chain(address =>
      fc.tuple(
        fc
          .tuple(spelled(address), fc.option(port))
          .chain(([text, port]) => quoted(port === null ? `[${text}]` : `[${text}]:${port}`)),
        fc.constant(expectedKey(address)),
      ),
    ),
    fc.tuple(
      fc.oneof(
        fc.constantFrom('unknown', '"unknown"', '_hidden', '"_x:80"', '""', '"a, for=6.6.6.6"', '010.0.0.1'),
      ),
      fc.constant(undefined),
    ),
  )
  const named = fc
    .tuple(fc.constantFrom('for', 'For', 'FOR', 'fOr'), node)
    .map(([name, [value, key]]) => ({ pair: `${name}=${value}`, key }))
  const element = fc
    .record({
      named: fc.option(named, { freq: 8 }),
      before: fc.array(other, { maxLength: 3 }),
      after: fc.array(other, { maxLength: 3 }),
      space,
    })
    .filter(({ named, before, after }) => named !== null || before.length + after.length > 0)
    .map(({ named, before, after, space }) => ({
      text: [...before, ...(named === null ? [] : [named.pair]), ...after].join(`${space};${space}`),
      key: named?.key,
    }))
  const header = fc.record({
    elements: fc.array(element, { minLength: 1, maxLength: 6 }),
    separator: fc.constantFrom(',', ', ', ' ,\t', ',, ,'),
    ends: fc.constantFrom('', ',', ' , '),
  })

  it('finds every element where it is', () => {
    fc.assert(
      fc.property(header, ({ elements, separator, ends }) => {
        const forwarded = ends + elements.map(({ text }) => text).join(separator) + ends
        const found = elements.map((_, index) =>
          keyOf(
            { forwarded },
            { peer: '10.0.0.1', options: { hops: index + 1, forwardedHeader: 'forwarded' } },
          ),
        )
        expect(found).toEqual(elements.map(({ key }) => key ?? '10.0.0.1').reverse())
      }),
      { numRuns: 3000 },
    )
  })
})

/*
 * Warnings, through real servers. Each is given once in a process, so that every case has modules of its own.
 */

/** A framework's way to trust proxies: nobody, this server's own host, others than this host, or anybody. */
type Trust = 'nobody' | 'this host' | 'others' | 'anybody'
type Door = ProxyOptions & { readonly key?: () => string }

interface Framework {
  readonly name: string
  /** A server for each trust, with fresh adapters. */
  handler(trust: Trust, door: Door): Promise<Handler>
}
type Handler = Express | ReturnType<Koa['callback']>

const LIMIT = { limit: 100, window: '1m' } as const

const expressFramework = (name: string, framework: typeof express): Framework => ({
  name,
  async handler(trust, door) {
    const { rateLimit } = await import('@sluice/express')
    const app = framework()
    const values = { nobody: undefined, 'this host': 'loopback', others: '10.0.0.0/8', anybody: true }
    if (trust !== 'nobody') app.set('trust proxy', values[trust])
    app.use(rateLimit({ ...LIMIT, ...door }))
    return app.use((_req, res) => {
      res.end()
    })
  },
})

const koaFramework = (name: string, Framework: typeof Koa): Framework => ({
  name,
  async handler(trust, door) {
    const { rateLimit } = await import('@sluice/koa')
    const app = new Framework({ proxy: trust !== 'nobody', maxIpsCount: trust === 'this host' ? 1 : 0 })
    app.use(rateLimit({ ...LIMIT, ...door }))
    app.use(ctx => {
      ctx.body = 'ok'
    })
    return app.callback()
  },
})

const fastifyFramework: Framework = {
  name: 'fastify',
  async handler(trust, door) {
    const { rateLimit } = await import('@sluice/fastify')
    const values = { nobody: false, 'this host': '127.0.0.1', others: '10.0.0.0/8', anybody: true }
    const app = fastify({ trustProxy: values[trust] })
    await app.register(rateLimit, { ...LIMIT, ...door })
    app.get('/', () => 'ok')
    await app.ready()
    return app.routing as unknown as Handler
  },
}

const FRAMEWORKS: readonly Framework[] = [
  expressFramework('express', express),
  expressFramework('express4', require('express4')),
  koaFramework('koa', Koa),
  koaFramework('koa2', require('koa2')),
  fastifyFramework,
]

/** Asks a handler once over a real socket, and returns the status. */
async function asked(
  handler: Handler,
  at: ListenOptions,
  headers: Record<string, string | string[]>,
): Promise<number> {
  const server = createServer(handler)
  server.listen(at)
  await once(server, 'listening')
  try {
    const where =
      at.path === undefined
        ? { port: (server.address() as AddressInfo).port, host: '127.0.0.1' }
        : { socketPath: at.path }
    const request = httpRequest({ ...where, headers: headers as IncomingHttpHeaders }).end()
    const [response] = await once(request, 'response')
    response.resume()
    return response.statusCode
  } finally {
    server.close()
    server.closeAllConnections()
  }
}

/** The warnings of Sluice that a framework's servers give, in modules of their own, for requests with these headers. */
async function warnings(
  framework: Framework,
  trust: Trust,
  headers: Record<string, string | string[]>,
  door: Door = {},
): Promise<{ code: string; text: string }[]> {
  vi.resetModules()
  // Two apps and several requests: a warning is given once all the same.
  for (let made = 0; made < 2; made++) {
    const handler = await framework.handler(trust, door)
    for (let request = 0; request < 2; request++)
      expect(await asked(handler, { port: 0, host: '127.0.0.1' }, headers)).toBeLessThan(300)
  }
  return emitWarning.mock.calls
    .map(([text, options]) => ({ text: String(text), ...(options as { type?: string; code?: string }) }))
    .filter(({ type }) => type === 'SluiceWarning')
    .map(({ text, code = '' }) => ({ code, text }))
}

describe.each(FRAMEWORKS)('warnings on $name', framework => {
  const XFF = { 'x-forwarded-for': '6.6.6.6' }
  const codes = (given: { code: string }[]) => given.map(({ code }) => code)

  // NT#427, safe-global/safe-client-gateway#3170
  it.each([XFF, { forwarded: 'for=6.6.6.6' }])(
    'SLUICE_PROXY_NOT_TRUSTED is given once when nothing is trusted and %j comes',
    async headers => {
      const given = await warnings(framework, 'nobody', headers)
      expect(codes(given)).toEqual(['SLUICE_PROXY_NOT_TRUSTED'])
      expect(given[0]?.text).toMatch(/trustedProxies/)
      expect(given[0]?.text).not.toMatch(/6\.6\.6\.6|127\.0\.0\.1/)
    },
  )

  it('SLUICE_TRUSTS_ANYBODY is given once when any forwarded header is believed', async () => {
    const given = await warnings(framework, 'anybody', XFF)
    expect(codes(given)).toEqual(['SLUICE_TRUSTS_ANYBODY'])
    expect(given[0]?.text).toMatch(/trustedProxies/)
    expect(given[0]?.text).not.toMatch(/6\.6\.6\.6|127\.0\.0\.1/)
  })

  it('no warning is given without a forwarded header', async () => {
    expect(await warnings(framework, 'nobody', {})).toEqual([])
    expect(await warnings(framework, 'anybody', {})).toEqual([])
  })

  it('no warning is given when the framework trusts the proxy', async () => {
    expect(await warnings(framework, 'this host', XFF)).toEqual([])
  })

  it.each<Door>([
    { trustedProxies: ['127.0.0.1'] },
    { trustedProxies: [] },
    { hops: 1 },
    { key: () => 'ann' },
  ])('none is given with %j', async door => {
    expect(await warnings(framework, 'nobody', XFF, door)).toEqual([])
    expect(await warnings(framework, 'anybody', XFF, door)).toEqual([])
  })
})

/** Koa believes headers from every peer or from none. */
const WITH_NETWORKS = FRAMEWORKS.filter(({ name }) => !name.startsWith('koa'))

describe('warnings', () => {
  it.each(WITH_NETWORKS)(
    'none is given when $name trusts proxies, and somebody else sends the header',
    async framework => {
      expect(await warnings(framework, 'others', { 'x-forwarded-for': '6.6.6.6' })).toEqual([])
    },
  )

  it('SLUICE_PROXY_NOT_TRUSTED is given for the number that trusts nobody on Fastify (CVE-2026-16732)', async () => {
    const counting: Framework = {
      name: 'fastify',
      async handler(_trust, door) {
        const { rateLimit } = await import('@sluice/fastify')
        const app = fastify({ trustProxy: 1 as never })
        await app.register(rateLimit, { ...LIMIT, ...door })
        app.get('/', () => 'ok')
        await app.ready()
        return app.routing as unknown as Handler
      },
    }
    const given = await warnings(counting, 'nobody', { 'x-forwarded-for': '6.6.6.6' })
    expect(given.map(({ code }) => code)).toEqual(['SLUICE_PROXY_NOT_TRUSTED'])
  })

  it('are warnings of the process', async () => {
    const output = await run(
      'node',
      [
        ...['--import', 'tsx', '--input-type=module', '--eval'],
        `import fastify from 'fastify'
        import { rateLimit } from '@sluice/fastify'
        process.on('warning', ({ name, code }) => { if (name === 'SluiceWarning') console.log(code) })
        for (let made = 0; made < 2; made++) {
          const app = fastify()
          await app.register(rateLimit, { limit: 100, window: '1m' })
          app.get('/', () => 'ok')
          for (const ip of ['6.6.6.6', '7.7.7.7']) await app.inject({ url: '/', headers: { 'x-forwarded-for': ip } })
        }`,
      ],
      TEST,
    )
    expect(output).toBe('SLUICE_PROXY_NOT_TRUSTED\n')
  })
})

describe.each(FRAMEWORKS)('clients behind proxies on $name', framework => {
  it.each<[Door, Record<string, string | string[]>, Record<string, string | string[]>]>([
    [
      { trustedProxies: ['127.0.0.0/8'] },
      { 'x-forwarded-for': '192.0.2.1' },
      { 'x-forwarded-for': '192.0.2.2' },
    ],
    [
      { trustedProxies: ['::ffff:127.0.0.0/104'] },
      { 'x-forwarded-for': ['192.0.2.1', '127.0.0.2'] },
      { 'x-forwarded-for': ['192.0.2.2', '127.0.0.2'] },
    ],
    [
      { trustedProxies: ['127.0.0.1'], forwardedHeader: 'Forwarded' },
      { forwarded: ['for=6.6.6.6', 'for="[2001:db8:0:100::1]:80"'] },
      { forwarded: ['for=6.6.6.6', 'for="[2001:db8:0:200::1]:80"'] },
    ],
    [
      { trustedProxies: ['127.0.0.1'], forwardedHeader: 'X-Real-IP' },
      { 'x-real-ip': '192.0.2.1', 'x-forwarded-for': '6.6.6.6' },
      { 'x-real-ip': '192.0.2.2', 'x-forwarded-for': '6.6.6.6' },
    ],
    [
      { hops: 2 },
      { 'x-forwarded-for': '192.0.2.1, 127.0.0.2' },
      { 'x-forwarded-for': '192.0.2.2, 127.0.0.2' },
    ],
  ])('are told apart by %j', async (door, one, other) => {
    const handler = await framework.handler('nobody', { ...door, ...{ limit: 1 } })
    const statuses: number[] = []
    for (const headers of [one, other, one, other])
      statuses.push(await asked(handler, { port: 0, host: '127.0.0.1' }, headers))
    expect(statuses).toEqual([200, 200, 429, 429])
  })
})
