import type { Booking } from '../algorithms/algorithm.js'
import type { Decision } from '../algorithms/decision.js'
import { type Alarm, type Clock, setAlarm } from '../shared/clock.js'
import { coded } from '../shared/errors.js'
import { type Answer, afterwards, andThen, isPromise } from '../shared/maybe-promise.js'
import { isBlocked } from '../store/blocked.js'
import type { Booked, Ledger } from '../store/store.js'
import { RateLimitedError } from './rate-limited-error.js'

/*
 * Waiting: the waiters of a key form one line in this process, first come, first served.
 *
 * Where the algorithm can book, each waiter holds a booking and is let go at its instant; a large ask is not starved by
 * small ones, because those book behind it. When somebody leaves, the bookings from there on are cancelled, the last one
 * first, and made again in order, so that everybody behind moves up. Where the algorithm cannot book, the first in line
 * asks again at the instant it was told, and the others stand behind it.
 *
 * A line has one alarm at the most, and nothing outlives its waiters.
 */

/** What waiting needs of a limiter. */
export interface WaitingHost<Async extends boolean> {
  readonly name: string
  readonly clock: Clock
  readonly ledger: Ledger<Async>
  /** Waiters in all lines, and in one. */
  readonly maxQueue: number
  readonly maxQueuePerKey: number
  bookable(): boolean
  /** Hears that somebody has to wait. */
  onWait(key: string, cost: number, waitMs: number): void
  /** Hears that one more stands in the line of a key, or one less. */
  onStanding?(key: string, change: 1 | -1): void
  /** Whether too many wait already, of those that this room does not count. */
  isCrowded?(key: string): boolean
  /** Hears when the first comes to wait and when the last has left. */
  onOccupied?(occupied: boolean): void
}

/** What others may do to a room. */
export interface Room {
  readonly occupied: number
  bookAnew(): void
  close(): void
}

/** What a waiter asks for. */
export interface Ask {
  readonly cost: number
  readonly maxWaitUs: number
  readonly signal: AbortSignal | undefined
  /** Whether its wait keeps the process alive. */
  readonly keepsAlive: boolean
}

/** The lines of a limiter. */
export class WaitingRoom<Async extends boolean> implements Room {
  readonly host: WaitingHost<Async>
  /** How many wait, or may come to. */
  occupied = 0
  closed = false
  private readonly lines = new Map<string, Line<Async>>()

  constructor(host: WaitingHost<Async>) {
    this.host = host
  }

  /** Resolves to the decision with the wait slept, and what was booked. */
  acquire(key: string, ask: Ask): Promise<Booked> {
    if (ask.signal?.aborted) return Promise.reject(ask.signal.reason)
    if (this.closed) return Promise.reject(closedError(this.host.name))
    if (ask.cost === 0)
      return Promise.resolve(
        andThen(this.host.ledger.decide(key, 0, 0, false), (decision: Decision) => ({ decision })),
      )
    const line = this.lines.get(key) ?? new Line(key, this)
    this.lines.set(key, line)
    return line.acquire(ask)
  }

  /** Ends every wait, and refuses those to come. */
  close(): void {
    this.closed = true
    for (const line of this.lines.values()) line.close()
  }

  /** Books those who wait anew, for one key or all: what they have booked is no longer what they would be given. */
  bookAnew(key?: string): void {
    const lines = key === undefined ? this.lines.values() : [this.lines.get(key)]
    for (const line of lines) line?.bookAnew()
  }

  forget(key: string, line: Line<Async>): void {
    if (this.lines.get(key) === line) this.lines.delete(key)
  }

  occupy(change: number): void {
    const before = this.occupied
    this.occupied += change
    if (before === 0 || this.occupied === 0) this.host.onOccupied?.(this.occupied > 0)
  }
}

interface Waiter extends Ask {
  readonly resolve: (booked: Booked) => void
  readonly reject: (error: unknown) => void
  readonly sinceUs: number
  /** When its patience ends. */
  readonly deadlineUs: number
  readonly onAbort: () => void
  /** What it has booked, where the algorithm can book. */
  booking: Booking | undefined
  /** When it is let go, or asks again. */
  atUs: number
  /** Out of the line, for whatever reason. */
  gone: boolean
}

