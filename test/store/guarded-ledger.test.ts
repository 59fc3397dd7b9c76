import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises'
import {
  type AsyncStore,
  createLimiter,
  type Ledger,
  type Limiter,
  memoryStore,
  type OnStoreError,
  RateLimitedError,
  type Reservation,
  type SluiceEvents,
  slidingLog,
  tokenBucket,
} from '@sluice/core'
import { guarded } from '@sluice/core/store'
import { manualClock } from '@sluice/core/testing'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { laterLedger } from '../support/later-ledger.js'

const BUCKET = tokenBucket({ limit: 10, window: '1s', burst: 4 })
const DEADLINE_MS = 15

/** How a ledger fails. It may call `answer` too. Undefined if it does not fail. */
type Fault = ((answer: () => unknown) => unknown) | undefined

/** A memory store that answers asynchronously, and fails by `fault` if that is set. */
function faultyStore() {
  const memory = memoryStore()
  const store = {
    async: true as const,
    fault: undefined as Fault,
    /** The names of the ledger methods that were called. */
    calls: [] as string[],
    open(spec: Parameters<AsyncStore['open']>[0]): Ledger<true> {
      const ledger = memory.open(spec)
      const later = laterLedger(ledger, (answer, verb) => {
        store.calls.push(verb)
        return store.fault === undefined
          ? Promise.resolve().then(answer as never)
          : (store.fault(answer) as Promise<never>)
      })
      return guarded(later, spec)
    },
  }
  return store
}

const DOWN = new Error('the connection was lost')
const FAULTS: Record<string, NonNullable<Fault>> = {
  rejects: () => Promise.reject(DOWN),
  throws: () => {
    throw DOWN
  },
  'rejects with nothing': () => Promise.reject(undefined),
  'does not answer': () => new Promise(() => {}),
  'is a thenable that throws': () => ({
    // biome-ignore lint/suspicious/noThenProperty: as the clients of some stores return
    then() {
      throw DOWN
    },
  }),
}

async function setUp(onStoreError: OnStoreError | undefined) {
  const clock = manualClock()
  const store = faultyStore()
  const limiter = createLimiter(BUCKET, {
    name: 'guarded',
    clock,
    store,
    onStoreError,
    deadline: DEADLINE_MS,
  })
  const booking = await limiter.reserve('booked', { cost: 2 })
  store.calls.length = 0
  return { clock, store, limiter, booking }
}

type Verb = (limiter: Limiter<true>, booking: Reservation<true>) => Promise<unknown>

/** Methods that return a decision. */
const ASKS: Record<string, Verb> = {
  tryAcquire: limiter => limiter.tryAcquire('k', { cost: 2 }),
  peek: limiter => limiter.peek('k'),
  reserve: limiter => limiter.reserve('k', { maxWait: '1s' }),
}
/** Methods that book or wait. */
const WAITS: Record<string, Verb> = {
  acquire: limiter => limiter.acquire('k'),
  'acquire of maxWait 0': limiter => limiter.acquire('k', { maxWait: 0 }),
}
/** Methods that return a number of permits. */
const COUNTS: Record<string, Verb> = {
  cancel: (_, booking) => booking.cancel(),
  refund: (_, booking) => booking.refund(),
  release: limiter => limiter.release('k', 2),
  drain: limiter => limiter.drain('k'),
}
/** Methods without a result. */
const ACTS: Record<string, Verb> = {
  reset: limiter => limiter.reset('k'),
  update: limiter => limiter.update(tokenBucket({ limit: 5, window: '1s' })),
}
const VERBS = { ...ASKS, ...WAITS, ...COUNTS, ...ACTS }

const pairs = <T>(verbs: Record<string, Verb>, others: Record<string, T>) =>
  Object.entries(verbs).flatMap(([name, verb]) =>
    Object.entries(others).map(([what, other]) => [name, what, verb, other] as const),
  )

let events: SluiceEvents['sluice:store-error'][]
const onEvent = (event: unknown) => events.push(event as SluiceEvents['sluice:store-error'])
beforeEach(() => {
  events = []
  subscribe('sluice:store-error', onEvent)
})
afterEach(() => {
  unsubscribe('sluice:store-error', onEvent)
})

