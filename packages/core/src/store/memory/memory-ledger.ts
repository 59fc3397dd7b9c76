import { type Algorithm, type Booking, sameArgs } from '../../algorithms/algorithm.js'
import { Decision, FixedGauge } from '../../algorithms/decision.js'
import type { Clock } from '../../shared/clock.js'
import { warnOnce } from '../../shared/warnings.js'
import { blocked } from '../blocked.js'
import { convertSince, ERA_MASK, type Era, Eras } from '../conversions.js'
import { block, type Ladder, Penalties, type Penalty, strike } from '../penalties.js'
import type { Booked, Ledger, LedgerSpec } from '../store.js'
import { Hand, PAGE_BITS, PAGE_MASK, type Page, Slots } from './slots.js'
import { flatCopy, subjectOf } from './stored-key.js'

/*
 * The keys of one limiter in memory: a map from key to slot, and the slots. There is no object per key and no promise.
 *
 * Behind the lanes of a slot lies its stamp: the era that wrote them (low 8 bits), and the birth of the key, which tells
 * its lives apart. A booking of a life that was reset or forgotten has nothing to give back.
 */
export class MemoryLedger implements Ledger<false> {
  readonly async = false
  private readonly clock: Clock
  private readonly maxKeys: number
  private readonly forgetsRefused: boolean
  private readonly slotOf = new Map<string, number>()
  /** None as long as nothing is held against anybody. */
  private penalties: Penalties | undefined = undefined
  private readonly sweeper = new Hand()
  private readonly sampler = new Hand()
  private algorithm: Algorithm
  private lanes: number
  /** Whether the algorithm keeps more of a key than its lanes. */
  private outgrowsLanes: boolean
  private eras: Eras
  private slots: Slots
  private scratch: Float64Array
  private births = 0
  private noneRestsBeforeUs = 0
  /** Keys forgotten before they rested. */
  forgotten = 0
  private sweepsIn = SLOTS_PER_SWEEP

  constructor(spec: LedgerSpec, maxKeys: number, forgetsRefused: boolean) {
    this.clock = spec.clock
    this.maxKeys = maxKeys
    this.forgetsRefused = forgetsRefused
    this.algorithm = begun(spec.algorithm, spec.clock.nowUs())
    this.lanes = this.algorithm.lanes
    this.outgrowsLanes = this.algorithm.forget !== undefined
    this.eras = new Eras(this.algorithm)
    this.slots = new Slots(this.lanes + 1)
    this.scratch = new Float64Array(this.lanes + 1)
  }

  get keys(): number {
    return this.slotOf.size + (this.penalties?.size ?? 0)
  }

  decide(key: string, cost: number, maxWaitUs: number, commit: boolean): Decision {
    return this.decideAt(this.clock.nowUs(), subjectOf(key), cost, maxWaitUs, commit)
  }

  book(key: string, cost: number, maxWaitUs: number): Booked {
    const nowUs = this.clock.nowUs()
    const subject = subjectOf(key)
    const decision = this.decideAt(nowUs, subject, cost, maxWaitUs, true)
    const slot = decision.allowed && cost > 0 ? this.slotOf.get(subject) : undefined
    if (slot === undefined) return { decision }
    const { state } = this.pageOf(slot)
    const at = this.startOf(slot)
    const booking: MemoryBooking = {
      atUs: nowUs,
      actUs: nowUs + decision.waitUs,
      cost,
      mark: state.slice(at, at + this.lanes),
      era: this.eras.current,
      birth: birthOf(state[at + this.lanes] as number),
    }
    return { decision, booking }
  }

  cancel(key: string, booking: Booking): number {
    return this.giveBack(key, booking as MemoryBooking, false)
  }

  refund(key: string, booking: Booking): number {
    return this.giveBack(key, booking as MemoryBooking, true)
  }

  release(key: string, permits: number): number {
    const slot = this.slotOf.get(subjectOf(key))
    if (slot === undefined) return 0
    const page = this.pageOf(slot)
    this.noneRestsBeforeUs = 0
    return this.algorithm.refund(page.state, this.present(page, slot), this.clock.nowUs(), permits)
  }

  drain(key: string): number {
    const nowUs = this.clock.nowUs()
    const subject = subjectOf(key)
    const { remaining } = this.decideAt(nowUs, subject, 0, 0, false)
    const takes = remaining > 0 && remaining < Infinity
    return takes && this.decideAt(nowUs, subject, remaining, 0, true).allowed ? remaining : 0
  }

  block(key: string, forUs: number): void {
    const nowUs = this.clock.nowUs()
    const penalty = this.penaltyOf(subjectOf(key), nowUs, true)
    if (penalty !== undefined) block(penalty, forUs, nowUs)
  }

