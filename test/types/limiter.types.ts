import {
  type Answer,
  type AsyncStore,
  createLimiter,
  type Decision,
  type Duration,
  type Limiter,
  type MemoryStore,
  memoryStore,
  parseDuration,
  type Reservation,
  type SyncStore,
  tokenBucket,
  unlimited,
} from '@sluice/core'

/*
 * Checked by tsc and never run: what compiles, to what type, and what must not compile.
 */

type Same<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false

/** Compiles only when both types are the same. */
declare function same<A, B>(..._: Same<A, B> extends true ? [] : [never]): void

declare const redis: AsyncStore
declare const memory: SyncStore
declare const either: SyncStore | AsyncStore
declare const maybeAsync: AsyncStore | undefined
declare const maybeSync: SyncStore | undefined
declare const production: boolean

const bucket = tokenBucket({ limit: 10, window: '1m' })

export function withoutStore() {
  const limiter = createLimiter(bucket)
  same<typeof limiter, Limiter<false>>()
  const booking = limiter.reserve('ann', { cost: 2, maxWait: '1s' })
  const [decision, peeked] = [limiter.tryAcquire('ann', { cost: 2 }), limiter.peek('ann')]
  same<typeof decision, Decision>()
  same<typeof peeked, Decision>()
  same<typeof booking, Reservation<false>>()
  const [given, refunded, nothing] = [booking.cancel(), booking.refund(), limiter.reset('ann')]
  same<typeof given, number>()
  same<typeof refunded, number>()
  same<typeof nothing, void>()
  return [decision.allowed, decision.waitMs, booking.allowed, limiter.update(unlimited())]
}

export function withSyncStore() {
  const [own, memoryStored] = [
    createLimiter(bucket, { store: memory }),
    createLimiter(bucket, { store: memoryStore() }),
  ]
  same<typeof own, Limiter<false>>()
  same<typeof memoryStored, Limiter<false>>()
  const [named, undecided] = [
    createLimiter(bucket, { name: 'x' }),
    createLimiter(bucket, { store: undefined }),
  ]
  same<typeof named, Limiter<false>>()
  same<typeof undecided, Limiter<false>>()
  const optional = createLimiter(bucket, { store: maybeSync })
  same<typeof optional, Limiter<false>>()
  const store: MemoryStore = memoryStore({ maxKeys: undefined, onFull: undefined })
  return [own.tryAcquire('ann').allowed, store.size]
}

export async function withAsyncStore() {
  const limiter = createLimiter(bucket, { store: redis })
  same<typeof limiter, Limiter<true>>()
  const [asked, booked, peeked] = [limiter.tryAcquire('ann'), limiter.reserve('ann'), limiter.peek('ann')]
  same<typeof asked, Promise<Decision>>()
  same<typeof booked, Promise<Reservation<true>>>()
  same<typeof peeked, Promise<Decision>>()
  const booking = await booked
  const [given, refunded] = [booking.cancel(), booking.refund()]
  same<typeof given, Promise<number>>()
  same<typeof refunded, Promise<number>>()
  const [nothing, updated] = [limiter.reset('ann'), limiter.update(bucket)]
  same<typeof nothing, Promise<void>>()
  same<typeof updated, Promise<void>>()
  // @ts-expect-error the decision is a promise
  return limiter.tryAcquire('ann').allowed
}

/** A store chosen by a condition: the answer must be awaited, and a function may accept either kind of Limiter. */
export async function withStoreChosenByCondition() {
  const limiter = createLimiter(bucket, { store: production ? redis : memoryStore() })
  const stated = createLimiter(bucket, { store: either, name: 'per-user', maxWait: '1s' })
  const optional = createLimiter(bucket, { store: maybeAsync })
  same<typeof stated, Limiter<boolean>>()
  same<typeof optional, Limiter<boolean>>()
  const asked = limiter.tryAcquire('ann')
  same<typeof asked, Decision | Promise<Decision>>()
  // @ts-expect-error the decision may be a promise
  asked.allowed
  const decision = await asked
  const booking = await stated.reserve('ann')
  const given: number = await booking.cancel()
  return [decision.allowed, given]
}

