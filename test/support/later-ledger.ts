import type { Ledger } from '@sluice/core'

/** The methods of a ledger. */
export type LedgerVerb = Exclude<keyof Ledger<boolean>, 'async' | 'keys' | 'forgotten'>

/** Calls the ledger now, later or never. The key is empty for a method without a key. */
export type CallLater = <T>(act: () => T, verb: LedgerVerb, key: string) => Promise<T>

/** A ledger that passes every call to `call`, which answers later. */
export function laterLedger(ledger: Ledger<false>, call: CallLater): Ledger<true> {
  return {
    async: true,
    decide: (...ask) => call(() => ledger.decide(...ask), 'decide', ask[0]),
    book: (...ask) => call(() => ledger.book(...ask), 'book', ask[0]),
    cancel: (...booking) => call(() => ledger.cancel(...booking), 'cancel', booking[0]),
    refund: (...booking) => call(() => ledger.refund(...booking), 'refund', booking[0]),
    release: (...permits) => call(() => ledger.release(...permits), 'release', permits[0]),
    drain: key => call(() => ledger.drain(key), 'drain', key),
    block: (...span) => call(() => ledger.block(...span), 'block', span[0]),
    unblock: key => call(() => ledger.unblock(key), 'unblock', key),
    strike: (...ladder) => call(() => ledger.strike(...ladder), 'strike', ladder[0]),
    reset: key => call(() => ledger.reset(key), 'reset', key),
    update: algorithm => call(() => ledger.update(algorithm), 'update', ''),
  }
}
