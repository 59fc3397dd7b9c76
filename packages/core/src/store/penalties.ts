/*
 * Penalties: a key that is blocked is refused whatever its algorithm says. A block is laid on by hand, or by a ladder: so
 * many refusals block the key for the first step, as many more for the next one, and the last step repeats.
 *
 *     after 3, for 1 min and 10 min:   x x X - - - x x X - - - - - - -      x refused, X refused and blocked, - blocked
 *                                          1 min       10 min
 *
 * What is refused because of a block is no refusal of the ladder, so that a block ends when it was said to. The ladder is
 * forgotten after its longest step without a refusal or a block.
 */

/** How many refusals block a key, and for how long the first time, the second time and so on. */
export interface Ladder {
  readonly after: number
  /** Whole microseconds, at least one. */
  readonly stepsUs: readonly number[]
}

/** What is held against a key. All zeros is a key without blame. */
export interface Penalty {
  blockedUntilUs: number
  /** Refusals since the last block, and blocks so far. */
  refusals: number
  blocks: number
  /** When all of it is forgotten, and for how long the ladder remembers. */
  forgottenAtUs: number
  memoryUs: number
  /** Whether the block was laid on by hand. */
  isByHand: boolean
}

/** Notes a refusal on a ladder. */
export function strike(penalty: Penalty, { after, stepsUs }: Ladder, nowUs: number): void {
  if (nowUs < penalty.blockedUntilUs) return
  forgetOld(penalty, nowUs)
  if (++penalty.refusals >= after) {
    penalty.refusals = 0
    penalty.blockedUntilUs = nowUs + (stepsUs[Math.min(penalty.blocks++, stepsUs.length - 1)] as number)
    penalty.isByHand = false
  }
  penalty.memoryUs = Math.max(...stepsUs)
  remember(penalty, nowUs)
}

/** Blocks by hand; a block that lasts longer stays. */
export function block(penalty: Penalty, forUs: number, nowUs: number): void {
  forgetOld(penalty, nowUs)
  penalty.blockedUntilUs = Math.max(penalty.blockedUntilUs, nowUs + forUs)
  penalty.isByHand = true
  remember(penalty, nowUs)
}

function forgetOld(penalty: Penalty, nowUs: number): void {
  if (nowUs < penalty.forgottenAtUs) return
  penalty.refusals = penalty.blocks = penalty.forgottenAtUs = penalty.memoryUs = 0
}

function remember(penalty: Penalty, nowUs: number): void {
  const { blockedUntilUs, memoryUs } = penalty
  penalty.forgottenAtUs = Math.max(penalty.forgottenAtUs, Math.max(nowUs, blockedUntilUs) + memoryUs)
}

/** A key that something is held against. */
export interface Penalized {
  readonly subject: string
  readonly blockedUntilUs: number
  readonly isByHand: boolean
}

/** The penalties of the keys of a limiter in memory. Most have none, and cost nothing here. */
export class Penalties {
  private readonly bySubject = new Map<string, Penalty>()
  private hand = this.bySubject.entries()

  get size(): number {
    return this.bySubject.size
  }

  /** How long a key is blocked from now on; 0 for not at all. */
  leftUs(subject: string, nowUs: number): number {
    const penalty = this.bySubject.get(subject)
    return penalty === undefined ? 0 : Math.max(penalty.blockedUntilUs - nowUs, 0)
  }

  has(subject: string): boolean {
    return this.bySubject.has(subject)
  }

  /** What is held against a key, to be changed. */
  of(subject: string): Penalty {
    let penalty = this.bySubject.get(subject)
    if (penalty === undefined) {
      penalty = { blockedUntilUs: 0, refusals: 0, blocks: 0, forgottenAtUs: 0, memoryUs: 0, isByHand: false }
      this.bySubject.set(subject, penalty)
    }
    return penalty
  }

  lift(subject: string): void {
    this.bySubject.delete(subject)
  }

  /** Drops those whose time has come, of a few or of all. */
  sweep(nowUs: number, count: number): void {
    for (const [subject, { forgottenAtUs }] of this.next(count))
      if (forgottenAtUs <= nowUs) this.bySubject.delete(subject)
  }

  /**
   * Of the oldest few the one that is over first; those by hand only when there is no other, and behind the others from then
   * on, so that they do not hide them.
   */
  least(count: number): Penalized | undefined {
    let least: Penalized | undefined
    const byHand: Penalized[] = []
    let left = count
    for (const [subject, { blockedUntilUs, isByHand }] of this.bySubject) {
      const candidate = { subject, blockedUntilUs, isByHand }
      if (isByHand) byHand.push(candidate)
      else {
        if (least === undefined || blockedUntilUs < least.blockedUntilUs) least = candidate
        if (--left === 0) break
      }
      if (byHand.length === MOST_BY_HAND) break
    }
    if (least === undefined) return byHand.toSorted((a, b) => a.blockedUntilUs - b.blockedUntilUs)[0]
    for (const { subject } of byHand) {
      const penalty = this.of(subject)
      this.bySubject.delete(subject)
      this.bySubject.set(subject, penalty)
    }
    return least
  }

  /** The next few, round and round. */
  private next(count: number): [string, Penalty][] {
    const some: [string, Penalty][] = []
    const most = Math.min(count, this.size)
    while (some.length < most) {
      const { done, value } = this.hand.next()
      if (done) this.hand = this.bySubject.entries()
      else some.push(value)
    }
    return some
  }
}

/** How many blocks by hand are passed over in one look. */
const MOST_BY_HAND = 64
