import {
  type AsyncStore,
  combine,
  createLimiter,
  type Duration,
  type Limiter,
  limited,
  tokenBucket,
} from '@sluice/core'

/*
 * Checked by tsc and never run: what a limited function takes and returns, and what must not compile.
 */

type Same<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false

/** Compiles only when both types are the same. */
declare function same<A, B>(..._: Same<A, B> extends true ? [] : [never]): void

declare const redis: AsyncStore
declare const eitherLimiter: Limiter
declare const maybeWait: Duration | undefined
declare const signal: AbortSignal

const bucket = tokenBucket({ limit: 10, window: '1m' })
const limiter = createLimiter(bucket)
const later = createLimiter(bucket, { store: redis })

const send = (to: string, text: string) => to.length + text.length
const sendLater = async (to: string, text: string) => to.length + text.length

type Send = (this: unknown, to: string, text: string) => number
type SendLater = (this: unknown, to: string, text: string) => Promise<number>
type SendEither = (this: unknown, to: string, text: string) => number | Promise<number>

export function keepsType() {
  const [plain, bare] = [limited(limiter)(send), limited(limiter, {})(send)]
  same<typeof plain, Send>()
  same<typeof bare, Send>()
  const [async, constant, combined] = [
    limited(limiter)(sendLater),
    limited(limiter, { key: 'mail', cost: 2 })(send),
    limited(combine(limiter, limiter))(send),
  ]
  same<typeof async, SendLater>()
  same<typeof constant, Send>()
  same<typeof combined, Send>()
}

export function keepsTypeOfThis() {
  const method = limited(limiter)(function (this: Date, days: number) {
    return this.getDate() + days
  })
  same<typeof method, (this: Date, days: number) => number>()
  method.call(new Date(), 5)
  // @ts-expect-error `this` must be a Date
  method(5)
}

export function keepsTypeParameters() {
  const [same1, same2] = [
    limited(limiter)(<T>(value: T): T => value),
    limited(limiter, { key: (to: string) => to })(<T>(to: string, value: T): [string, T] => [to, value]),
  ]
  const five: 5 = same1(5 as const)
  const [to, six]: [string, 6] = same2('ann', 6 as const)
  return [five, to, six]
}

export function keepsOptionalArguments() {
  const optional = limited(limiter)((to: string, text?: string) => to.length + (text?.length ?? 0))
  same<typeof optional, (this: unknown, to: string, text?: string) => number>()
  const keyed = limited(limiter, { key: (to: string) => to })((to: string, text?: string) => to + text)
  same<typeof keyed, (this: unknown, to: string, text?: string) => string>()
  const rest = limited(limiter)((...to: string[]) => to.length)
  same<typeof rest, (this: unknown, ...to: string[]) => number>()
  const none = limited(limiter, { key: 'mail' })(() => 5)
  same<typeof none, (this: unknown) => number>()
}

export function returnsPromise() {
  const [waiting, brief, aborted, abortedByArguments] = [
    limited(limiter, { maxWait: '1s' })(send),
    limited(limiter, { maxWait: 0 })(send),
    limited(limiter, { signal })(send),
    limited(limiter, { signal: () => undefined })(send),
  ]
  same<typeof waiting, SendLater>()
  same<typeof brief, SendLater>()
  same<typeof aborted, SendLater>()
  same<typeof abortedByArguments, SendLater>()
  const [once, asynchronous, both] = [
    limited(limiter, { maxWait: '1s' })(sendLater),
    limited(later)(send),
    limited(later, { key: 'mail', maxWait: '1s' })(sendLater),
  ]
  same<typeof once, SendLater>()
  same<typeof asynchronous, SendLater>()
  same<typeof both, SendLater>()
  // @ts-expect-error the result is a promise
  return waiting('ann', 'hello').toFixed()
}

export function maybeReturnsPromise() {
  const either = limited(eitherLimiter)(send)
  same<typeof either, SendEither>()
  const notStated = limited(limiter, { maxWait: undefined, signal: undefined })(send)
  same<typeof notStated, Send>()
  // If maxWait is known only at run time, the function may return a promise.
  const perhaps = limited(limiter, { maxWait: maybeWait })(send)
  same<typeof perhaps, SendEither>()
}

