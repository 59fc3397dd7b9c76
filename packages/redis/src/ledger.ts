import type { Algorithm, Booked, Booking, Clock, Decision, Ledger } from '@sluice/core'
import { convertSince, type Era, type Ladder, sameArgs, systemClock, type Together } from '@sluice/core/store'
import type { Commands } from './clients.js'
import { escaped } from './keys.js'
import { argsIn, bookedIn, decisionIn, numberIn, type RedisBooking } from './replies.js'
import { penaltyScript } from './scripts/penalty.js'
import type { Twin } from './scripts/twin.js'
import { scriptsOf, twinOf } from './twins.js'

/** What the ledgers of one store have in common. */
export interface Shelf {
  readonly commands: Commands
  readonly prefix: string
  readonly together: Together
  /** A text that no other booking of any process has. */
  nextId(): string
  /** Hears that a limiter has other options. */
  changed(name: string, algorithm: Algorithm): void
}

/** The keys of one limiter on a server. Every decision is one call, made by the server's clock. */
export class RedisLedger implements Ledger<true> {
  readonly async = true
  private readonly shelf: Shelf
  private readonly name: string
  private readonly clock: Clock
  /** The first of the latest eras of this process, how many came after it, and the present one. */
  private firstEra: Era
  private erasSince = 0
  era: Era
  terms: Terms
  private stateTail: string
  private readonly penaltyTail: string

  constructor(shelf: Shelf, name: string, algorithm: Algorithm, clock: Clock) {
    this.shelf = shelf
    this.name = name
    this.clock = clock
    this.firstEra = this.era = { algorithm, sinceUs: 0, next: undefined }
    this.terms = new Terms(algorithm)
    this.stateTail = `}:${name}:${algorithm.name}`
    this.penaltyTail = `}:${name}:penalty`
  }

  get together(): Together {
    return this.shelf.together
  }

  get algorithm(): Algorithm {
    return this.era.algorithm
  }

  decide(key: string, cost: number, maxWaitUs: number, commit: boolean): Promise<Decision> {
    const { algorithm } = this.terms
    return this.ask(key, cost, maxWaitUs, commit ? 1 : 0, reply => decisionIn(reply, algorithm))
  }

  book(key: string, cost: number, maxWaitUs: number): Promise<Booked> {
    const { era } = this
    return this.ask(key, cost, maxWaitUs, 2, reply => bookedIn(reply, cost, era, this.shelf.nextId))
  }

  cancel(key: string, booking: Booking): Promise<number> {
    return this.giveBack('cancel', key, booking as RedisBooking)
  }

  refund(key: string, booking: Booking): Promise<number> {
    return this.giveBack('refund', key, booking as RedisBooking)
  }

  async release(key: string, permits: number): Promise<number> {
    const { twin } = this.terms
    if (permits === 0) return 0
    return numberIn(await this.whole(twin, key, 'release', [permits]))
  }

  /** What is there may be taken by somebody else before it is drained; then there is less. */
  async drain(key: string): Promise<number> {
    for (let attempt = 0; attempt < DRAIN_ATTEMPTS; attempt++) {
      const { remaining } = await this.decide(key, 0, 0, false)
      if (remaining === 0 || remaining === Number.POSITIVE_INFINITY) return 0
      const { allowed } = await this.decide(key, remaining, 0, true)
      if (allowed) return remaining
    }
    return 0
  }

  async block(key: string, forUs: number): Promise<void> {
    await this.penalize(key, ['block', this.nowUs(), forUs])
  }

  async unblock(key: string): Promise<void> {
    await this.shelf.commands.unlink([this.penaltyKey(key)])
  }

  async strike(key: string, { after, stepsUs }: Ladder): Promise<number> {
    return numberIn(await this.penalize(key, ['strike', this.nowUs(), after, stepsUs]))
  }

  async reset(key: string): Promise<void> {
    await this.shelf.commands.unlink([this.stateKey(key), this.penaltyKey(key)])
  }

