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

/** Notes when promises settle, and how. */
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

/** Lets everything settle that can settle without time passing. */
async function settled(turns = 50): Promise<void> {
  for (let turn = 0; turn < turns; turn++) await Promise.resolve()
}

/** Moves the clock in steps, so that what one wake-up leads to happens before the next. */
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
  test('passes at once while there are permits, and then waits its turn, first come, first served', async () => {
    const { clock, limiter, log } = setUp(make())
    for (const name of ['a', 'b', 'c']) log.note(name, limiter.acquire('key'))
    await settled()
    expect(log.entries).toEqual(['a after 0 (waited 0)'])
    await pass(clock, 3000, 250)
    expect(log.entries.slice(1)).toEqual(['b after 1000 (waited 1000)', 'c after 2000 (waited 2000)'])
    expect(clock.alarms).toBe(0)
  })

  test('grants nothing before its instant', async () => {
    const { clock, limiter, log } = setUp(make())
    await limiter.tryAcquire('key')
    log.note('a', limiter.acquire('key'))
    await settled()
    await pass(clock, 999.999)
    expect(log.entries).toEqual([])
    await pass(clock, 0.001)
    expect(log.entries).toEqual(['a after 1000 (waited 1000)'])
  })

  test('says of what can never pass that waiting does not help', async () => {
    const limiter = createLimiter(tokenBucket({ limit: 5, window: '1s' }), { name: 'mail' })
    await expect(limiter.acquire('k', { cost: 6 })).rejects.toThrow(
      "limiter 'mail' refused: the cost can never be granted",
    )
  })

  test('refuses at once what would wait longer than maxWait, and takes nothing', async () => {
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

  test('refuses what can never pass', async () => {
    const { limiter } = setUp(make())
    await expect(limiter.acquire('key', { cost: 2 })).rejects.toMatchObject({
      decision: { waitMs: Infinity },
    })
  })

  test('an abort ends the wait with its reason, gives back, and who waits behind moves up', async () => {
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

  test('aborts of one tick are dealt with together', async () => {
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

  test('a signal that is aborted already ends it before anything is taken', async () => {
    const { limiter } = setUp(make())
    await expect(limiter.acquire('key', { signal: AbortSignal.abort('no') })).rejects.toBe('no')
    expect(await limiter.peek('key')).toMatchObject({ remaining: 1 })
  })

  test('a full line refuses at once and takes nothing, but still serves who need not wait', async () => {
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

  test('close ends every wait, gives everything back, and refuses what comes later', async () => {
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
      // An asynchronous store gives a hundred bookings back one after the other.
      await settled(1000)
    }
    expect([...reasons]).toEqual([['gone', 10_000]])
    expect(clock.alarms).toBe(0)
    expect((await limiter.peek('key')).balance).toBe(balance)
  })
})

describe('acquire', () => {
  test('a large ask is not starved by small ones behind it', async () => {
    const { clock, limiter, log } = setUp({ burst: 3 })
    limiter.tryAcquire('key', { cost: 3 })
    log.note('large', limiter.acquire('key', { cost: 3 }))
    log.note('small', limiter.acquire('key'))
    await pass(clock, 4000, 500)
    expect(log.entries).toEqual(['large after 3000 (waited 3000)', 'small after 4000 (waited 4000)'])
  })

  test('neither where the algorithm cannot book', async () => {
    const { clock, limiter, log } = setUp({ algorithm: unbookable(3) })
    limiter.tryAcquire('key', { cost: 3 })
    log.note('large', limiter.acquire('key', { cost: 3 }))
    log.note('small', limiter.acquire('key'))
    await pass(clock, 4000, 500)
    expect(log.entries).toEqual(['large after 3000 (waited 3000)', 'small after 4000 (waited 4000)'])
  })

  test('where the algorithm cannot book, patience ends at maxWait', async () => {
    const { clock, limiter, log } = setUp({ algorithm: unbookable() })
    limiter.tryAcquire('key')
    log.note('patient', limiter.acquire('key'))
    log.note('hasty', limiter.acquire('key', { maxWait: 1500 }))
    await pass(clock, 3000, 500)
    expect(log.entries).toEqual(['patient after 1000 (waited 1000)', 'hasty failed: SLUICE_RATE_LIMITED'])
    expect(limiter.peek('key').remaining).toBe(1)
  })

  test('keys have lines of their own', async () => {
    const { clock, limiter, log } = setUp()
    for (const key of ['a', 'b']) {
      limiter.tryAcquire(key)
      log.note(key, limiter.acquire(key))
    }
    expect(clock.alarms).toBe(2)
    await pass(clock, 1000)
    expect(log.entries).toEqual(['a after 1000 (waited 1000)', 'b after 1000 (waited 1000)'])
  })

  test('one alarm for a line, however many stand in it', () => {
    const { clock, limiter } = setUp()
    limiter.tryAcquire('key')
    for (let count = 0; count < 10; count++) void limiter.acquire('key')
    expect(clock.alarms).toBe(1)
  })

  test('waiters and bookings by hand share one line', async () => {
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

  test('impatience is refused at once and reserves nothing (S26, SGrondin/bottleneck#169)', async () => {
    const clock = manualClock()
    const limiter = createLimiter(tokenBucket({ limit: 1, window: 800 }), { clock })
    limiter.tryAcquire('key')
    for (const maxWait of [0, 500])
      await expect(limiter.acquire('key', { maxWait })).rejects.toMatchObject({ decision: { waitMs: 800 } })
    expect(limiter.peek('key').waitMs).toBe(800)
  })

  test("takes the limiter's maxWait unless told otherwise", async () => {
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
  ])('bad options %o reject and take nothing', async (options, option) => {
    const { limiter } = setUp()
    await expect(limiter.acquire('key', options as never)).rejects.toMatchObject({ option })
    await expect(limiter.acquire('')).rejects.toMatchObject({ code: 'SLUICE_INVALID_KEY' })
    expect(limiter.peek('key').remaining).toBe(1)
  })

  test('a store that fails in the middle ends the waits of the line', async () => {
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

test('a line that has been served is let go of, with all its waiters', async () => {
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

test('a store that is full refuses a waiter as well, and lets nobody pass', async () => {
  const { limiter } = setUp({ store: memoryStore({ maxKeys: 1, onFull: 'refuse' }) as never })
  limiter.tryAcquire('other')
  await expect(limiter.acquire('key', { maxWait: '10s' })).rejects.toBeInstanceOf(RateLimitedError)
})

test('who comes in the tick in which another leaves finds the place free', async () => {
  const { clock, limiter, log } = setUp()
  limiter.tryAcquire('key')
  const abort = new AbortController()
  limiter.acquire('key', { signal: abort.signal }).catch(() => {})
  abort.abort()
  log.note('next', limiter.acquire('key', { maxWait: '1s' }))
  await pass(clock, 1000)
  expect(log.entries).toEqual(['next after 1000 (waited 1000)'])
})

test('on an asynchronous store, who leaves while the line moves up leaves nothing booked', async () => {
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

describe('by timers of the system', () => {
  afterEach(() => {
    vi.useRealTimers()
  })

  test('a timer that fires early is set again', async () => {
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

  test('waits beyond 2^31 - 1 ms work', async () => {
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
