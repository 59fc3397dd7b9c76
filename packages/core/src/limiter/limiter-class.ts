import type { Algorithm, Booking, Policy } from '../algorithms/algorithm.js'
import type { Decision } from '../algorithms/decision.js'
import type { Clock } from '../shared/clock.js'
import { type Duration, spanToUs, waitToUs } from '../shared/duration.js'
import { coded, invalid } from '../shared/errors.js'
import { type Answer, andThen } from '../shared/maybe-promise.js'
import { checkCost, checkKey, checkOptions, having, wholeNumber } from '../shared/validate.js'
import { warnOnce } from '../shared/warnings.js'
import type { Booked, Ledger } from '../store/store.js'
import { noAnswer } from '../store/store-error.js'
import { channelOf, publish } from './events.js'
import type { AcquireOptions, Limiter, ReserveOptions, WaitOptions } from './limiter.js'
import { LIMITER, LIMITER_VERSION } from './limiter-mark.js'
import { isRateLimited } from './rate-limited-error.js'
import { type Reservation, reservationOf } from './reservation.js'
import type { Room, SharedWaitHooks } from './room.js'
import type { LimiterStats } from './stats.js'
import { WaitingRoom } from './waiting-room.js'

/** What a limiter has to know of its algorithm; the store applies the algorithm itself. */
export type AlgorithmInfo = Pick<Algorithm, 'name' | 'policy' | 'bookable'>

/** What a limiter is made of. */
export interface LimiterParts<Async extends boolean> {
  readonly name: string
  readonly algorithm: AlgorithmInfo
  readonly ledger: Ledger<Async>
  readonly clock: Clock
  /** The longest wait of a call without a `maxWait` of its own; undefined for the algorithm's. */
  readonly maxWaitUs: number | undefined
  readonly bounds: { readonly maxQueue: number; readonly maxQueuePerKey: number }
  /** How a combination tells its members that calls wait for them. */
  readonly sharing?: SharedWaitHooks | undefined
}

/** A limiter over a ledger: checks arguments, lets calls wait, counts, and publishes events. */
export class LedgerLimiter<Async extends boolean> implements Limiter<Async> {
  readonly name: string
  readonly ledger: Ledger<Async>
  readonly clock: Clock
  readonly bounds: LimiterParts<Async>['bounds']
  /** The limiters that this one combines; empty if it is not a combination. */
  readonly members: readonly LedgerLimiter<boolean>[] = []
  algorithm: AlgorithmInfo
  readonly waitingRoom: WaitingRoom<Async>
  /** The rooms of the calls that wait for this limiter together with others. */
  readonly sharedRooms = new Set<Room>()
  readonly #isAsync: boolean
  readonly #maxWaitUs: number | undefined
  readonly #counts = { granted: 0, refused: 0, waited: 0, storeErrors: 0 }

  constructor({ name, algorithm, ledger, clock, maxWaitUs, bounds, sharing }: LimiterParts<Async>) {
    this.name = name
    this.algorithm = algorithm
    this.ledger = ledger
    this.clock = clock
    this.bounds = bounds
    this.#isAsync = ledger.async
    this.#maxWaitUs = maxWaitUs
    this.waitingRoom = new WaitingRoom({
      name,
      clock,
      ledger,
      ...bounds,
      ...sharing,
      bookable: () => this.algorithm.bookable,
      onWait: (key, cost, waitMs) => publish('sluice:wait', this.name, { key, cost, waitMs }),
    })
  }

  /** On the prototype, so that an object which spreads a limiter is not taken for one. */
  get [LIMITER](): number {
    return LIMITER_VERSION
  }

  get policy(): Policy {
    return this.algorithm.policy
  }

  tryAcquire(key: string, options?: AcquireOptions): Answer<Async, Decision> {
    checkKey(key)
    const cost = costOf(options, ACQUIRE_OPTIONS)
    const answer = this.ledger.decide(key, cost, 0, true)
    // Without a closure on a synchronous store: most calls of most programs end here.
    return this.#isAsync
      ? andThen<Async, Decision, Decision>(answer, decision => this.record(key, cost, decision))
      : (this.record(key, cost, answer as Decision) as Answer<Async, Decision>)
  }

