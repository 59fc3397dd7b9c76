import { coded, invalid } from '../shared/errors.js'
import { isPromise, type MaybePromise } from '../shared/maybe-promise.js'

/*
 * Runs what comes after a limit: the `next` of a framework, or the handler of a single route.
 */

// biome-ignore lint/suspicious/noExplicitAny: a handler may be a method of any class.
type Anything = any

/** The limit of one route: call it with the route's handler, or use it as the decorator of a method that handles a route. */
export type RouteLimit<Args extends readonly unknown[]> = <
  Handler extends (this: Anything, ...args: Args) => unknown,
>(
  handler: Handler,
  context?: ClassMethodDecoratorContext,
) => Handler

/** Makes the limit of a route. `run` calls `handle` for a request that continues, and returns what the route returns. */
export function routeLimit<Args extends readonly unknown[]>(
  run: (args: Args, handle: () => unknown) => unknown,
): RouteLimit<Args> {
  return (handler, context) => {
    if (typeof handler !== 'function' || (context !== undefined && context?.kind !== 'method'))
      throw invalid(TypeError, 'limitRoute', 'a handler, or a method by the standard decorators', handler)
    const limited = function (this: unknown, ...args: Args) {
      return run(args, () => handler.apply(this, args as never))
    }
    return Object.defineProperty(limited, 'name', { value: handler.name, configurable: true }) as never
  }
}

/**
 * For frameworks that continue by a callback: runs `limit`, which says whether the request continues. Then calls `next` if
 * it does, `fail` if `limit` failed, and otherwise neither.
 */
export function runMiddleware(
  limit: () => MaybePromise<boolean>,
  next: () => void,
  fail: (error: unknown) => void,
): void {
  let continues: MaybePromise<boolean>
  try {
    continues = limit()
  } catch (error) {
    fail(asError(error))
    return
  }
  // An error of `next` must reach neither `fail` nor a promise that nothing handles.
  if (isPromise(continues))
    continues.then(
      value => value === true && queueMicrotask(next),
      error => fail(asError(error)),
    )
  else if (continues) next()
}

/**
 * Runs `limit`, which says whether the request continues, and then the handler, whose result it returns. An error of
 * `limit`, and one in a promise, goes to `fail`, whose second argument says whether it came from the handler. `answered` is
 * what a promise resolves to if the response is sent elsewhere.
 */
export function runLimited(
  limit: () => MaybePromise<boolean>,
  handle: () => unknown,
  fail: (error: unknown, byHandler: boolean) => unknown,
  answered?: unknown,
): unknown {
  let continues: MaybePromise<boolean>
  try {
    continues = limit()
  } catch (error) {
    return fail(asError(error), false)
  }
  if (!isPromise(continues)) return continues ? handle() : answered
  return runLater(continues, handle, fail, answered)
}

async function runLater(
  limited: PromiseLike<boolean>,
  handle: () => unknown,
  fail: (error: unknown, byHandler: boolean) => unknown,
  answered: unknown,
): Promise<unknown> {
  let continues: boolean
  try {
    continues = (await limited) === true
  } catch (error) {
    return fail(asError(error), false)
  }
  if (!continues) return answered
  try {
    // A handler that returns nothing sends the response itself, perhaps later.
    const result = handle()
    return result === undefined ? answered : await result
  } catch (error) {
    return fail(error, true)
  }
}

/**
 * What a callback threw, as an error that frameworks take for one: they continue if they are passed undefined or null, and
 * Express skips routes if it is passed `'route'` or `'router'`.
 */
export function asError(thrown: unknown): unknown {
  if (thrown && thrown !== 'route' && thrown !== 'router') return thrown
  return coded(
    new Error('a callback has thrown a value that is not an error', { cause: thrown }),
    'SLUICE_CALLBACK_FAILED',
    'callback',
  )
}