class Line<Async extends boolean> {
  private readonly key: string
  private readonly room: WaitingRoom<Async>
  private readonly host: WaitingHost<Async>
  /** The first in line stands at `front`; who stood before has been let go. */
  private waiters: Waiter[] = []
  private front = 0
  /** How many of the waiters have left and are still in the array. */
  private leavers = 0
  /** How many stand here, or may come to. */
  private occupied = 0
  private keepers = 0
  private alarm: (Alarm & { readonly atUs: number; readonly keepsAlive: boolean }) | undefined
  private moving: Promise<void> | undefined
  private moveIsDue = false
  /** Bookings are to be made anew from the first on. */
  private isOutdated = false
  /** Somebody left, or the alarm rang, during a move. */
  private movesAgain = false

  constructor(key: string, room: WaitingRoom<Async>) {
    this.key = key
    this.room = room
    this.host = room.host
  }

  acquire(ask: Ask): Promise<Booked> {
    return new Promise((resolve, reject) => {
      const sinceUs = this.host.clock.nowUs()
      const waiter: Waiter = {
        ...ask,
        resolve,
        reject,
        sinceUs,
        deadlineUs: sinceUs + ask.maxWaitUs,
        onAbort: () => this.leave(waiter, ask.signal?.reason),
        booking: undefined,
        atUs: Infinity,
        gone: false,
      }
      this.enter(waiter)
    })
  }

  close(): void {
    for (const waiter of this.standing()) if (!waiter.gone) this.leave(waiter, closedError(this.host.name))
    this.move()
  }

  bookAnew(): void {
    if (this.first() === undefined) return
    this.isOutdated = true
    this.move()
  }

  /** Asks for the first time. On a synchronous store all of it happens in the caller's tick. */
  private enter(waiter: Waiter): void {
    this.occupy(1)
    if (this.moveIsDue) this.move()
    const { maxQueue, maxQueuePerKey } = this.host
    const isFull =
      this.occupied > maxQueuePerKey ||
      this.room.occupied > maxQueue ||
      this.host.isCrowded?.(this.key) === true
    if (this.moving !== undefined) {
      this.moving.then(() => {
        this.occupy(-1)
        this.enter(waiter)
      })
      return
    }
    // Who cannot book must not be asked past those who stand here already.
    const standsBehind = !this.host.bookable() && this.front < this.waiters.length
    const answered = (booked: Booked) => {
      this.admit(waiter, booked, isFull, standsBehind)
      this.occupy(-1)
      this.tidy()
    }
    const failed = (error: unknown) => {
      this.occupy(-1)
      waiter.reject(error)
      this.tidy()
    }
    let answer: Answer<Async, Booked>
    try {
      answer = this.firstAsk(waiter, isFull, standsBehind)
    } catch (error) {
      failed(error)
      return
    }
    if (isPromise(answer)) answer.then(booked => answered(booked as Booked), failed)
    else answered(answer)
  }

  private firstAsk(waiter: Waiter, isFull: boolean, standsBehind: boolean): Answer<Async, Booked> {
    const { ledger } = this.host
    if (standsBehind)
      return afterwards(
        ledger.decide(this.key, waiter.cost, 0, false),
        (decision: Decision): Booked => ({ decision: this.behindFirst(decision) }),
      )
    return ledger.book(this.key, waiter.cost, isFull || !this.host.bookable() ? 0 : waiter.maxWaitUs)
  }

  private admit(waiter: Waiter, { decision, booking }: Booked, isFull: boolean, standsBehind: boolean): void {
    if (waiter.signal?.aborted || this.room.closed) {
      waiter.reject(waiter.signal?.aborted ? waiter.signal.reason : closedError(this.host.name))
      if (booking !== undefined) this.giveBack(booking)
    } else if (decision.allowed && decision.waitUs === 0 && !standsBehind) {
      waiter.resolve({ decision, booking })
    } else if (isFull || !this.mayWait(waiter, decision)) {
      waiter.reject(this.refused(decision, isFull))
    } else {
      waiter.booking = booking
      waiter.atUs = this.host.clock.nowUs() + decision.waitUs
      this.host.onWait(this.key, waiter.cost, decision.waitMs)
      this.join(waiter)
    }
  }

  private mayWait({ maxWaitUs }: Waiter, decision: Decision): boolean {
    const { allowed, waitUs } = decision
    if (this.host.bookable()) return allowed
    return waitUs <= maxWaitUs && waitUs < Infinity && !isBlocked(decision)
  }

