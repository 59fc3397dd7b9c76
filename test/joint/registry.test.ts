import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import {
  type Algorithm,
  createRegistry,
  fixedWindow,
  type Limiter,
  memoryStore,
  type Registry,
  type RegistryEvent,
  type RegistryOptions,
  slidingLog,
  tokenBucket,
  tryAcquireAll,
  unlimited,
} from '@sluice/core'
import { manualClock } from '@sluice/core/testing'
import { describe, expect, expectTypeOf, test } from 'vitest'
import { asynchronous } from '../support/async-store.js'
import { logOf, settled } from './support.js'

const usual = tokenBucket({ limit: 10, window: '1m' })
const login = slidingLog({ limit: 5, window: '15m' })

function setUp(options: RegistryOptions = {}) {
  const clock = manualClock()
  const limits = createRegistry({ clock, algorithm: usual, ...options })
  return { clock, limits, events: eventsOf(limits) }
}

/** The events that listeners receive, in order. */
function eventsOf(limits: Registry): string[] {
  const events: string[] = []
  limits.subscribe(({ change, limiter }) => events.push(`${change} ${limiter.name}`))
  return events
}

describe('get', () => {
  test('creates a limiter of that name once, with the algorithm of the registry', () => {
    const { limits, events } = setUp()
    const search = limits.get('search')
    expect(search).toMatchObject({ name: 'search', policy: { limit: 10 } })
    expect(limits.get('search')).toBe(search)
    expect(limits.size).toBe(1)
    expect(events).toEqual(['added search'])
  })

  test('creates the limiter with the algorithm it is given', () => {
    const { limits } = setUp()
    expect(limits.get('login', login).policy.limit).toBe(5)
    expect(limits.get('search').policy.limit).toBe(10)
  })

  test('limiters of different names are counted separately', () => {
    const { limits } = setUp()
    limits.get('a').tryAcquire('ann', { cost: 10 })
    expect([limits.get('a').peek('ann').remaining, limits.get('b').peek('ann').remaining]).toEqual([0, 10])
  })

  test.each<[string, Algorithm | undefined, object | undefined]>([
    ['the name alone', undefined, undefined],
    ['the same algorithm', login, undefined],
    ['an equal algorithm', slidingLog({ limit: 5, window: 900_000 }), undefined],
    ['no options', undefined, {}],
    ['the same options', login, { maxWait: '1s' }],
    ['the same maxWait in another notation', login, { maxWait: 1000 }],
  ])('returns the existing limiter for %s', (_, algorithm, options) => {
    const { limits, events } = setUp()
    const limiter = limits.get('login', login, { maxWait: '1s' })
    expect(limits.get('login', algorithm, options)).toBe(limiter)
    expect(events).toEqual(['added login'])
  })

  test('returns the existing limiter if its default algorithm is given', () => {
    const { limits } = setUp({ maxWait: '1s' })
    const limiter = limits.get('login')
    expect(limits.get('login', usual, { maxWait: '1s' })).toBe(limiter)
  })

  test.each<[string, Algorithm | undefined, object | undefined]>([
    ['another limit', slidingLog({ limit: 6, window: '15m' }), undefined],
    ['another window', slidingLog({ limit: 5, window: '16m' }), undefined],
    ['another maxBytes', slidingLog({ limit: 5, window: '15m', maxBytes: 2 ** 20 }), undefined],
    ['another algorithm', fixedWindow({ limit: 5, window: '15m' }), undefined],
    ['another maxWait', login, { maxWait: '2s' }],
    ['another maxWait and no algorithm', undefined, { maxWait: 0 }],
  ])('throws for the same name with %s, and changes nothing', (_, algorithm, options) => {
    const { limits, events } = setUp()
    const limiter = limits.get('login', login, { maxWait: '1s' })
    limiter.tryAcquire('ann')
    expect(faultOf(() => limits.get('login', algorithm, options))).toMatchObject({
      name: 'Error',
      code: 'SLUICE_NAME_TAKEN',
      option: 'name',
      message: expect.stringContaining("'login'"),
    })
    expect(limits.get('login')).toBe(limiter)
    expect(limiter.peek('ann').remaining).toBe(4)
    expect(events).toEqual(['added login'])
  })

  test('after an update accepts the new algorithm, and throws for the old one', () => {
    const { limits } = setUp()
    const limiter = limits.get('login', login)
    const stricter = slidingLog({ limit: 3, window: '15m' })
    limiter.update(stricter)
    expect(limits.get('login', stricter)).toBe(limiter)
    expect(limits.get('login')).toBe(limiter)
    expect(faultOf(() => limits.get('login', login))).toMatchObject({ code: 'SLUICE_NAME_TAKEN' })
    limiter.update(login)
    expect(limits.get('login', login)).toBe(limiter)
  })

  test('throws for a new name without any algorithm, and creates no limiter', () => {
    const limits = createRegistry()
    const events = eventsOf(limits)
    expect(faultOf(() => limits.get('search'))).toMatchObject({
      name: 'TypeError',
      code: 'SLUICE_INVALID_OPTION',
      option: 'algorithm',
      message: expect.stringContaining("'search'"),
    })
    expect([limits.size, events]).toEqual([0, []])
    limits.get('search', usual)
    expect(limits.get('search').policy.limit).toBe(10)
  })

  test('uses its maxWait for limiters created without one', async () => {
    const { clock, limits } = setUp({ algorithm: tokenBucket({ limit: 1, window: '1s' }), maxWait: '1s' })
    const log = logOf(clock)
    for (const limiter of [limits.get('patient'), limits.get('hasty', undefined, { maxWait: 0 })]) {
      limiter.tryAcquire('ann')
      log.note(limiter.name, limiter.acquire('ann'))
    }
    await settled()
    expect(log.entries).toEqual(['hasty failed: SLUICE_RATE_LIMITED'])
    clock.advance('1s')
    await settled()
    expect(log.entries[1]).toBe('patient after 1000')
  })
})

