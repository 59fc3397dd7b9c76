/*
 * The memory of the sliding log: runs of grants (time, permits) in chained blocks of six, and the blocks in pages that
 * are made when needed and dropped when empty.
 *
 * A place is the number of a pair of doubles; a block is eight pairs, and place 0 stands for no place. The last two pairs
 * of a block are its head: next block and previous block (the places of their first runs), the permits of its runs, and a
 * serial number. A booking remembers the serial number, which shows whether its block has been used again since.
 */

const PAIRS = 8
/** Runs of a block. */
export const RUNS = 6
const BLOCK_BYTES = PAIRS * 16
const PAGE_BLOCK_BITS = 9
const PAGE_BLOCKS = 1 << PAGE_BLOCK_BITS
const PAGE_PAIR_BITS = PAGE_BLOCK_BITS + 3
const PAGE_PAIR_MASK = (1 << PAGE_PAIR_BITS) - 1
/** Bytes of a page: the least that a log takes. */
export const PAGE_BYTES = PAGE_BLOCKS * BLOCK_BYTES

interface Page {
  readonly pairs: Float64Array
  used: number
  /** The first of the blocks that were never used. */
  untouched: number
  /** The newest freed block, or 0; its `next` is the one freed before it. */
  freed: number
}

export class LogPages {
  private readonly pages: (Page | undefined)[] = []
  private readonly maxPages: number
  private spare: Float64Array | undefined
  private lowestWithRoom = 0
  private serials = 0
  private blocks = 0

  constructor(maxBytes: number) {
    this.maxPages = Math.floor(maxBytes / PAGE_BYTES)
  }

  /** Bytes of the blocks in use. */
  get bytes(): number {
    return this.blocks * BLOCK_BYTES
  }

  get hasRoom(): boolean {
    return this.blocks < this.maxPages * PAGE_BLOCKS - reservedIn(0)
  }

  /** Appends an empty block to `previous` and returns the place of its first run. There must be room. */
  take(previous: number): number {
    let number = this.lowestWithRoom
    while (this.pages[number]?.used === PAGE_BLOCKS) number++
    this.lowestWithRoom = number
    const page = this.pages[number] ?? this.newPage(number)
    let block = page.freed
    if (block !== 0) page.freed = this.next(block)
    else block = (number * PAGE_BLOCKS + page.untouched++) * PAIRS
    page.used++
    this.blocks++
    this.write(block + 6, 0, previous)
    this.write(block + 7, 0, ++this.serials)
    if (previous !== 0) this.write(previous + 6, block, this.previous(previous))
    return block
  }

  /** Takes a block out of its chain. */
  giveBack(block: number): void {
    const next = this.next(block)
    const previous = this.previous(block)
    if (next !== 0) this.write(next + 6, this.next(next), previous)
    if (previous !== 0) this.write(previous + 6, next, this.previous(previous))
    const number = block >>> PAGE_PAIR_BITS
    const page = this.pages[number] as Page
    this.write(block + 6, page.freed, 0)
    this.write(block + 7, 0, 0)
    page.freed = block
    page.used--
    this.blocks--
    if (number < this.lowestWithRoom) this.lowestWithRoom = number
    if (page.used === reservedIn(number)) this.retire(number, page)
  }

  time(place: number): number {
    return this.pageOf(place).pairs[(place & PAGE_PAIR_MASK) * 2] as number
  }

  permits(place: number): number {
    return this.pageOf(place).pairs[(place & PAGE_PAIR_MASK) * 2 + 1] as number
  }

  /** Writes the next run of a block. */
  append(place: number, timeUs: number, permits: number): void {
    const block = blockOf(place)
    this.write(place, timeUs, permits)
    this.write(block + 7, this.sum(block) + permits, this.serial(block))
  }

  /** Adds permits to a run; a negative number takes them away. */
  change(place: number, permits: number): void {
    const block = blockOf(place)
    this.write(place, this.time(place), this.permits(place) + permits)
    this.write(block + 7, this.sum(block) + permits, this.serial(block))
  }

  next(block: number): number {
    return this.time(block + 6)
  }

  previous(block: number): number {
    return this.permits(block + 6)
  }

  sum(block: number): number {
    return this.time(block + 7)
  }

  serial(block: number): number {
    return this.pages[block >>> PAGE_PAIR_BITS] === undefined ? 0 : this.permits(block + 7)
  }

  private newPage(number: number): Page {
    const pairs = this.spare ?? new Float64Array(PAGE_BLOCKS * PAIRS * 2)
    this.spare = undefined
    const reserved = reservedIn(number)
    const page = { pairs, used: reserved, untouched: reserved, freed: 0 }
    this.pages[number] = page
    return page
  }

  /** One page is kept, so that a block that comes and goes does not make and drop a page each time. */
  private retire(number: number, { pairs }: Page): void {
    this.spare = pairs
    this.pages[number] = undefined
    while (this.pages.length > 0 && this.pages.at(-1) === undefined) this.pages.pop()
  }

  private write(place: number, first: number, second: number): void {
    const { pairs } = this.pageOf(place)
    const at = (place & PAGE_PAIR_MASK) * 2
    pairs[at] = first
    pairs[at + 1] = second
  }

  private pageOf(place: number): Page {
    return this.pages[place >>> PAGE_PAIR_BITS] as Page
  }
}

/** The place of the first run of the block that a place is in. */
export function blockOf(place: number): number {
  return place & ~(PAIRS - 1)
}

/** The very first block is never used, so that no run has place 0. */
function reservedIn(page: number): number {
  return page === 0 ? 1 : 0
}