/** Expects one store call, which failed and published one event. */
function expectOneFailure({ store, limiter }: { store: { calls: string[] }; limiter: Limiter<true> }): void {
  expect(store.calls.length).toBe(1)
  expect(limiter.stats().storeErrors).toBe(1)
  expect(events).toEqual([
    { limiter: 'guarded', error: expect.objectContaining({ code: 'SLUICE_STORE_ERROR', option: 'store' }) },
  ])
  for (const { error } of events) expect((error as Error).message).not.toMatch(/'k'|booked/)
}

describe("onStoreError 'throw', the default", () => {
  test.each(pairs(VERBS, FAULTS))('%s fails when the store %s', async (_, __, verb, fault) => {
    for (const onStoreError of [undefined, 'throw'] as const) {
      events = []
      const { store, limiter, booking } = await setUp(onStoreError)
      store.fault = fault
      await expect(verb(limiter, booking)).rejects.toMatchObject({
        code: 'SLUICE_STORE_ERROR',
        option: 'store',
      })
      expectOneFailure({ store, limiter })
      expect(limiter.stats()).toMatchObject({ granted: 1, refused: 0, waiting: 0 })
    }
  })

  test.each(Object.entries(VERBS))('%s carries the error of the store as its cause', async (_, verb) => {
    const { store, limiter, booking } = await setUp('throw')
    store.fault = () => Promise.reject(DOWN)
    await expect(verb(limiter, booking)).rejects.toMatchObject({ cause: DOWN })
  })

  test('an error with the code SLUICE_STORE_ERROR is passed on unchanged', async () => {
    const { store, limiter } = await setUp('throw')
    const error = Object.assign(new Error('no such script'), { code: 'SLUICE_STORE_ERROR', option: 'store' })
    store.fault = () => Promise.reject(error)
    await expect(limiter.tryAcquire('k')).rejects.toBe(error)
    expect(events).toEqual([{ limiter: 'guarded', error }])
  })
})

describe("onStoreError 'allow'", () => {
  const ALLOWED = {
    allowed: true,
    limit: Infinity,
    remaining: 0,
    balance: 0,
    waitMs: 0,
    retryAfterMs: 0,
    refillAfterMs: 0,
    resetAfterMs: 0,
    code: 'SLUICE_STORE_ERROR',
  }

  test.each(pairs({ ...ASKS, ...WAITS }, FAULTS))(
    '%s is granted at once and without figures when the store %s',
    async (_, __, verb, fault) => {
      const { store, limiter, booking } = await setUp('allow')
      store.fault = fault
      const decision = (await verb(limiter, booking)) as Reservation<true>
      expect(decision.toJSON()).toEqual(ALLOWED)
      expectOneFailure({ store, limiter })
    },
  )

  test('a reservation gives nothing back, without calling the store', async () => {
    const { store, limiter } = await setUp('allow')
    store.fault = () => Promise.reject(DOWN)
    const reservation = await limiter.reserve('k')
    store.fault = undefined
    expect([await reservation.cancel(), await reservation.refund()]).toEqual([0, 0])
    expect(store.calls).toEqual(['book'])
  })

  test('grants are counted, and their events carry the code', async () => {
    const decisions: unknown[] = []
    const onDecision = (event: unknown) => decisions.push(event)
    subscribe('sluice:decision', onDecision)
    try {
      const { store, limiter } = await setUp('allow')
      decisions.length = 0
      store.fault = () => Promise.reject(DOWN)
      const decision = await limiter.tryAcquire('k', { cost: 2 })
      expect(decisions).toEqual([{ limiter: 'guarded', key: 'k', cost: 2, decision }])
      expect(limiter.stats()).toMatchObject({ granted: 2, refused: 0, storeErrors: 1 })
    } finally {
      unsubscribe('sluice:decision', onDecision)
    }
  })

  test('invalid input is still an error, and not counted as a store error', async () => {
    const { store, limiter } = await setUp('allow')
    store.fault = () => Promise.reject(DOWN)
    expect(() => limiter.tryAcquire('')).toThrow(expect.objectContaining({ code: 'SLUICE_INVALID_KEY' }))
    expect(() => limiter.tryAcquire('k', { cost: -1 })).toThrow(
      expect.objectContaining({ code: 'SLUICE_INVALID_COST' }),
    )
    await expect(limiter.acquire('')).rejects.toMatchObject({ code: 'SLUICE_INVALID_KEY' })
    expect(store.calls).toEqual([])
    expect(limiter.stats().storeErrors).toBe(0)
  })

  test('an aborted or closed wait is still rejected', async () => {
    const { store, limiter } = await setUp('allow')
    store.fault = () => Promise.reject(DOWN)
    await expect(limiter.acquire('k', { signal: AbortSignal.abort(DOWN) })).rejects.toBe(DOWN)
    limiter.close()
    await expect(limiter.acquire('k')).rejects.toMatchObject({ code: 'SLUICE_CLOSED' })
    expect(store.calls).toEqual([])
  })
})

