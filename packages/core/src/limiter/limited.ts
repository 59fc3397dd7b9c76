import type { Decision } from '../algorithms/decision.js'
import { checkCost } from '../shared/cost.js'
import { type Duration, waitToUs } from '../shared/duration.js'
import { invalid } from '../shared/errors.js'
import { andThen, isPromise, type MaybePromise } from '../shared/maybe-promise.js'
import { callable, checkOptions, having } from '../shared/validate.js'
import { isLimiter } from './create-limiter.js'
import type { Limiter } from './limiter.js'
import { checkKey } from './limiter-class.js'
import { RateLimitedError } from './rate-limited-error.js'

// biome-ignore lint/suspicious/noExplicitAny: a callback that states no types is to take those of any function.
type Anything = any

/** Options of `limited`. `Args` are the arguments of the function that its callbacks look at. */
export interface LimitedOptions {
  /** Who is limited: a text, or a function of the arguments; default `'default'`, one key for all calls. */
  readonly key?: string | ((...args: Anything[]) => string) | undefined
  /** Permits a call costs: a whole number, or a function of the arguments; default 1. */
  readonly cost?: number | ((...args: Anything[]) => number) | undefined
  /**
   * The longest a call waits for its permits. Whenever it is stated, also as 0, the limited function returns a promise;
   * by default a call does not wait.
   */
  readonly maxWait?: Duration | undefined
  /** Ends a wait when it is aborted, as `acquire` does; without `maxWait` a call waits as long as `acquire` would. */
  readonly signal?: AbortSignal | ((...args: Anything[]) => AbortSignal | undefined) | undefined
  /**
   * Called with what the function has returned (awaited) or thrown: true drains the limiter for the key, such as when an
   * upstream answers 429. `failed` tells the two apart.
   */
  readonly drainOn?: ((outcome: Anything, failed: boolean) => boolean) | undefined
}

/** The arguments that the callbacks of some options look at: at least those of each of them. */
type Takes<Callback> = readonly [
  ...(Callback extends (...args: infer Args) => unknown ? Args : []),
  ...Anything[],
]
type Option<Options, Name extends string> = Name extends keyof Options ? Options[Name] : undefined
type ArgsOf<Options> = Takes<Option<Options, 'key'>> &
  Takes<Option<Options, 'cost'>> &
  Takes<Option<Options, 'signal'>>

/** A limiter to be applied: call it with a function, or put it before a method. */
export type Limiting<Args extends readonly unknown[], Waits extends boolean> = <
  This,
  Own extends Args,
  Result,
>(
  action: (this: This, ...args: Own) => Result,
  context?: ClassMethodDecoratorContext<This>,
) => (this: This, ...args: Own) => LimitedResult<Waits, Result>

/** What a limited function returns: what it did before, as a promise if it may have to wait. */
export type LimitedResult<Waits extends boolean, Result> = Waits extends true
  ? Promise<Awaited<Result>>
  : Result

/** Whether an option is stated; one that may be undefined is stated perhaps. */
type Stated<Value> = [Value] extends [undefined] ? false : undefined extends Value ? boolean : true
type Or<A extends boolean, B extends boolean> = A extends true ? true : B

/** A limited function waits on an asynchronous store, and when it has been told how long. */
export type Waits<Async extends boolean, Options> = Or<
  Async,
  Or<Stated<Option<Options, 'maxWait'>>, Stated<Option<Options, 'signal'>>>
>

/**
 * Limits a function: permits are taken before each call, and a refusal throws a RateLimitedError before the function runs.
 * Apply it to a function, sync or async, or as a standard method decorator.
 *
 * Without `maxWait` and `signal` a call does not wait, and on a synchronous limiter the function stays as synchronous as
 * it was; an async function rejects instead of throwing. Throws a TypeError or RangeError for a bad option at once, and
 * for a key or cost that is none when the function is called; nothing is charged then.
 *
 * @example
 * const send = limited(perUser, { key: (to: string) => to })(sendMail)
 *
 * class Mailer {
 *   @limited(perUser, { key: (to: string) => to, maxWait: '10s' })
 *   async send(to: string, text: string) {}
 * }
 */
