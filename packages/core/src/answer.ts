/** A value at once, or a promise of it from an asynchronous store. */
export type Answer<Async extends boolean, T> = Async extends true ? Promise<T> : T

/** Goes on with an answer: in the same tick when it is there, later when it is a promise. */
export function afterwards<Async extends boolean, T, U>(
  answer: Answer<Async, T>,
  goOn: (value: T) => U,
): Answer<Async, U> {
  return (isPromise(answer) ? answer.then(value => goOn(value as T)) : goOn(answer as T)) as Answer<Async, U>
}

/** A value in the form in which a store answers. */
export function answerOf<Async extends boolean, T>(async: Async, value: T): Answer<Async, T> {
  return (async ? Promise.resolve(value) : value) as Answer<Async, T>
}

export function isPromise(value: unknown): value is PromiseLike<unknown> {
  return typeof (value as PromiseLike<unknown> | null | undefined)?.then === 'function'
}
