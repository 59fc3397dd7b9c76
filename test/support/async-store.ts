import type { AsyncStore, Ledger, SyncStore } from '@sluice/core'

/** An asynchronous store over a synchronous one: every answer a turn later, until it is told to fail. */
export function asynchronous(store: SyncStore): AsyncStore & { failWith(error: Error): void } {
  let failure: Error | undefined
  const later = async <T>(act: () => T): Promise<T> => {
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
      return {
        async: true,
        decide: (...ask) => later(() => ledger.decide(...ask)),
        book: (...ask) => later(() => ledger.book(...ask)),
        cancel: (...booking) => later(() => ledger.cancel(...booking)),
        refund: (...booking) => later(() => ledger.refund(...booking)),
        release: (...permits) => later(() => ledger.release(...permits)),
        drain: key => later(() => ledger.drain(key)),
        reset: key => later(() => ledger.reset(key)),
        update: algorithm => later(() => ledger.update(algorithm)),
      }
    },
  }
}