  unblock(key: string): void {
    this.penalties?.lift(subjectOf(key))
  }

  strike(key: string, ladder: Ladder): number {
    const nowUs = this.clock.nowUs()
    const subject = subjectOf(key)
    const penalty = this.penaltyOf(subject, nowUs, false)
    if (penalty !== undefined) strike(penalty, ladder, nowUs)
    return this.penalties?.leftUs(subject, nowUs) ?? 0
  }

  reset(key: string): void {
    const subject = subjectOf(key)
    this.penalties?.lift(subject)
    const slot = this.slotOf.get(subject)
    if (slot !== undefined) this.forget(subject, slot)
  }

  update(algorithm: Algorithm): void {
    const previous = this.algorithm
    this.noneRestsBeforeUs = 0
    if (algorithm.name !== previous.name || algorithm.lanes !== previous.lanes) this.startAfresh(algorithm)
    else if (!sameArgs(algorithm, previous)) this.startEra(algorithm)
  }

  /** Forgets every key that has rested. */
  sweepAll(): void {
    const nowUs = this.clock.nowUs()
    this.forgetRested(nowUs, Infinity)
    this.penalties?.sweep(nowUs, Infinity)
  }

  private decideAt(
    nowUs: number,
    subject: string,
    cost: number,
    maxWaitUs: number,
    commit: boolean,
  ): Decision {
    if (--this.sweepsIn <= 0) this.sweep(nowUs, SLOTS_PER_SWEEP)
    if (this.penalties !== undefined) {
      const leftUs = this.penalties.leftUs(subject, nowUs)
      if (leftUs > 0) return this.refuse(nowUs, subject, cost, maxWaitUs, leftUs)
    }
    const slot = this.slotOf.get(subject)
    if (slot === undefined) return this.meet(nowUs, subject, cost, maxWaitUs, commit)
    const page = this.pageOf(slot)
    const decision = this.algorithm.step(page.state, this.present(page, slot), nowUs, cost, maxWaitUs, commit)
    return this.outgrowsLanes && this.reclaims(decision, nowUs)
      ? this.decideAt(nowUs, subject, decision.allowed ? 0 : cost, maxWaitUs, commit)
      : decision
  }

  /** What is refused because of a block is told what the algorithm will say when that ends. */
  private refuse(nowUs: number, subject: string, cost: number, maxWaitUs: number, leftUs: number): Decision {
    const slot = this.slotOf.get(subject)
    this.scratch.fill(0)
    const page = slot === undefined ? undefined : this.pageOf(slot)
    const state = page?.state ?? this.scratch
    const at = page === undefined ? 0 : this.present(page, slot as number)
    const look = (whenUs: number) => this.algorithm.step(state, at, whenUs, cost, maxWaitUs, false)
    return blocked(look(nowUs), leftUs, cost, look(nowUs + leftUs))
  }

  /** Decides for a key that is not held, and holds it once it has been granted something. */
  private meet(nowUs: number, subject: string, cost: number, maxWaitUs: number, commit: boolean): Decision {
    this.scratch.fill(0)
    const decision = this.algorithm.step(this.scratch, 0, nowUs, cost, maxWaitUs, commit)
    const isTaken = decision.allowed && commit
    if (this.outgrowsLanes && !isTaken && this.reclaims(decision, nowUs))
      return this.meet(nowUs, subject, cost, maxWaitUs, commit)
    if (!decision.allowed || cost === 0 || this.lanes === 0) return decision
    if (this.keys >= this.maxKeys) {
      const sampledFrom = this.sampler.next
      const candidate = this.candidate(nowUs)
      const isRefused = candidate.passesInUs > 0 && !this.forgetsRefused
      // Whoever comes back finds the same keys sampled, and what it was told still true.
      if (isRefused || !commit) this.sampler.next = sampledFrom
      if (isRefused) {
        if (commit) this.algorithm.forget?.(this.scratch, 0)
        return this.noRoom(candidate.passesInUs)
      }
      if (commit) this.makeRoom(candidate)
    }
    if (!commit) return decision
    this.hold(subject)
    // The figures of a grant may be those of a log without room.
    return this.outgrowsLanes && decision.code !== undefined
      ? this.decideAt(nowUs, subject, 0, 0, false)
      : decision
  }

  /**
   * When an algorithm has no memory left beside its lanes, forgets whoever rests, and returns whether that made room. It
   * looks over all keys, but not again before the first of them rests.
   */
  private reclaims(decision: Decision, nowUs: number): boolean {
    if (decision.code !== 'SLUICE_LOG_FULL' || nowUs < this.noneRestsBeforeUs) return false
    const before = this.slotOf.size
    const firstUs = this.forgetRested(nowUs, Infinity)
    this.noneRestsBeforeUs = firstUs === Infinity ? 0 : firstUs
    return this.slotOf.size < before
  }