export async function takesAnyLimiter(limiter: Limiter): Promise<boolean> {
  return (await limiter.tryAcquire('ann')).allowed
}
export const anyLimiter = [
  takesAnyLimiter(createLimiter(bucket)),
  takesAnyLimiter(createLimiter(bucket, { store: redis })),
  takesAnyLimiter(createLimiter(bucket, { store: either })),
]

export function answers() {
  same<Answer<false, number>, number>()
  same<Answer<true, number>, Promise<number>>()
  same<Answer<boolean, number>, number | Promise<number>>()
  // @ts-expect-error the check itself can fail
  same<Answer<true, number>, number>()
}

export const durations: readonly Duration[] = [
  0,
  1.5,
  '250ms',
  '1.5s',
  '1m',
  '12h',
  '30d',
  '2w',
  '1 minute',
  '10 seconds',
]

export function badDurations() {
  // @ts-expect-error no unit
  const noUnit: Duration = '500'
  // @ts-expect-error not a number
  const noNumber: Duration = 'ms'
  // @ts-expect-error no such unit
  const noSuchUnit: Duration = '1 fortnight'
  // @ts-expect-error a bigint
  const bigint: Duration = 5n
  // Strings of the environment have no literal type, so they are parsed.
  return [noUnit, noNumber, noSuchUnit, bigint, parseDuration(process.env.RATE_WINDOW ?? '1m')]
}

export function badOptions() {
  // @ts-expect-error limit as a string
  tokenBucket({ limit: '60', window: '1m' })
  // @ts-expect-error limit as a bigint
  tokenBucket({ limit: 60n, window: '1m' })
  // @ts-expect-error limit missing
  tokenBucket({ window: '1m' })
  // @ts-expect-error window missing
  tokenBucket({ limit: 60 })
  // @ts-expect-error window without a unit
  tokenBucket({ limit: 60, window: '60' })
  // @ts-expect-error window in an unknown unit
  tokenBucket({ limit: 60, window: '1 fortnight' })
  // @ts-expect-error burst as a string
  tokenBucket({ limit: 60, window: '1m', burst: '5' })
  // @ts-expect-error an option of another library
  tokenBucket({ limit: 60, window: '1m', max: 5 })
  // @ts-expect-error no options
  tokenBucket()
  // @ts-expect-error unlimited has no options
  unlimited({ limit: 5 })

  // @ts-expect-error options instead of an algorithm
  createLimiter({ limit: 60, window: '1m' })
  // @ts-expect-error the factory instead of its result
  createLimiter(tokenBucket)
  // @ts-expect-error an unknown option
  createLimiter(bucket, { nam: 'per-user' })
  // @ts-expect-error a name that is not a string
  createLimiter(bucket, { name: 5 })
  // @ts-expect-error a wait without a unit
  createLimiter(bucket, { maxWait: '500' })
  // @ts-expect-error not a store
  createLimiter(bucket, { store: new Map() })
  // @ts-expect-error not a clock
  createLimiter(bucket, { clock: Date })

  // @ts-expect-error an unknown option
  memoryStore({ maxkeys: 5 })
  // @ts-expect-error none of the two values
  memoryStore({ onFull: 'evict' })
}

export function badArguments() {
  const limiter = createLimiter(bucket)
  // @ts-expect-error cost as a string
  limiter.tryAcquire('ann', { cost: '1' })
  // @ts-expect-error cost as a bigint
  limiter.reserve('ann', { cost: 1n })
  // @ts-expect-error cost misspelt
  limiter.peek('ann', { costs: 5 })
  // @ts-expect-error cost by position
  limiter.tryAcquire('ann', 5)
  // @ts-expect-error tryAcquire does not wait
  limiter.tryAcquire('ann', { maxWait: '1s' })
  // @ts-expect-error a wait without a unit
  limiter.reserve('ann', { maxWait: '500' })
  // @ts-expect-error key as a number
  limiter.tryAcquire(42)
  // @ts-expect-error a key that may be missing
  limiter.peek(process.env.USER)
  // @ts-expect-error no key
  limiter.reset()
  // @ts-expect-error a decision is read-only
  limiter.peek('ann').allowed = true
  // @ts-expect-error the name is set at creation
  limiter.name = 'other'
}
