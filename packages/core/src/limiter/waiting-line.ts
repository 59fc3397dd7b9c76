import type { Booking } from '../algorithms/algorithm.js'
import type { Decision } from '../algorithms/decision.js'
import { type Alarm, type Clock, setAlarm } from '../shared/clock.js'
import { coded } from '../shared/errors.js'
import { ignoreRejection, isPromise } from '../shared/maybe-promise.js'
import { isBlocked } from '../store/blocked.js'
import type { Booked, Ledger } from '../store/store.js'
import { RateLimitedError } from './rate-limited-error.js'
import type { SharedWaitHooks } from './room.js'

/*
 * The waiting calls of a key form one line in this process, first come, first served.
 *
 * If the algorithm can book ahead, each waiter has a booking and is served at its instant. Small costs cannot starve a
 * large one, because they book behind it. When a waiter leaves, the bookings behind it are given back, the last one first,
 * and made again in order, so that the others move up. If the algorithm cannot book, only the first waiter asks the store
 * again, at the instant that the last decision has named.
 *
 * A line has at most one alarm, and none when it is empty.
 */

/** What waiting needs of a limiter. */
export interface WaitingHost<Async extends boolean> extends Partial<SharedWaitHooks> {
  readonly name: string
  readonly clock: Clock
  readonly ledger: Ledger<Async>
  /** How many may wait in all lines, and in one line. */
  readonly maxQueue: number
  readonly maxQueuePerKey: number
  bookable(): boolean
  /** Called when a call has to wait. */
  onWait(key: string, cost: number, waitMs: number): void
}

/** The checked arguments of a call of `acquire`. */
export interface Ask {
  readonly cost: number
  readonly maxWaitUs: number
  readonly signal: AbortSignal | undefined
  /** Whether the wait keeps the process alive. */
  readonly keepsAlive: boolean
}

/** The room that a line belongs to. */
interface LineOwner<Async extends boolean> {
  readonly host: WaitingHost<Async>
  readonly occupied: number
  readonly closed: boolean
  occupy(change: number): void
  forget(key: string, line: Line<Async>): void
}

interface Waiter extends Ask {
  readonly resolve: (booked: Booked) => void
  readonly reject: (error: unknown) => void
  readonly sinceUs: number
  /** The latest instant at which the permits are of use. */
  readonly deadlineUs: number
  readonly onAbort: () => void
  /** Its booking, if the algorithm can book ahead. */
  booking: Booking | undefined
  /** When its permits are available, or when it asks the store again. */
  atUs: number
  /** Whether it has left the line. */
  gone: boolean
}

/** The waiting calls of one key. */
export class Line<Async extends boolean> {
  readonly #key: string
  readonly #room: LineOwner<Async>
  readonly #host: WaitingHost<Async>
  /** The line begins at `front`; the waiters before it have been served. */
  #waiters: Waiter[] = []
  #front = 0
  /** How many waiters have left and are still in the array. */
  #leavers = 0
  /** How many calls wait here, or are being decided and may have to wait. */
  #occupied = 0
  /** How many waiters keep the process alive. */
  #keepers = 0
  #alarm: { readonly alarm: Alarm; readonly atUs: number; readonly keepsAlive: boolean } | undefined
  #moving: Promise<void> | undefined
  #moveIsDue = false
  /** Whether all bookings have to be made again. */
  #isOutdated = false
  /** Whether a waiter has left, or the alarm has rung, during a move. */
  #movesAgain = false

  constructor(key: string, room: LineOwner<Async>) {
    this.#key = key
    this.#room = room
    this.#host = room.host
  }

  acquire(ask: Ask): Promise<Booked> {
    return new Promise((resolve, reject) => {
      const sinceUs = this.#host.clock.nowUs()
      const waiter: Waiter = {
        ...ask,
        resolve,
        reject,
        sinceUs,
        deadlineUs: sinceUs + ask.maxWaitUs,
        onAbort: () => this.#leave(waiter, ask.signal?.reason),
        booking: undefined,
        atUs: Infinity,
        gone: false,
      }
      this.#enter(waiter)
    })
  }