  /** Gives a key a slot, with the lanes in scratch. */
  private hold(subject: string): void {
    this.sweepsIn -= SLOTS_PER_NEW_KEY - 1
    const held = flatCopy(subject)
    const slot = this.slots.take()
    const page = this.pageOf(slot)
    this.scratch[this.lanes] = ++this.births * (ERA_MASK + 1) + this.eras.number
    page.state.set(this.scratch, this.startOf(slot))
    page.keys[slot & PAGE_MASK] = held
    this.slotOf.set(held, slot)
  }

  private forget(subject: string, slot: number): void {
    if (this.outgrowsLanes) this.algorithm.forget?.(this.pageOf(slot).state, this.startOf(slot))
    this.slotOf.delete(subject)
    this.slots.giveBack(slot)
  }

  /** Gives a booking back, in today's terms, if the life of the key that it was taken from still goes on. */
  private giveBack(key: string, booking: MemoryBooking, refunds: boolean): number {
    const slot = this.slotOf.get(subjectOf(key))
    if (slot === undefined) return 0
    const page = this.pageOf(slot)
    const at = this.present(page, slot)
    if (birthOf(page.state[at + this.lanes] as number) !== booking.birth) return 0
    convertSince(booking.era, booking.mark, 0)
    booking.era = this.eras.current
    this.noneRestsBeforeUs = 0
    const nowUs = this.clock.nowUs()
    return refunds && nowUs >= booking.actUs
      ? this.algorithm.refund(page.state, at, nowUs, booking.cost, booking)
      : this.algorithm.cancel(page.state, at, nowUs, booking)
  }

  /** What is held against a key; undefined when there is no room for it. */
  private penaltyOf(subject: string, nowUs: number, isUrgent: boolean): Penalty | undefined {
    const penalties = this.penalties ?? new Penalties()
    this.penalties = penalties
    penalties.sweep(nowUs, PENALTIES_PER_SWEEP)
    if (penalties.has(subject)) return penalties.of(subject)
    if (this.keys >= this.maxKeys) {
      const least = penalized(penalties, nowUs)
      const candidate = least?.passesInUs === 0 ? least : this.candidate(nowUs)
      // A refusal to be noted costs no key that is being refused its state: it is refused as it is.
      if (candidate.passesInUs > 0 && !isUrgent) return undefined
      this.makeRoom(candidate)
    }
    return penalties.of(flatCopy(subject))
  }

  /** What may be forgotten: states of keys as long as penalties leave them half of the room, then penalties. */
  private candidate(nowUs: number): Candidate {
    const isFair = this.slotOf.size > 0 && (this.penalties?.size ?? 0) <= this.maxKeys / 2
    const least = isFair ? undefined : penalized(this.penalties as Penalties, nowUs)
    return least === undefined || (least.isByHand && this.slotOf.size > 0) ? this.leastLoaded(nowUs) : least
  }

  /** Of a few keys the one with the least of its limit in use; if all are being refused, the one that passes soonest. */
  private leastLoaded(nowUs: number): Candidate {
    const least: Candidate = { slot: -1, load: Infinity, passesInUs: Infinity }
    let samples = SAMPLES
    this.sampler.move(this.slots.pages, Infinity, (page, slot) => {
      const at = this.present(page, slot)
      const load = this.algorithm.load(page.state, at, nowUs)
      const passesInUs = load < 1 ? 0 : this.algorithm.step(page.state, at, nowUs, 1, 0, false).retryAfterUs
      if (load < least.load || passesInUs < least.passesInUs) Object.assign(least, { slot, load, passesInUs })
      return --samples === 0 || load === 0
    })
    return least
  }

  private makeRoom({ slot, subject, load, passesInUs }: Candidate): void {
    if (load > 0) this.forgotten++
    if (passesInUs > 0)
      warnOnce(
        'SLUICE_FORGOT_REFUSED_KEY',
        () =>
          `The in-memory store is full (maxKeys ${this.maxKeys}) of keys that are being refused, and has forgotten ` +
          "one of them. Raise maxKeys, or choose onFull: 'refuse'.",
      )
    else if (load > 0)
      warnOnce(
        'SLUICE_FORGOT_KEY',
        () =>
          `The in-memory store is full (maxKeys ${this.maxKeys}) and forgets keys before they have rested, those with ` +
          'the least of their limit in use first. Raise maxKeys if that many clients are real.',
      )
    if (subject === undefined) this.forget(this.pageOf(slot).keys[slot & PAGE_MASK] as string, slot)
    else this.penalties?.lift(subject)
  }

