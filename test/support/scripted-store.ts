import { setImmediate as nextTurn } from 'node:timers/promises'
import { type AsyncStore, memoryStore } from '@sluice/core'
import { guarded } from '@sluice/core/store'
import { type LedgerVerb, laterLedger } from './later-ledger.js'

/** What a call of the store does: `act` makes the call in memory and returns the answer of a working store. */
export type Script = (act: () => unknown, verb: LedgerVerb) => unknown

/** An asynchronous store over one in memory, whose calls do what a script says. */
export interface ScriptedStore extends AsyncStore {
  /** The script of the calls from now on. */
  script: Script
  /** The calls so far. */
  readonly calls: LedgerVerb[]
}

export function scriptedStore(script: Script = works): ScriptedStore {
  const memory = memoryStore()
  const store: ScriptedStore = {
    async: true,
    script,
    calls: [],
    open(spec) {
      const ledger = memory.open(spec)
      const later = laterLedger(ledger, (act, verb) => {
        store.calls.push(verb)
        return store.script(act, verb) as Promise<never>
      })
      return guarded(later, spec)
    },
  }
  return store
}

/** The error of a store that is down. */
export const DOWN = new Error('the store is down')

/** Answers a turn later. */
export const works: Script = async act => {
  await nextTurn()
  return act()
}

/** Never answers. */
export const neverSettles: Script = () => new Promise(() => {})

/** Answers with a value that is not a valid answer. */
export const answers =
  (value: unknown): Script =>
  async () =>
    value

/** Fails calls of some methods and works otherwise. */
export const failsAt =
  (...verbs: readonly LedgerVerb[]): Script =>
  (act, verb) =>
    verbs.includes(verb) ? Promise.reject(DOWN) : works(act, verb)

/** Answers when `answerNow` is called. */
export function answersLate() {
  const due: (() => void)[] = []
  const script: Script = act =>
    new Promise((resolve, reject) => {
      due.push(() => {
        try {
          resolve(act())
        } catch (error) {
          reject(error)
        }
      })
    })
  const answerNow = () => {
    for (const answer of due.splice(0)) answer()
  }
  return { script, answerNow, due }
}

/** Every way in which a call to a store can fail, and the expected cause of the error. */
export const failures: readonly {
  readonly how: string
  readonly script: Script
  readonly cause?: unknown
}[] = [
  { how: 'never settles', script: neverSettles },
  { how: 'rejects', script: async () => Promise.reject(DOWN), cause: DOWN },
  { how: 'rejects with nothing', script: () => Promise.reject() },
  {
    how: 'throws at once',
    script: () => {
      throw DOWN
    },
    cause: DOWN,
  },
  { how: 'answers undefined', script: answers(undefined) },
  { how: 'answers undefined at once', script: () => undefined },
  { how: 'answers 5', script: answers(5) },
  { how: 'answers {}', script: answers({}) },
  { how: 'answers { allowed: true }', script: answers({ allowed: true }) },
  {
    how: 'answers { decision: { allowed: true } }',
    script: answers({ decision: { allowed: true, waitMs: 0 } }),
  },
]

/** The reasons of unhandled rejections while `act` runs, and two turns after it. */
export async function unhandledDuring(act: () => Promise<unknown>): Promise<unknown[]> {
  const unhandled: unknown[] = []
  const note = (reason: unknown) => unhandled.push(reason)
  const listeners = process.listeners('unhandledRejection')
  process.removeAllListeners('unhandledRejection')
  process.on('unhandledRejection', note)
  try {
    await act()
    await nextTurn()
    await nextTurn()
  } finally {
    process.off('unhandledRejection', note)
    for (const listener of listeners) process.on('unhandledRejection', listener)
  }
  return unhandled
}
