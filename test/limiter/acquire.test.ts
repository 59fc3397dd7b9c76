import { setMaxListeners } from 'node:events'
import { setImmediate as nextTurn } from 'node:timers/promises'
import {
  type Algorithm,
  createLimiter,
  type Decision,
  type LimiterOptions,
  memoryStore,
  RateLimitedError,
  tokenBucket,
} from '@sluice/core'
import { type ManualClock, manualClock } from '@sluice/core/testing'
import { afterEach, describe, expect, test, vi } from 'vitest'
import { asynchronous } from '../support/async-store.js'

/** One permit every second, `burst` at once. */
function setUp(options: LimiterOptions & { burst?: number; algorithm?: Algorithm } = {}) {
  const { burst = 1, algorithm = tokenBucket({ limit: 1, window: '1s', burst }), ...rest } = options
  const clock = manualClock()
  const limiter = createLimiter(algorithm, { clock, name: 'test', ...rest })
  return { clock, limiter, log: logOf(clock) }
}

/** Logs when promises settle, and how. */
function logOf(clock: ManualClock) {
  const startMs = clock.nowMs
  const entries: string[] = []
  return {
    entries,
    note(name: string, promise: Promise<Decision>) {
      promise.then(
        ({ waitMs }) => entries.push(`${name} after ${clock.nowMs - startMs} (waited ${waitMs})`),
        error => entries.push(`${name} failed: ${error?.code ?? error?.name ?? error}`),
      )
    },
  }
}

/** Waits until every promise has settled that can settle without moving the clock. */
async function settled(turns = 50): Promise<void> {
  for (let turn = 0; turn < turns; turn++) await Promise.resolve()
}

/** Moves the clock in steps, so that the effects of one timer settle before the next. */
async function pass(clock: ManualClock, ms: number, stepMs = ms): Promise<void> {
  for (let passedMs = 0; passedMs < ms; passedMs += stepMs) {
    clock.advance(stepMs)
    await settled()
  }
}

/** A token bucket that does not book. */
function unbookable(burst = 1): Algorithm {
  const bucket = tokenBucket({ limit: 1, window: '1s', burst })
  return new Proxy(bucket, {
    get: (target, property) => {
      if (property === 'bookable') return false
      const value = Reflect.get(target, property)
      return typeof value === 'function' ? value.bind(target) : value
    },
  })
}

const KINDS = [
  { kind: 'booking, synchronous', make: () => ({}) },
  { kind: 'booking, asynchronous', make: () => ({ store: asynchronous(memoryStore()) as never }) },
  { kind: 'asking again, synchronous', make: () => ({ algorithm: unbookable() }) },
  {
    kind: 'asking again, asynchronous',
    make: () => ({ algorithm: unbookable(), store: asynchronous(memoryStore()) as never }),
  },
]

