import type { Algorithm, Booking } from '../algorithm.js'
import { Decision, type Gauge } from '../decision.js'
import { LATEST_US } from './arithmetic.js'
import type { Balance, HoldsBalance } from './balance.js'

/*
 * What the smooth limiters share, as in Guava's SmoothRateLimiter: a request of any cost is granted at the instant at which
 * the request before it is paid off, and the next request waits until this one is paid off. Idle time is kept as stored
 * permits. The limiters differ in what stored permits cost and in how fast they are stored.
 *
 * A cancelled booking gives back its whole cost while no other booking follows it. Otherwise it gives back nothing: the
 * booking that follows starts where this one ends, and a new request in the gap would be too close to it.
 *
 * Times are whole microseconds, and costs are truncated to them request by request, where Guava truncates them. Permits
 * are doubles.
 *
 * Lanes: 0 the instant at which the next request is granted, 1 the permits stored at that instant; of the newest grant: 2
 * the stored permits that it spent, 3 its instant (a request is waiting while that is ahead of now), 4 its cost.
 */
export const SMOOTH_LANES = 5

export abstract class Smooth implements Gauge, HoldsBalance {
  readonly bookable = true
  readonly lanes = SMOOTH_LANES
  abstract readonly limit: number
  readonly constants: SmoothConstants
  /** Microseconds for one permit in steady state. */
  protected readonly intervalUs: number
  /** The most permits that are stored. */
  protected readonly maxStored: number
  /** Microseconds of idle time in which one permit is stored. */
  protected readonly storeUs: number
  /** A key never seen has this many permits stored at this instant, or at the instant of its first request if earlier. */
  protected readonly freshStored: number
  protected readonly freshUs: number

  constructor(constants: SmoothConstants, freshUs: number) {
    this.constants = constants
    ;[this.intervalUs, this.maxStored, this.storeUs, this.freshStored] = constants
    this.freshUs = freshUs
  }

  /** The time that it costs to spend some of the stored permits, in microseconds. */
  protected abstract spendingUs(stored: number, spent: number): number
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
      freeUs = Math.min(this.freshUs, nowUs)
      stored = this.freshStored
    }
    const waitUs = Math.max(freeUs - nowUs, 0)
    if (cost === 0) return new Decision(this, 0, 0, freeUs - nowUs, stored)
    const available = this.storedAfter(stored, nowUs - freeUs)
    const spent = Math.min(cost, available)
    const costUs = this.spendingUs(available, spent) + Math.trunc((cost - spent) * this.intervalUs)
    const actUs = nowUs + waitUs
    if (actUs + costUs > LATEST_US) return new Decision(this, Infinity, Infinity, freeUs - nowUs, stored)
    if (waitUs > maxWaitUs) return new Decision(this, waitUs, waitUs - maxWaitUs, freeUs - nowUs, stored)
    if (commit) {
      state[at] = freeUs = actUs + costUs
      state[at + 1] = stored = available - spent
      state[at + 2] = spent
      state[at + 3] = actUs
      state[at + 4] = cost
    }
    return new Decision(this, waitUs, 0, freeUs - nowUs, stored)
  }

  read(waitUs: number, retryAfterUs: number, [untilFreeUs = 0, stored = 0]: readonly number[]): Decision {
    return new Decision(this, waitUs, retryAfterUs, untilFreeUs, stored)
  }

  cancel(state: Float64Array, at: number, nowUs: number, booking: Booking): number {
    if (nowUs > booking.actUs) return 0
    if (nowUs === booking.actUs) return this.refund(state, at, nowUs, booking.cost, booking)
    if (this.isFollowed(state, at, nowUs, booking)) return 0
    return this.giveShare(state, at, booking, 1, (state[at] as number) - nowUs)
  }

  /** Scales the stored permits, as of the change, to the new maximum. A debt stays the same time. */
  adopt(state: Float64Array, at: number, nowUs: number, previous: Algorithm): void {
    if (previous instanceof Smooth) {
      const untilFreeUs = (state[at] as number) - nowUs
      const stored = previous.storedAfter(state[at + 1] as number, -untilFreeUs)
      const before = previous.maxStored
      state[at + 1] = before === 0 ? this.freshStored : (stored * this.maxStored) / before
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
    const freshIdleUs = this.idleUsUntil(this.freshStored, this.maxStored)
    return Math.max(freeUs + idleUs, this.freshUs + freshIdleUs)
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

  /** Permits to store for a balance that was kept while the limit was 0. */
  protected abstract storedFor(balance: number): number
  /** Single permits that pass with so many stored and no debt, a fraction included. */
  protected abstract permitsIn(stored: number): number

  /** Permits stored after some idle time; a negative time counts as 0. */
  protected storedAfter(stored: number, idleUs: number): number {
    if (idleUs <= 0 || this.maxStored === 0) return Math.min(stored, this.maxStored)
    return Math.min(this.maxStored, stored + idleUs / this.storeUs)
  }

  /** Whole microseconds of idle time until so many permits are stored. */
  protected idleUsUntil(stored: number, target: number): number {
    if (stored >= target) return 0
    let idleUs = Math.max(1, Math.ceil((target - stored) * this.storeUs))
    // The product may round to either side. Decisions are made by the sum.
    while (idleUs > 1 && stored + (idleUs - 1) / this.storeUs >= target) idleUs--
    while (stored + idleUs / this.storeUs < target) idleUs++
    return idleUs
  }

  /** Gives back a share of what a booking cost, at most `mostUs` of its time. Returns the permits. */
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

  /** Whether a granted request is waiting for its instant. */
  protected isWaitedFor(state: Float64Array, at: number, nowUs: number): boolean {
    return (state[at + 3] as number) > nowUs
  }

  /** Whether a granted request is waiting behind a booking. */
  protected isFollowed(state: Float64Array, at: number, nowUs: number, { mark }: Booking): boolean {
    return this.isWaitedFor(state, at, nowUs) && (state[at] as number) > (mark[0] as number)
  }
}

/** Algorithms append constants of their own. */
export type SmoothConstants = readonly [
  intervalUs: number,
  maxStored: number,
  storeUs: number,
  freshStored: number,
  ...own: number[],
]
