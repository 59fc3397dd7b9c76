import type { Algorithm, Booking } from './algorithm.js'
import type { Clock } from './clock.js'
import { Decision, fixedGauge } from './decision.js'
import { Hand, PAGE_BITS, PAGE_MASK, type Page, Slots } from './slots.js'
import type { Booked, Ledger, LedgerSpec } from './store.js'
import { flatCopy, subjectOf } from './subject.js'
import { warnOnce } from './warnings.js'

/*
 * The keys of one limiter in memory: a map from key to slot, and the slots. There is no object per key and no promise.
 *
 * A stamp per slot holds two things. The era (low 8 bits) says which algorithm wrote the lanes: `update` starts a new
 * era and touches no key, a key of an older era is converted when it is next seen. The birth (high 24 bits) tells the
 * lives of a key apart: a booking of a life that was reset or forgotten has nothing to give back.
 */
export class MemoryLedger implements Ledger<false> {
  readonly async = false
  readonly #clock: Clock
  readonly #maxKeys: number
  readonly #forgetsRefused: boolean
  readonly #slotOf = new Map<string, number>()
  readonly #sweeper = new Hand()
  readonly #sampler = new Hand()
  #slots: Slots
  #scratch: Float64Array
  #eras: Era[]
  #algorithm: Algorithm
  #lanes: number
  #era = 0
  #births = 0
  #sweepsIn = SLOTS_PER_SWEEP

  constructor(spec: LedgerSpec, maxKeys: number, forgetsRefused: boolean) {
    this.#clock = spec.clock
    this.#maxKeys = maxKeys
    this.#forgetsRefused = forgetsRefused
    this.#algorithm = spec.algorithm
    this.#lanes = spec.algorithm.lanes
    this.#slots = new Slots(this.#lanes)
    this.#scratch = new Float64Array(this.#lanes)
    this.#eras = [{ algorithm: spec.algorithm, sinceUs: 0, next: undefined }]
  }

  get size(): number {
    return this.#slotOf.size
  }