describe("onStoreError 'refuse'", () => {
  const REFUSED = {
    allowed: false,
    limit: Infinity,
    remaining: 0,
    balance: 0,
    waitMs: Infinity,
    retryAfterMs: Infinity,
    code: 'SLUICE_STORE_ERROR',
  }

  test.each(pairs(ASKS, FAULTS))('%s is refused when the store %s', async (_, __, verb, fault) => {
    const { store, limiter, booking } = await setUp('refuse')
    store.fault = fault
    const decision = (await verb(limiter, booking)) as Reservation<true>
    expect(decision.toJSON()).toMatchObject(REFUSED)
    expectOneFailure({ store, limiter })
  })

  test.each(pairs(WAITS, FAULTS))('%s is refused at once when the store %s', async (_, __, verb, fault) => {
    const { store, limiter, booking } = await setUp('refuse')
    store.fault = fault
    const error = await verb(limiter, booking).catch(error => error)
    expect(error).toBeInstanceOf(RateLimitedError)
    expect((error as RateLimitedError).decision.toJSON()).toMatchObject(REFUSED)
    expectOneFailure({ store, limiter })
    expect(limiter.stats()).toMatchObject({ granted: 1, refused: 1, waiting: 0 })
  })

  test('a reservation gives nothing back', async () => {
    const { store, limiter } = await setUp('refuse')
    store.fault = () => Promise.reject(DOWN)
    const reservation = await limiter.reserve('k')
    expect([await reservation.cancel(), await reservation.refund()]).toEqual([0, 0])
    expect(store.calls).toEqual(['book'])
  })
})

describe.each(['allow', 'refuse'] as const)("onStoreError '%s'", onStoreError => {
  test.each(pairs(COUNTS, FAULTS))('%s returns 0 when the store %s', async (_, __, verb, fault) => {
    const { store, limiter, booking } = await setUp(onStoreError)
    store.fault = fault
    expect(await verb(limiter, booking)).toBe(0)
    expectOneFailure({ store, limiter })
  })

  test.each(pairs(ACTS, FAULTS))(
    '%s, which returns no decision, fails when the store %s',
    async (_, __, verb, fault) => {
      const { store, limiter, booking } = await setUp(onStoreError)
      store.fault = fault
      await expect(verb(limiter, booking)).rejects.toMatchObject({ code: 'SLUICE_STORE_ERROR' })
      expectOneFailure({ store, limiter })
      expect(limiter.policy.limit).toBe(4)
    },
  )

  test('no release event is published for permits that were not given back', async () => {
    const releases: unknown[] = []
    const onRelease = (event: unknown) => releases.push(event)
    subscribe('sluice:release', onRelease)
    try {
      const { store, limiter, booking } = await setUp(onStoreError)
      store.fault = () => Promise.reject(DOWN)
      await Promise.all([booking.cancel(), limiter.release('k', 1)])
      expect(releases).toEqual([])
    } finally {
      unsubscribe('sluice:release', onRelease)
    }
  })

  test('the next call uses the store again, which decides after it has recovered', async () => {
    const { store, limiter } = await setUp(onStoreError)
    store.fault = () => Promise.reject(DOWN)
    for (let call = 0; call < 3; call++) await limiter.tryAcquire('k')
    store.fault = undefined
    expect((await limiter.tryAcquire('k', { cost: 4 })).toJSON()).toMatchObject({
      allowed: true,
      limit: 4,
      remaining: 0,
    })
    const refused = await limiter.tryAcquire('k')
    expect([refused.allowed, refused.code]).toEqual([false, undefined])
    expect(store.calls.length).toBe(5)
    expect(limiter.stats().storeErrors).toBe(3)
    expect(events.length).toBe(3)
  })
})

