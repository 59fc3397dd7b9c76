import type { AsyncStore, Ledger, SyncStore } from '@sluice/core'
import { guarded } from '@sluice/core/store'
import { type CallLater, laterLedger } from './later-ledger.js'

/** An asynchronous store over a synchronous one: answers a turn later, until the test makes it fail. */
export function asynchronous(store: SyncStore): AsyncStore & { failWith(error: Error): void } {
  let failure: Error | undefined
  const later: CallLater = async act => {
    await undefined
    if (failure !== undefined) throw failure
    return act()
  }
  return {
    async: true,
    failWith(error) {
      failure = error
    },
    open(spec): Ledger<true> {
      const ledger = store.open(spec)
      return guarded(laterLedger(ledger, later), spec)
    },
  }
}
