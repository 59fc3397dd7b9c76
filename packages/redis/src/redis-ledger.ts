import type { Algorithm, Booked, Booking, Clock, Decision, Ledger } from '@sluice/core'
import { type Ladder, sameArgs, systemClock, type Together } from '@sluice/core/store'
import type { Commands } from './clients.js'
import { CONVERT_ATTEMPTS, changedTooFast, conversionsBetween, OptionsHistory } from './conversions.js'
import type { JointLedger } from './decide-all.js'
import { escaped } from './key-names.js'
import { type Mode, OptionsVersion } from './options-version.js'
import { bookedIn, decisionIn, numberIn, type RedisBooking, staleArgsIn } from './replies.js'
import { penaltyScript } from './scripts/penalty.lua.js'

/** What the ledgers of one store share. */
export interface StoreContext {
  readonly commands: Commands
  readonly prefix: string
  readonly together: Together
  /** Returns a string that no other booking of any process has. */
  nextId(): string
  /** Called when the options of a limiter change. */
  onUpdate(name: string, algorithm: Algorithm): void
}

/** The keys of one limiter on a server. Each decision is one call, by the server's clock. */
export class RedisLedger implements Ledger<true>, JointLedger {
  readonly async = true
  readonly options: OptionsHistory
  private readonly context: StoreContext
  private readonly name: string
  private readonly clock: Clock
  private readonly penaltyEnd: string
  private stateEnd: string

  constructor(context: StoreContext, name: string, algorithm: Algorithm, clock: Clock) {
    this.context = context
    this.name = name
    this.clock = clock
    this.options = new OptionsHistory(algorithm)
    this.penaltyEnd = `}:${name}:penalty`
    this.stateEnd = stateEndOf(name, this.options.current)
  }

  get together(): Together {
    return this.context.together
  }

  decide(key: string, cost: number, maxWaitUs: number, commit: boolean): Promise<Decision> {
    const { algorithm } = this.options.current
    return this.runDecide(key, cost, maxWaitUs, commit ? 1 : 0, reply => decisionIn(reply, algorithm))
  }

  book(key: string, cost: number, maxWaitUs: number): Promise<Booked> {
    const { current } = this.options
    return this.runDecide(key, cost, maxWaitUs, 2, reply =>
      bookedIn(reply, cost, current, this.context.nextId),
    )
  }

  cancel(key: string, booking: Booking): Promise<number> {
    return this.giveBack('cancel', key, booking as RedisBooking)
  }

  refund(key: string, booking: Booking): Promise<number> {
    return this.giveBack('refund', key, booking as RedisBooking)
  }

  async release(key: string, permits: number): Promise<number> {
    if (permits === 0) return 0
    const keys = [...this.keysOf(key), this.noteKey(key, this.context.nextId())]
    return numberIn(await this.runAnyVerb(this.options.current, keys, 'release', [permits]))
  }

  /** Takes what a look has found, or less if others take permits in between. */
  async drain(key: string): Promise<number> {
    const { remaining } = await this.decide(key, 0, 0, false)
    if (remaining === 0 || remaining === Number.POSITIVE_INFINITY) return 0
    return numberIn(await this.runAnyVerb(this.options.current, this.keysOf(key), 'drain', [remaining]))
  }

  async block(key: string, forUs: number): Promise<void> {
    await this.penalize(key, ['block', this.nowUs(), forUs])
  }

  async unblock(key: string): Promise<void> {
    await this.context.commands.unlink([this.penaltyKey(key)])
  }

  async strike(key: string, { after, stepsUs }: Ladder): Promise<number> {
    return numberIn(await this.penalize(key, ['strike', this.nowUs(), after, stepsUs]))
  }

  async reset(key: string): Promise<void> {
    await this.context.commands.unlink(this.keysOf(key))
  }

  /** Changes the options at once, even while the server does not answer. */
  update(algorithm: Algorithm): Promise<void> {
    const { current } = this.options
    const nowUs = this.nowUs()
    const next = new OptionsVersion(algorithm, nowUs === false ? Number.POSITIVE_INFINITY : nowUs)
    if (next.twin === current.twin && sameArgs(algorithm, current.algorithm)) return Promise.resolve()
    this.options.add(next)
    this.stateEnd = stateEndOf(this.name, next)
    this.context.onUpdate(this.name, algorithm)
    if (nowUs === false && next.converts(current)) this.fetchSince(next)
    return Promise.resolve()
  }