  private join(waiter: Waiter): void {
    this.waiters.push(waiter)
    this.occupy(1)
    this.host.onStanding?.(this.key, 1)
    if (waiter.keepsAlive) this.keepers++
    waiter.signal?.addEventListener('abort', waiter.onAbort)
    this.arm()
  }

  /** Takes a waiter out of the count; the next move takes it out of the line. */
  private release(waiter: Waiter): void {
    waiter.gone = true
    this.occupy(-1)
    this.host.onStanding?.(this.key, -1)
    if (waiter.keepsAlive) this.keepers--
    waiter.signal?.removeEventListener('abort', waiter.onAbort)
  }

  private leave(waiter: Waiter, reason: unknown): void {
    this.dismiss(waiter, reason)
    if (this.moveIsDue) return
    // Those who leave in one tick are dealt with together.
    this.moveIsDue = true
    queueMicrotask(() => this.move())
  }

  /** Brings the line up to date: who has left makes room, who is due is let go, the alarm is set for the next. */
  private move(): void {
    this.moveIsDue = false
    if (this.moving !== undefined) {
      this.movesAgain = true
      return
    }
    let later: Promise<void> | undefined
    try {
      later = drive(this.steps())
    } catch (error) {
      this.fail(error)
    }
    const ended = () => {
      this.moving = undefined
      if (this.movesAgain) {
        this.movesAgain = false
        this.move()
      } else this.tidy()
    }
    if (later === undefined) ended()
    else this.moving = later.catch(error => this.fail(error)).then(ended)
  }

  private *steps(): Steps {
    do {
      if (this.leavers > 0 || this.isOutdated) yield* this.moveUp()
      yield* this.host.bookable() ? this.letGo() : this.askAgain()
    } while (this.leavers > 0 || this.isOutdated)
    this.arm()
  }

  /** From the first who has left on, or all: bookings are given back, the last one first, and made again in order. */
  private *moveUp(): Steps {
    const standing = this.standing()
    const nowUs = this.host.clock.nowUs()
    const from = this.isOutdated ? 0 : standing.findIndex(waiter => waiter.gone)
    this.isOutdated = false
    const isMovable = (waiter: Waiter) => waiter.gone || waiter.atUs > nowUs || waiter.booking === undefined
    const movable = standing.slice(from).filter(isMovable)
    for (const waiter of movable.toReversed()) {
      if (waiter.booking === undefined) continue
      yield this.host.ledger.refund(this.key, waiter.booking)
      waiter.booking = undefined
    }
    for (const waiter of movable) {
      if (waiter.gone) continue
      if (!this.host.bookable()) {
        waiter.atUs = nowUs
        continue
      }
      const patienceUs = Math.max(waiter.deadlineUs - this.host.clock.nowUs(), 0)
      const { decision, booking } = (yield this.host.ledger.book(this.key, waiter.cost, patienceUs)) as Booked
      waiter.booking = booking
      waiter.atUs = this.host.clock.nowUs() + decision.waitUs
      if (!decision.allowed && !waiter.gone) this.dismiss(waiter, this.refused(decision, false))
    }
    this.prune()
  }

  /** Lets go whoever's instant has come. */
  private *letGo(): Steps {
    const nowUs = this.host.clock.nowUs()
    for (
      let first = this.first();
      first !== undefined && !first.gone && first.atUs <= nowUs;
      first = this.first()
    ) {
      const figures = (yield this.host.ledger.decide(this.key, 0, 0, false)) as Decision
      if (first.gone) return
      this.passOn(first)
      first.resolve({ decision: figures.waited(nowUs - first.sinceUs), booking: first.booking })
    }
  }

  /** The first in line asks again when it is time; who has run out of patience is turned away. */
  private *askAgain(): Steps {
    for (let first = this.first(); first !== undefined && !first.gone; first = this.first()) {
      const nowUs = this.host.clock.nowUs()
      if (first.atUs > nowUs) break
      const { decision, booking } = (yield this.host.ledger.book(this.key, first.cost, 0)) as Booked
      if (first.gone) {
        // It has left while it asked; the next round gives back what it got.
        first.booking = booking
        return
      }
      first.atUs = nowUs + decision.retryAfterUs
      if (decision.allowed) {
        this.passOn(first)
        first.resolve({ decision: decision.waited(nowUs - first.sinceUs), booking })
      } else if (first.atUs > first.deadlineUs || first.atUs === Infinity || isBlocked(decision)) {
        this.passOn(first)
        first.reject(this.refused(decision, false))
      } else break
    }
    for (const waiter of this.standing()) {
      if (waiter.gone || waiter.deadlineUs > this.host.clock.nowUs()) continue
      const decision = (yield this.host.ledger.decide(this.key, waiter.cost, 0, false)) as Decision
      if (!waiter.gone) this.dismiss(waiter, this.refused(this.behindFirst(decision), false))
    }
    if (this.leavers > 0) this.prune()
  }

