/** A value at once, or a promise of it from an asynchronous store. */
export type Answer<Async extends boolean, T> = Async extends true ? Promise<T> : T

/** A value, or a promise of it. */
export type MaybePromise<T> = T | PromiseLike<T>

/** Goes on with a value: in the same tick when it is there, later when it is a promise. */
export function andThen<T, U>(value: MaybePromise<T>, goOn: (value: T) => MaybePromise<U>): MaybePromise<U> {
  // What only looks like a promise is not to be trusted with what follows.
  return isPromise(value) ? Promise.resolve(value as PromiseLike<T>).then(goOn) : goOn(value as T)
}

/** Goes on with the answer of a store. */
export function afterwards<Async extends boolean, T, U>(
  answer: Answer<Async, T>,
  goOn: (value: T) => U,
): Answer<Async, U> {
  return andThen<T, U>(answer as MaybePromise<T>, goOn) as Answer<Async, U>
}

/** A value in the form in which a store answers; it is a promise only where the store is asynchronous. */
export function answerOf<Async extends boolean, T>(async: Async, value: MaybePromise<T>): Answer<Async, T> {
  return (async ? Promise.resolve(value) : value) as Answer<Async, T>
}

export function isPromise(value: unknown): value is PromiseLike<unknown> {
  return typeof (value as PromiseLike<unknown> | null | undefined)?.then === 'function'
}

/** Asks about every item, and makes a promise only if an answer is one. */
export function all<T, U>(items: readonly T[], ask: (item: T) => MaybePromise<U>): MaybePromise<U[]> {
  const answers: MaybePromise<U>[] = []
  try {
    for (const item of items) answers.push(ask(item))
  } catch (error) {
    // Nothing reads the earlier answers now: a rejection of one must not go unhandled.
    for (const answer of answers) if (isPromise(answer)) answer.then(undefined, () => {})
    throw error
  }
  return answers.some(isPromise) ? Promise.all(answers) : (answers as U[])
}
