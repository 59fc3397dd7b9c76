import type { Algorithm, Booked, Booking, Clock, Decision, Ledger } from '@sluice/core'
import { type Era, type Ladder, sameArgs, systemClock, type Together } from '@sluice/core/store'
import type { Commands } from './clients.js'
import { escaped } from './key-names.js'
import { argsIn, bookedIn, decisionIn, numberIn, type RedisBooking } from './replies.js'
import { penaltyScript } from './scripts/penalty-script.js'
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
  /** The first of the latest eras of this process, how many came after it, and what holds now. */
  private firstEra: Era
  private erasSince = 0
  present: Present
  private readonly penaltyTail: string

  constructor(shelf: Shelf, name: string, algorithm: Algorithm, clock: Clock) {
    this.shelf = shelf
    this.name = name
    this.clock = clock
    const terms = new Terms(algorithm)
    this.firstEra = { algorithm, sinceUs: 0, next: undefined }
    this.present = { era: this.firstEra, terms, stateTail: tailOf(name, terms) }
    this.penaltyTail = `}:${name}:penalty`
  }

  get together(): Together {
    return this.shelf.together
  }

  decide(key: string, cost: number, maxWaitUs: number, commit: boolean): Promise<Decision> {
    const { algorithm } = this.present.terms
    return this.ask(key, cost, maxWaitUs, commit ? 1 : 0, reply => decisionIn(reply, algorithm))
  }

  book(key: string, cost: number, maxWaitUs: number): Promise<Booked> {
    const { era } = this.present
    return this.ask(key, cost, maxWaitUs, 2, reply => bookedIn(reply, cost, era, this.shelf.nextId))
  }

  cancel(key: string, booking: Booking): Promise<number> {
    return this.giveBack('cancel', key, booking as RedisBooking)
  }

  refund(key: string, booking: Booking): Promise<number> {
    return this.giveBack('refund', key, booking as RedisBooking)
  }

  async release(key: string, permits: number): Promise<number> {
    if (permits === 0) return 0
    const givenKey = this.givenKey(key, this.shelf.nextId())
    return numberIn(
      await this.whole(this.present, this.keysOf(key), 'release', [permits], undefined, givenKey),
    )
  }

  /** What is there, or less if somebody else was faster. */
  async drain(key: string): Promise<number> {
    const { remaining } = await this.decide(key, 0, 0, false)
    if (remaining === 0 || remaining === Number.POSITIVE_INFINITY) return 0
    return numberIn(await this.whole(this.present, this.keysOf(key), 'drain', [remaining]))
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
    await this.shelf.commands.unlink(this.keysOf(key))
  }

  /**
   * Changes the options at once, whether the server answers or not. It is asked for the time from which they hold; until it
   * has said so they hold from when a key is next seen.
   */
  update(algorithm: Algorithm): Promise<void> {
    const { terms, era: before } = this.present
    const next = new Terms(algorithm)
    if (next.twin === terms.twin && sameArgs(algorithm, terms.algorithm)) return Promise.resolve()
    const nowUs = this.nowUs()
    const sinceUs = nowUs === false ? Number.POSITIVE_INFINITY : nowUs
    const era = { algorithm, sinceUs, next: undefined }
    // Other algorithms, and states of another length, are not converted to.
    if (next.twin === terms.twin && algorithm.lanes === terms.algorithm.lanes) {
      before.next = era
      if (nowUs === false) this.tellSince(era)
      // States older than that are converted as of now.
      if (++this.erasSince > MOST_ERAS) this.firstEra = this.firstEra.next as Era
    } else {
      this.firstEra = era
      this.erasSince = 0
    }
    this.present = { era, terms: next, stateTail: tailOf(this.name, next) }
    this.shelf.changed(this.name, algorithm)
    return Promise.resolve()
  }

  /** The key of a subject's state, and of what is held against it. */
  keysOf(key: string): [state: string, penalty: string] {
    const head = `${this.shelf.prefix}{${escaped(key)}`
    return [head + this.present.stateTail, head + this.penaltyTail]
  }

  /** How a state that was written under other args is to be converted: by the changes that this process knows of, or now. */
  conversionsFrom(args: readonly number[], { era, terms }: Present): readonly unknown[] {
    const known = this.eraOf(args, era)
    return known === undefined
      ? [[[...args, ...terms.twin.constants(args)], terms.numbers, false]]
      : (changes(known, era, terms.twin) as unknown[])
  }

  /** The latest era before another one whose args they are, if this process has had one. */
  private eraOf(args: readonly number[], until: Era): Era | undefined {
    let latest: Era | undefined
    for (let era: Era | undefined = this.firstEra; era !== undefined && era !== until; era = era.next)
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
    const { present } = this
    const { terms } = present
    const keys = this.keysOf(key)
    const wait = Math.min(maxWaitUs, LONGEST)
    const readWhole = (args?: readonly number[]) =>
      this.whole(present, keys, 'decide', [cost, wait, mode], args).then(read)
    // At a limit of 0 there is nothing to be quick about.
    if (terms.isClosed) return readWhole()
    const argument = terms.argument(cost, wait, mode, this.nowUs())
    return this.shelf.commands.run(terms.scripts.decide, keys, argument, (reply): T | Promise<T> => {
      const args = argsIn(reply)
      return args === undefined ? read(reply) : readWhole(args)
    }) as Promise<T>
  }

  private async giveBack(verb: 'cancel' | 'refund', key: string, booking: RedisBooking): Promise<number> {
    const { present } = this
    const { twin } = present.terms
    const { atUs, actUs, cost, birth, mark, id, era } = booking
    // What a run of a log is known by stays what it is.
    const since = twin.access === undefined ? changes(era, present.era, twin) : []
    if (since === undefined || twin.name !== era.algorithm.name) return 0
    const rest = [actUs, cost, birth, [...mark], atUs, since]
    return numberIn(
      await this.whole(present, this.keysOf(key), verb, rest, undefined, this.givenKey(key, id)),
    )
  }

  /** Runs the script of every verb, again when a state turns out to be written under other args. */
  private async whole(
    present: Present,
    keys: readonly string[],
    verb: string,
    rest: readonly unknown[],
    stale?: readonly number[],
    givenKey?: string,
  ): Promise<unknown> {
    const { numbers, scripts } = present.terms
    const allKeys = givenKey === undefined ? keys : [...keys, givenKey]
    let args = stale
    for (let attempt = 0; attempt < CONVERT_ATTEMPTS; attempt++) {
      const conversions = args === undefined ? [] : this.conversionsFrom(args, present)
      const argument = JSON.stringify([verb, numbers, this.nowUs(), conversions, ...rest])
      const reply = await this.shelf.commands.run(scripts.whole, allKeys, argument, asItIs)
      args = argsIn(reply)
      if (args === undefined) return reply
    }
    throw changedTooFast()
  }

  private penalize(key: string, argument: readonly unknown[]): Promise<unknown> {
    return this.shelf.commands.run(penaltyScript, [this.penaltyKey(key)], JSON.stringify(argument), asItIs)
  }

  /** The time by a clock that takes the place of the server's; false for the server's. */
  nowUs(): number | false {
    return this.clock === systemClock ? false : this.clock.nowUs()
  }

  private tellSince(era: { sinceUs: number }): void {
    const tell = (us: number) => {
      era.sinceUs = us
    }
    const asked = this.shelf.commands.run(penaltyScript, [this.penaltyKey('')], '["time",false]', numberIn)
    // A store that fails says so when it is asked for a decision.
    asked.then(tell, () => {})
  }

  private penaltyKey(key: string): string {
    return `${this.shelf.prefix}{${escaped(key)}${this.penaltyTail}`
  }

  private givenKey(key: string, id: string): string {
    return `${this.shelf.prefix}{${escaped(key)}}:${this.name}:given:${id}`
  }
}