describe.each(['allow', 'refuse', 'throw'] as const)("onStoreError '%s'", onStoreError => {
  test('every failed call is counted and publishes one event', async () => {
    const { store, limiter } = await setUp(onStoreError)
    store.fault = () => Promise.reject(DOWN)
    const calls = Array.from({ length: 50 }, (_, index) => limiter.tryAcquire(`key-${index}`))
    await Promise.allSettled(calls)
    expect(store.calls.length).toBe(50)
    expect(limiter.stats().storeErrors).toBe(50)
    expect(events.length).toBe(50)
    expect(events.map(({ error }) => (error as Error).message).join()).not.toMatch(/key-/)
  })

  test('a store that answers causes no error', async () => {
    const { store, limiter, booking } = await setUp(onStoreError)
    for (const verb of Object.values(VERBS)) await verb(limiter, booking).catch(() => {})
    expect(store.calls.length).toBeGreaterThan(8)
    expect(limiter.stats().storeErrors).toBe(0)
    expect(events).toEqual([])
  })

  test.each(Object.entries(FAULTS))(
    'a queued waiter does not wait forever when the store %s',
    async (_, fault) => {
      const { clock, store, limiter } = await setUp(onStoreError)
      await limiter.acquire('k', { cost: 4 })
      const outcomes: unknown[] = []
      for (let waiter = 0; waiter < 3; waiter++)
        limiter.acquire('k').then(
          ({ allowed }) => outcomes.push({ allowed }),
          ({ code }) => outcomes.push({ code }),
        )
      await expect.poll(() => clock.alarms).toBe(1)
      for (let turn = 0; turn < 5; turn++) await nextTurn()
      store.fault = fault
      for (let step = 0; step < 4; step++) {
        clock.advance('100ms')
        await sleep(2 * DEADLINE_MS)
      }
      expect(outcomes.length).toBe(3)
      if (onStoreError === 'throw') expect(outcomes).toEqual(Array(3).fill({ code: 'SLUICE_STORE_ERROR' }))
      if (onStoreError === 'allow') expect(outcomes).toEqual(Array(3).fill({ allowed: true }))
      expect(limiter.stats().waiting).toBe(0)
      expect(clock.alarms).toBe(0)
    },
  )

  test.each(Object.entries(FAULTS))(
    'a waiter on an algorithm that cannot book does not wait forever when the store %s',
    async (_, fault) => {
      const clock = manualClock()
      const store = faultyStore()
      const algorithm = slidingLog({ limit: 1, window: '100ms' })
      const limiter = createLimiter(algorithm, { clock, store, onStoreError, deadline: DEADLINE_MS })
      await limiter.acquire('k')
      const outcomes: unknown[] = []
      for (let waiter = 0; waiter < 2; waiter++)
        limiter.acquire('k').then(
          ({ allowed }) => outcomes.push({ allowed }),
          ({ code }) => outcomes.push({ code }),
        )
      await expect.poll(() => clock.alarms).toBe(1)
      for (let turn = 0; turn < 5; turn++) await nextTurn()
      store.fault = fault
      for (let step = 0; step < 4; step++) {
        clock.advance('100ms')
        await sleep(2 * DEADLINE_MS)
      }
      expect(outcomes.length).toBe(2)
      expect(limiter.stats().waiting).toBe(0)
    },
  )

  // The failed call may have reached the store, and permits must come back once only.
  test.each([
    ['cancel', 'cancel'],
    ['cancel', 'refund'],
    ['refund', 'refund'],
    ['refund', 'cancel'],
  ] as const)(
    'a %s that the store completed before it failed is not repeated by %s',
    async (first, second) => {
      const { store, limiter } = await setUp(onStoreError)
      await limiter.tryAcquire('k', { cost: 4 })
      const booking = await limiter.reserve('k', { cost: 2 })
      store.fault = answer => {
        answer()
        return Promise.reject(DOWN)
      }
      await booking[first]().catch(() => 0)
      store.fault = undefined
      expect((await limiter.peek('k')).balance).toBe(0)
      expect(await booking[second]()).toBe(0)
      expect((await limiter.peek('k')).balance).toBe(0)
    },
  )
})

