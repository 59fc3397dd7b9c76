/** What a contract suite needs of a test framework: node:test, Vitest, Jest and Mocha all have it. */
export interface ContractTools {
  /** Declares a test, such as `test` of node:test or Vitest. */
  readonly test: (name: string, run: () => void | Promise<void>) => unknown
  /** Such as `node:assert/strict`. */
  readonly assert: ContractAssert
}

/** The assertions that a contract suite uses; those of `node:assert` and of Chai fit. */
export interface ContractAssert {
  ok(value: unknown, message?: string): void
  strictEqual(actual: unknown, expected: unknown, message?: string): void
  deepStrictEqual(actual: unknown, expected: unknown, message?: string): void
}

/** Numbers that look random and are the same in every run, so that a failure can be repeated. */
export class Random {
  private state: number

  constructor(seed: number) {
    this.state = seed
  }

  /** A number from 0 to 1, without 1 (mulberry32). */
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

  /** A list of up to `most` items. */
  list<T>(most: number, item: () => T): T[] {
    return Array.from({ length: this.integer(0, most) }, item)
  }
}

/** Runs `act` with random numbers of its own each time; a failure names the seed that repeats it. */
export function repeat(runs: number, seed: number, act: (random: Random, run: number) => void): void {
  for (let run = 0; run < runs; run++) {
    try {
      act(new Random(seed + run), run)
    } catch (error) {
      throw new Error(
        `run ${run} of seed ${seed}: ${error instanceof Error ? error.message : String(error)}`,
        {
          cause: error,
        },
      )
    }
  }
}
