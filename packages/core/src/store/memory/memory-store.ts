import { invalid } from '../../shared/errors.js'
import { builtin } from '../../shared/node-module.js'
import { checkOptions, wholeNumber } from '../../shared/validate.js'
import { warnOnce } from '../../shared/warnings.js'
import type { LedgerSpec, SyncStore } from '../store.js'
import { MemoryLedger } from './memory-ledger.js'

/** Options of `memoryStore`. */
export interface MemoryStoreOptions {
  /** The most keys a limiter holds, a hard bound: 1 to 2^23, default 100,000. */
  readonly maxKeys?: number | undefined
  /**
   * What happens to a new key when the store is full of keys that are all being refused: `'forget'` one of them (the
   * default, with a process warning), or `'refuse'` the new key. As long as any of a few sampled keys is not being
   * refused, the least loaded of them makes room.
   */
  readonly onFull?: 'forget' | 'refuse' | undefined
}

/** A store of `memoryStore`. */
export interface MemoryStore extends SyncStore {
  /** Keys held now, over all limiters of this store. */
  readonly size: number
  /** Forgets every key that has rested, now. Needs no calling: each decision sweeps a few keys. */
  sweep(): void
}

/**
 * A store in this process's memory: synchronous, bounded, without timers.
 *
 * A key costs about 60 bytes plus its text (a flat copy; a key over 128 bytes is held as its hash), in pages of 4,096 keys
 * (130 kB), and is forgotten once it has rested for max(1 s, window). Each limiter opened on the store has `maxKeys` keys
 * of its own, which go with the limiter. Throws a TypeError for a wrong type or an unknown option, a RangeError for
 * `maxKeys` out of range.
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
  /** Those whose limiter is still in use. */
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

/** A Map holds at most 2^24 entries, and not all of them before it has to be rebuilt. */
const MOST_KEYS = 2 ** 23

function warnInClusterWorker(): void {
  if (builtin<{ isWorker: boolean }>('node:cluster')?.isWorker)
    warnOnce(
      'SLUICE_MEMORY_IN_CLUSTER',
      'A limiter in a cluster worker keeps its keys in the memory of that worker: together the workers allow as many ' +
        'times the limit as there are. Share a store, or divide the limit by the number of workers.',
    )
}