describe('defaults', () => {
  test('all limiters share the store and the clock', () => {
    const store = memoryStore()
    const { clock, limits } = setUp({ store: store as never })
    for (const name of ['a', 'b']) limits.get(name).tryAcquire('ann', { cost: 10 })
    expect(store.size).toBe(2)
    clock.advance('6s')
    expect(limits.get('a').peek('ann').remaining).toBe(1)
  })

  test('all limiters share maxQueue', async () => {
    const { clock, limits } = setUp({ maxQueuePerKey: 1, maxQueue: 2 })
    const log = logOf(clock)
    const limiter = limits.get('search')
    for (const key of ['a', 'a', 'b', 'c']) {
      limiter.drain(key)
      log.note(key, limiter.acquire(key))
    }
    await settled()
    expect(log.entries).toEqual(['a failed: SLUICE_RATE_LIMITED', 'c failed: SLUICE_RATE_LIMITED'])
    limits.close()
  })

  test('the limiters return promises on an asynchronous store only', async () => {
    const later = createRegistry({ store: asynchronous(memoryStore()), algorithm: usual })
    expectTypeOf(later).toEqualTypeOf<Registry<true>>()
    const answer = later.get('search').tryAcquire('ann')
    expect(answer).toBeInstanceOf(Promise)
    expect((await answer).allowed).toBe(true)

    const atOnce = createRegistry({ algorithm: usual })
    expectTypeOf(atOnce).toEqualTypeOf<Registry<false>>()
    expect(atOnce.get('search').tryAcquire('ann').allowed).toBe(true)
  })

  test('its limiters work with tryAcquireAll', () => {
    const { limits } = setUp()
    const asks = [limits.get('search'), limits.get('login', login)].map(limiter => ({
      limiter,
      key: 'ann',
      cost: 6,
    }))
    expect(tryAcquireAll(asks)).toMatchObject({ allowed: false, refusedBy: ['login'] })
  })
})

