import type { Algorithm, Booking } from '../algorithms/algorithm.js'
import type { Decision } from '../algorithms/decision.js'
import type { Clock } from '../shared/clock.js'
import { type Duration, spanToUs } from '../shared/duration.js'
import { coded, invalid } from '../shared/errors.js'
import { callable, checkOptions } from '../shared/validate.js'
import { guarded } from './async-guard.js'
import { MemoryLedger } from './memory/memory-ledger.js'
import { storedKeyOf } from './memory/stored-key.js'
import type { AsyncStore, Booked, Ladder, Ledger, LedgerSpec, OnStoreError } from './store.js'
import { checkOnStoreError, noAnswer, storeError } from './store-error.js'

/** What a counter knows of one key. */
export interface CounterState {
  /** Permits used in the present window: a whole number. */
  readonly used: number
  /** Milliseconds until the present window ends. If it is missing, no permits are given back. */
  readonly resetAfterMs?: number | undefined
}

/** Options of `counterStore`: what to call to count, and what happens when a call fails. */
export interface CounterStoreOptions {
  /**
   * Adds `cost` permits to the count of a key, and returns the count with them. Opens a window of `windowMs` (whole
   * milliseconds) if the key has none. Calls made at once must each see the ones before: an INCRBY, not a GET and a SET.
   */
  readonly hit: (key: string, cost: number, windowMs: number) => Promise<CounterState>
  /** Returns the count of a key without changing it; undefined if the key has no window. `peek` and several limits need it. */
  readonly read?: ((key: string) => Promise<CounterState | undefined>) | undefined
  /** Takes `cost` permits off the count of a key. Refunds need it. */
  readonly undo?: ((key: string, cost: number) => Promise<unknown>) | undefined
  /** Forgets the count of a key. `reset` needs it. */
  readonly forget?: ((key: string) => Promise<unknown>) | undefined
  /** How long a call may take before it counts as failed; default `'100ms'`. */
  readonly deadline?: Duration | undefined
  /** What limiters do while calls fail, unless they set their own `onStoreError`; default `'throw'`. */
  readonly onStoreError?: OnStoreError | undefined
}

/**
 * Makes a store of anything that counts hits by key: a database, or a store written for express-rate-limit.
 *
 * It runs `fixedWindow` only, and the counter decides when windows start. It grants at most `limit` permits in each window
 * of the counter, however many calls are made at once. A refused call takes its hit back with `undo`. Until then, a refused
 * call with a cost above 1 can cause smaller calls to be refused too, but never more to be granted.
 *
 * - Every limiter needs a `name`. Limiters of one name share their counts. Callbacks get keys that begin with the name.
 * - `undo` is called only while the window is known to last for more than another `deadline`, because a late one would take
 *   permits off the next window. Otherwise, and without `undo`, `refund` and `cancel` give back 0, and refused calls stay in
 *   the count. A reset by another process is not noticed.
 * - `peek`, several limits at once, counting after the response and waiting behind others need `read`, and `reset` needs
 *   `forget`. Otherwise they throw an error of code SLUICE_INVALID_OPTION. So does `release`, always.
 * - Without `read`, calls that do not count (cost 0, or a cost above the limit) report that nothing remains.
 * - Blocks and ladders are kept in the memory of this process: other processes do not know of them.
 * - A call fails if a callback throws, rejects, or returns a count that is no whole number or less than the hit.
 *
 * Throws a TypeError or RangeError (with `code` and `option`) for bad options, and `createLimiter` throws one for any other
 * algorithm.
 *
 * @example
 * const store = counterStore({
 *   hit: (key, cost, windowMs) => database.addHits(key, cost, windowMs), // { used: 3, resetAfterMs: 41_000 }
 *   read: key => database.readHits(key),
 *   undo: (key, cost) => database.removeHits(key, cost),
 *   forget: key => database.deleteHits(key),
 * })
 * const limiter = createLimiter(fixedWindow({ limit: 100, window: '1m' }), { name: 'per-user', store })
 */
export function counterStore(options: CounterStoreOptions): AsyncStore {
  checkOptions('counterStore', options, OPTIONS)
  const { deadline, onStoreError } = options
  callable('hit', options.hit)
  for (const name of OPTIONAL_CALLBACKS) if (options[name] !== undefined) callable(name, options[name])
  if (deadline !== undefined) spanToUs('deadline', deadline)
  if (onStoreError !== undefined) checkOnStoreError(onStoreError)
  return {
    async: true,
    deadline,
    onStoreError,
    open(spec) {
      if (spec.isNamed === false)
        throw invalid(TypeError, 'name', 'a name for a limiter on a store that is shared', undefined)
      return guarded(new CounterLedger(options, spec), spec)
    },
  }
}