  /**
   * Changes the options at once, whether the server answers or not. It is asked for the time from which they hold; until it
   * has said so they hold from when a key is next seen.
   */
  async update(algorithm: Algorithm): Promise<void> {
    const { twin } = this.terms
    const terms = new Terms(algorithm)
    if (terms.twin === twin && sameArgs(algorithm, this.algorithm)) return
    const nowUs = this.nowUs()
    const era: Era = {
      algorithm,
      sinceUs: nowUs === false ? Number.POSITIVE_INFINITY : nowUs,
      next: undefined,
    }
    // Other algorithms, and states of another length, are not converted to.
    if (terms.twin === twin && algorithm.lanes === this.algorithm.lanes) {
      this.era.next = era
      if (nowUs === false) this.tellSince(era)
      // States older than that are converted as of now.
      if (++this.erasSince > MOST_ERAS) this.firstEra = this.firstEra.next as Era
    } else {
      this.firstEra = era
      this.erasSince = 0
    }
    this.era = era
    this.terms = terms
    this.stateTail = `}:${this.name}:${algorithm.name}`
    this.shelf.changed(this.name, algorithm)
  }

  /** The key of a subject's state, and of what is held against it. */
  keysOf(key: string): [state: string, penalty: string] {
    const head = `${this.shelf.prefix}{${escaped(key)}`
    return [head + this.stateTail, head + this.penaltyTail]
  }

  /** How a state that was written under other args is to be converted: by the changes that this process knows of, or now. */
  conversionsFrom(twin: Twin, args: readonly number[]): readonly unknown[] {
    const known = this.erasFrom(args)
    if (known === undefined) return [[[...args, ...twin.constants(args)], this.terms.numbers, false]]
    const conversions: unknown[] = []
    for (let era = known; era.next !== undefined; era = era.next)
      conversions.push([
        numbersOf(twin, era.algorithm),
        numbersOf(twin, era.next.algorithm),
        Number.isFinite(era.next.sinceUs) && era.next.sinceUs,
      ])
    return conversions
  }

  /** Whose args they are, if this process has changed from them. */
  private erasFrom(args: readonly number[]): Era | undefined {
    let latest: Era | undefined
    for (let era: Era | undefined = this.firstEra; era !== undefined && era !== this.era; era = era.next)
      if (sameArgs(era.algorithm, { args })) latest = era
    return latest
  }

  /** One call for an answer, and another one only when the options have changed since the state was written. */
  private ask<T>(
    key: string,
    cost: number,
    maxWaitUs: number,
    mode: 0 | 1 | 2,
    read: (reply: unknown) => T,
  ): Promise<T> {
    const { terms } = this
    const { twin, scripts } = terms
    const wait = Math.min(maxWaitUs, LONGEST)
    const rest = [cost, wait, mode] as const
    const readWhole = (args?: readonly number[]) => this.whole(twin, key, 'decide', rest, args).then(read)
    // At a limit of 0 there is nothing to be quick about.
    if (terms.isClosed) return readWhole()
    const argument = terms.argument(cost, wait, mode, this.nowUs())
    return this.shelf.commands.run(scripts.decide, this.keysOf(key), argument, (reply): T | Promise<T> => {
      const args = argsIn(reply)
      return args === undefined ? read(reply) : readWhole(args)
    }) as Promise<T>
  }

  private async giveBack(verb: 'cancel' | 'refund', key: string, booking: RedisBooking): Promise<number> {
    const { twin } = this.terms
    if (twin.name !== booking.era.algorithm.name) return 0
    convertSince(booking.era, booking.mark, 0)
    booking.era = this.era
    const { actUs, cost, birth, mark, id } = booking
    const rest = [actUs, cost, birth, [...mark]]
    return numberIn(await this.whole(twin, key, verb, rest, undefined, this.givenKey(key, id)))
  }

