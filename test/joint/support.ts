import { setImmediate as nextTurn } from 'node:timers/promises'
import type { Decision, Ledger, Limiter, Store } from '@sluice/core'
import { guarded } from '@sluice/core/store'
import type { ManualClock } from '@sluice/core/testing'
import { expect } from 'vitest'

/** Waits until every promise has settled that can settle without moving the clock. */
export async function settled(): Promise<void> {
  for (let turn = 0; turn < 200; turn++) await Promise.resolve()
}

/** Logs when waits end, and how. */
export function logOf(clock: ManualClock) {
  const startMs = clock.nowMs
  const entries: string[] = []
  return {
    entries,
    note(name: string, wait: Promise<Decision>) {
      wait.then(
        () => entries.push(`${name} after ${clock.nowMs - startMs}`),
        error => entries.push(`${name} failed: ${error?.code ?? error?.name ?? error}`),
      )
    },
  }
}

/** Every public figure of a key. */
export async function figuresOf(key: string, ...limiters: readonly Limiter[]): Promise<unknown[]> {
  return Promise.all(limiters.map(async limiter => (await limiter.peek(key)).toJSON()))
}

/** Expects a rejection with the error of a breakable store, directly or as its cause. */
export async function expectStoreFailure(answer: unknown): Promise<void> {
  const error = await Promise.resolve(answer).then(
    () => undefined,
    error => error,
  )
  expect(error?.cause ?? error).toBe(FAILURE)
}

export const FAILURE = new Error('the store is down')

export type Breakable<Async extends boolean> = Store<Async> & {
  failing: keyof Ledger<Async> | undefined
  calls: number
}

/** A store in which one verb fails while it is set to. */
export function breakable<Async extends boolean>(store: Store<Async>): Breakable<Async> {
  const broken: Breakable<Async> = {
    async: store.async,
    failing: undefined,
    calls: 0,
    open(spec) {
      const breaking = new Proxy(store.open(spec), {
        get(ledger, verb) {
          const value = Reflect.get(ledger, verb)
          if (typeof value !== 'function') return value
          return (...args: unknown[]) => {
            broken.calls++
            if (verb !== broken.failing) return value.apply(ledger, args)
            if (store.async) return Promise.reject(FAILURE)
            throw FAILURE
          }
        },
      })
      return breaking.async ? (guarded(breaking as Ledger<true>, spec) as Ledger<Async>) : breaking
    },
  }
  return broken
}

/** Whether the object has been garbage-collected. */
export async function isCollected(reference: WeakRef<object>): Promise<boolean> {
  if (globalThis.gc === undefined) throw new Error('these tests need node --expose-gc')
  for (let turn = 0; turn < 3; turn++) {
    await nextTurn()
    globalThis.gc()
  }
  return reference.deref() === undefined
}