describe.each(KINDS)('acquire, $kind', ({ make }) => {
  test('grants at once while permits are left, and then serves waiters first come, first served', async () => {
    const { clock, limiter, log } = setUp(make())
    for (const name of ['a', 'b', 'c']) log.note(name, limiter.acquire('key'))
    await settled()
    expect(log.entries).toEqual(['a after 0 (waited 0)'])
    await pass(clock, 3000, 250)
    expect(log.entries.slice(1)).toEqual(['b after 1000 (waited 1000)', 'c after 2000 (waited 2000)'])
    expect(clock.alarms).toBe(0)
  })

  test('never grants early, to the microsecond', async () => {
    const { clock, limiter, log } = setUp(make())
    await limiter.tryAcquire('key')
    log.note('a', limiter.acquire('key'))
    await settled()
    await pass(clock, 999.999)
    expect(log.entries).toEqual([])
    await pass(clock, 0.001)
    expect(log.entries).toEqual(['a after 1000 (waited 1000)'])
  })

  test('reports that waiting does not help for a cost that can never be granted', async () => {
    const limiter = createLimiter(tokenBucket({ limit: 5, window: '1s' }), { name: 'mail' })
    await expect(limiter.acquire('k', { cost: 6 })).rejects.toThrow(
      "limiter 'mail' refused: the cost can never be granted",
    )
  })

  test('refuses at once if the wait would exceed maxWait, and takes nothing', async () => {
    const { limiter } = setUp(make())
    await limiter.tryAcquire('key')
    const before = JSON.stringify(await limiter.peek('key'))
    const refusal = limiter.acquire('key', { maxWait: 999 })
    await expect(refusal).rejects.toBeInstanceOf(RateLimitedError)
    await expect(refusal).rejects.toMatchObject({
      code: 'SLUICE_RATE_LIMITED',
      limiter: 'test',
      message: "limiter 'test' refused: the wait exceeds maxWait",
      decision: { allowed: false, waitMs: 1000 },
    })
    expect(JSON.stringify(await limiter.peek('key'))).toBe(before)
  })

  test('refuses at once a cost that can never be granted', async () => {
    const { limiter } = setUp(make())
    await expect(limiter.acquire('key', { cost: 2 })).rejects.toMatchObject({
      decision: { waitMs: Infinity },
    })
  })

  test('an abort rejects the wait with its reason, gives the permits back, and the waiters behind it move up', async () => {
    const { clock, limiter, log } = setUp(make())
    const abort = new AbortController()
    log.note('a', limiter.acquire('key'))
    await settled()
    log.note('b', limiter.acquire('key', { signal: abort.signal }))
    log.note('c', limiter.acquire('key'))
    await settled()
    await pass(clock, 500)
    abort.abort('enough')
    await settled()
    expect(log.entries).toEqual(['a after 0 (waited 0)', 'b failed: enough'])
    await pass(clock, 500)
    expect(log.entries[2]).toBe('c after 1000 (waited 1000)')
    expect(await limiter.peek('key')).toMatchObject({ balance: 0 })
    expect(clock.alarms).toBe(0)
  })

  test('handles several aborts in one tick together', async () => {
    const { clock, limiter, log } = setUp(make())
    const abort = new AbortController()
    for (const name of ['a', 'b', 'c', 'd', 'e'])
      log.note(name, limiter.acquire('key', name === 'b' || name === 'd' ? { signal: abort.signal } : {}))
    await settled()
    abort.abort(new Error('gone'))
    await settled()
    await pass(clock, 3000, 500)
    expect(log.entries).toEqual([
      'a after 0 (waited 0)',
      'b failed: Error',
      'd failed: Error',
      'c after 1000 (waited 1000)',
      'e after 2000 (waited 2000)',
    ])
  })

  test('rejects with an already aborted signal, and takes nothing', async () => {
    const { limiter } = setUp(make())
    await expect(limiter.acquire('key', { signal: AbortSignal.abort('no') })).rejects.toBe('no')
    expect(await limiter.peek('key')).toMatchObject({ remaining: 1 })
  })

  test('a full queue refuses at once and takes nothing, but still serves calls that need not wait', async () => {
    const { clock, limiter, log } = setUp({ ...make(), maxQueuePerKey: 2, maxQueue: 3 })
    for (const key of ['a', 'b', 'c']) await limiter.tryAcquire(key)
    log.note('a1', limiter.acquire('a'))
    log.note('a2', limiter.acquire('a'))
    await settled()
    await expect(limiter.acquire('a')).rejects.toMatchObject({
      message: "limiter 'test' refused: too many calls are waiting",
      decision: { allowed: false },
    })
    log.note('b1', limiter.acquire('b'))
    await settled()
    await expect(limiter.acquire('c')).rejects.toThrow('too many calls are waiting')
    expect(await limiter.acquire('d')).toMatchObject({ allowed: true, waitMs: 0 })
    await pass(clock, 2000, 500)
    expect(log.entries).toEqual([
      'a1 after 1000 (waited 1000)',
      'b1 after 1000 (waited 1000)',
      'a2 after 2000 (waited 2000)',
    ])
    expect(await limiter.peek('c')).toMatchObject({ remaining: 1 })
  })

  test('close rejects every waiter, gives everything back, and rejects later calls', async () => {
    const { clock, limiter, log } = setUp(make())
    await limiter.tryAcquire('key')
    log.note('a', limiter.acquire('key'))
    log.note('b', limiter.acquire('key'))
    await settled()
    limiter.close()
    await settled()
    expect(log.entries).toEqual(['a failed: SLUICE_CLOSED', 'b failed: SLUICE_CLOSED'])
    await expect(limiter.acquire('key')).rejects.toMatchObject({ code: 'SLUICE_CLOSED' })
    expect(await limiter.peek('key')).toMatchObject({ balance: 0 })
    expect(clock.alarms).toBe(0)
  })

  test('10,000 aborted waiters leave nothing behind', async () => {
    const { clock, limiter } = setUp({ ...make(), maxQueuePerKey: 100 })
    await limiter.tryAcquire('key')
    const balance = (await limiter.peek('key')).balance
    const reasons = new Map<unknown, number>()
    for (let batch = 0; batch < 100; batch++) {
      const abort = new AbortController()
      setMaxListeners(0, abort.signal)
      const waits = Array.from({ length: 100 }, () => limiter.acquire('key', { signal: abort.signal }))
      for (const wait of waits) wait.catch(reason => reasons.set(reason, (reasons.get(reason) ?? 0) + 1))
      await settled()
      abort.abort('gone')
      // An asynchronous store gives back a hundred bookings one after another.
      await settled(1000)
    }
    expect([...reasons]).toEqual([['gone', 10_000]])
    expect(clock.alarms).toBe(0)
    expect((await limiter.peek('key')).balance).toBe(balance)
  })
})

