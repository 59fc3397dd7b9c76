import { type Algorithm, type Booking, sameArgs } from '../../algorithms/algorithm.js'
import { type Decision, refusalOf } from '../../algorithms/decision.js'
import type { Clock } from '../../shared/clock.js'
import { blocked } from '../blocked.js'
import { convertSince, type OptionsVersion } from '../conversions.js'
import type { Booked, Ladder, Ledger, LedgerSpec } from '../store.js'
import { candidateOf, leastPenalty, warnOfEviction } from './eviction.js'
import { type Candidate, KeyTable, SLOTS_PER_SWEEP } from './key-table.js'
import { block, blockLeftUs, PENALTY_LANES, type PenaltyLanes, strike } from './penalties.js'
import type { Page } from './slots.js'
import { storedKeyOf } from './stored-key.js'

/** The keys of one limiter in memory: a table of their states, and a table of their penalties. */
export class MemoryLedger implements Ledger<false> {
  readonly async = false
  /** Keys forgotten before they had rested. */
  forgotten = 0
  readonly #clock: Clock
  readonly #maxKeys: number
  readonly #forgetsRefused: boolean
  #states: KeyTable<Algorithm>
  /** Undefined until a key gets a penalty. */
  #penalties: KeyTable<PenaltyLanes> | undefined = undefined
  /** Whether the algorithm keeps memory of its own, besides its lanes. */
  #outgrowsLanes: boolean
  /** No key rests before then. */
  #firstRestUs = 0

  constructor(spec: LedgerSpec, maxKeys: number, forgetsRefused: boolean) {
    this.#clock = spec.clock
    this.#maxKeys = maxKeys
    this.#forgetsRefused = forgetsRefused
    this.#states = new KeyTable(begun(spec.algorithm, spec.clock.nowUs()))
    this.#outgrowsLanes = this.#states.algorithm.forget !== undefined
  }

  get keys(): number {
    return this.#states.size + (this.#penalties?.size ?? 0)
  }

  decide(key: string, cost: number, maxWaitUs: number, commit: boolean): Decision {
    return this.#decideAt(this.#clock.nowUs(), storedKeyOf(key), cost, maxWaitUs, commit)
  }

  book(key: string, cost: number, maxWaitUs: number): Booked {
    const nowUs = this.#clock.nowUs()
    const storedKey = storedKeyOf(key)
    const decision = this.#decideAt(nowUs, storedKey, cost, maxWaitUs, true)
    const states = this.#states
    const found = decision.allowed && cost > 0 ? states.find(storedKey) : undefined
    if (found === undefined) return { decision }
    const { page, at } = found
    const booking: MemoryBooking = {
      atUs: nowUs,
      actUs: nowUs + decision.waitUs,
      cost,
      mark: states.copyOfLanes(page, at),
      version: states.version,
      generation: states.generationAt(page, at),
    }
    return { decision, booking }
  }

  cancel(key: string, booking: Booking): number {
    return this.#giveBack(key, booking as MemoryBooking, false)
  }

  refund(key: string, booking: Booking): number {
    return this.#giveBack(key, booking as MemoryBooking, true)
  }

