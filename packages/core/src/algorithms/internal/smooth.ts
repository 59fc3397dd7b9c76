import type { Algorithm, Booking } from '../algorithm.js'
import { Decision, type Gauge } from '../decision.js'
import { LATEST_US } from './arithmetic.js'
import type { Balance, HoldsBalance } from './gcra.js'

/*
 * What the smooth limiters share, as in Guava's SmoothRateLimiter: an ask goes at the instant at which the one before it
 * has been paid for, and whoever comes next pays for this one. Idle time is kept as stored permits; what they cost and
 * how fast they are stored is what tells the limiters apart.
 *
 * A booking that is given up gives back all of it while nobody is behind; who is behind has a slot that starts where this
 * one ends, so that a newcomer in the gap would not keep his distance.
 *
 * Times are whole microseconds and costs are truncated to them, ask by ask, where Guava does it; permits are doubles.
 *
 * Lanes: when the next ask may go, permits stored at that instant; of the newest grant, how many stored ones it has spent,
 * when it goes (which tells whether somebody waits), and what it took.
 */
export const SMOOTH_LANES = 5

export abstract class Smooth implements Gauge, HoldsBalance {
  readonly bookable = true
  readonly lanes = SMOOTH_LANES
  abstract readonly limit: number
  /** Microseconds for one permit in steady state. */
  protected readonly intervalUs: number
  /** The most permits that are stored. */
  protected abstract readonly maxStored: number
  /** Microseconds of idleness in which one permit is stored. */
  protected abstract readonly storeUs: number

  constructor(limit: number, windowUs: number) {
    this.intervalUs = windowUs / limit
  }

  /** What it costs to spend permits out of those stored, in microseconds. */
  protected abstract spendingUs(stored: number, spent: number): number
  /** The first instant and the permits stored then, for a key never seen. */
  protected abstract readonly fresh: Start
  abstract remaining(untilFreeUs: number, stored: number): number
  abstract refillAfterUs(untilFreeUs: number, stored: number): number
  abstract refund(
    state: Float64Array,
    at: number,
    nowUs: number,
    permits: number,
    booking?: Booking | undefined,
  ): number

  step(state: Float64Array, at: number, nowUs: number, cost: number, maxWaitUs: number, commit: boolean) {
    let freeUs = state[at] as number
    let stored = state[at + 1] as number
    if (freeUs === 0) {
      freeUs = Math.min(this.fresh.freeUs, nowUs)
      stored = this.fresh.stored
    }
    const waitUs = Math.max(freeUs - nowUs, 0)
    if (cost === 0) return new Decision(this, 0, 0, freeUs - nowUs, stored)
    const available = this.storedAfter(stored, nowUs - freeUs)
    const spent = Math.min(cost, available)
    const costUs = this.spendingUs(available, spent) + Math.trunc((cost - spent) * this.intervalUs)
    const goesUs = nowUs + waitUs
    if (goesUs + costUs > LATEST_US) return new Decision(this, Infinity, Infinity, freeUs - nowUs, stored)
    if (waitUs > maxWaitUs) return new Decision(this, waitUs, waitUs - maxWaitUs, freeUs - nowUs, stored)
    if (commit) {
      state[at] = freeUs = goesUs + costUs
      state[at + 1] = stored = available - spent
      state[at + 2] = spent
      state[at + 3] = goesUs
      state[at + 4] = cost
    }
    return new Decision(this, waitUs, 0, freeUs - nowUs, stored)
  }

  read(waitUs: number, retryAfterUs: number, [first = 0, second = 0]: readonly number[]): Decision {
    return new Decision(this, waitUs, retryAfterUs, first, second)
  }

  /** All of it, as long as nobody is behind: who is has a slot that starts where this one ends. */
  cancel(state: Float64Array, at: number, nowUs: number, booking: Booking): number {
    if (nowUs > booking.actUs) return 0
    if (nowUs === booking.actUs) return this.refund(state, at, nowUs, booking.cost, booking)
    if (this.someoneIsBehind(state, at, nowUs, booking)) return 0
    return this.giveShare(state, at, booking, 1, (state[at] as number) - nowUs)
  }