describe('an invalid answer is a store error', () => {
  const NO_DECISIONS = [
    undefined,
    null,
    true,
    1,
    'allowed',
    {},
    [],
    { allowed: true },
    { allowed: true, waitMs: 0, retryAfterMs: 0 },
  ]
  const NO_BOOKINGS = [
    ...NO_DECISIONS,
    { decision: undefined },
    { decision: { allowed: true } },
    { booking: {} },
  ]
  const NO_COUNTS = [undefined, null, true, '1', Number.NaN, -1, -Infinity, 1n, {}, [1]]
  const cases = [
    ...['tryAcquire', 'peek'].map(verb => [verb, NO_DECISIONS] as const),
    ...['reserve', 'acquire', 'acquire of maxWait 0'].map(verb => [verb, NO_BOOKINGS] as const),
    ...Object.keys(COUNTS).map(verb => [verb, NO_COUNTS] as const),
  ].map(([name, answers]) => ({ name, answers, verb: VERBS[name as keyof typeof VERBS] as Verb }))

  test.each(cases)('to $name', async ({ answers, verb }) => {
    for (const answer of answers) {
      events = []
      const { store, limiter, booking } = await setUp('throw')
      store.fault = () => Promise.resolve(answer)
      await expect(verb(limiter, booking)).rejects.toMatchObject({
        code: 'SLUICE_STORE_ERROR',
        option: 'store',
        message: 'the store has given an invalid answer',
      })
      expectOneFailure({ store, limiter })
    }
  })

  test.each(cases)('to $name, even if it is not a promise', async ({ answers, verb }) => {
    for (const answer of answers) {
      events = []
      const { store, limiter, booking } = await setUp('throw')
      store.fault = () => answer
      await expect(verb(limiter, booking)).rejects.toMatchObject({ code: 'SLUICE_STORE_ERROR' })
      expectOneFailure({ store, limiter })
    }
  })

  test.each(cases)('to $name, and is handled by onStoreError', async ({ name, answers, verb }) => {
    const { store, limiter, booking } = await setUp('allow')
    store.fault = () => Promise.resolve(answers[0])
    const answer = await verb(limiter, booking)
    if (Object.hasOwn(COUNTS, name)) expect(answer).toBe(0)
    else expect(answer).toMatchObject({ allowed: true, code: 'SLUICE_STORE_ERROR' })
    expectOneFailure({ store, limiter })
  })

  test('but any answer is valid for a method without a result', async () => {
    const { store, limiter, booking } = await setUp('throw')
    for (const answer of [undefined, null, 'OK', 1, {}]) {
      store.fault = () => Promise.resolve(answer)
      for (const verb of Object.values(ACTS)) await verb(limiter, booking)
    }
    expect(limiter.stats().storeErrors).toBe(0)
  })

  test('but any count of 0 or more is valid', async () => {
    const { store, limiter } = await setUp('throw')
    for (const count of [0, 1, 0.5, 2 ** 53]) {
      store.fault = () => Promise.resolve(count)
      expect(await limiter.release('k', 1)).toBe(count)
    }
  })
})

describe('on a synchronous store', () => {
  test('onStoreError and deadline change nothing', () => {
    for (const onStoreError of ['allow', 'refuse', 'throw', undefined] as const) {
      const limiter = createLimiter(BUCKET, { onStoreError, deadline: '1ms', clock: manualClock() })
      expect(limiter.tryAcquire('k', { cost: 4 }).toJSON()).toMatchObject({ allowed: true, remaining: 0 })
      expect(limiter.tryAcquire('k').code).toBeUndefined()
      expect(limiter.stats().storeErrors).toBe(0)
    }
  })
})
