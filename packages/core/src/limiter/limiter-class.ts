import type { Algorithm, Booking, Policy } from '../algorithms/algorithm.js'
import type { Decision } from '../algorithms/decision.js'
import type { Clock } from '../shared/clock.js'
import { checkCost } from '../shared/cost.js'
import { type Duration, spanToUs, waitToUs } from '../shared/duration.js'
import { coded, invalid, invalidPrivately } from '../shared/errors.js'
import { type Answer, afterwards, andThen, type MaybePromise } from '../shared/maybe-promise.js'
import { checkOptions, having, wholeNumber } from '../shared/validate.js'
import type { Booked, Ladder, Ledger } from '../store/store.js'
import { noAnswer } from '../store/store-error.js'
import { channelOf } from './events.js'
import type { AcquireOptions, Limiter, ReserveOptions, WaitOptions } from './limiter.js'
import { RateLimitedError } from './rate-limited-error.js'
import { type Reservation, reservationOf } from './reservation.js'
import type { LimiterStats } from './stats.js'
import { type Room, WaitingRoom } from './waiting-line.js'

/** What a limiter says of itself; an algorithm says it. */
export interface Terms {
  readonly name: string
  readonly policy: Policy
  readonly bookable: boolean
}

/** What a limiter is made of. */
export interface LimiterParts<Async extends boolean> {
  readonly name: string
  readonly terms: Terms
  readonly ledger: Ledger<Async>
  readonly clock: Clock
  /** The patience of who states none; undefined for what the terms say. */
  readonly maxWaitUs: number | undefined
  readonly bounds: { readonly maxQueue: number; readonly maxQueuePerKey: number }
}

/** A limiter over a ledger: checks what it is asked, keeps the waiting, counts and tells. */
export class LedgerLimiter<Async extends boolean> implements Limiter<Async> {
  readonly name: string
  readonly ledger: Ledger<Async>
  readonly clock: Clock
  readonly bounds: LimiterParts<Async>['bounds']
  terms: Terms
  private readonly isAsync: boolean
  private readonly maxWaitUs: number | undefined
  protected readonly waitingRoom: WaitingRoom<Async>
  /** How many wait for this limiter among others, by key. */
  private readonly sharing = new Map<string, number>()
  private sharingAll = 0
  /** Rooms in which somebody waits for this limiter among others. */
  private readonly sharedRooms = new Set<Room>()
  private granted = 0
  private refused = 0
  private waited = 0
  private storeErrors = 0

  constructor({ name, terms, ledger, clock, maxWaitUs, bounds }: LimiterParts<Async>) {
    this.name = name
    this.terms = terms
    this.ledger = ledger
    this.clock = clock
    this.bounds = bounds
    this.isAsync = ledger.async
    this.maxWaitUs = maxWaitUs
    const bookable = () => this.terms.bookable
    this.waitingRoom = new WaitingRoom({ name, clock, ledger, bookable, ...bounds, ...this.roomHooks() })
  }

  get policy(): Policy {
    return this.terms.policy
  }

  get isClosed(): boolean {
    return this.waitingRoom.closed
  }

  tryAcquire(key: string, options?: AcquireOptions): Answer<Async, Decision> {
    checkKey(key)
    const cost = costOf(options)
    const answer = this.ledger.decide(key, cost, 0, true)
    return this.isAsync
      ? this.notedLater(key, cost, answer)
      : (this.noted(key, cost, answer as Decision) as Answer<Async, Decision>)
  }

  reserve(key: string, options?: ReserveOptions): Answer<Async, Reservation<Async>> {
    checkKey(key)
    const cost = options === undefined ? 1 : statedCost(options, RESERVE_OPTIONS)
    const maxWaitUs = this.patience(options)
    if (maxWaitUs > 0 && !this.terms.bookable) throw notBookable(this.terms)
    return afterwards<Async, Booked, Reservation<Async>>(this.ledger.book(key, cost, maxWaitUs), booked => {
      this.noted(key, cost, booked?.decision)
      return reservationOf(this.ledger, key, booked, permits => this.returned(key, permits))
    })
  }

  async acquire(key: string, options: WaitOptions = {}): Promise<Decision> {
    const { decision } = await this.hold(key, options)
    return decision
  }

  /** Like `tryAcquire`, and returns what is needed to give the permits back. */
  take(key: string, cost: number): Answer<Async, Booked> {
    return this.answered(this.ledger.book(key, cost, 0), booked => {
      this.noted(key, cost, booked?.decision)
    })
  }