  /** The decision for somebody who may not go before the first, whatever is there. */
  private behindFirst(decision: Decision): Decision {
    const untilFirstUs = (this.first()?.atUs ?? 0) - this.host.clock.nowUs()
    return decision.allowed || decision.waitUs < untilFirstUs
      ? decision.refusedFor(Math.max(untilFirstUs, 1))
      : decision
  }

  private first(): Waiter | undefined {
    return this.waiters[this.front]
  }

  private standing(): Waiter[] {
    return this.waiters.slice(this.front)
  }

  /** Takes the first out of the line. */
  private passOn(first: Waiter): void {
    this.release(first)
    this.front++
    // Now and then, so that a long line costs each no more than a short one.
    if (this.front >= 1024 && this.front * 2 >= this.waiters.length) this.prune()
  }

  /** Takes out of the array who is out of the line and holds nothing any more. */
  private prune(): void {
    this.waiters = this.standing().filter(waiter => !waiter.gone || waiter.booking !== undefined)
    this.front = 0
    this.leavers = this.waiters.filter(waiter => waiter.gone).length
  }

  private arm(): void {
    let atUs = this.first()?.atUs ?? Infinity
    if (!this.host.bookable()) for (const { deadlineUs } of this.standing()) atUs = Math.min(atUs, deadlineUs)
    const keepsAlive = this.keepers > 0
    if (this.alarm?.atUs === atUs && this.alarm.keepsAlive === keepsAlive) return
    this.alarm?.cancel()
    this.alarm = undefined
    if (atUs === Infinity) return
    const ring = () => {
      this.alarm = undefined
      this.move()
    }
    const alarm = setAlarm(this.host.clock, atUs, ring, keepsAlive)
    this.alarm = { atUs, keepsAlive, cancel: () => alarm.cancel() }
  }

  /** Ends a wait without permits. */
  private dismiss(waiter: Waiter, reason: unknown): void {
    this.release(waiter)
    this.leavers++
    waiter.reject(reason)
  }

  private refused(decision: Decision, isFull: boolean): RateLimitedError {
    const { waitUs } = decision
    const tooLong = waitUs === Infinity ? 'so much never passes' : 'the wait would be longer than maxWait'
    const reason = isFull ? 'too many wait already' : isBlocked(decision) ? 'the key is blocked' : tooLong
    return new RateLimitedError(this.host.name, this.key, decision, reason)
  }

  private giveBack(booking: Booking): void {
    const given = this.host.ledger.refund(this.key, booking)
    // Nobody waits for it any more; a store that fails has its own ways to say so.
    if (isPromise(given)) given.then(undefined, () => {})
  }

  /** The store has failed in the middle of a move: nobody in this line may wait for ever. */
  private fail(error: unknown): void {
    for (const waiter of this.standing()) {
      if (waiter.gone) continue
      this.release(waiter)
      waiter.reject(error)
    }
    this.waiters = []
    this.front = 0
    this.leavers = 0
    this.arm()
  }

  private occupy(change: number): void {
    this.occupied += change
    this.room.occupy(change)
  }

  private tidy(): void {
    if (this.occupied === 0 && this.first() === undefined && this.moving === undefined)
      this.room.forget(this.key, this)
  }
}

/** Calls to a store, each answered before the next is made. */
type Steps = Generator<unknown, void, unknown>

/** Goes through the steps at once as long as answers are at hand, and in a promise from the first that is not. */
function drive(steps: Steps, answer?: unknown): Promise<void> | undefined {
  for (;;) {
    const { done, value } = steps.next(answer)
    if (done) return undefined
    if (isPromise(value)) return Promise.resolve(value).then(answer => drive(steps, answer))
    answer = value
  }
}

function closedError(name: string): Error {
  return coded(new Error(`limiter '${name}' is closed`), 'SLUICE_CLOSED', 'acquire')
}