export function callbacksOfTheFirstArguments() {
  const [keyed, costly, drained] = [
    limited(limiter, { key: (to: string) => to })(send),
    limited(limiter, { cost: (to: string, text: string) => to.length + text.length })(send),
    limited(limiter, { drainOn: (result, failed) => !failed && result > 5 })(send),
  ]
  same<typeof keyed, Send>()
  same<typeof costly, Send>()
  same<typeof drained, Send>()
}

export function callbacksOfDifferentLengths() {
  const limiting = limited(limiter, {
    key: (to: string) => to,
    cost: (to: string, text: string) => to.length + text.length,
  })(send)
  same<typeof limiting, Send>()
}

/** A callback without type annotations accepts the arguments of any function. */
export function callbacksWithoutTypeAnnotations() {
  const [keyed, async] = [limited(limiter, { key: to => to })(send), limited(later, { key: to => to })(send)]
  same<typeof keyed, Send>()
  same<typeof async, SendLater>()
}

export class Mailer {
  readonly sent: string[] = []

  @limited(limiter)
  send(to: string, text?: string): number {
    return this.sent.push(`${to}: ${text}`)
  }

  @limited(limiter, { key: (to: string) => to, drainOn: result => result > 5 })
  sendTo(to: string, text: string): number {
    return this.sent.push(`${to}: ${text}`)
  }

  @limited(later, { key: (to: string) => to, maxWait: '10s', signal })
  async sendLater(to: string, text: string): Promise<number> {
    return this.sent.push(`${to}: ${text}`)
  }

  @limited(limiter)
  sendAny<T extends string>(to: T): T {
    return this.#checked(to)
  }

  @limited(limiter, { key: 'check' })
  #checked<T extends string>(to: T): T {
    return to
  }

  @limited(limiter, { key: 'make' })
  static make(): Mailer {
    return new Mailer()
  }
}

export class BadMailer {
  // @ts-expect-error a synchronous method cannot wait
  @limited(limiter, { maxWait: '1s' })
  send(to: string): number {
    return to.length
  }

  // @ts-expect-error a synchronous method cannot use an asynchronous limiter
  @limited(later)
  sendLater(to: string): number {
    return to.length
  }

  // @ts-expect-error the key of another argument
  @limited(limiter, { key: (to: string) => to })
  sendNumber(to: number): number {
    return to
  }

  // @ts-expect-error a getter is not a method
  @limited(limiter)
  get size(): number {
    return 5
  }

  // @ts-expect-error a field is not a method
  @limited(limiter)
  count = 5
}

export function badCalls() {
  const limitedSend = limited(limiter, { key: (to: string) => to })(send)
  // @ts-expect-error an argument of another type
  limitedSend('ann', 5)
  // @ts-expect-error an argument missing
  limitedSend('ann')
  // @ts-expect-error an argument too many
  limitedSend('ann', 'hello', 5)
}

export function badFunctions() {
  const byName = limited(limiter, { key: (to: string) => to })
  // @ts-expect-error the key function takes a string
  byName((to: number) => to)
  // @ts-expect-error the argument for the key may be undefined
  byName((to?: string) => to)
  // @ts-expect-error not a function
  byName(5)
}

export function badOptions() {
  // @ts-expect-error an algorithm instead of a limiter
  limited(bucket)
  // @ts-expect-error the function instead of the options
  limited(limiter, send)
  // @ts-expect-error an unknown option
  limited(limiter, { keys: 'mail' })
  // @ts-expect-error a key that is not a string
  limited(limiter, { key: 5 })
  // @ts-expect-error a key function that does not return a string
  limited(limiter, { key: (to: string) => to.length })
  // @ts-expect-error a cost as a string
  limited(limiter, { cost: '1' })
  // @ts-expect-error a cost that is a promise
  limited(limiter, { cost: async (to: string) => to.length })
  // @ts-expect-error a wait without a unit
  limited(limiter, { maxWait: '500' })
  // @ts-expect-error a controller instead of its signal
  limited(limiter, { signal: new AbortController() })
  // @ts-expect-error an async function, whose promise would always count as true
  limited(limiter, { drainOn: async () => false })
}