/** What holds now: captured by each ask, because it may change while the server thinks. */
export interface Present {
  readonly era: Era
  readonly terms: Terms
  /** What the keys of states end with. */
  readonly stateTail: string
}

/** How often an ask is made again because others have changed the options meanwhile. */
export const CONVERT_ATTEMPTS = 10

export function changedTooFast(): Error {
  return new Error('the options of a key are changed by others, faster than it can be read')
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

/** The changes from one era to a later one as scripts are told them; undefined where it is none. */
function changes(from: Era, to: Era, twin: Twin): readonly unknown[] | undefined {
  const made: unknown[] = []
  let era = from
  for (; era !== to && era.next !== undefined; era = era.next) {
    const { algorithm, sinceUs } = era.next
    made.push([
      numbersOf(twin, era.algorithm),
      numbersOf(twin, algorithm),
      Number.isFinite(sinceUs) && sinceUs,
    ])
  }
  return era === to ? made : undefined
}

/** States of different lengths lie apart. */
function tailOf(name: string, { twin, algorithm }: Terms): string {
  return `}:${name}:${twin.name}${twin.variant?.(algorithm.args) ?? ''}`
}

function numbersOf(twin: Twin, { args }: Algorithm): readonly number[] {
  return [...args, ...twin.constants(args)]
}

function asItIs(reply: unknown): unknown {
  return reply
}

/** Stands for Infinity, which JSON has no word for. */
const LONGEST = 1e300
const MOST_ERAS = 255
