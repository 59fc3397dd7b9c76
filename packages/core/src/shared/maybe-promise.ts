/** A value at once, or a promise of it where the store is asynchronous. */
export type Answer<Async extends boolean, T> = Async extends true ? Promise<T> : T

/** A value, or a promise of it. */
export type MaybePromise<T> = T | PromiseLike<T>

/** Calls `goOn` with a value: in the same tick if the value is there, later if it is a promise. */
export function andThen<T, U>(value: MaybePromise<T>, goOn: (value: T) => MaybePromise<U>): MaybePromise<U>
/** The same for the answer of a store: the result has the same form as the answer. */
export function andThen<Async extends boolean, T, U>(
  answer: Answer<Async, T>,
  goOn: (value: T) => U,
): Answer<Async, U>
export function andThen<T, U>(value: MaybePromise<T>, goOn: (value: T) => MaybePromise<U>): MaybePromise<U> {
  // Not `value.then`: an object that only looks like a promise might call back twice or never.
  return isPromise(value) ? Promise.resolve(value as PromiseLike<T>).then(goOn) : goOn(value as T)
}

/** A value as an answer of this form: a promise if `async` is true. */
export function asAnswer<Async extends boolean, T>(async: Async, value: MaybePromise<T>): Answer<Async, T> {
  return (async ? Promise.resolve(value) : value) as Answer<Async, T>
}

export function isPromise(value: unknown): value is PromiseLike<unknown> {
  return typeof (value as PromiseLike<unknown> | null | undefined)?.then === 'function'
}

/** Keeps a rejection of a promise that nothing reads from being an unhandled one. */
export function ignoreRejection(value: unknown): void {
  if (isPromise(value)) value.then(undefined, () => {})
}

/** Calls `ask` with every item. Returns the answers, in a promise only if one of them is a promise. */
export function all<T, U>(items: readonly T[], ask: (item: T) => MaybePromise<U>): MaybePromise<U[]> {
  const answers: MaybePromise<U>[] = []
  try {
    for (const item of items) answers.push(ask(item))
  } catch (error) {
    answers.forEach(ignoreRejection)
    throw error
  }
  return answers.some(isPromise) ? Promise.all(answers) : (answers as U[])
}