  close(): void {
    for (const waiter of this.#queue()) if (!waiter.gone) this.#leave(waiter, closedError(this.#host.name))
    this.#move()
  }

  rebook(): void {
    if (this.#first() === undefined) return
    this.#isOutdated = true
    this.#move()
  }

  /** Asks the store for the first time; on a synchronous store, within the caller's tick. */
  #enter(waiter: Waiter): void {
    this.#occupy(1)
    if (this.#moveIsDue) this.#move()
    const { maxQueue, maxQueuePerKey } = this.#host
    const isFull =
      this.#occupied > maxQueuePerKey ||
      this.#room.occupied > maxQueue ||
      this.#host.isCrowded?.(this.#key) === true
    if (this.#moving !== undefined) {
      this.#moving.then(() => {
        this.#occupy(-1)
        this.#enter(waiter)
      })
      return
    }
    drive(this.#firstSteps(waiter, isFull))
  }

  *#firstSteps(waiter: Waiter, isFull: boolean): Steps {
    const { ledger } = this.#host
    // Without bookings, a new call must not take permits before the calls that are waiting already.
    const standsBehind = !this.#host.bookable() && this.#first() !== undefined
    try {
      if (standsBehind) {
        const decision = (yield ledger.decide(this.#key, waiter.cost, 0, false)) as Decision
        this.#admit(waiter, { decision: this.#behindFirst(decision) }, isFull, true)
      } else {
        const maxWaitUs = isFull || !this.#host.bookable() ? 0 : waiter.maxWaitUs
        const booked = (yield ledger.book(this.#key, waiter.cost, maxWaitUs)) as Booked
        this.#admit(waiter, booked, isFull, false)
      }
    } catch (error) {
      waiter.reject(error)
    }
    this.#occupy(-1)
    this.#tidy()
  }

  #admit(waiter: Waiter, { decision, booking }: Booked, isFull: boolean, standsBehind: boolean): void {
    if (waiter.signal?.aborted || this.#room.closed) {
      // No call waits for the answer; the store reports its failures itself.
      if (booking !== undefined) ignoreRejection(this.#host.ledger.refund(this.#key, booking))
      waiter.signal?.throwIfAborted()
      throw closedError(this.#host.name)
    } else if (decision.allowed && decision.waitUs === 0 && !standsBehind) {
      waiter.resolve({ decision, booking })
    } else if (isFull || !this.#mayWait(waiter, decision)) {
      throw this.#refused(decision, isFull)
    } else {
      waiter.booking = booking
      waiter.atUs = this.#host.clock.nowUs() + decision.waitUs
      this.#host.onWait(this.#key, waiter.cost, decision.waitMs)
      this.#join(waiter)
    }
  }

  #mayWait({ maxWaitUs }: Waiter, decision: Decision): boolean {
    const { allowed, waitUs } = decision
    if (this.#host.bookable()) return allowed
    return waitUs <= maxWaitUs && waitUs < Infinity && !isBlocked(decision)
  }

  #join(waiter: Waiter): void {
    this.#waiters.push(waiter)
    this.#occupy(1)
    this.#host.onStanding?.(this.#key, 1)
    if (waiter.keepsAlive) this.#keepers++
    waiter.signal?.addEventListener('abort', waiter.onAbort)
    this.#arm()
  }

  /** Ends a wait; the next move takes the waiter out of the array. */
  #release(waiter: Waiter): void {
    waiter.gone = true
    this.#occupy(-1)
    this.#host.onStanding?.(this.#key, -1)
    if (waiter.keepsAlive) this.#keepers--
    waiter.signal?.removeEventListener('abort', waiter.onAbort)
  }

  #leave(waiter: Waiter, reason: unknown): void {
    this.#dismiss(waiter, reason)
    if (this.#moveIsDue) return
    // Waiters that leave in one tick are handled together.
    this.#moveIsDue = true
    queueMicrotask(() => this.#move())
  }

  /** Brings the line up to date: moves waiters up, serves those that are due, and sets the alarm for the next one. */
  #move(): void {
    this.#moveIsDue = false
    if (this.#moving !== undefined) {
      this.#movesAgain = true
      return
    }
    const later = drive(this.#steps())
    const ended = () => {
      this.#moving = undefined
      if (this.#movesAgain) {
        this.#movesAgain = false
        this.#move()
      } else this.#tidy()
    }
    if (later === undefined) ended()
    else this.#moving = later.then(ended)
  }

  *#steps(): Steps {
    try {
      do {
        if (this.#leavers > 0 || this.#isOutdated) yield* this.#moveUp()
        yield* this.#host.bookable() ? this.#serveDue() : this.#askAgain()
      } while (this.#leavers > 0 || this.#isOutdated)
      this.#arm()
    } catch (error) {
      this.#fail(error)
    }
  }

  /**
   * Gives bookings back, the last one first, and makes them again in order: all of them if the line is outdated, else those
   * from the first waiter that has left.
   */
  *#moveUp(): Steps {
    const queue = this.#queue()
    const nowUs = this.#host.clock.nowUs()
    const from = this.#isOutdated ? 0 : queue.findIndex(waiter => waiter.gone)
    this.#isOutdated = false
    const isMovable = (waiter: Waiter) => waiter.gone || waiter.atUs > nowUs || waiter.booking === undefined
    const movable = queue.slice(from).filter(isMovable)
    for (const waiter of movable.toReversed()) {
      if (waiter.booking === undefined) continue
      yield this.#host.ledger.refund(this.#key, waiter.booking)
      waiter.booking = undefined
    }
    for (const waiter of movable) {
      if (waiter.gone) continue
      if (!this.#host.bookable()) {
        waiter.atUs = nowUs
        continue
      }
      const leftUs = Math.max(waiter.deadlineUs - this.#host.clock.nowUs(), 0)
      const { decision, booking } = (yield this.#host.ledger.book(this.#key, waiter.cost, leftUs)) as Booked
      waiter.booking = booking
      waiter.atUs = this.#host.clock.nowUs() + decision.waitUs
      if (!decision.allowed && !waiter.gone) this.#dismiss(waiter, this.#refused(decision, false))
    }
    this.#prune()
  }

  /** Serves the waiters whose instant has come. */
  *#serveDue(): Steps {
    const nowUs = this.#host.clock.nowUs()
    for (;;) {
      const first = this.#first()
      if (first === undefined || first.gone || first.atUs > nowUs) return
      const figures = (yield this.#host.ledger.decide(this.#key, 0, 0, false)) as Decision
      if (first.gone) return
      this.#removeFirst(first)
      first.resolve({ decision: figures.waited(nowUs - first.sinceUs), booking: first.booking })
    }
  }

  /** Asks the store again for the first waiter, if it is time; refuses the waiters whose deadline has come. */
  *#askAgain(): Steps {
    for (;;) {
      const first = this.#first()
      const nowUs = this.#host.clock.nowUs()
      if (first === undefined || first.gone || first.atUs > nowUs) break
      const { decision, booking } = (yield this.#host.ledger.book(this.#key, first.cost, 0)) as Booked
      if (first.gone) {
        // The waiter has left meanwhile; the next move gives its booking back.
        first.booking = booking
        return
      }
      first.atUs = nowUs + decision.retryAfterUs
      if (decision.allowed) {
        this.#removeFirst(first)
        first.resolve({ decision: decision.waited(nowUs - first.sinceUs), booking })
      } else if (first.atUs > first.deadlineUs || first.atUs === Infinity || isBlocked(decision)) {
        this.#removeFirst(first)
        first.reject(this.#refused(decision, false))
      } else break
    }
    for (const waiter of this.#queue()) {
      if (waiter.gone || waiter.deadlineUs > this.#host.clock.nowUs()) continue
      const decision = (yield this.#host.ledger.decide(this.#key, waiter.cost, 0, false)) as Decision
      if (!waiter.gone) this.#dismiss(waiter, this.#refused(this.#behindFirst(decision), false))
    }
    if (this.#leavers > 0) this.#prune()
  }

  /** A decision for a call behind the first waiter: refused at least until that one asks again. */
  #behindFirst(decision: Decision): Decision {
    const untilFirstUs = (this.#first()?.atUs ?? 0) - this.#host.clock.nowUs()
    return decision.allowed || decision.waitUs < untilFirstUs
      ? decision.refusedFor(Math.max(untilFirstUs, 1))
      : decision
  }

  #first(): Waiter | undefined {
    return this.#waiters[this.#front]
  }

  /** The waiters in order. Those that have left may still be among them. */
  #queue(): Waiter[] {
    return this.#waiters.slice(this.#front)
  }

  /** Takes the first waiter out of the line. */
  #removeFirst(first: Waiter): void {
    this.#release(first)
    this.#front++
    // Rarely, so that the cost per waiter does not grow with the length of the line.
    if (this.#front >= 1024 && this.#front * 2 >= this.#waiters.length) this.#prune()
  }

  /** Takes the waiters out of the array that have left and have no booking. */
  #prune(): void {
    this.#waiters = this.#queue().filter(waiter => !waiter.gone || waiter.booking !== undefined)
    this.#front = 0
    this.#leavers = this.#waiters.filter(waiter => waiter.gone).length
  }

  /** Sets the alarm for the next instant at which there is something to do. */
  #arm(): void {
    let atUs = this.#first()?.atUs ?? Infinity
    if (!this.#host.bookable()) for (const { deadlineUs } of this.#queue()) atUs = Math.min(atUs, deadlineUs)
    const keepsAlive = this.#keepers > 0
    if (this.#alarm?.atUs === atUs && this.#alarm.keepsAlive === keepsAlive) return
    this.#alarm?.alarm.cancel()
    this.#alarm = undefined
    if (atUs === Infinity) return
    const ring = () => {
      this.#alarm = undefined
      this.#move()
    }
    const alarm = setAlarm(this.#host.clock, atUs, ring, keepsAlive)
    this.#alarm = { alarm, atUs, keepsAlive }
  }

  /** Ends a wait and rejects its call. */
  #dismiss(waiter: Waiter, reason: unknown): void {
    this.#release(waiter)
    this.#leavers++
    waiter.reject(reason)
  }

  #refused(decision: Decision, isFull: boolean): RateLimitedError {
    const { waitUs } = decision
    const tooLong = waitUs === Infinity ? 'the cost can never be granted' : 'the wait exceeds maxWait'
    const reason = isFull
      ? 'too many calls are waiting'
      : isBlocked(decision)
        ? 'the key is blocked'
        : tooLong
    return new RateLimitedError(this.#host.name, this.#key, decision, reason)
  }

  /** Rejects all waiters when the store has failed during a move; otherwise they would wait for ever. */
  #fail(error: unknown): void {
    for (const waiter of this.#queue()) if (!waiter.gone) this.#dismiss(waiter, error)
    this.#waiters = []
    this.#front = 0
    this.#leavers = 0
    this.#arm()
  }

  #occupy(change: number): void {
    this.#occupied += change
    this.#room.occupy(change)
  }

  /** Removes the line from the room when it is empty. */
  #tidy(): void {
    if (this.#occupied === 0 && this.#first() === undefined && this.#moving === undefined)
      this.#room.forget(this.#key, this)
  }
}

/** Calls to a store, one after the other. They catch the errors of the calls. */
type Steps = Generator<unknown, void, unknown>

/** Runs the steps, in this tick as long as the answers of the store are not promises. */
function drive(steps: Steps, answer?: unknown): Promise<void> | undefined {
  for (;;) {
    const { done, value } = steps.next(answer)
    if (done) return undefined
    if (isPromise(value))
      return Promise.resolve(value).then(
        answer => drive(steps, answer),
        error => void steps.throw(error),
      )
    answer = value
  }
}

export function closedError(name: string): Error {
  return coded(new Error(`limiter '${name}' is closed`), 'SLUICE_CLOSED', 'acquire')
}
