import { setImmediate as nextTurn } from 'node:timers/promises'
import { type AsyncStore, createLimiter, type Limiter, memoryStore, tokenBucket } from '@sluice/core'
import { guarded } from '@sluice/core/store'
import { manualClock } from '@sluice/core/testing'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { type CallLater, laterLedger } from '../support/later-ledger.js'

/** A memory store that answers one turn of the event loop later, and fails while `down`. */
function asyncStore() {
  const memory = memoryStore()
  const store: AsyncStore & { down: boolean; calls: number } = {
    async: true,
    down: false,
    calls: 0,
    open(spec) {
      const ledger = memory.open(spec)
      const later: CallLater = async act => {
        store.calls++
        await nextTurn()
        if (store.down) throw new Error('the store is down')
        return act()
      }
      return guarded(laterLedger(ledger, later), spec)
    },
  }
  return store
}

function setUp() {
  const clock = manualClock()
  const store = asyncStore()
  const limiter = createLimiter(tokenBucket({ limit: 10, window: '1s', burst: 4 }), { clock, store })
  return { clock, store, limiter }
}

describe('on an asynchronous store', () => {
  test('every method returns a promise', async () => {
    const { limiter } = setUp()
    const booked = limiter.reserve('k')
    const booking = await booked
    const answers: unknown[] = [
      limiter.tryAcquire('k'),
      booked,
      limiter.peek('k'),
      booking.cancel(),
      booking.cancel(),
      booking.refund(),
      limiter.reset('k'),
      limiter.update(tokenBucket({ limit: 1, window: '1s' })),
    ]
    for (const answer of answers) expect(answer).toBeInstanceOf(Promise)
    await Promise.all(answers)
  })

  test('a reservation with nothing to give back resolves to 0 without calling the store', async () => {
    const { store, limiter } = setUp()
    const refused = await limiter.reserve('k', { cost: 5 })
    const free = await limiter.reserve('k', { cost: 0 })
    const calls = store.calls
    for (const booking of [refused, free])
      for (const answer of [booking.cancel(), booking.refund()]) {
        expect(answer).toBeInstanceOf(Promise)
        expect(await answer).toBe(0)
      }
    expect(store.calls).toBe(calls)
  })

  test('decides like a synchronous store', async () => {
    const act = fc.oneof(
      fc.record({ verb: fc.constantFrom('tryAcquire' as const, 'peek' as const), cost: fc.nat(5) }),
      fc.record({
        verb: fc.constant('reserve' as const),
        cost: fc.nat(5),
        maxWait: fc.constantFrom(0, 200, Infinity),
      }),
      fc.record({ verb: fc.constantFrom('cancel' as const, 'refund' as const), which: fc.nat(20) }),
      fc.record({ verb: fc.constant('reset' as const) }),
      fc.record({ verb: fc.constant('update' as const), limit: fc.integer({ min: 1, max: 20 }) }),
      fc.record({ verb: fc.constant('advance' as const), us: fc.nat(300_000) }),
    )
    type Act = typeof act extends fc.Arbitrary<infer T> ? T : never

    /** The result of each step, on either store. */
    async function answersOf(clock: ReturnType<typeof manualClock>, limiter: Limiter, acts: readonly Act[]) {
      const bookings: Awaited<ReturnType<Limiter['reserve']>>[] = []
      const answers: unknown[] = []
      for (const step of acts) {
        if (step.verb === 'advance') clock.advance(step.us / 1000)
        else if (step.verb === 'reset') answers.push(await limiter.reset('k'))
        else if (step.verb === 'update')
          answers.push(await limiter.update(tokenBucket({ limit: step.limit, window: '1s' })))
        else if (step.verb === 'reserve') {
          const booking = await limiter.reserve('k', { cost: step.cost, maxWait: step.maxWait })
          bookings.push(booking)
          answers.push(booking.toJSON())
        } else if ('which' in step) {
          answers.push(await bookings[step.which % bookings.length]?.[step.verb]())
        } else answers.push((await limiter[step.verb]('k', { cost: step.cost })).toJSON())
      }
      return answers
    }

    await fc.assert(
      fc.asyncProperty(fc.array(act, { maxLength: 25 }), async acts => {
        const { clock, limiter } = setUp()
        const itsClock = manualClock()
        const synchronous = createLimiter(tokenBucket({ limit: 10, window: '1s', burst: 4 }), {
          clock: itsClock,
        })
        expect(await answersOf(clock, limiter, acts)).toEqual(await answersOf(itsClock, synchronous, acts))
      }),
      { numRuns: 50 },
    )
  })

  test('a reservation has the figures of a decision', async () => {
    const { limiter } = setUp()
    await limiter.tryAcquire('k', { cost: 4 })
    const booking = await limiter.reserve('k', { cost: 2 })
    expect(booking.toJSON()).toMatchObject({ allowed: true, waitMs: 200, balance: -2, limit: 4 })
    expect(JSON.parse(JSON.stringify(booking))).toEqual(booking.toJSON())
  })

  test.each([
    ['cancel', 'cancel'],
    ['refund', 'refund'],
    ['cancel', 'refund'],
    ['refund', 'cancel'],
  ] as const)('%s and %s at once give back once', async (first, second) => {
    const { limiter } = setUp()
    await limiter.tryAcquire('k', { cost: 4 })
    const booking = await limiter.reserve('k', { cost: 3 })
    expect(await Promise.all([booking[first](), booking[second]()])).toEqual([3, 0])
    expect((await limiter.peek('k')).balance).toBe(0)
    expect([await booking.cancel(), await booking.refund()]).toEqual([0, 0])
  })

  test('refund still works after a cancel that came too late', async () => {
    const { clock, limiter } = setUp()
    await limiter.tryAcquire('k', { cost: 4 })
    const booking = await limiter.reserve('k', { cost: 2 })
    clock.advance(200.001)
    expect(await booking.cancel()).toBe(0)
    expect(await booking.refund()).toBe(2)
    expect(await booking.refund()).toBe(0)
  })

  test('rejects if the store fails, and returns no decision', async () => {
    const { store, limiter } = setUp()
    const booking = await limiter.reserve('k')
    store.down = true
    const failures = [
      limiter.tryAcquire('k'),
      limiter.reserve('k'),
      limiter.peek('k'),
      booking.cancel(),
      limiter.reset('k'),
      limiter.update(tokenBucket({ limit: 1, window: '1s' })),
    ]
    for (const failure of failures)
      await expect(failure).rejects.toMatchObject({
        code: 'SLUICE_STORE_ERROR',
        cause: new Error('the store is down'),
      })
  })

  test('does not advertise the policy of a failed update', async () => {
    const { store, limiter } = setUp()
    store.down = true
    const update = limiter.update(tokenBucket({ limit: 1, window: '1s' }))
    await expect(update).rejects.toMatchObject({ code: 'SLUICE_STORE_ERROR' })
    expect(limiter.policy.limit).toBe(4)
  })

  test('invalid input never reaches the store', async () => {
    const { store, limiter } = setUp()
    const ask = async (key: unknown, options?: unknown) => limiter.tryAcquire(key as never, options as never)
    await expect(ask(undefined)).rejects.toMatchObject({ code: 'SLUICE_INVALID_KEY' })
    await expect(ask('k', { cost: 0.5 })).rejects.toMatchObject({ code: 'SLUICE_INVALID_COST' })
    await expect(ask('k', 5)).rejects.toMatchObject({ code: 'SLUICE_INVALID_OPTION' })
    expect(store.calls).toBe(0)
  })
})