  release(key: string, permits: number): number {
    const states = this.#states
    const found = states.find(storedKeyOf(key))
    if (found === undefined) return 0
    this.#firstRestUs = 0
    return states.algorithm.refund(found.page.state, found.at, this.#clock.nowUs(), permits)
  }

  drain(key: string): number {
    const nowUs = this.#clock.nowUs()
    const storedKey = storedKeyOf(key)
    const { remaining } = this.#decideAt(nowUs, storedKey, 0, 0, false)
    const takes = remaining > 0 && remaining < Infinity
    return takes && this.#decideAt(nowUs, storedKey, remaining, 0, true).allowed ? remaining : 0
  }

  block(key: string, forUs: number): void {
    this.#penalize(key, true, (state, at, nowUs) => block(state, at, forUs, nowUs))
  }

  unblock(key: string): void {
    this.#penalties?.remove(storedKeyOf(key))
  }

  strike(key: string, ladder: Ladder): number {
    return this.#penalize(key, false, (state, at, nowUs) => strike(state, at, ladder, nowUs))
  }

  reset(key: string): void {
    const storedKey = storedKeyOf(key)
    this.#penalties?.remove(storedKey)
    this.#states.remove(storedKey)
  }

  /** Keys keep what they have, unless the new algorithm cannot read their states: then every key starts afresh. */
  update(algorithm: Algorithm): void {
    const states = this.#states
    const previous = states.algorithm
    const nowUs = this.#clock.nowUs()
    this.#firstRestUs = 0
    if (algorithm.name !== previous.name || algorithm.lanes !== previous.lanes) {
      // The count of generations goes on, so that no booking of the old table matches a key of the new one.
      this.#states = new KeyTable(begun(algorithm, nowUs), states.generations)
      this.#outgrowsLanes = this.#states.algorithm.forget !== undefined
    } else if (!sameArgs(algorithm, previous)) {
      states.change(begun(algorithm, nowUs, previous), nowUs)
    }
  }

  /** Forgets every key that has rested. */
  sweepAll(): void {
    const nowUs = this.#clock.nowUs()
    this.#states.sweep(nowUs, Infinity)
    this.#penalties?.sweep(nowUs, Infinity)
  }

  #decideAt(nowUs: number, storedKey: string, cost: number, maxWaitUs: number, commit: boolean): Decision {
    const states = this.#states
    if (states.isSweepDue()) this.#sweep(nowUs)
    if (this.#penalties !== undefined) {
      const leftUs = this.#blockLeftUs(this.#penalties, storedKey, nowUs)
      if (leftUs > 0) return this.#refuseBlocked(nowUs, storedKey, cost, maxWaitUs, leftUs)
    }
    const slot = states.slotOf.get(storedKey)
    if (slot === undefined) return this.#decideNew(nowUs, storedKey, cost, maxWaitUs, commit)
    const page = states.pageOf(slot)
    const at = states.lanesAt(page, slot)
    const decision = states.algorithm.step(page.state, at, nowUs, cost, maxWaitUs, commit)
    return this.#outgrowsLanes && this.#reclaims(decision, nowUs)
      ? this.#decideAt(nowUs, storedKey, decision.allowed ? 0 : cost, maxWaitUs, commit)
      : decision
  }

  /** Decides for a key that has no state. Inserts it once it has been granted permits. */
  #decideNew(nowUs: number, storedKey: string, cost: number, maxWaitUs: number, commit: boolean): Decision {
    const { algorithm, scratch } = this.#states
    scratch.fill(0)
    const decision = algorithm.step(scratch, 0, nowUs, cost, maxWaitUs, commit)
    const isTaken = decision.allowed && commit
    if (this.#outgrowsLanes && !isTaken && this.#reclaims(decision, nowUs))
      return this.#decideNew(nowUs, storedKey, cost, maxWaitUs, commit)
    if (!decision.allowed || cost === 0 || algorithm.lanes === 0) return decision
    if (this.keys >= this.#maxKeys) {
      const candidate = candidateOf(this.#states, this.#penalties, this.#maxKeys, nowUs)
      if (candidate.passesInUs > 0 && !this.#forgetsRefused) {
        // The same keys are sampled at the next call, so that the stated wait stays true.
        if (commit) algorithm.forget?.(scratch, 0)
        return refusalOf('SLUICE_STORE_FULL', algorithm.policy.limit, candidate.passesInUs)
      }
      if (commit) this.#evict(candidate)
    }
    if (!commit) return decision
    this.#states.insert(storedKey)
    // A log that has just become full reports other figures than the grant that filled it.
    return this.#outgrowsLanes && decision.code !== undefined
      ? this.#decideAt(nowUs, storedKey, 0, 0, false)
      : decision
  }

  /** The refusal of a blocked key. Its waits are those that the algorithm would give at the end of the block. */
  #refuseBlocked(
    nowUs: number,
    storedKey: string,
    cost: number,
    maxWaitUs: number,
    leftUs: number,
  ): Decision {
    const states = this.#states
    const { algorithm, scratch } = states
    scratch.fill(0)
    const { page, at } = states.find(storedKey) ?? { page: { state: scratch }, at: 0 }
    const peekAt = (us: number) => algorithm.step(page.state, at, us, cost, maxWaitUs, false)
    return blocked(peekAt(nowUs), leftUs, cost, peekAt(nowUs + leftUs))
  }

