/*
 * Slots: the memory of a key table. A slot is a few float64 lanes and a key. Slots come in pages that are made when they
 * are needed, filled from the lowest number, and dropped when they are empty. One empty page is kept, so that a key that
 * comes and goes at the edge of a page does not make and drop a page each time. The first page begins small and grows, so
 * that a table of few keys takes little memory.
 */

export const PAGE_BITS = 12
export const PAGE_SLOTS = 1 << PAGE_BITS
export const PAGE_MASK = PAGE_SLOTS - 1

const FIRST_SLOTS = 64

/** A page of slots; slot `index` has its lanes at `state[index * lanes]`. */
export class Page {
  /** Replaced by a longer array when the page grows. */
  state: Float64Array
  readonly keys: (string | undefined)[]
  used = 0
  /** Slots from here on were never used. */
  untouched = 0
  /** The slot freed last, or -1; its lane 0 holds the number of the one freed before it. */
  freed = -1

  constructor(slots: number, lanes: number) {
    this.state = new Float64Array(slots * lanes)
    this.keys = new Array(slots)
  }

  /** Makes room for twice as many slots. */
  grow(): void {
    const { state } = this
    this.state = new Float64Array(2 * state.length)
    this.state.set(state)
  }
}

/** The pages of one key table. */
export class Slots {
  readonly pages: (Page | undefined)[] = []
  readonly #lanes: number
  #lowestWithRoom = 0
  #spare: Page | undefined

  constructor(lanes: number) {
    this.#lanes = lanes
  }

  /** Takes a free slot. Its lanes hold arbitrary numbers. */
  take(): number {
    let number = this.#lowestWithRoom
    while (this.pages[number]?.used === PAGE_SLOTS) number++
    this.#lowestWithRoom = number
    const page = this.pages[number] ?? this.#newPage(number === 0 ? FIRST_SLOTS : PAGE_SLOTS)
    this.pages[number] = page
    page.used++
    let index = page.freed
    if (index === -1) {
      index = page.untouched++
      if (index * this.#lanes === page.state.length) page.grow()
    } else page.freed = page.state[index * this.#lanes] as number
    return number * PAGE_SLOTS + index
  }

  giveBack(slot: number): void {
    const number = slot >>> PAGE_BITS
    const index = slot & PAGE_MASK
    const page = this.pages[number] as Page
    page.keys[index] = undefined
    page.state[index * this.#lanes] = page.freed
    page.freed = index
    page.used--
    if (page.used === 0) this.#retire(number, page)
    if (number < this.#lowestWithRoom) this.#lowestWithRoom = number
  }

  #newPage(slots: number): Page {
    const page = this.#spare ?? new Page(slots, this.#lanes)
    this.#spare = undefined
    return page
  }

  #retire(number: number, page: Page): void {
    page.untouched = 0
    page.freed = -1
    this.#spare = page
    this.pages[number] = undefined
    while (this.pages.length > 0 && this.pages.at(-1) === undefined) this.pages.pop()
  }
}

/** Visits the slots in use in turn, a few at a time, and starts again at the first after the last. */
export class Cursor {
  /** The slot that it visits next. */
  next = 0

  /**
   * Passes at most `count` slots, and at most about all of them once. Calls `visit` for each slot in use, until that
   * returns true.
   */
  move(
    pages: readonly (Page | undefined)[],
    count: number,
    visit: (page: Page, slot: number) => boolean,
  ): void {
    let left = count
    let pagesLeft = pages.length + 1
    while (left > 0 && pagesLeft > 0) {
      const number = this.next >>> PAGE_BITS
      const page = pages[number]
      let index = this.next & PAGE_MASK
      while (page !== undefined && index < page.untouched && left > 0) {
        left--
        const slot = number * PAGE_SLOTS + index++
        if (page.keys[slot & PAGE_MASK] !== undefined && visit(page, slot)) left = 0
      }
      if (page !== undefined && index < page.untouched) {
        this.next = number * PAGE_SLOTS + index
      } else {
        this.next = number + 1 < pages.length ? (number + 1) * PAGE_SLOTS : 0
        pagesLeft--
      }
    }
  }
}
