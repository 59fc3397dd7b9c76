/**
 * What a contract suite uses to declare tests. It fits node:test, Vitest, Jest and Mocha.
 *
 * @example
 * import assert from 'node:assert/strict'
 * import { test } from 'node:test'
 * const tools: ContractTools = { test, assert }
 */
export interface ContractTools {
  /** Declares a test, such as `test` of node:test or Vitest, or `it` of Mocha. */
  readonly test: (name: string, run: () => void | Promise<void>) => unknown
  /** Assertions, such as `node:assert/strict`. */
  readonly assert: ContractAssert
}

/** The assertions that a contract suite uses. Those of `node:assert` and of Chai fit. Each throws if it does not hold. */
export interface ContractAssert {
  ok(value: unknown, message?: string): void
  strictEqual(actual: unknown, expected: unknown, message?: string): void
  deepStrictEqual(actual: unknown, expected: unknown, message?: string): void
}

/** Random numbers that are the same for the same seed, so that a failure can be repeated. */
export class Random {
  private state: number

  constructor(seed: number) {
    this.state = seed
  }

  /** At least 0 and less than 1 (mulberry32). */
  fraction(): number {
    this.state = (this.state + 0x6d2b79f5) | 0
    let mixed = Math.imul(this.state ^ (this.state >>> 15), 1 | this.state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }

  /** A whole number from `least` to `most`, both included. */
  integer(least: number, most: number): number {
    return least + Math.floor(this.fraction() * (most - least + 1))
  }

  pick<T>(items: readonly T[]): T {
    return items[this.integer(0, items.length - 1)] as T
  }

  /** A list of 0 to `most` items. */
  list<T>(most: number, item: () => T): T[] {
    return Array.from({ length: this.integer(0, most) }, item)
  }
}

/** Calls `act` once for each seed from `seed` on. An error is thrown again with the seed that repeats it in its message. */
export function repeat(runs: number, seed: number, act: (random: Random, run: number) => void): void {
  for (let run = 0; run < runs; run++) {
    try {
      act(new Random(seed + run), run)
    } catch (error) {
      const message = error instanceof Error ? error.message : String(error)
      throw new Error(`seed ${seed + run}: ${message}`, { cause: error })
    }
  }
}