  private noRoom(waitUs: number): Decision {
    const gauge = new FixedGauge({
      code: 'SLUICE_STORE_FULL',
      limit: this.algorithm.policy.limit,
      balance: 0,
      refillAfterUs: waitUs,
      resetAfterUs: waitUs,
    })
    return new Decision(gauge, waitUs, waitUs, 0, 0)
  }

  /**
   * Forgets keys that have rested for a while. Not at the very moment of rest: a key in steady use rests often, and to
   * forget and meet it each time costs more than to keep it.
   */
  private sweep(nowUs: number, slots: number): void {
    this.sweepsIn = SLOTS_PER_SWEEP
    this.penalties?.sweep(nowUs, PENALTIES_PER_SWEEP)
    this.forgetRested(nowUs - Math.max(LEAST_REST_US, (this.algorithm.policy.windowMs ?? 0) * 1000), slots)
  }

  /** Returns when the first of those that it looked at and kept will rest. */
  private forgetRested(restedBeforeUs: number, slots: number): number {
    let firstUs = Infinity
    this.sweeper.move(this.slots.pages, slots, (page, slot) => {
      const restsAtUs = this.algorithm.restsAt(page.state, this.present(page, slot))
      if (restsAtUs <= restedBeforeUs) this.forget(page.keys[slot & PAGE_MASK] as string, slot)
      else firstUs = Math.min(firstUs, restsAtUs)
      return false
    })
    return firstUs
  }

  /** A change of options: the keys keep what they have. */
  private startEra(algorithm: Algorithm): void {
    if (this.eras.usedUp) {
      for (const slot of this.slotOf.values()) {
        const { state } = this.pageOf(slot)
        const stampAt = this.present(this.pageOf(slot), slot) + this.lanes
        state[stampAt] = (state[stampAt] as number) - this.eras.number
      }
      this.eras.renumber()
    }
    const nowUs = this.clock.nowUs()
    this.algorithm = begun(algorithm, nowUs, this.algorithm)
    this.eras.start(this.algorithm, nowUs)
  }

  /** Another algorithm, which cannot read these states: every key is one never seen. */
  private startAfresh(algorithm: Algorithm): void {
    this.slotOf.clear()
    this.algorithm = begun(algorithm, this.clock.nowUs())
    this.lanes = this.algorithm.lanes
    this.outgrowsLanes = this.algorithm.forget !== undefined
    this.eras = new Eras(this.algorithm)
    this.slots = new Slots(this.lanes + 1)
    this.scratch = new Float64Array(this.lanes + 1)
  }

  /** Where the lanes of a slot start, once they are in terms of the present era. */
  private present(page: Page, slot: number): number {
    const at = this.startOf(slot)
    const stamp = page.state[at + this.lanes] as number
    if ((stamp & ERA_MASK) !== this.eras.number) this.convert(page.state, at, stamp)
    return at
  }

  private convert(state: Float64Array, at: number, stamp: number): void {
    const number = stamp & ERA_MASK
    this.eras.convert(state, at, number)
    state[at + this.lanes] = stamp - number + this.eras.number
  }

  private startOf(slot: number): number {
    return (slot & PAGE_MASK) * (this.lanes + 1)
  }

  private pageOf(slot: number): Page {
    return this.slots.pages[slot >>> PAGE_BITS] as Page
  }
}

interface MemoryBooking extends Booking {
  era: Era
  readonly birth: number
}

/** A key that may be forgotten. */
interface Candidate {
  readonly slot: number
  /** Stated when it is the penalty of a key that may be forgotten. */
  readonly subject?: string
  readonly isByHand?: boolean
  readonly load: number
  /** 0 while it is not being refused. */
  readonly passesInUs: number
}

/**
 * Slots are swept in batches, one for each call and four for each new key: the keys that come during a round of the
 * sweeper are at most a quarter of those it passes.
 */
const SLOTS_PER_SWEEP = 64
const SLOTS_PER_NEW_KEY = 4
const LEAST_REST_US = 1_000_000
/** Keys looked at to find one that may be forgotten. */
const SAMPLES = 5
const PENALTIES_PER_SWEEP = 4

/** The penalty that may be forgotten first. */
function penalized(penalties: Penalties, nowUs: number): Candidate | undefined {
  const least = penalties.least(SAMPLES)
  return least && { ...least, slot: -1, load: 1, passesInUs: Math.max(least.blockedUntilUs - nowUs, 0) }
}

function birthOf(stamp: number): number {
  return Math.floor(stamp / (ERA_MASK + 1))
}

function begun(algorithm: Algorithm, nowUs: number, previous?: Algorithm): Algorithm {
  return algorithm.begin?.(nowUs, previous) ?? algorithm
}