describe('acquire', () => {
  test('small calls do not starve a large one before them in the queue', async () => {
    const { clock, limiter, log } = setUp({ burst: 3 })
    limiter.tryAcquire('key', { cost: 3 })
    log.note('large', limiter.acquire('key', { cost: 3 }))
    log.note('small', limiter.acquire('key'))
    await pass(clock, 4000, 500)
    expect(log.entries).toEqual(['large after 3000 (waited 3000)', 'small after 4000 (waited 4000)'])
  })

  test('small calls do not starve a large one if the algorithm cannot book', async () => {
    const { clock, limiter, log } = setUp({ algorithm: unbookable(3) })
    limiter.tryAcquire('key', { cost: 3 })
    log.note('large', limiter.acquire('key', { cost: 3 }))
    log.note('small', limiter.acquire('key'))
    await pass(clock, 4000, 500)
    expect(log.entries).toEqual(['large after 3000 (waited 3000)', 'small after 4000 (waited 4000)'])
  })

  test('refuses a waiter after maxWait if the algorithm cannot book', async () => {
    const { clock, limiter, log } = setUp({ algorithm: unbookable() })
    limiter.tryAcquire('key')
    log.note('patient', limiter.acquire('key'))
    log.note('hasty', limiter.acquire('key', { maxWait: 1500 }))
    await pass(clock, 3000, 500)
    expect(log.entries).toEqual(['patient after 1000 (waited 1000)', 'hasty failed: SLUICE_RATE_LIMITED'])
    expect(limiter.peek('key').remaining).toBe(1)
  })

  test('each key has its own queue', async () => {
    const { clock, limiter, log } = setUp()
    for (const key of ['a', 'b']) {
      limiter.tryAcquire(key)
      log.note(key, limiter.acquire(key))
    }
    expect(clock.alarms).toBe(2)
    await pass(clock, 1000)
    expect(log.entries).toEqual(['a after 1000 (waited 1000)', 'b after 1000 (waited 1000)'])
  })

  test('sets one timer for a queue of any length', () => {
    const { clock, limiter } = setUp()
    limiter.tryAcquire('key')
    for (let count = 0; count < 10; count++) void limiter.acquire('key')
    expect(clock.alarms).toBe(1)
  })

  test('waiters and reservations share one queue', async () => {
    const { clock, limiter, log } = setUp()
    limiter.tryAcquire('key')
    const booking = limiter.reserve('key')
    log.note('a', limiter.acquire('key'))
    expect(booking.waitMs).toBe(1000)
    await pass(clock, 2000, 500)
    expect(log.entries).toEqual(['a after 2000 (waited 2000)'])
  })

  test('of 50 waiters 49 abort: the last one passes after one interval (S24, data-fair/data-fair#486)', async () => {
    const { clock, limiter, log } = setUp({ maxQueuePerKey: 100 })
    limiter.tryAcquire('key')
    const abort = new AbortController()
    setMaxListeners(0, abort.signal)
    for (let count = 0; count < 49; count++) limiter.acquire('key', { signal: abort.signal }).catch(() => {})
    log.note('last', limiter.acquire('key'))
    await pass(clock, 10)
    abort.abort()
    await settled()
    await pass(clock, 990)
    expect(log.entries).toEqual(['last after 1000 (waited 1000)'])
  })

  test('a call with a too short maxWait is refused at once and reserves nothing (S26, SGrondin/bottleneck#169)', async () => {
    const clock = manualClock()
    const limiter = createLimiter(tokenBucket({ limit: 1, window: 800 }), { clock })
    limiter.tryAcquire('key')
    for (const maxWait of [0, 500])
      await expect(limiter.acquire('key', { maxWait })).rejects.toMatchObject({ decision: { waitMs: 800 } })
    expect(limiter.peek('key').waitMs).toBe(800)
  })

  test("uses the limiter's maxWait by default", async () => {
    const { clock, limiter, log } = setUp({ maxWait: 500 })
    limiter.tryAcquire('key')
    await expect(limiter.acquire('key')).rejects.toBeInstanceOf(RateLimitedError)
    log.note('patient', limiter.acquire('key', { maxWait: '1s' }))
    await pass(clock, 1000)
    expect(log.entries).toEqual(['patient after 1000 (waited 1000)'])
  })

  test.each([
    [{ maxWait: 'soon' }, 'maxWait'],
    [{ signal: {} }, 'signal'],
    [{ maxwait: 5 }, 'maxwait'],
    [{ cost: -1 }, 'cost'],
  ])('rejects invalid options %o, and takes nothing', async (options, option) => {
    const { limiter } = setUp()
    await expect(limiter.acquire('key', options as never)).rejects.toMatchObject({ option })
    await expect(limiter.acquire('')).rejects.toMatchObject({ code: 'SLUICE_INVALID_KEY' })
    expect(limiter.peek('key').remaining).toBe(1)
  })

  test('a store error during the waits rejects every waiter of the queue', async () => {
    const store = asynchronous(memoryStore())
    const { limiter, log } = setUp({ store: store as never })
    await limiter.tryAcquire('key')
    const abort = new AbortController()
    log.note('a', limiter.acquire('key', { signal: abort.signal }))
    log.note('b', limiter.acquire('key'))
    await settled()
    store.failWith(new Error('store is down'))
    abort.abort('gone')
    await settled()
    expect(log.entries).toEqual(['a failed: gone', 'b failed: SLUICE_STORE_ERROR'])
  })
})