  reserve(key: string, options?: ReserveOptions): Answer<Async, Reservation<Async>> {
    checkKey(key)
    const cost = costOf(options, RESERVE_OPTIONS)
    const maxWaitUs = this.#maxWaitUsOf(options)
    if (maxWaitUs > 0 && !this.algorithm.bookable) throw notBookable(this.algorithm)
    return andThen<Async, Booked, Reservation<Async>>(this.ledger.book(key, cost, maxWaitUs), booked => {
      this.record(key, cost, booked?.decision)
      return reservationOf(this, key, booked)
    })
  }

  async acquire(key: string, options?: WaitOptions): Promise<Decision> {
    return (await this.hold(key, options)).decision
  }

  peek(key: string, options?: AcquireOptions): Answer<Async, Decision> {
    checkKey(key)
    return this.ledger.decide(key, costOf(options, ACQUIRE_OPTIONS), 0, false)
  }

  release(key: string, permits: number): Answer<Async, number> {
    checkKey(key)
    const answer = this.ledger.release(key, wholeNumber('permits', permits))
    return andThen<Async, number, number>(answer, given => this.#permitsReturned(key, given))
  }

  drain(key: string): Answer<Async, number> {
    checkKey(key)
    return andThen<Async, number, number>(this.ledger.drain(key), permits => {
      publish('sluice:drain', this.name, { key, permits })
      return permits
    })
  }

  block(key: string, duration: Duration): Answer<Async, void> {
    checkKey(key)
    const forUs = spanToUs('block', duration)
    return andThen<Async, void, void>(this.ledger.block(key, forUs), () => this.keyBlocked(key, forUs))
  }

  unblock(key: string): Answer<Async, void> {
    checkKey(key)
    return andThen<Async, void, void>(this.ledger.unblock(key), () => {
      publish('sluice:unblock', this.name, { key })
    })
  }

  reset(key: string): Answer<Async, void> {
    checkKey(key)
    return andThen<Async, void, void>(this.ledger.reset(key), () => {
      publish('sluice:reset', this.name, { key })
      this.#rebook(key)
    })
  }

  update(algorithm: Algorithm): Answer<Async, void> {
    checkAlgorithm(algorithm)
    return andThen<Async, void, void>(this.ledger.update(algorithm), () => {
      this.algorithm = algorithm
      const { name, policy } = algorithm
      publish('sluice:update', this.name, { algorithm: name, policy })
      this.#rebook()
    })
  }

  stats(): LimiterStats {
    const { keys, forgotten } = this.ledger
    let waiting = this.waitingRoom.occupied
    for (const { occupied } of this.sharedRooms) waiting += occupied
    return {
      name: this.name,
      ...this.#counts,
      waiting,
      keys,
      forgotten,
    }
  }

  close(): void {
    this.waitingRoom.close()
    for (const room of this.sharedRooms) room.close()
  }

  /** What `console.log` shows: no keys, because they may be personal data. */
  [Symbol.for('nodejs.util.inspect.custom')](): object {
    const { name, policy } = this.algorithm
    return { ...this.stats(), algorithm: name, policy }
  }

  // For HTTP, reservations and combinations: methods that are not part of the interface `Limiter`.

  /** Like `acquire`, and returns the booking, which is needed to give the permits back. */
  async hold(key: string, options: WaitOptions = {}): Promise<Booked> {
    checkKey(key)
    const cost = costOf(options, WAIT_OPTIONS)
    const { signal, unref = false } = options
    if (signal !== undefined) having('throwIfAborted', 'signal', signal, 'an AbortSignal')
    const ask = { cost, maxWaitUs: this.#maxWaitUsOf(options), signal, keepsAlive: !unref }
    try {
      const booked = await this.waitingRoom.acquire(key, ask)
      if (booked.decision?.waitUs > 0) this.countWait()
      this.record(key, cost, booked.decision)
      return booked
    } catch (error) {
      if (isRateLimited(error)) this.record(key, cost, error.decision)
      throw error
    }
  }

  /** Gives back the permits of a booking, as far as they have not refilled by themselves. */
  giveBack(key: string, booking: Booking, verb: 'cancel' | 'refund' = 'refund'): Answer<Async, number> {
    return andThen<Async, number, number>(this.ledger[verb](key, booking), permits =>
      this.#permitsReturned(key, permits),
    )
  }

  // Counters and events.

  /** Counts a decision and publishes it. */
  record<D extends Decision>(key: string, cost: number, decision: D): D {
    checkDecision(decision)
    if (decision.allowed) this.#counts.granted++
    else this.#counts.refused++
    // Not by `publish`: without subscribers, a decision need not make a message.
    if (DECISION.hasSubscribers) DECISION.publish({ limiter: this.name, key, cost, decision })
    return decision
  }

  /** Counts a grant after a wait. */
  countWait(): void {
    this.#counts.waited++
  }

  /** Counts a failed call to the store and publishes the error. */
  failed(error: unknown): void {
    this.#counts.storeErrors++
    publish('sluice:store-error', this.name, { error })
  }

  /** Publishes that a key was blocked, and decides again about the calls that wait for it. */
  keyBlocked(key: string, forUs: number): void {
    publish('sluice:block', this.name, { key, forMs: forUs / 1000 })
    this.#rebook(key)
  }

  /** Publishes that permits were given back, and offers them to the waiting calls. Returns `permits`. */
  #permitsReturned(key: string, permits: number): number {
    if (permits > 0) {
      publish('sluice:release', this.name, { key, permits })
      this.#rebook(key)
    }
    return permits
  }

  /** Books the waiting calls again, of one key or all, because the state that they were booked on has changed. */
  #rebook(key?: string): void {
    this.waitingRoom.rebook(key)
    for (const room of this.sharedRooms) room.rebook()
  }