const OPTIONAL_CALLBACKS = ['read', 'undo', 'forget'] as const
const OPTIONS = ['hit', ...OPTIONAL_CALLBACKS, 'deadline', 'onStoreError']

type FixedWindow = Algorithm & Required<Pick<Algorithm, 'read'>>

interface CounterBooking extends Booking {
  /** Until when the permits can be given back. */
  readonly untilUs: number
  readonly resets: number
  isGivenBack: boolean
}

class CounterLedger implements Ledger<true> {
  readonly async = true
  private readonly counter: CounterStoreOptions
  private readonly prefix: string
  private readonly clock: Clock
  private readonly deadlineUs: number
  private readonly onFailure: LedgerSpec['onFailure']
  /** Holds the penalties, and no permits. */
  private readonly penalties: MemoryLedger
  /** How often keys were reset, by the hash of the key. A booking made before a reset gives nothing back. */
  private readonly resets = new Uint32Array(RESET_SLOTS)
  private algorithm: FixedWindow

  constructor(counter: CounterStoreOptions, spec: LedgerSpec) {
    this.counter = counter
    this.algorithm = fixedWindowOf(spec.algorithm)
    // No colon of a name is mistaken for the one that ends it.
    this.prefix = encodeURIComponent(spec.name)
    this.clock = spec.clock
    this.deadlineUs = (spec.deadlineMs ?? 100) * 1000
    this.onFailure = spec.onFailure
    this.penalties = new MemoryLedger(spec, MOST_PENALTIES, true)
  }

  decide(key: string, cost: number, _maxWaitUs: number, commit: boolean): Promise<Decision> {
    // Not in a promise: a missing callback is no failure of the store.
    if (!commit && cost > 0) this.need('read')
    return commit ? this.book(key, cost).then(({ decision }) => decision) : this.look(key, cost)
  }

  async book(key: string, cost: number): Promise<Booked> {
    const { algorithm, clock } = this
    const { limit } = algorithm.policy
    if (cost === 0 || cost > limit || this.isBlocked(key)) return { decision: await this.look(key, cost) }
    const atUs = clock.nowUs()
    const resets = this.resets[slotOf(key)] as number
    const state = await this.hit(key, cost)
    const untilUs = this.undoableUntilUs(atUs, state)
    if (state.used > limit) {
      await this.undoExcess(key, cost, untilUs)
      return { decision: decisionOf(algorithm, { ...state, used: state.used - cost }, cost) }
    }
    const booking: CounterBooking = {
      atUs,
      actUs: atUs,
      cost,
      mark: NO_LANES,
      untilUs,
      resets,
      isGivenBack: false,
    }
    return { decision: decisionOf(algorithm, state, 0), booking }
  }

  cancel(key: string, booking: Booking): Promise<number> {
    return this.refund(key, booking)
  }

  async refund(key: string, booking: Booking): Promise<number> {
    const taken = booking as CounterBooking
    const isOver = taken.isGivenBack || this.resets[slotOf(key)] !== taken.resets
    if (isOver || this.counter.undo === undefined || this.clock.nowUs() >= taken.untilUs) return 0
    taken.isGivenBack = true
    await this.counter.undo(this.nameOf(key), taken.cost)
    return taken.cost
  }

  release(): Promise<number> {
    throw coded(
      new TypeError('release: counterStore gives back what was reserved only; use reserve and refund'),
      'SLUICE_INVALID_OPTION',
      'release',
    )
  }

  async drain(key: string): Promise<number> {
    const { limit } = this.algorithm.policy
    if (this.isBlocked(key)) return 0
    const wanted = limit - ((await this.read(key))?.used ?? 0)
    if (wanted <= 0) return 0
    const atUs = this.clock.nowUs()
    const state = await this.hit(key, wanted)
    const excess = Math.min(Math.max(state.used - limit, 0), wanted)
    if (excess > 0) await this.undoExcess(key, excess, this.undoableUntilUs(atUs, state))
    return wanted - excess
  }

  async block(key: string, forUs: number): Promise<void> {
    this.penalties.block(key, forUs)
  }

  async unblock(key: string): Promise<void> {
    this.penalties.unblock(key)
  }

  async strike(key: string, ladder: Ladder): Promise<number> {
    return this.penalties.strike(key, ladder)
  }

  reset(key: string): Promise<void> {
    this.need('forget')
    return this.forget(key)
  }

