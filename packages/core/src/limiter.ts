import type { Algorithm, Policy } from './algorithm.js'
import { type Answer, afterwards } from './answer.js'
import { type Clock, systemClock } from './clock.js'
import { checkCost } from './cost.js'
import type { Decision } from './decision.js'
import { type Duration, waitToUs } from './duration.js'
import { invalid, invalidPrivately } from './errors.js'
import { memoryStore } from './memory-store.js'
import { checkOptions, having, policyName } from './options.js'
import { type Reservation, reservationOf } from './reservation.js'
import type { AsyncStore, Ledger, SyncStore } from './store.js'

/** Options of `createLimiter`. */
export interface LimiterOptions<S extends SyncStore | AsyncStore | undefined = undefined> {
  /** The name that headers and errors give it: 1 to 64 printable ASCII characters, default `'default'`. */
  readonly name?: string | undefined
  /** Where the keys live; default a `memoryStore()` of its own. */
  readonly store?: S
  /** Where the time comes from; default the system's monotonic clock. */
  readonly clock?: Clock | undefined
  /** The longest wait `reserve` accepts unless told otherwise; default Infinity. */
  readonly maxWait?: Duration | undefined
}

export interface AcquireOptions {
  /** Permits asked for: a whole number, default 1. Cost 0 is always granted and changes nothing. */
  readonly cost?: number | undefined
}

export interface ReserveOptions extends AcquireOptions {
  /** The longest wait accepted; default the limiter's `maxWait`. */
  readonly maxWait?: Duration | undefined
}

/**
 * Decides over keys by one algorithm. On a synchronous store every answer comes at once; on an asynchronous one every
 * answer is a promise.
 *
 * Every verb throws a TypeError for a key that is not a non-empty string and a TypeError or RangeError for a cost
 * that is not a whole number of permits, at once also on an asynchronous store; nothing is charged then.
 */
export interface Limiter<Async extends boolean = boolean> {
  readonly name: string
  /** What it advertises; changes with `update`. */
  readonly policy: Policy
  /** Takes `cost` permits now, or refuses and changes nothing. */
  tryAcquire(key: string, options?: AcquireOptions): Answer<Async, Decision>
  /**
   * Takes `cost` permits for the earliest instant at which they are there, at most `maxWait` from now, or refuses and
   * changes nothing. On a grant wait `waitMs` before acting; `cancel()` and `refund()` give the permits back.
   */
  reserve(key: string, options?: ReserveOptions): Answer<Async, Reservation<Async>>
  /** What `tryAcquire` would answer, without taking anything; the figures are those of now. */
  peek(key: string, options?: AcquireOptions): Answer<Async, Decision>
  /** Forgets the key: it is as if never seen, and its reservations have nothing to give back. */
  reset(key: string): Answer<Async, void>
  /**
   * Changes the algorithm from now on. With another `limit`, `window` or `burst` of the same algorithm keys keep what
   * they have (a token bucket its balance); with another algorithm every key starts afresh.
   */
  update(algorithm: Algorithm): Answer<Async, void>
}

/**
 * Makes a limiter: an algorithm, applied to keys.
 *
 * Throws a TypeError or RangeError (with `code` and `option`) for an option that is unknown, of a wrong type or out of
 * range.
 *
 * @example
 * const perUser = createLimiter(tokenBucket({ limit: 600, window: '1m', burst: 50 }), { name: 'per-user' })
 * const decision = perUser.tryAcquire('ann', { cost: 5 })
 * if (!decision.allowed) console.log(`try again in ${decision.retryAfterMs} ms`)
 */
export function createLimiter<S extends SyncStore | AsyncStore | undefined = undefined>(
  algorithm: Algorithm,
  options: LimiterOptions<S> = {},
): Limiter<S extends AsyncStore ? true : false> {
  checkAlgorithm(algorithm)
  checkOptions('createLimiter', options, ['name', 'store', 'clock', 'maxWait'])
  const name = options.name === undefined ? 'default' : policyName('name', options.name)
  const { clock = systemClock, store = memoryStore() } = options
  having('nowUs', 'clock', clock, 'a clock such as systemClock')
  having('open', 'store', store, 'a store such as memoryStore()')
  const maxWaitUs = options.maxWait === undefined ? Infinity : waitToUs('maxWait', options.maxWait)
  const ledger = store.open({ name, algorithm, clock }) as Ledger<S extends AsyncStore ? true : false>
  return new LedgerLimiter(name, algorithm, ledger, maxWaitUs)
}

/** Whether a value is a limiter of `createLimiter`, or does what one does. */
export function isLimiter(value: unknown): value is Limiter {
  const limiter = value as Limiter | null | undefined
  return typeof limiter?.tryAcquire === 'function' && typeof limiter.name === 'string'
}

class LedgerLimiter<Async extends boolean> implements Limiter<Async> {
  readonly name: string
  readonly #ledger: Ledger<Async>
  readonly #maxWaitUs: number
  #policy: Policy

  constructor(name: string, algorithm: Algorithm, ledger: Ledger<Async>, maxWaitUs: number) {
    this.name = name
    this.#policy = algorithm.policy
    this.#ledger = ledger
    this.#maxWaitUs = maxWaitUs
  }

  get policy(): Policy {
    return this.#policy
  }

  tryAcquire(key: string, options?: AcquireOptions): Answer<Async, Decision> {
    checkKey(key)
    return this.#ledger.decide(key, costOf(options), 0, true)
  }

  reserve(key: string, options?: ReserveOptions): Answer<Async, Reservation<Async>> {
    checkKey(key)
    const cost = options === undefined ? 1 : statedCost(options, ['cost', 'maxWait'])
    const maxWait = options?.maxWait
    const maxWaitUs = maxWait === undefined ? this.#maxWaitUs : waitToUs('maxWait', maxWait)
    return reservationOf(this.#ledger, key, cost, maxWaitUs)
  }

  peek(key: string, options?: AcquireOptions): Answer<Async, Decision> {
    checkKey(key)
    return this.#ledger.decide(key, costOf(options), 0, false)
  }

  reset(key: string): Answer<Async, void> {
    checkKey(key)
    return this.#ledger.reset(key)
  }

  update(algorithm: Algorithm): Answer<Async, void> {
    checkAlgorithm(algorithm)
    return afterwards<Async, void, void>(this.#ledger.update(algorithm), () => {
      this.#policy = algorithm.policy
    })
  }
}

function checkKey(key: unknown): void {
  if (typeof key !== 'string' || key === '') throw invalidKey(key)
}

function invalidKey(key: unknown): Error {
  return invalidPrivately(TypeError, 'key', 'a non-empty string', key, 'SLUICE_INVALID_KEY')
}

function costOf(options: AcquireOptions | undefined): number {
  return options === undefined ? 1 : statedCost(options)
}

/** A misspelt option would be a cost of 1, or a wait without end. */
function statedCost(options: AcquireOptions, known = ['cost']): number {
  if (typeof options !== 'object' || options === null)
    throw invalid(TypeError, 'options', 'an object such as { cost: 5 }', options)
  for (const name in options) if (!known.includes(name)) checkOptions('limiter', options, known)
  return options.cost === undefined ? 1 : checkCost(options.cost)
}

function checkAlgorithm(algorithm: unknown): void {
  having('step', 'algorithm', algorithm, "an algorithm such as tokenBucket({ limit: 100, window: '1m' })")
}