  #maxWaitUsOf(options: ReserveOptions | undefined): number {
    if (options?.maxWait !== undefined) return waitToUs('maxWait', options.maxWait)
    return this.#maxWaitUs ?? (this.algorithm.policy.maxWaitMs ?? Infinity) * 1000
  }
}

const DECISION = channelOf('sluice:decision')

const ACQUIRE_OPTIONS = ['cost']
const RESERVE_OPTIONS = ['cost', 'maxWait']
const WAIT_OPTIONS = ['cost', 'maxWait', 'signal', 'unref']

/** The cost of a call, once its options are checked: a misspelt one would be a cost of 1, or a wait without an end. */
function costOf(options: AcquireOptions | undefined, known: readonly string[]): number {
  if (options === undefined) return 1
  if (typeof options !== 'object' || options === null)
    throw invalid(TypeError, 'options', 'an object such as { cost: 5 }', options)
  for (const name in options) if (!known.includes(name)) checkOptions('limiter', options, known)
  return options.cost === undefined ? 1 : checkCost(options.cost)
}

/** By a property, because the store may use another copy of this package. */
export function checkDecision(decision: Decision | undefined): void {
  if (decision?.gauge === undefined) throw noAnswer()
}

/** Checks an algorithm, and emits its warning. */
export function checkAlgorithm(algorithm: unknown): void {
  having('step', 'algorithm', algorithm, 'an algorithm such as tokenBucket()')
  const { warning } = algorithm as Algorithm
  if (warning !== undefined) warnOnce(warning.code, warning.text)
}

function notBookable({ name }: AlgorithmInfo): Error {
  return coded(
    new TypeError(`reserve: ${name} cannot book ahead; use acquire, or maxWait: 0`),
    'SLUICE_NOT_BOOKABLE',
    'reserve',
  )
}