describe('find', () => {
  test('finds an existing limiter, and creates none', () => {
    const { limits, events } = setUp()
    expect(limits.find('search')).toBeUndefined()
    expect([limits.size, events]).toEqual([0, []])
    const search = limits.get('search')
    expect(limits.find('search')).toBe(search)
    limits.remove('search')
    expect(limits.find('search')).toBeUndefined()
  })

  test.each(['__proto__', 'constructor', 'toString'])('a limiter may be named %s', name => {
    const { limits } = setUp()
    expect(limits.find(name)).toBeUndefined()
    expect(limits.get(name).name).toBe(name)
  })
})

describe('iteration', () => {
  test('yields the limiters in the order of their creation', () => {
    const { limits } = setUp()
    for (const name of ['b', 'a', 'c']) limits.get(name)
    limits.get('b')
    limits.replace('a', login)
    limits.remove('c')
    expect([...limits].map(({ name, policy }) => [name, policy.limit])).toEqual([
      ['b', 10],
      ['a', 5],
    ])
    expect(limits.size).toBe(2)
  })

  test('of an empty registry ends at once', () => {
    expect([...createRegistry()]).toEqual([])
  })
})

describe('replace', () => {
  test('replaces a limiter, and its keys start full', () => {
    const { limits, events } = setUp()
    const before = limits.get('search')
    before.tryAcquire('ann', { cost: 10 })
    const after = limits.replace('search', usual)
    expect(after).not.toBe(before)
    expect(limits.get('search')).toBe(after)
    expect(after.peek('ann').remaining).toBe(10)
    expect(limits.size).toBe(1)
    expect(events).toEqual(['added search', 'replaced search'])
  })

  test('rejects the waiters of the old limiter, and its later calls', async () => {
    const { clock, limits } = setUp()
    const log = logOf(clock)
    const before = limits.get('search')
    before.drain('ann')
    log.note('wait', before.acquire('ann'))
    limits.replace('search', login)
    await settled()
    expect(log.entries).toEqual(['wait failed: SLUICE_CLOSED'])
    await expect(before.acquire('bob')).rejects.toMatchObject({ code: 'SLUICE_CLOSED' })
    expect(before.tryAcquire('bob').allowed).toBe(true)
    expect(clock.alarms).toBe(0)
  })

  test('adds a limiter under a new name', () => {
    const { limits, events } = setUp()
    expect(limits.replace('search', login).policy.limit).toBe(5)
    expect(events).toEqual(['added search'])
  })

  test('gives its options to the new limiter', () => {
    const { limits } = setUp()
    limits.get('login', login, { maxWait: '1s' })
    const after = limits.replace('login', login, { maxWait: '2s' })
    expect(limits.get('login', login, { maxWait: '2s' })).toBe(after)
    expect(faultOf(() => limits.get('login', login, { maxWait: '1s' }))).toMatchObject({
      code: 'SLUICE_NAME_TAKEN',
    })
  })

  test.each<[string, unknown, unknown, string]>([
    ['no algorithm', undefined, undefined, 'algorithm'],
    ['an invalid algorithm', {}, undefined, 'algorithm'],
    ['an invalid maxWait', login, { maxWait: 'soon' }, 'maxWait'],
    ['an unknown option', login, { maxwait: '1s' }, 'maxwait'],
  ])('with %s throws, and keeps the old limiter', async (_, algorithm, options, option) => {
    const { limits, events } = setUp()
    const before = limits.get('search')
    expect(faultOf(() => limits.replace('search', algorithm as never, options as never))).toMatchObject({
      option,
    })
    expect(limits.get('search')).toBe(before)
    expect((await before.acquire('ann')).allowed).toBe(true)
    expect(events).toEqual(['added search'])
  })
})

