import { invalid } from '../../shared/errors.js'
import { builtin } from '../../shared/node-module.js'
import { checkOptions, wholeNumber } from '../../shared/validate.js'
import { warnOnce } from '../../shared/warnings.js'
import type { LedgerSpec, SyncStore } from '../store.js'
import { MemoryLedger } from './memory-ledger.js'

/** Options of `memoryStore`. */
export interface MemoryStoreOptions {
  /** How many keys each limiter holds at most: 1 to 2^23, default 100,000. */
  readonly maxKeys?: number | undefined
  /**
   * What happens to a new key when the store is full. A few keys are sampled, and the one with the least of its limit in
   * use is forgotten. If all of them are being refused, `'forget'` (the default) forgets the one that passes first, with a
   * process warning, and `'refuse'` refuses the new key.
   */
  readonly onFull?: 'forget' | 'refuse' | undefined
}

/** A store of `memoryStore`. */
export interface MemoryStore extends SyncStore {
  /** How many keys it holds now, over all of its limiters. */
  readonly size: number
  /** Forgets every key that has rested. You need not call it: each decision sweeps a few keys. */
  sweep(): void
}

/**
 * Makes a store in the memory of this process: synchronous, bounded, without timers.
 *
 * Each limiter on the store has up to `maxKeys` keys of its own, which are freed with the limiter. A key takes about 60
 * bytes plus its characters, in pages of 4,096 keys (130 kB; the first one grows). A key longer than 128 bytes is kept as its hash. A key is
 * forgotten once it has rested for the window, or for a second if that is longer. Throws a TypeError for a wrong type or
 * an unknown option, and a RangeError for `maxKeys` out of range.
 *
 * @example
 * const store = memoryStore({ maxKeys: 1_000_000 })
 * const limiter = createLimiter(tokenBucket({ limit: 100, window: '1m' }), { store })
 */
export function memoryStore(options: MemoryStoreOptions = {}): MemoryStore {
  checkOptions('memoryStore', options, ['maxKeys', 'onFull'])
  const { maxKeys = 100_000, onFull = 'forget' } = options
  wholeNumber('maxKeys', maxKeys)
  if (maxKeys < 1 || maxKeys > MOST_KEYS) throw invalid(RangeError, 'maxKeys', '1 to 2^23 keys', maxKeys)
  if (onFull !== 'forget' && onFull !== 'refuse')
    throw invalid(TypeError, 'onFull', "'forget' or 'refuse'", onFull)

  const opened = new Set<WeakRef<MemoryLedger>>()
  /** The ledgers of limiters that are still in use. */
  function ledgers(): MemoryLedger[] {
    const alive: MemoryLedger[] = []
    for (const reference of opened) {
      const ledger = reference.deref()
      if (ledger === undefined) opened.delete(reference)
      else alive.push(ledger)
    }
    return alive
  }

  return {
    async: false,
    open(spec: LedgerSpec) {
      if (spec.algorithm.lanes > 0) warnInClusterWorker()
      const ledger = new MemoryLedger(spec, maxKeys, onFull === 'forget')
      opened.add(new WeakRef(ledger))
      return ledger
    },
    get size() {
      return ledgers().reduce((size, ledger) => size + ledger.keys, 0)
    },
    sweep() {
      for (const ledger of ledgers()) ledger.sweepAll()
    },
  }
}

/** A Map of V8 holds at most 2^24 entries, and is rebuilt before it holds them all. */
const MOST_KEYS = 2 ** 23

function warnInClusterWorker(): void {
  if (builtin<{ isWorker: boolean }>('node:cluster')?.isWorker)
    warnOnce('SLUICE_MEMORY_IN_CLUSTER', 'In a cluster, each worker counts for itself. Use a shared store.')
}