  keysOf(key: string): [state: string, penalty: string] {
    const head = `${this.context.prefix}{${escaped(key)}`
    return [head + this.stateEnd, head + this.penaltyEnd]
  }

  nowUs(): number | false {
    return this.clock === systemClock ? false : this.clock.nowUs()
  }

  /** Makes one call for a decision, and a second one only if the state must be converted first. */
  private runDecide<T>(
    key: string,
    cost: number,
    maxWaitUs: number,
    mode: Mode,
    read: (reply: unknown) => T,
  ): Promise<T> {
    const { current } = this.options
    const keys = this.keysOf(key)
    const wait = Math.min(maxWaitUs, LONGEST_WAIT)
    const convert = (args?: readonly number[]) =>
      this.runAnyVerb(current, keys, 'decide', [cost, wait, mode], args).then(read)
    // The script of a decision has no code for limits of 0.
    if (current.isZeroLimit) return convert()
    const argument = current.decideArgument(cost, wait, mode, this.nowUs())
    return this.context.commands.run(current.scripts.decide, keys, argument, (reply): T | Promise<T> => {
      const args = staleArgsIn(reply)
      return args === undefined ? read(reply) : convert(args)
    }) as Promise<T>
  }

  private async giveBack(verb: 'cancel' | 'refund', key: string, booking: RedisBooking): Promise<number> {
    const { current } = this.options
    const { atUs, actUs, cost, createdUs, mark, id, options } = booking
    // The mark of a log is the time of its run, which no conversion changes.
    const isLog = current.twin.storage !== undefined
    const conversions = isLog ? [] : conversionsBetween(options, current)
    if (conversions === undefined || current.twin !== options.twin) return 0
    const keys = [...this.keysOf(key), this.noteKey(key, id)]
    const rest = [actUs, cost, createdUs, [...mark], atUs, conversions]
    return numberIn(await this.runAnyVerb(current, keys, verb, rest))
  }

  /** Runs the script of any verb, and runs it again with conversions while the state has other args. */
  private async runAnyVerb(
    options: OptionsVersion,
    keys: readonly string[],
    verb: string,
    rest: readonly unknown[],
    staleArgs?: readonly number[],
  ): Promise<unknown> {
    const { parameters, scripts } = options
    let args = staleArgs
    for (let attempt = 0; attempt < CONVERT_ATTEMPTS; attempt++) {
      const conversions = args === undefined ? [] : this.options.conversionsFrom(args, options)
      const argument = JSON.stringify([verb, parameters, this.nowUs(), conversions, ...rest])
      const reply = await this.context.commands.run(scripts.anyVerb, keys, argument, asIs)
      args = staleArgsIn(reply)
      if (args === undefined) return reply
    }
    throw changedTooFast()
  }

  private penalize(key: string, argument: readonly unknown[]): Promise<unknown> {
    return this.context.commands.run(penaltyScript, [this.penaltyKey(key)], JSON.stringify(argument), asIs)
  }

  /** Asks the server since when a version holds. Until it answers, states are converted as of the time they are next read. */
  private fetchSince(version: OptionsVersion): void {
    const keys = [this.penaltyKey('')]
    this.context.commands.run(penaltyScript, keys, '["time",false]', numberIn).then(
      us => {
        version.sinceUs = us
      },
      // If the server fails, the next decision reports it.
      () => {},
    )
  }

  private penaltyKey(key: string): string {
    return `${this.context.prefix}{${escaped(key)}${this.penaltyEnd}`
  }

  private noteKey(key: string, id: string): string {
    return `${this.context.prefix}{${escaped(key)}}:${this.name}:given:${id}`
  }
}

/** The end of the keys of states, after the subject. States of different lengths have different keys. */
function stateEndOf(name: string, { twin, algorithm }: OptionsVersion): string {
  return `}:${name}:${twin.name}${twin.variant?.(algorithm.args) ?? ''}`
}

function asIs(reply: unknown): unknown {
  return reply
}

/** Stands for Infinity, which JSON cannot express. */
const LONGEST_WAIT = 1e300
