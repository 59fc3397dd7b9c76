import type { Algorithm } from '../algorithms/algorithm.js'

/*
 * Conversions: a change of options touches no key. Each state carries the number of the version of the options that
 * wrote it. When the state is next read, it is converted through every version since then.
 */

/** What can convert the states that an earlier version of itself wrote. */
export interface Convertible<Version> {
  adopt(state: Float64Array, at: number, nowUs: number, previous: Version): void
}

/** One version of a limiter's options. */
export interface OptionsVersion<A = Algorithm> {
  readonly algorithm: A
  /** When it began. */
  readonly sinceUs: number
  /** The version that followed it. */
  next: OptionsVersion<A> | undefined
}

/** Version numbers are the low bits of a stamp. */
export const VERSION_MASK = 255

/** All versions of a limiter's options that some state may still have been written under. */
export class Conversions<A extends Convertible<A>> {
  /** The number of the current version. */
  number = 0
  #versions: OptionsVersion<A>[]

  constructor(algorithm: A) {
    this.#versions = [{ algorithm, sinceUs: 0, next: undefined }]
  }

  get current(): OptionsVersion<A> {
    return this.#versions[this.number] as OptionsVersion<A>
  }

  /** Whether every version number is taken. */
  get isUsedUp(): boolean {
    return this.number === VERSION_MASK
  }

  /** Makes `algorithm` the current version. */
  add(algorithm: A, sinceUs: number): void {
    const version: OptionsVersion<A> = { algorithm, sinceUs, next: undefined }
    this.current.next = version
    this.number = this.#versions.push(version) - 1
  }

  /** Numbers the current version 0. No state of an earlier version may be left. */
  renumber(): void {
    this.#versions = [this.current]
    this.number = 0
  }

  /** Converts a state of the version with that number to the current version. */
  convert(state: Float64Array, at: number, number: number): void {
    convertSince(this.#versions[number] as OptionsVersion<A>, state, at)
  }
}

/** Converts a state that `version` wrote to the latest version. */
export function convertSince<A extends Convertible<A>>(
  version: OptionsVersion<A>,
  state: Float64Array,
  at: number,
): void {
  for (let from = version; from.next !== undefined; from = from.next)
    from.next.algorithm.adopt(state, at, from.next.sinceUs, from.algorithm)
}
