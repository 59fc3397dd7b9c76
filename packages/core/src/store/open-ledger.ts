import { coded, invalid } from '../shared/errors.js'
import { ignoreRejection } from '../shared/maybe-promise.js'
import { GUARDED, type Ledger, type LedgerSpec, type Store } from './store.js'

/**
 * Opens the keys of one limiter on a store. Throws an error of code SLUICE_STORE_ERROR if `open` fails, and a TypeError if
 * it returns a promise, no ledger, or an asynchronous ledger without a guard.
 */
export function openLedger<Async extends boolean>(store: Store<Async>, spec: LedgerSpec): Ledger<Async> {
  const ledger = opened(store, { ...spec, store })
  if (ledger?.async === false || (ledger?.async === true && GUARDED in ledger)) return ledger
  ignoreRejection(ledger)
  throw invalid(TypeError, 'store', EXPECTED, ledger)
}

const EXPECTED =
  'a store whose open() returns a ledger, which is guarded(ledger, spec) of @sluice/core/store if async'

function opened<Async extends boolean>(store: Store<Async>, spec: LedgerSpec): Ledger<Async> {
  try {
    return store.open(spec)
  } catch (error) {
    // What is wrong with the limiter, such as its name, is no failure of the store.
    if (String((error as { code?: unknown } | null | undefined)?.code).startsWith('SLUICE_')) throw error
    throw coded(new Error('store: open() failed', { cause: error }), 'SLUICE_STORE_ERROR', 'store')
  }
}
