import type { Decision } from '../algorithms/decision.js'
import { type Duration, waitToUs } from '../shared/duration.js'
import { andThen, isPromise, type MaybePromise } from '../shared/maybe-promise.js'
import { callable, checkCost, checkKey, checkOptions, having } from '../shared/validate.js'
import type { Limiter } from './limiter.js'
import { limiterOf } from './limiter-of.js'
import { RateLimitedError } from './rate-limited-error.js'

// biome-ignore lint/suspicious/noExplicitAny: a callback without types of its own must accept any function's arguments.
type Anything = any

/** Options of `limited`. */
export interface LimitedOptions {
  /** The key: a string, or a function of the arguments; default `'default'`, one key for all calls. */
  readonly key?: string | ((...args: Anything[]) => string) | undefined
  /** How many permits a call takes: a whole number, or a function of the arguments; default 1. */
  readonly cost?: number | ((...args: Anything[]) => number) | undefined
  /**
   * The longest wait of a call. With this option, also if it is 0, the limited function returns a promise. By default
   * calls do not wait.
   */
  readonly maxWait?: Duration | undefined
  /** Aborting it ends a wait. Without `maxWait` a call waits as long as `acquire` would; the function returns a promise. */
  readonly signal?: AbortSignal | ((...args: Anything[]) => AbortSignal | undefined) | undefined
  /**
   * Called with the function's result (awaited), or with its error and `failed` true. Return true to drain the key, for
   * example when a server has answered 429.
   */
  readonly drainOn?: ((outcome: Anything, failed: boolean) => boolean) | undefined
}

/** The arguments that the callbacks of these options take: at least those of each callback. */
type Takes<Callback> = readonly [
  ...(Callback extends (...args: infer Args) => unknown ? Args : []),
  ...Anything[],
]
type Option<Options, Name extends string> = Name extends keyof Options ? Options[Name] : undefined
type ArgsOf<Options> = Takes<Option<Options, 'key'>> &
  Takes<Option<Options, 'cost'>> &
  Takes<Option<Options, 'signal'>>

/** The result of `limited`: call it with a function, or use it as a method decorator. */
export type Limiting<Args extends readonly unknown[], Waits extends boolean> = <
  This,
  Own extends Args,
  Result,
>(
  action: (this: This, ...args: Own) => Result,
  context?: ClassMethodDecoratorContext<This>,
) => (this: This, ...args: Own) => LimitedResult<Waits, Result>

/** The result of a limited function: that of the function, in a promise if calls may wait. */
export type LimitedResult<Waits extends boolean, Result> = Waits extends true
  ? Promise<Awaited<Result>>
  : Result

/** Whether an option is given; `boolean` if it may be undefined. */
type Given<Value> = [Value] extends [undefined] ? false : undefined extends Value ? boolean : true
type Or<A extends boolean, B extends boolean> = A extends true ? true : B

/** Whether a limited function returns a promise: on an asynchronous store, with `maxWait` or with `signal`. */
export type Waits<Async extends boolean, Options> = Or<
  Async,
  Or<Given<Option<Options, 'maxWait'>>, Given<Option<Options, 'signal'>>>
>

/**
 * Limits a function: each call takes permits first. If they are refused, it throws a RateLimitedError and does not run the
 * function. Apply it to a function, sync or async, or use it as a standard method decorator.
 *
 * Without `maxWait` and `signal` calls do not wait, and on a synchronous store a sync function stays sync. An async
 * function rejects instead of throwing. Throws a TypeError or RangeError for a bad option at once; for a bad key or cost
 * of a callback when the function is called, and nothing is charged then.
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
  const checked: Limiter = limiterOf(limiter)
  const rules = rulesOf((options === undefined ? {} : options) as LimitedOptions)
  const limit = (action: Action) => limitedFunction(checked, rules, action)
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
      throw new RateLimitedError(limiter.name, key, decision, 'there are too few permits')
    return decision
  })
}

/** Runs the function, and drains the key if `drainOn` returns true for the outcome. */
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

/** Drains the key, then goes on with the outcome, also if the store has failed; the limiter reports that. */
function drained(limiter: Limiter, key: string, then: () => unknown): unknown {
  const drain = limiter.drain(key)
  return isPromise(drain) ? drain.then(then, then) : then()
}

/** Limited functions that reject instead of throwing, as async functions do. */
const rejecting = new WeakSet<Action>()

const AsyncFunction = (async () => {}).constructor as new () => unknown