export function limited<Async extends boolean, Options extends LimitedOptions = Record<never, never>>(
  limiter: Limiter<Async>,
  options?: Options & LimitedOptions,
): Limiting<ArgsOf<Options>, Waits<Async, Options>> {
  if (!isLimiter(limiter))
    throw invalid(TypeError, 'limiter', 'a limiter of createLimiter', limiter, 'SLUICE_INVALID_LIMITER')
  const rules = rulesOf((options === undefined ? {} : options) as LimitedOptions)
  const limit = (action: Action) => limitedFunction(limiter as Limiter, rules, action)
  return limit as unknown as Limiting<ArgsOf<Options>, Waits<Async, Options>>
}

type Action = (this: unknown, ...args: unknown[]) => unknown

interface Rules {
  readonly key: (...args: unknown[]) => string
  readonly cost: (...args: unknown[]) => number
  readonly signal: (...args: unknown[]) => AbortSignal | undefined
  readonly maxWait: Duration | undefined
  readonly waits: boolean
  readonly drainOn: LimitedOptions['drainOn']
}

function rulesOf(options: LimitedOptions): Rules {
  checkOptions('limited', options, ['key', 'cost', 'maxWait', 'signal', 'drainOn'])
  const { key = 'default', cost = 1, maxWait, signal, drainOn } = options
  if (typeof key !== 'function') checkKey(key)
  if (typeof cost !== 'function') checkCost(cost)
  if (signal !== undefined && typeof signal !== 'function')
    having('throwIfAborted', 'signal', signal, 'an AbortSignal, or a function that returns one')
  if (maxWait !== undefined) waitToUs('maxWait', maxWait)
  if (drainOn !== undefined) callable('drainOn', drainOn)
  return {
    key: typeof key === 'function' ? key : () => key,
    cost: typeof cost === 'function' ? cost : () => cost,
    signal: typeof signal === 'function' ? signal : () => signal,
    maxWait,
    waits: maxWait !== undefined || signal !== undefined,
    drainOn,
  }
}

function limitedFunction(limiter: Limiter, rules: Rules, action: Action): Action {
  callable('limited', action)
  const rejects = rules.waits || action instanceof AsyncFunction || rejecting.has(action)
  const limitedAction: Action = function (...args) {
    const run = () => {
      const key = rules.key.apply(this, args)
      return andThen(admit(limiter, rules, key, rules.cost.apply(this, args), args, this), () =>
        watched(limiter, rules, key, () => action.apply(this, args)),
      )
    }
    return rejects ? (async () => run())() : run()
  }
  if (rejects) rejecting.add(limitedAction)
  return Object.defineProperty(limitedAction, 'name', { value: action.name, configurable: true })
}

/** Takes the permits, or throws. */
function admit(
  limiter: Limiter,
  { waits, maxWait, signal }: Rules,
  key: string,
  cost: number,
  args: unknown[],
  self: unknown,
): MaybePromise<Decision> {
  if (waits) return limiter.acquire(key, { cost, maxWait, signal: signal.apply(self, args as []) })
  return andThen<Decision, Decision>(limiter.tryAcquire(key, { cost }), decision => {
    if (!decision.allowed)
      throw new RateLimitedError(limiter.name, key, decision, 'the permits are not there')
    return decision
  })
}

/** Runs the function, and drains the limiter when its outcome says so. */
function watched(limiter: Limiter, { drainOn }: Rules, key: string, run: () => unknown): unknown {
  if (drainOn === undefined) return run()
  const ended = (outcome: unknown, failed: boolean, then: () => unknown) =>
    drainOn(outcome, failed) === true ? drained(limiter, key, then) : then()
  const returned = (result: unknown) => ended(result, false, () => result)
  const failed = (error: unknown) =>
    ended(error, true, () => {
      throw error
    })
  let result: unknown
  try {
    result = run()
  } catch (error) {
    return failed(error)
  }
  return isPromise(result) ? result.then(returned, failed) : returned(result)
}

/** What the function has come to stands, also where the store fails; its limiter tells of that. */
function drained(limiter: Limiter, key: string, then: () => unknown): unknown {
  const drain = limiter.drain(key)
  return isPromise(drain) ? drain.then(then, then) : then()
}

/** Limited functions that reject instead of throwing, as an async function does. */
const rejecting = new WeakSet<Action>()

const AsyncFunction = (async () => {}).constructor as new () => unknown