  /** Like `acquire`, and returns what is needed to give the permits back. */
  async hold(key: string, options: WaitOptions = {}): Promise<Booked> {
    checkKey(key)
    const cost = statedCost(options, WAIT_OPTIONS)
    const { signal, unref = false } = options
    if (signal !== undefined) having('throwIfAborted', 'signal', signal, 'an AbortSignal')
    const ask = { cost, maxWaitUs: this.patience(options), signal, keepsAlive: !unref }
    if (this.isClosed) this.waitingRoom.close()
    try {
      const booked = await this.waitingRoom.acquire(key, ask)
      if (booked.decision?.waitUs > 0) this.hasWaited()
      this.noted(key, cost, booked.decision)
      return booked
    } catch (error) {
      if (error instanceof RateLimitedError) this.noted(key, cost, error.decision)
      throw error
    }
  }

  peek(key: string, options?: AcquireOptions): Answer<Async, Decision> {
    checkKey(key)
    return this.ledger.decide(key, costOf(options), 0, false)
  }

  release(key: string, permits: number): Answer<Async, number> {
    checkKey(key)
    return this.answered(this.ledger.release(key, wholeNumber('permits', permits)), given => {
      this.returned(key, given)
    })
  }

  drain(key: string): Answer<Async, number> {
    checkKey(key)
    return this.answered(this.ledger.drain(key), permits => {
      if (DRAIN.hasSubscribers) DRAIN.publish({ limiter: this.name, key, permits })
    })
  }

  block(key: string, duration: Duration): Answer<Async, void> {
    checkKey(key)
    const forUs = spanToUs('block', duration)
    return this.answered(this.ledger.block(key, forUs), () => this.blocked(key, forUs))
  }

  unblock(key: string): Answer<Async, void> {
    checkKey(key)
    return this.answered(this.ledger.unblock(key), () => {
      if (UNBLOCK.hasSubscribers) UNBLOCK.publish({ limiter: this.name, key })
    })
  }

  reset(key: string): Answer<Async, void> {
    checkKey(key)
    return this.answered(this.ledger.reset(key), () => {
      if (RESET.hasSubscribers) RESET.publish({ limiter: this.name, key })
      this.bookAnew(key)
    })
  }

  update(algorithm: Algorithm): Answer<Async, void> {
    checkAlgorithm(algorithm)
    return this.answered(this.ledger.update(algorithm), () => {
      this.terms = algorithm
      const { name, policy } = algorithm
      if (UPDATE.hasSubscribers) UPDATE.publish({ limiter: this.name, algorithm: name, policy })
      this.bookAnew()
    })
  }

  stats(): LimiterStats {
    const { name, granted, refused, waited, storeErrors } = this
    const { keys, forgotten } = this.ledger
    const rooms: Room[] = [this.waitingRoom, ...this.sharedRooms]
    const waiting = rooms.reduce((sum, { occupied }) => sum + occupied, 0)
    return { name, granted, refused, waited, waiting, keys, forgotten, storeErrors }
  }

  close(): void {
    this.waitingRoom.close()
    for (const room of this.sharedRooms) room.close()
  }

  /** Gives back what was taken, as far as it has not refilled by itself. */
  giveBack(key: string, booking: Booking, verb: 'cancel' | 'refund' = 'refund'): Answer<Async, number> {
    return this.answered(this.ledger[verb](key, booking), permits => this.returned(key, permits))
  }

  /** Whether permits are there; a refusal counts as one. */
  check(key: string, cost: number): Answer<Async, Decision> {
    return this.answered(this.ledger.decide(key, cost, 0, false), decision => {
      if (!decision.allowed) this.noted(key, cost, decision)
    })
  }

  /** Takes permits that were used already, where the algorithm can book as a debt of at most a window, or what is left. */
  charge(key: string, cost: number): MaybePromise<unknown> {
    const { bookable, policy } = this.terms
    const maxWaitUs = bookable ? (policy.windowMs ?? 0) * 1000 : 0
    return andThen<Decision, unknown>(this.ledger.decide(key, cost, maxWaitUs, true), decision =>
      decision.allowed ? this.noted(key, cost, decision) : this.drain(key),
    )
  }

  /** Counts a decision and tells of it. */
  noted<D extends Decision>(key: string, cost: number, decision: D): D {
    if (decision === undefined) throw noAnswer()
    if (decision.allowed) this.granted++
    else this.refused++
    if (DECISION.hasSubscribers) DECISION.publish({ limiter: this.name, key, cost, decision })
    return decision
  }

  /** Notes a refusal on a ladder. Returns how long the key is blocked by now, in microseconds. */
  strike(key: string, ladder: Ladder): Answer<Async, number> {
    return this.answered(this.ledger.strike(key, ladder), leftUs => {
      if (leftUs > 0) this.blocked(key, leftUs)
    })
  }

  /** Counts somebody who was granted permits after a wait. */
  hasWaited(): void {
    this.waited++
  }

  /** Counts a call to the store that has failed and tells of it. */
  failed(error: unknown): void {
    this.storeErrors++
    if (STORE_ERROR.hasSubscribers) STORE_ERROR.publish({ limiter: this.name, error })
  }

