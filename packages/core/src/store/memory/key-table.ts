import { Conversions, type Convertible, type OptionsVersion, VERSION_MASK } from '../conversions.js'
import { Cursor, PAGE_BITS, PAGE_MASK, type Page, Slots } from './slots.js'
import { flatCopy } from './stored-key.js'

/** What a table must know about the numbers that it keeps for a key. All zeros is a key that was never seen. */
export interface Kept<Same> extends Convertible<Same> {
  /** Float64 numbers per key. */
  readonly lanes: number
  /** When the key can be forgotten without changing any decision. */
  restsAt(state: Float64Array, at: number): number
  /** From 0 to 1: of several keys the one with the lowest load is forgotten first. */
  load(state: Float64Array, at: number, nowUs: number): number
  /** Called before a key is forgotten. */
  forget?(state: Float64Array, at: number): void
}

/** A key that a full store may forget. */
export interface Candidate {
  readonly table: { skipSample(candidate: Candidate): void; removeSlot(slot: number): void }
  readonly slot: number
  readonly load: number
  /** How long the key is still refused; 0 if it is not. */
  readonly passesInUs: number
  /** The slot at which the next sample begins. */
  readonly nextSample: number
}

/*
 * A map from key to slot, and the slots. There is no object per key.
 *
 * Behind the lanes of a slot lies its stamp: the version of the options that wrote the lanes (low 8 bits), and the
 * generation of the key. Each key that is inserted is a new generation, so that a booking can tell whether its key was
 * forgotten in between.
 */
export class KeyTable<A extends Kept<A>> {
  readonly slotOf = new Map<string, number>()
  /** The lanes and the stamp of the key that is inserted next. */
  readonly scratch: Float64Array
  /** How many keys were ever inserted. */
  generations: number
  algorithm: A
  readonly #lanes: number
  readonly #slots: Slots
  readonly #sweeper = new Cursor()
  readonly #sampler = new Cursor()
  readonly #conversions: Conversions<A>
  #sweepsIn = SLOTS_PER_SWEEP