  /** As of the change the stored permits are scaled to the new maximum; what is owed stays owed in time. */
  adopt(state: Float64Array, at: number, nowUs: number, previous: Algorithm): void {
    if (previous instanceof Smooth) {
      const untilFreeUs = (state[at] as number) - nowUs
      const stored = previous.storedAfter(state[at + 1] as number, -untilFreeUs)
      const before = previous.maxStored
      state[at + 1] = before === 0 ? this.fresh.stored : (stored * this.maxStored) / before
      state[at + 2] = before === 0 ? 0 : ((state[at + 2] as number) * this.maxStored) / before
      if (untilFreeUs < 0) state[at] = nowUs
      return
    }
    const balance = (previous as Algorithm & HoldsBalance).balanceOf(state, at, nowUs)
    state.fill(0, at, at + this.lanes)
    if (balance === undefined) return
    const permits = Number(balance.permits)
    state[at] = nowUs + Math.max(0, Math.ceil(-permits * this.intervalUs))
    state[at + 1] = this.storedFor(permits)
  }

  restsAt(state: Float64Array, at: number): number {
    const freeUs = state[at] as number
    if (freeUs === 0) return 0
    const idleUs = this.idleUsUntil(state[at + 1] as number, this.maxStored)
    const freshUs = this.fresh.freeUs + this.idleUsUntil(this.fresh.stored, this.maxStored)
    return Math.max(freeUs + idleUs, freshUs)
  }

  load(state: Float64Array, at: number, nowUs: number): number {
    const untilFreeUs = (state[at] as number) - nowUs
    if (untilFreeUs > 0) return 1
    const stored = this.storedAfter(state[at + 1] as number, -untilFreeUs)
    return (this.maxStored - stored) / (this.maxStored + 1)
  }

  balance(untilFreeUs: number, stored: number): number {
    return this.permitsIn(this.storedAfter(stored, -untilFreeUs)) - Math.max(untilFreeUs, 0) / this.intervalUs
  }

  resetAfterUs(untilFreeUs: number, stored: number): number {
    return Math.max(0, untilFreeUs + this.idleUsUntil(stored, this.maxStored))
  }

  balanceOf(state: Float64Array, at: number, nowUs: number): Balance | undefined {
    if (this.restsAt(state, at) <= nowUs) return undefined
    const balance = this.balance((state[at] as number) - nowUs, state[at + 1] as number)
    return { permits: BigInt(Math.floor(balance)) - 1n, scale: 1n }
  }

  /** Permits to be stored for a balance, 0 or more, that a limit of 0 has kept. */
  protected abstract storedFor(balance: number): number
  /** Single permits that stored ones stand for when nothing is owed, a fraction included. */
  protected abstract permitsIn(stored: number): number

  /** Permits stored after idleness, which is none while it is below 0. */
  protected storedAfter(stored: number, idleUs: number): number {
    if (idleUs <= 0 || this.maxStored === 0) return Math.min(stored, this.maxStored)
    return Math.min(this.maxStored, stored + idleUs / this.storeUs)
  }

  /** Whole microseconds of idleness until so many permits are stored. */
  protected idleUsUntil(stored: number, target: number): number {
    if (stored >= target) return 0
    let idleUs = Math.max(1, Math.ceil((target - stored) * this.storeUs))
    // The product may round to either side; the sum is what decisions are made by.
    while (idleUs > 1 && stored + (idleUs - 1) / this.storeUs >= target) idleUs--
    while (stored + idleUs / this.storeUs < target) idleUs++
    return idleUs
  }

  /** Gives back a share of what a grant has cost, at most so much time. Returns the permits. */
  protected giveShare(
    state: Float64Array,
    at: number,
    { actUs, cost, mark }: Booking,
    wanted: number,
    mostUs: number,
  ): number {
    const costUs = (mark[0] as number) - actUs
    if (mostUs <= 0 || costUs <= 0) return 0
    const share = Math.min(wanted, mostUs / costUs)
    const spent = (mark[2] as number) * share
    state[at] = (state[at] as number) - Math.floor(costUs * share)
    state[at + 1] = Math.min(this.maxStored, (state[at + 1] as number) + spent)
    state[at + 2] = Math.max(0, (state[at + 2] as number) - spent)
    state[at + 4] = Math.max(0, (state[at + 4] as number) - cost * share)
    return cost * share
  }

  protected someoneWaits(state: Float64Array, at: number, nowUs: number): boolean {
    return (state[at + 3] as number) > nowUs
  }

  protected someoneIsBehind(state: Float64Array, at: number, nowUs: number, { mark }: Booking): boolean {
    return this.someoneWaits(state, at, nowUs) && (state[at] as number) > (mark[0] as number)
  }
}

export interface Start {
  readonly freeUs: number
  readonly stored: number
}