  private roomHooks() {
    return {
      onWait: (key: string, cost: number, waitMs: number) => {
        if (WAIT.hasSubscribers) WAIT.publish({ limiter: this.name, key, cost, waitMs })
      },
      onOccupied: (isOccupied: boolean) => this.occupied(isOccupied),
      onStanding: (key: string, change: 1 | -1) => this.standing(key, change),
      isCrowded: (key: string) => this.isCrowded(key),
    }
  }

  /** One more stands in the line of a key, or one less. */
  protected standing(_key: string, _change: 1 | -1): void {}

  /** Whether too many wait for what this limiter is made of. */
  protected isCrowded(_key: string): boolean {
    return false
  }

  /** Somebody has come to wait here, or the last has left. */
  protected occupied(_isOccupied: boolean): void {}

  /** One more waits for a key of this limiter among others, or one less. */
  countSharing(key: string, change: 1 | -1): void {
    const count = (this.sharing.get(key) ?? 0) + change
    if (count === 0) this.sharing.delete(key)
    else this.sharing.set(key, count)
    this.sharingAll += change
  }

  /** Whether as many wait for a key of this limiter among others as may wait for it alone. */
  isShared(key: string): boolean {
    const { maxQueue, maxQueuePerKey } = this.bounds
    return this.sharingAll >= maxQueue || (this.sharing.get(key) ?? 0) >= maxQueuePerKey
  }

  /** Somebody waits, elsewhere, for this limiter too; or no longer. */
  share(room: Room, waits: boolean): void {
    if (waits) this.sharedRooms.add(room)
    else this.sharedRooms.delete(room)
  }

  /** Who waits is not to wait for what has changed. */
  private bookAnew(key?: string): void {
    this.waitingRoom.bookAnew(key)
    for (const room of this.sharedRooms) room.bookAnew()
  }

  private blocked(key: string, forUs: number): void {
    if (BLOCK.hasSubscribers) BLOCK.publish({ limiter: this.name, key, forMs: forUs / 1000 })
    this.bookAnew(key)
  }

  /** What has come back is told, and is for those who wait. */
  private returned(key: string, permits: number): void {
    if (!(permits > 0)) return
    if (RELEASE.hasSubscribers) RELEASE.publish({ limiter: this.name, key, permits })
    this.bookAnew(key)
  }

  private notedLater<D extends Decision>(
    key: string,
    cost: number,
    answer: Answer<Async, D>,
  ): Answer<Async, D> {
    return this.answered(answer, decision => {
      this.noted(key, cost, decision)
    })
  }

  /** The answer of the store, once what follows from it is done. */
  private answered<T>(answer: Answer<Async, T>, then: (value: T) => void): Answer<Async, T> {
    return afterwards<Async, T, T>(answer, value => {
      then(value)
      return value
    })
  }

  private patience(options: ReserveOptions | undefined): number {
    if (options?.maxWait !== undefined) return waitToUs('maxWait', options.maxWait)
    return this.maxWaitUs ?? (this.terms.policy.maxWaitMs ?? Infinity) * 1000
  }
}

const DECISION = channelOf('sluice:decision')
const WAIT = channelOf('sluice:wait')
const RELEASE = channelOf('sluice:release')
const DRAIN = channelOf('sluice:drain')
const BLOCK = channelOf('sluice:block')
const UNBLOCK = channelOf('sluice:unblock')
const RESET = channelOf('sluice:reset')
const UPDATE = channelOf('sluice:update')
const STORE_ERROR = channelOf('sluice:store-error')

export function checkKey(key: unknown): void {
  if (typeof key !== 'string' || key === '') throw invalidKey(key)
}

function invalidKey(key: unknown): Error {
  return invalidPrivately(TypeError, 'key', 'a non-empty string', key, 'SLUICE_INVALID_KEY')
}

function notBookable({ name }: Terms): Error {
  return coded(
    new TypeError(
      `reserve: a ${name} cannot promise a permit of the future; use tryAcquire, acquire to wait, or reserve with maxWait 0`,
    ),
    'SLUICE_NOT_BOOKABLE',
    'reserve',
  )
}

function costOf(options: AcquireOptions | undefined): number {
  return options === undefined ? 1 : statedCost(options)
}

const ACQUIRE_OPTIONS = ['cost']
const RESERVE_OPTIONS = ['cost', 'maxWait']
const WAIT_OPTIONS = ['cost', 'maxWait', 'signal', 'unref']

/** A misspelt option would be a cost of 1, or a wait without end. */
function statedCost(options: AcquireOptions, known = ACQUIRE_OPTIONS): number {
  if (typeof options !== 'object' || options === null)
    throw invalid(TypeError, 'options', 'an object such as { cost: 5 }', options)
  for (const name in options) if (!known.includes(name)) checkOptions('limiter', options, known)
  return options.cost === undefined ? 1 : checkCost(options.cost)
}

export function checkAlgorithm(algorithm: unknown): void {
  having('step', 'algorithm', algorithm, "an algorithm such as tokenBucket({ limit: 100, window: '1m' })")
}