test('a finished queue and its waiters are garbage-collected', async () => {
  const { clock, limiter } = setUp()
  const signals: WeakRef<AbortSignal>[] = []
  const serve = async (key: string) => {
    const { signal } = new AbortController()
    signals.push(new WeakRef(signal))
    limiter.tryAcquire(key)
    const wait = limiter.acquire(key, { signal })
    clock.advance('1s')
    await wait
  }
  for (let number = 0; number < 20; number++) await serve(`key ${number}`)
  for (let turn = 0; turn < 3; turn++) {
    await nextTurn()
    globalThis.gc?.()
  }
  expect(signals.filter(signal => signal.deref() !== undefined)).toEqual([])
  expect(limiter.peek('key 0').allowed).toBe(true)
})

test('a full store refuses acquire too, and grants nothing', async () => {
  const { limiter } = setUp({ store: memoryStore({ maxKeys: 1, onFull: 'refuse' }) as never })
  limiter.tryAcquire('other')
  await expect(limiter.acquire('key', { maxWait: '10s' })).rejects.toBeInstanceOf(RateLimitedError)
})

test('a caller that arrives in the tick of an abort gets the free place', async () => {
  const { clock, limiter, log } = setUp()
  limiter.tryAcquire('key')
  const abort = new AbortController()
  limiter.acquire('key', { signal: abort.signal }).catch(() => {})
  abort.abort()
  log.note('next', limiter.acquire('key', { maxWait: '1s' }))
  await pass(clock, 1000)
  expect(log.entries).toEqual(['next after 1000 (waited 1000)'])
})

test('on an asynchronous store, an abort while the queue moves up leaves nothing booked', async () => {
  for (let delay = 0; delay < 60; delay++) {
    const { clock, limiter } = setUp({ store: asynchronous(memoryStore()) as never })
    await limiter.tryAcquire('key')
    const aborts = Array.from({ length: 4 }, () => new AbortController())
    for (const { signal } of aborts) limiter.acquire('key', { signal }).catch(() => {})
    await settled()
    aborts[0]?.abort()
    await settled(delay)
    aborts[2]?.abort()
    await settled(delay)
    aborts[1]?.abort()
    await settled(200)
    expect([delay, (await limiter.peek('key')).balance, clock.alarms]).toEqual([delay, -1, 1])
  }
})

describe('with system timers', () => {
  afterEach(() => {
    vi.useRealTimers()
  })

  test('sets a timer again if it fires early', async () => {
    vi.useFakeTimers()
    let nowUs = 1_700_000_000_000_000
    const limiter = createLimiter(tokenBucket({ limit: 1, window: '1s' }), { clock: { nowUs: () => nowUs } })
    limiter.tryAcquire('key')
    let granted = false
    void limiter.acquire('key').then(() => {
      granted = true
    })
    nowUs += 998_200
    await vi.advanceTimersByTimeAsync(1000)
    expect(granted).toBe(false)
    expect(vi.getTimerCount()).toBe(1)
    nowUs += 1800
    await vi.advanceTimersByTimeAsync(2)
    expect(granted).toBe(true)
    expect(vi.getTimerCount()).toBe(0)
  })

  test('waits longer than 2^31 - 1 ms', async () => {
    vi.useFakeTimers({ now: 1_700_000_000_000 })
    const clock = { nowUs: () => Date.now() * 1000 }
    const limiter = createLimiter(tokenBucket({ limit: 1, window: '60d' }), { clock })
    limiter.tryAcquire('key')
    let granted = false
    void limiter.acquire('key').then(() => {
      granted = true
    })
    const dayMs = 86_400_000
    await vi.advanceTimersByTimeAsync(60 * dayMs - 1)
    expect(granted).toBe(false)
    await vi.advanceTimersByTimeAsync(1)
    expect(granted).toBe(true)
  })
})