describe('remove and close', () => {
  test('remove closes the limiter and forgets it', async () => {
    const { limits, events } = setUp()
    const search = limits.get('search')
    search.tryAcquire('ann', { cost: 4 })
    expect(limits.remove('search')).toBe(true)
    await expect(search.acquire('ann')).rejects.toMatchObject({ code: 'SLUICE_CLOSED' })
    expect(limits.size).toBe(0)
    expect(limits.remove('search')).toBe(false)
    expect(events).toEqual(['added search', 'removed search'])
    expect(limits.get('search').peek('ann').remaining).toBe(10)
  })

  test('a removed name can be used with other options', () => {
    const { limits } = setUp()
    limits.get('search')
    limits.remove('search')
    expect(limits.get('search', login).policy.limit).toBe(5)
  })

  test('close closes all limiters, rejects every waiter and leaves no timer', async () => {
    const { clock, limits, events } = setUp()
    const log = logOf(clock)
    for (const name of ['a', 'b']) {
      limits.get(name).drain('ann')
      log.note(name, limits.get(name).acquire('ann'))
    }
    expect(clock.alarms).toBe(2)
    limits.close()
    await settled()
    expect(log.entries).toEqual(['a failed: SLUICE_CLOSED', 'b failed: SLUICE_CLOSED'])
    expect(clock.alarms).toBe(0)
    expect([limits.size, [...limits]]).toEqual([0, []])
    expect(events.slice(2)).toEqual(['removed a', 'removed b'])
    limits.close()
    expect(events).toHaveLength(4)
  })
})

describe('events', () => {
  test('carry the current limiter', () => {
    const { limits } = setUp()
    const heard: RegistryEvent<false>[] = []
    const found: (Limiter<false> | undefined)[] = []
    limits.subscribe(event => {
      heard.push(event)
      found.push(limits.find(event.limiter.name))
    })
    const first = limits.get('search')
    const second = limits.replace('search', login)
    limits.remove('search')
    expect(heard.map(({ change }) => change)).toEqual(['added', 'replaced', 'removed'])
    expect(heard.map(({ limiter }) => limiter)).toEqual([first, second, second])
    expect(found).toEqual([first, second, undefined])
  })

  test('reach a listener from subscribe until unsubscribe', () => {
    const { limits } = setUp()
    limits.get('before')
    const events: string[] = []
    const others = eventsOf(limits)
    const unsubscribeIt = limits.subscribe(({ limiter }) => events.push(limiter.name))
    limits.get('between')
    unsubscribeIt()
    unsubscribeIt()
    limits.get('after')
    expect(events).toEqual(['between'])
    expect(others).toEqual(['added between', 'added after'])
  })

  test('call a listener once for each of its subscriptions', () => {
    const { limits } = setUp()
    const events: string[] = []
    const listener = ({ limiter }: RegistryEvent) => events.push(limiter.name)
    const endFirst = limits.subscribe(listener)
    limits.subscribe(listener)
    endFirst()
    limits.get('search')
    expect(events).toEqual(['search'])
  })

  test('allow a listener to unsubscribe during its call', () => {
    const { limits } = setUp()
    const events: string[] = []
    const end = limits.subscribe(({ limiter }) => {
      events.push(limiter.name)
      end()
    })
    const others = eventsOf(limits)
    for (const name of ['a', 'b']) limits.get(name)
    expect(events).toEqual(['a'])
    expect(others).toEqual(['added a', 'added b'])
  })

  test('are published on the channel sluice:registry too', () => {
    const { limits } = setUp()
    const events: unknown[] = []
    const listener = (event: unknown) => events.push(event)
    subscribe('sluice:registry', listener)
    limits.get('search')
    limits.replace('search', login)
    limits.close()
    unsubscribe('sluice:registry', listener)
    expect(events).toEqual(['added', 'replaced', 'removed'].map(change => ({ limiter: 'search', change })))
  })
})