  update(algorithm: Algorithm): Promise<void> {
    this.algorithm = fixedWindowOf(algorithm)
    this.penalties.update(algorithm)
    return Promise.resolve()
  }

  /** Decides without counting. */
  private async look(key: string, cost: number): Promise<Decision> {
    const { algorithm } = this
    const blocked = this.penalties.decide(key, cost, 0, false)
    if (blocked.code !== undefined) return blocked
    const unused: CounterState = { used: this.counter.read === undefined ? algorithm.policy.limit : 0 }
    return decisionOf(algorithm, (await this.read(key)) ?? unused, cost)
  }

  private isBlocked(key: string): boolean {
    return this.penalties.decide(key, 0, 0, false).code !== undefined
  }

  private async hit(key: string, cost: number): Promise<CounterState> {
    const windowMs = Math.ceil(this.algorithm.policy.windowMs as number)
    return stateOf(await this.counter.hit(this.nameOf(key), cost, windowMs), cost)
  }

  private async read(key: string): Promise<CounterState | undefined> {
    const state = await this.counter.read?.(this.nameOf(key))
    return state === undefined ? undefined : stateOf(state, 0)
  }

  private async forget(key: string): Promise<void> {
    this.penalties.reset(key)
    try {
      await this.counter.forget?.(this.nameOf(key))
    } finally {
      // Afterwards, because a hit that was sent before may be forgotten too.
      ;(this.resets[slotOf(key)] as number)++
    }
  }

  /** Takes back what was counted above the limit. The answer is known already, so a failure is only reported. */
  private async undoExcess(key: string, cost: number, untilUs: number): Promise<void> {
    if (this.clock.nowUs() >= untilUs) return
    try {
      await this.counter.undo?.(this.nameOf(key), cost)
    } catch (error) {
      this.onFailure?.(storeError(error))
    }
  }

  /** Until when an undo is sure to arrive in the window of a hit that was sent at `atUs`. */
  private undoableUntilUs(atUs: number, { resetAfterMs = 0 }: CounterState): number {
    return atUs + resetAfterMs * 1000 - this.deadlineUs
  }

  private need(callback: keyof typeof NEEDED): void {
    if (this.counter[callback] === undefined) throw invalid(TypeError, callback, NEEDED[callback], undefined)
  }

  /** What the counter calls a key. Lone surrogates are escaped, because they would all become one character. */
  private nameOf(key: string): string {
    return `${this.prefix}:${JSON.stringify(storedKeyOf(key)).slice(1, -1)}`
  }
}

const NEEDED = {
  read: 'a callback of counterStore, which peek and several limits at once need',
  forget: 'a callback of counterStore, which reset needs',
}
const MOST_PENALTIES = 100_000
const RESET_SLOTS = 1024
const NO_LANES = /* @__PURE__ */ new Float64Array()
/** A refused call is never told to come back at once. */
const LEAST_WAIT_MS = 1

function fixedWindowOf(algorithm: Algorithm): FixedWindow {
  const { name, args } = algorithm
  if (name !== 'fixed-window')
    throw invalid(TypeError, 'algorithm', 'fixedWindow, the only one that counterStore runs', name)
  if (args[2] === 1)
    throw invalid(TypeError, 'align', "'first', because the counter decides when windows start", 'epoch')
  return algorithm as FixedWindow
}

/** Checks what a callback returned. At least `least` permits must be used. */
function stateOf(state: CounterState | undefined, least: number): CounterState {
  const { used, resetAfterMs } = state ?? {}
  const isCount = Number.isSafeInteger(used) && (used as number) >= least
  if (!isCount || (resetAfterMs !== undefined && !Number.isFinite(resetAfterMs))) throw noAnswer()
  return state as CounterState
}

/** Decides over `cost` more permits. */
function decisionOf(algorithm: FixedWindow, { used, resetAfterMs }: CounterState, cost: number): Decision {
  const { limit, windowMs } = algorithm.policy
  const endsInMs = Math.max(resetAfterMs ?? (windowMs as number), LEAST_WAIT_MS)
  const endsInUs = Math.ceil(endsInMs * 1000)
  const passes = cost === 0 || used + cost <= limit
  const waitUs = passes ? 0 : cost > limit ? Infinity : endsInUs
  return algorithm.read(waitUs, waitUs, [used, endsInUs])
}

function slotOf(key: string): number {
  let hash = 0
  for (let index = 0; index < key.length; index++) hash = (hash * 31 + key.charCodeAt(index)) | 0
  return hash & (RESET_SLOTS - 1)
}
