import { invalid } from '../shared/errors.js'
import { isPromise, type MaybePromise } from '../shared/maybe-promise.js'
import { asError } from './response/write-fields.js'

/*
 * Limits of one route each: a handler, or a method of a controller, that runs only for requests that go on.
 */

// biome-ignore lint/suspicious/noExplicitAny: a handler may be a method of anything.
type Anything = any

/** A limit to be applied: call it with a handler, or put it before a method that is one. */
export type RouteLimit<Args extends readonly unknown[]> = <
  Handler extends (this: Anything, ...args: Args) => unknown,
>(
  handler: Handler,
  context?: ClassMethodDecoratorContext,
) => Handler

/** Makes the limit of a route of what runs a handler within it. */
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
 * Runs a handler if `act` says that the request goes on, and returns what it returns. What fails before, or in a promise
 * that the framework might not look at, goes to `fail`, which hears whether the handler has failed. `answered` is what tells
 * the framework, in a promise, that the response is answered elsewhere.
 */
export function runLimited(
  act: () => MaybePromise<boolean>,
  handle: () => unknown,
  fail: (error: unknown, byHandler: boolean) => unknown,
  answered?: unknown,
): unknown {
  let goesOn: MaybePromise<boolean>
  try {
    goesOn = act()
  } catch (error) {
    return fail(asError(error), false)
  }
  if (!isPromise(goesOn)) return goesOn ? handle() : answered
  return later(goesOn, handle, fail, answered)
}

async function later(
  goesOn: PromiseLike<boolean>,
  handle: () => unknown,
  fail: (error: unknown, byHandler: boolean) => unknown,
  answered: unknown,
): Promise<unknown> {
  let isLetIn: boolean
  try {
    isLetIn = (await goesOn) === true
  } catch (error) {
    return fail(asError(error), false)
  }
  if (!isLetIn) return answered
  try {
    // A handler that returns nothing answers by itself, perhaps later.
    const result = handle()
    return result === undefined ? answered : await result
  } catch (error) {
    return fail(error, true)
  }
}