  /** Runs the script of every verb, again when a state turns out to be written under other args. */
  private async whole(
    twin: Twin,
    key: string,
    verb: string,
    rest: readonly unknown[],
    stale?: readonly number[],
    givenKey?: string,
  ): Promise<unknown> {
    const { numbers } = this.terms
    const keys = givenKey === undefined ? this.keysOf(key) : [...this.keysOf(key), givenKey]
    let args = stale
    for (let attempt = 0; attempt < CONVERT_ATTEMPTS; attempt++) {
      const conversions = args === undefined ? [] : this.conversionsFrom(twin, args)
      const argument = JSON.stringify([verb, numbers, this.nowUs(), conversions, ...rest])
      const reply = await this.shelf.commands.run(scriptsOf(twin).whole, keys, argument, asItIs)
      args = argsIn(reply)
      if (args === undefined) return reply
    }
    throw new Error('the options of this key are changed by others, faster than it can be read')
  }

  private penalize(key: string, argument: readonly unknown[]): Promise<unknown> {
    return this.shelf.commands.run(penaltyScript, [this.penaltyKey(key)], JSON.stringify(argument), asItIs)
  }

  /** The time by a clock that takes the place of the server's; false for the server's. */
  nowUs(): number | false {
    return this.clock === systemClock ? false : this.clock.nowUs()
  }

  private tellSince(era: Mutable<Era>): void {
    const tell = (us: number) => {
      era.sinceUs = us
    }
    const asked = this.shelf.commands.run(penaltyScript, [this.penaltyKey('')], '["time",false]', numberIn)
    // A store that fails says so when it is asked for a decision.
    asked.then(tell, () => {})
  }

  private stateKey(key: string): string {
    return `${this.shelf.prefix}{${escaped(key)}${this.stateTail}`
  }

  private penaltyKey(key: string): string {
    return `${this.shelf.prefix}{${escaped(key)}${this.penaltyTail}`
  }

  private givenKey(key: string, id: string): string {
    return `${this.shelf.prefix}{${escaped(key)}}:${this.name}:given:${id}`
  }
}

/** An algorithm as its twin is told of it. */
export class Terms {
  readonly algorithm: Algorithm
  readonly twin: Twin
  readonly scripts: ReturnType<typeof scriptsOf>
  /** Whether the limit is 0. */
  readonly isClosed: boolean
  readonly numbers: readonly number[]
  /** The numbers as scripts are told them. */
  readonly text: string
  private readonly usual: string

  constructor(algorithm: Algorithm) {
    this.algorithm = algorithm
    this.twin = twinOf(algorithm)
    this.scripts = scriptsOf(this.twin)
    this.isClosed = algorithm.policy.limit === 0
    this.numbers = numbersOf(this.twin, algorithm)
    this.text = JSON.stringify(this.numbers)
    this.usual = this.argumentOf(1, 0, 1, false)
  }

  /** What the script of a decision is told, made once for what nearly all ask. */
  argument(cost: number, maxWaitUs: number, mode: 0 | 1 | 2, nowUs: number | false): string {
    return cost === 1 && maxWaitUs === 0 && mode === 1 && nowUs === false
      ? this.usual
      : this.argumentOf(cost, maxWaitUs, mode, nowUs)
  }

  private argumentOf(cost: number, maxWaitUs: number, mode: 0 | 1 | 2, nowUs: number | false): string {
    return `[${this.text},${cost},${maxWaitUs},${mode},${nowUs}]`
  }
}

function numbersOf(twin: Twin, { args }: Algorithm): readonly number[] {
  return [...args, ...twin.constants(args)]
}

function asItIs(reply: unknown): unknown {
  return reply
}

type Mutable<T> = { -readonly [Key in keyof T]: T[Key] }

/** Stands for Infinity, which JSON has no word for. */
const LONGEST = 1e300
const DRAIN_ATTEMPTS = 10
const CONVERT_ATTEMPTS = 10
const MOST_ERAS = 255