describe('invalid input throws at once', () => {
  test.each<[string, unknown, string, string | RegExp]>([
    ['an unknown option', { limit: 5 }, 'SLUICE_UNKNOWN_OPTION', 'limit'],
    ['a name', { name: 'search' }, 'SLUICE_UNKNOWN_OPTION', 'name'],
    ['a misspelt option', { maxwait: '1s' }, 'SLUICE_UNKNOWN_OPTION', 'maxwait'],
    ['an invalid algorithm', { algorithm: {} }, 'SLUICE_INVALID_OPTION', 'algorithm'],
    ['null instead of an algorithm', { algorithm: null }, 'SLUICE_INVALID_OPTION', 'algorithm'],
    ['an invalid store', { store: {} }, 'SLUICE_INVALID_OPTION', 'store'],
    ['null instead of a store', { store: null }, 'SLUICE_INVALID_OPTION', 'store'],
    ['an invalid clock', { clock: {} }, 'SLUICE_INVALID_OPTION', 'clock'],
    ['an invalid maxWait', { maxWait: 'soon' }, 'SLUICE_INVALID_OPTION', 'maxWait'],
    ['a negative maxQueue', { maxQueue: -1 }, 'SLUICE_INVALID_OPTION', 'maxQueue'],
    ['a fraction for maxQueuePerKey', { maxQueuePerKey: 0.5 }, 'SLUICE_INVALID_OPTION', 'maxQueuePerKey'],
    ['a number', 5, 'SLUICE_INVALID_OPTION', /options/],
    ['null', null, 'SLUICE_INVALID_OPTION', /options/],
  ])('createRegistry: %s', (_, options, code, option) => {
    const fault = faultOf(() => createRegistry(options as never))
    expect(fault).toMatchObject({ code, name: expect.stringMatching(/^(Type|Range)Error$/) })
    expect((fault as { option: string }).option).toMatch(option)
  })

  const made = (limits: Registry<false>) => limits.get('login', login)

  test.each<[string, (limits: Registry<false>) => unknown, string, string | RegExp]>([
    ['get: an empty name', limits => limits.get(''), 'SLUICE_INVALID_OPTION', 'name'],
    ['get: a name of 65 characters', limits => limits.get('n'.repeat(65)), 'SLUICE_INVALID_OPTION', 'name'],
    ['get: a name that is not a string', limits => limits.get(5 as never), 'SLUICE_INVALID_OPTION', 'name'],
    [
      'get: an invalid algorithm',
      limits => limits.get('new', {} as never),
      'SLUICE_INVALID_OPTION',
      'algorithm',
    ],
    [
      'get: null instead of an algorithm',
      limits => limits.get('new', null as never),
      'SLUICE_INVALID_OPTION',
      'algorithm',
    ],
    [
      'get: null instead of the algorithm of an existing limiter',
      limits => limits.get('login', null as never),
      'SLUICE_INVALID_OPTION',
      'algorithm',
    ],
    [
      'get: an invalid maxWait',
      limits => limits.get('new', login, { maxWait: 'soon' as never }),
      'SLUICE_INVALID_OPTION',
      'maxWait',
    ],
    [
      'get: an option of the registry',
      limits => limits.get('new', login, { maxQueue: 5 } as never),
      'SLUICE_UNKNOWN_OPTION',
      'maxQueue',
    ],
    [
      'get: null instead of options',
      limits => limits.get('new', login, null as never),
      'SLUICE_INVALID_OPTION',
      /options/,
    ],
    ['replace: an empty name', limits => limits.replace('', login), 'SLUICE_INVALID_OPTION', 'name'],
    [
      'replace: no algorithm',
      limits => limits.replace('new', undefined as never),
      'SLUICE_INVALID_OPTION',
      'algorithm',
    ],
    [
      'subscribe: a listener that is not a function',
      limits => limits.subscribe('added' as never),
      'SLUICE_INVALID_OPTION',
      'listener',
    ],
  ])('%s', (_, act, code, option) => {
    const { limits, events } = setUp({ algorithm: unlimited() })
    made(limits)
    const fault = faultOf(() => act(limits))
    expect(fault).toMatchObject({ code })
    expect((fault as { option: string }).option).toMatch(option)
    expect([limits.size, events]).toEqual([1, ['added login']])
  })
})

function faultOf(act: () => unknown): unknown {
  try {
    act()
  } catch (error) {
    return error
  }
  throw new Error('nothing was thrown')
}