  constructor(algorithm: A, generations = 0) {
    this.algorithm = algorithm
    this.generations = generations
    this.#lanes = algorithm.lanes
    this.#slots = new Slots(this.#lanes + 1)
    this.scratch = new Float64Array(this.#lanes + 1)
    this.#conversions = new Conversions(algorithm)
  }

  get size(): number {
    return this.slotOf.size
  }

  get version(): OptionsVersion<A> {
    return this.#conversions.current
  }

  pageOf(slot: number): Page {
    return this.#slots.pages[slot >>> PAGE_BITS] as Page
  }

  /** Where the lanes of a slot start. Converts them to the current options first. */
  lanesAt(page: Page, slot: number): number {
    const at = (slot & PAGE_MASK) * (this.#lanes + 1)
    const stamp = page.state[at + this.#lanes] as number
    if ((stamp & VERSION_MASK) !== this.#conversions.number) this.#convert(page.state, at, stamp)
    return at
  }

  /** Where the lanes of a key are; undefined if the table does not have the key. */
  find(key: string): { readonly page: Page; readonly at: number } | undefined {
    const slot = this.slotOf.get(key)
    if (slot === undefined) return undefined
    const page = this.pageOf(slot)
    return { page, at: this.lanesAt(page, slot) }
  }

  generationAt(page: Page, at: number): number {
    return Math.floor((page.state[at + this.#lanes] as number) / (VERSION_MASK + 1))
  }

  copyOfLanes(page: Page, at: number): Float64Array {
    return page.state.slice(at, at + this.#lanes)
  }

  /** Gives a key a slot, with the lanes in `scratch`. */
  insert(key: string): number {
    this.#sweepsIn -= SLOTS_PER_NEW_KEY - 1
    const copy = flatCopy(key)
    const slot = this.#slots.take()
    const page = this.pageOf(slot)
    const index = slot & PAGE_MASK
    this.scratch[this.#lanes] = ++this.generations * (VERSION_MASK + 1) + this.#conversions.number
    page.state.set(this.scratch, index * (this.#lanes + 1))
    page.keys[index] = copy
    this.slotOf.set(copy, slot)
    return slot
  }

  remove(key: string): void {
    const slot = this.slotOf.get(key)
    if (slot !== undefined) this.removeSlot(slot)
  }

  removeSlot(slot: number): void {
    const page = this.pageOf(slot)
    const index = slot & PAGE_MASK
    this.algorithm.forget?.(page.state, index * (this.#lanes + 1))
    this.slotOf.delete(page.keys[index] as string)
    this.#slots.giveBack(slot)
  }

  /** Counts a call. Returns whether `SLOTS_PER_SWEEP` slots are to be swept now. */
  isSweepDue(): boolean {
    if (--this.#sweepsIn > 0) return false
    this.#sweepsIn = SLOTS_PER_SWEEP
    return true
  }

  /**
   * Forgets those of the next `count` slots that have rested since `restedBeforeUs`. Returns when the first of the
   * others will rest.
   */
  sweep(restedBeforeUs: number, count: number): number {
    let firstUs = Infinity
    this.#sweeper.move(this.#slots.pages, count, (page, slot) => {
      const restsAtUs = this.algorithm.restsAt(page.state, this.lanesAt(page, slot))
      if (restsAtUs <= restedBeforeUs) this.removeSlot(slot)
      else firstUs = Math.min(firstUs, restsAtUs)
      return false
    })
    return firstUs
  }

  /**
   * Of the next few keys the one with the lowest load; of several with the highest load the one that passes first. The
   * same keys are sampled again until `skipSample`.
   */
  leastLoaded(
    nowUs: number,
    samples: number,
    passesInUs: (state: Float64Array, at: number) => number,
  ): Candidate {
    const least = { table: this, slot: -1, load: Infinity, passesInUs: Infinity, nextSample: 0 }
    const sampledFrom = this.#sampler.next
    let left = samples
    this.#sampler.move(this.#slots.pages, Infinity, (page, slot) => {
      const at = this.lanesAt(page, slot)
      const load = this.algorithm.load(page.state, at, nowUs)
      const passes = load < 1 ? 0 : passesInUs(page.state, at)
      if (load < least.load || (load === least.load && passes < least.passesInUs)) {
        least.slot = slot
        least.load = load
        least.passesInUs = passes
      }
      return --left === 0 || load === 0
    })
    least.nextSample = this.#sampler.next
    this.#sampler.next = sampledFrom
    return least
  }

  skipSample({ nextSample }: Candidate): void {
    this.#sampler.next = nextSample
  }

  /** Starts a new version of the options. The keys keep what they have. */
  change(algorithm: A, nowUs: number): void {
    if (this.#conversions.isUsedUp) this.#convertAll()
    this.algorithm = algorithm
    this.#conversions.add(algorithm, nowUs)
  }

  #convert(state: Float64Array, at: number, stamp: number): void {
    const version = stamp & VERSION_MASK
    this.#conversions.convert(state, at, version)
    state[at + this.#lanes] = stamp - version + this.#conversions.number
  }

  /** Converts every key, so that the version numbers can start at 0 again. */
  #convertAll(): void {
    for (const slot of this.slotOf.values()) {
      const page = this.pageOf(slot)
      const stampAt = this.lanesAt(page, slot) + this.#lanes
      page.state[stampAt] = (page.state[stampAt] as number) - this.#conversions.number
    }
    this.#conversions.renumber()
  }
}

/**
 * Slots are swept in batches. Each call pays for one slot and each new key for four, so that the keys inserted during a
 * round of the sweeper are at most a quarter of those that it passes.
 */
export const SLOTS_PER_SWEEP = 64
const SLOTS_PER_NEW_KEY = 4