  decide(key: string, cost: number, maxWaitUs: number, commit: boolean): Decision {
    return this.decideAt(this.#clock.nowUs(), subjectOf(key), cost, maxWaitUs, commit)
  }

  book(key: string, cost: number, maxWaitUs: number): Booked {
    const nowUs = this.#clock.nowUs()
    const subject = subjectOf(key)
    const decision = this.decideAt(nowUs, subject, cost, maxWaitUs, true)
    const slot = decision.allowed && cost > 0 ? this.#slotOf.get(subject) : undefined
    if (slot === undefined) return { decision }
    const page = this.pageOf(slot)
    const index = slot & PAGE_MASK
    const booking: MemoryBooking = {
      atUs: nowUs,
      actUs: nowUs + decision.waitUs,
      cost,
      mark: page.state.slice(index * this.#lanes, (index + 1) * this.#lanes),
      era: this.currentEra,
      birth: (page.stamps[index] as number) >>> ERA_BITS,
    }
    return { decision, booking }
  }

  cancel(key: string, booking: Booking): number {
    return this.withHolder(key, booking as MemoryBooking, (state, at, nowUs, held) =>
      this.#algorithm.cancel(state, at, nowUs, held),
    )
  }

  refund(key: string, booking: Booking): number {
    return this.withHolder(key, booking as MemoryBooking, (state, at, nowUs, held) =>
      nowUs < held.actUs
        ? this.#algorithm.cancel(state, at, nowUs, held)
        : this.#algorithm.refund(state, at, nowUs, held.cost, held),
    )
  }

  reset(key: string): void {
    const subject = subjectOf(key)
    const slot = this.#slotOf.get(subject)
    if (slot !== undefined) this.forget(subject, slot)
  }

  update(algorithm: Algorithm): void {
    const previous = this.#algorithm
    this.#algorithm = algorithm
    const era: Era = { algorithm, sinceUs: this.#clock.nowUs(), next: undefined }
    if (algorithm.name !== previous.name || algorithm.lanes !== this.#lanes) this.startAfresh(era)
    else if (!sameArgs(algorithm, previous)) this.startEra(era)
  }

  sweepAll(): void {
    this.sweep(this.#clock.nowUs(), Infinity)
  }

  private decideAt(
    nowUs: number,
    subject: string,
    cost: number,
    maxWaitUs: number,
    commit: boolean,
  ): Decision {
    if (--this.#sweepsIn <= 0) this.sweep(nowUs, SLOTS_PER_SWEEP)
    const slot = this.#slotOf.get(subject)
    if (slot === undefined) return this.meet(nowUs, subject, cost, maxWaitUs, commit)
    const page = this.pageOf(slot)
    const index = slot & PAGE_MASK
    if (((page.stamps[index] as number) & ERA_MASK) !== this.#era) this.convert(page, index)
    return this.#algorithm.step(page.state, index * this.#lanes, nowUs, cost, maxWaitUs, commit)
  }

  /** Decides for a key that is not held, and holds it once it has been granted something. */
  private meet(nowUs: number, subject: string, cost: number, maxWaitUs: number, commit: boolean): Decision {
    this.#scratch.fill(0)
    const decision = this.#algorithm.step(this.#scratch, 0, nowUs, cost, maxWaitUs, commit)
    if (!decision.allowed || cost === 0 || this.#lanes === 0) return decision
    if (this.#slotOf.size >= this.#maxKeys) {
      const victim = this.leastLoaded(nowUs)
      if (victim.passesInUs > 0 && !this.#forgetsRefused) return this.noRoom(victim.passesInUs)
      if (commit) this.forgetLoaded(victim)
    }
    if (!commit) return decision
    this.#sweepsIn -= SLOTS_PER_NEW_KEY - 1
    const slot = this.#slots.take()
    const page = this.pageOf(slot)
    const index = slot & PAGE_MASK
    const held = flatCopy(subject)
    this.#births = (this.#births + 1) & BIRTH_MASK
    page.state.set(this.#scratch, index * this.#lanes)
    page.keys[index] = held
    page.stamps[index] = (this.#births << ERA_BITS) | this.#era
    this.#slotOf.set(held, slot)
    return decision
  }

  /** Of a few keys the one that has the least of its limit in use, or, if all are being refused, passes soonest. */
  private leastLoaded(nowUs: number): Candidate {
    let least: Candidate = { slot: -1, load: Infinity, passesInUs: Infinity }
    let seen = 0
    this.#sampler.move(this.#slots.pages, Infinity, (page, slot) => {
      const index = slot & PAGE_MASK
      if (((page.stamps[index] as number) & ERA_MASK) !== this.#era) this.convert(page, index)
      const load = this.#algorithm.load(page.state, index * this.#lanes, nowUs)
      const passesInUs = load < 1 ? 0 : this.passesInUs(page, index, nowUs)
      if (load < least.load || (load === 1 && passesInUs < least.passesInUs))
        least = { slot, load, passesInUs }
      return ++seen === SAMPLES || load === 0
    })
    // Whoever is told to come back then finds this key among the next few.
    if (least.passesInUs > 0) this.#sampler.goTo(least.slot)
    return least
  }

  private passesInUs(page: Page, index: number, nowUs: number): number {
    return this.#algorithm.step(page.state, index * this.#lanes, nowUs, 1, 0, false).retryAfterUs
  }

  private forgetLoaded({ slot, passesInUs }: Candidate): void {
    if (passesInUs > 0)
      warnOnce(
        'SLUICE_FORGOT_REFUSED_KEY',
        `The in-memory store is full (maxKeys ${this.#maxKeys}) of keys that are being refused, and has forgotten ` +
          "one of them. Raise maxKeys, or choose onFull: 'refuse'.",
      )
    this.forget(this.pageOf(slot).keys[slot & PAGE_MASK] as string, slot)
  }

  private noRoom(waitUs: number): Decision {
    const gauge = fixedGauge({
      limit: this.#algorithm.policy.limit,
      remaining: 0,
      balance: 0,
      refillAfterUs: waitUs,
      resetAfterUs: waitUs,
    })
    return new Decision(gauge, waitUs, waitUs, 0, 0)
  }

  /** Calls `act` with the state a booking was taken from and the booking in today's terms, if that life still goes on. */
  private withHolder(
    key: string,
    booking: MemoryBooking,
    act: (state: Float64Array, at: number, nowUs: number, booking: Booking) => number,
  ): number {
    const slot = this.#slotOf.get(subjectOf(key))
    if (slot === undefined) return 0
    const page = this.pageOf(slot)
    const index = slot & PAGE_MASK
    if ((page.stamps[index] as number) >>> ERA_BITS !== booking.birth) return 0
    if (((page.stamps[index] as number) & ERA_MASK) !== this.#era) this.convert(page, index)
    for (let era = booking.era; era.next !== undefined; era = era.next)
      era.next.algorithm.adopt(booking.mark, 0, era.next.sinceUs, era.algorithm)
    booking.era = this.currentEra
    return act(page.state, index * this.#lanes, this.#clock.nowUs(), booking)
  }

  private forget(subject: string, slot: number): void {
    this.#slotOf.delete(subject)
    this.#slots.giveBack(slot)
  }

  /**
   * Forgets keys that have rested for a while. Not at the very moment of rest: a key in steady use rests often, and to
   * forget and meet it each time costs more than to keep it.
   */
  private sweep(nowUs: number, slots: number): void {
    this.#sweepsIn = SLOTS_PER_SWEEP
    const restedBeforeUs = nowUs - Math.max(LEAST_REST_US, (this.#algorithm.policy.windowMs ?? 0) * 1000)
    this.#sweeper.move(this.#slots.pages, slots, (page, slot) => {
      const index = slot & PAGE_MASK
      if (((page.stamps[index] as number) & ERA_MASK) !== this.#era) this.convert(page, index)
      if (this.#algorithm.restsAt(page.state, index * this.#lanes) <= restedBeforeUs)
        this.forget(page.keys[index] as string, slot)
      return false
    })
  }

  /** Brings a slot's lanes from the era that wrote them to this one, through all between. */
  private convert(page: Page, index: number): void {
    const stamp = page.stamps[index] as number
    const at = index * this.#lanes
    for (let era = this.#eras[stamp & ERA_MASK] as Era; era.next !== undefined; era = era.next)
      era.next.algorithm.adopt(page.state, at, era.next.sinceUs, era.algorithm)
    page.stamps[index] = (stamp & ~ERA_MASK) | this.#era
  }

  private startEra(era: Era): void {
    this.currentEra.next = era
    if (this.#eras.length > ERA_MASK) this.endOldEras(era)
    else this.#era = this.#eras.push(era) - 1
  }

  /** The era numbers are used up: convert every key now and number afresh. */
  private endOldEras(era: Era): void {
    for (const slot of this.#slotOf.values()) {
      const page = this.pageOf(slot)
      const index = slot & PAGE_MASK
      this.convert(page, index)
      page.stamps[index] = (page.stamps[index] as number) & ~ERA_MASK
    }
    this.#eras = [era]
    this.#era = 0
  }

  /** Another algorithm cannot read these states: every key is one never seen. */
  private startAfresh(era: Era): void {
    this.#slotOf.clear()
    this.#lanes = era.algorithm.lanes
    this.#slots = new Slots(this.#lanes)
    this.#scratch = new Float64Array(this.#lanes)
    this.#eras = [era]
    this.#era = 0
  }

  private get currentEra(): Era {
    return this.#eras[this.#era] as Era
  }

  private pageOf(slot: number): Page {
    return this.#slots.pages[slot >>> PAGE_BITS] as Page
  }
}

interface Era {
  readonly algorithm: Algorithm
  readonly sinceUs: number
  next: Era | undefined
}

interface Candidate {
  readonly slot: number
  readonly load: number
  /** 0 while it is not being refused. */
  readonly passesInUs: number
}

interface MemoryBooking extends Booking {
  era: Era
  readonly birth: number
}

const ERA_BITS = 8
const ERA_MASK = (1 << ERA_BITS) - 1
const BIRTH_MASK = (1 << (32 - ERA_BITS)) - 1

/**
 * Slots are swept in batches, one for each call and four for each new key: the keys that come during a round of the
 * sweeper are at most a quarter of those it passes.
 */
const SLOTS_PER_SWEEP = 64
const SLOTS_PER_NEW_KEY = 4
const LEAST_REST_US = 1_000_000
/** Keys looked at to find one that may be forgotten. */
const SAMPLES = 8

function sameArgs(a: Algorithm, b: Algorithm): boolean {
  return a.args.length === b.args.length && a.args.every((arg, index) => arg === b.args[index])
}
