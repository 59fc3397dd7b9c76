import type { Algorithm } from '../algorithms/algorithm.js'

/*
 * Eras: the algorithms a limiter has had, each since an instant. A change of options starts an era and touches no key;
 * a state says by a number which era wrote it, and is converted through all eras since then when it is next seen.
 */

export interface Era {
  readonly algorithm: Algorithm
  readonly sinceUs: number
  next: Era | undefined
}

/** An era number is the low bits of a stamp. */
export const ERA_MASK = 255

export class Eras {
  /** The number of the present era. */
  number = 0
  private numbered: Era[]

  constructor(algorithm: Algorithm) {
    this.numbered = [{ algorithm, sinceUs: 0, next: undefined }]
  }

  get current(): Era {
    return this.numbered[this.number] as Era
  }

  /** Whether there is no number left for another era. */
  get usedUp(): boolean {
    return this.number === ERA_MASK
  }

  start(algorithm: Algorithm, sinceUs: number): void {
    const era: Era = { algorithm, sinceUs, next: undefined }
    this.current.next = era
    this.number = this.numbered.push(era) - 1
  }

  /** Numbers the present era 0, once no state of an older one is left. */
  renumber(): void {
    this.numbered = [this.current]
    this.number = 0
  }

  /** Converts what the era of that number has written. */
  convert(state: Float64Array, at: number, number: number): void {
    convertSince(this.numbered[number] as Era, state, at)
  }
}

/** Converts what `era` has written to what the latest era would have. */
export function convertSince(era: Era, state: Float64Array, at: number): void {
  for (let from = era; from.next !== undefined; from = from.next)
    from.next.algorithm.adopt(state, at, from.next.sinceUs, from.algorithm)
}