  #blockLeftUs(penalties: KeyTable<PenaltyLanes>, storedKey: string, nowUs: number): number {
    const found = penalties.find(storedKey)
    return found === undefined ? 0 : blockLeftUs(found.page.state, found.at, nowUs)
  }

  /** Changes the penalty of a key, if there is room for it. Returns how long the key is blocked now. */
  #penalize(
    key: string,
    isByHand: boolean,
    change: (state: Float64Array, at: number, nowUs: number) => void,
  ): number {
    const nowUs = this.#clock.nowUs()
    const storedKey = storedKeyOf(key)
    this.#penalties ??= new KeyTable(PENALTY_LANES)
    const penalties = this.#penalties
    if (penalties.isSweepDue()) penalties.sweep(nowUs, SLOTS_PER_SWEEP)
    if (!penalties.slotOf.has(storedKey)) {
      if (!this.#hasRoomForPenalty(penalties, nowUs, isByHand)) return 0
      penalties.scratch.fill(0)
      penalties.insert(storedKey)
    }
    const { page, at } = penalties.find(storedKey) as { page: Page; at: number }
    change(page.state, at, nowUs)
    return blockLeftUs(page.state, at, nowUs)
  }

  /** Makes room for a penalty. A refusal is not counted if that would cost a refused key its state. */
  #hasRoomForPenalty(penalties: KeyTable<PenaltyLanes>, nowUs: number, isByHand: boolean): boolean {
    if (this.keys < this.#maxKeys) return true
    const penalty = penalties.size > 0 ? leastPenalty(penalties, nowUs) : undefined
    const candidate =
      penalty?.passesInUs === 0 ? penalty : candidateOf(this.#states, penalties, this.#maxKeys, nowUs)
    const isRefused = candidate.passesInUs > 0 && !isByHand
    if (isRefused) candidate.table.skipSample(candidate)
    else this.#evict(candidate)
    return !isRefused
  }

  #evict(candidate: Candidate): void {
    if (candidate.load > 0) this.forgotten++
    warnOfEviction(candidate, this.#maxKeys)
    candidate.table.skipSample(candidate)
    candidate.table.removeSlot(candidate.slot)
  }

  /**
   * If the memory of the algorithm is used up, forgets every key that has rested. Returns whether there were any. Looks
   * at every key, but not again before the first of them rests.
   */
  #reclaims(decision: Decision, nowUs: number): boolean {
    if (decision.code !== 'SLUICE_LOG_FULL' || nowUs < this.#firstRestUs) return false
    const before = this.#states.size
    const firstUs = this.#states.sweep(nowUs, Infinity)
    this.#firstRestUs = firstUs === Infinity ? 0 : firstUs
    return this.#states.size < before
  }

  /** Returns a booking's permits, converted to the current options. Does nothing if the key was reset or evicted since. */
  #giveBack(key: string, booking: MemoryBooking, refunds: boolean): number {
    const states = this.#states
    const found = states.find(storedKeyOf(key))
    if (found === undefined) return 0
    const { page, at } = found
    if (states.generationAt(page, at) !== booking.generation) return 0
    convertSince(booking.version, booking.mark, 0)
    booking.version = states.version
    this.#firstRestUs = 0
    const nowUs = this.#clock.nowUs()
    return refunds && nowUs >= booking.actUs
      ? states.algorithm.refund(page.state, at, nowUs, booking.cost, booking)
      : states.algorithm.cancel(page.state, at, nowUs, booking)
  }

  /**
   * Forgets some of the keys that have rested for a while. A key in steady use rests often, and forgetting it each time
   * costs more than keeping it.
   */
  #sweep(nowUs: number): void {
    const restUs = Math.max(LEAST_REST_US, (this.#states.algorithm.policy.windowMs ?? 0) * 1000)
    this.#states.sweep(nowUs - restUs, SLOTS_PER_SWEEP)
    this.#penalties?.sweep(nowUs, SLOTS_PER_SWEEP)
  }
}

interface MemoryBooking extends Booking {
  version: OptionsVersion
  readonly generation: number
}

const LEAST_REST_US = 1_000_000

function begun(algorithm: Algorithm, nowUs: number, previous?: Algorithm): Algorithm {
  return algorithm.begin?.(nowUs, previous) ?? algorithm
}
