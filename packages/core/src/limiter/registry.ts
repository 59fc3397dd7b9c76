import { type Algorithm, sameArgs } from '../algorithms/algorithm.js'
import { unlimited } from '../algorithms/unlimited.js'
import { waitToUs } from '../shared/duration.js'
import { coded, invalid } from '../shared/errors.js'
import { callable, checkOptions, having, policyName } from '../shared/validate.js'
import type { AsyncStore, SyncStore } from '../store/store.js'
import { createLimiter } from './create-limiter.js'
import { channelOf } from './events.js'
import type { Limiter, LimiterOptions } from './limiter.js'
import { checkAlgorithm, type LedgerLimiter, type Terms } from './limiter-class.js'

/** Options of `createRegistry`: what every limiter of it has unless told otherwise. */
export interface RegistryOptions<S extends SyncStore | AsyncStore | undefined = undefined>
  extends Omit<LimiterOptions<S>, 'name'> {
  /** The algorithm of a limiter that is asked for by name alone. */
  readonly algorithm?: Algorithm | undefined
}

/** What has happened to a limiter of a registry. */
export interface RegistryEvent<Async extends boolean = boolean> {
  readonly change: 'added' | 'replaced' | 'removed'
  readonly limiter: Limiter<Async>
}

/** Limiters by name. */
export interface Registry<Async extends boolean = boolean> extends Iterable<Limiter<Async>> {
  /** How many limiters it holds. */
  readonly size: number
  /**
   * The limiter of that name, made now if there is none. Throws an Error of code SLUICE_NAME_TAKEN when there is one with
   * another algorithm or other options than are stated, and a TypeError when it has to be made and there is no algorithm.
   */
  get(name: string, algorithm?: Algorithm, options?: Pick<LimiterOptions, 'maxWait'>): Limiter<Async>
  /** The limiter of that name, if there is one. */
  find(name: string): Limiter<Async> | undefined
  /** A limiter of that name with that algorithm, in the place of the one there was, which is closed; its keys start afresh. */
  replace(name: string, algorithm: Algorithm, options?: Pick<LimiterOptions, 'maxWait'>): Limiter<Async>
  /** Closes the limiter of that name and forgets it. Returns whether there was one. */
  remove(name: string): boolean
  /** Calls a listener for each change from now on, until the returned function is called. */
  subscribe(listener: (event: RegistryEvent<Async>) => void): () => void
  /** Closes all limiters, and forgets them. */
  close(): void
}

/**
 * A registry: limiters by name that share a store, a clock and other defaults.
 *
 * Throws a TypeError or RangeError for an option that is unknown, of a wrong type or out of range.
 *
 * @example
 * const limits = createRegistry({ store: memoryStore(), algorithm: tokenBucket({ limit: 100, window: '1m' }) })
 * limits.get('search').tryAcquire('ann')
 * limits.get('login', slidingLog({ limit: 5, window: '15m' })).tryAcquire('ann')
 * for (const limiter of limits) console.log(limiter.stats())
 */
export function createRegistry<S extends SyncStore | AsyncStore | undefined = undefined>(
  options: RegistryOptions<S> = {},
): Registry<S extends AsyncStore ? true : false> {
  checkOptions('createRegistry', options, [
    'algorithm',
    'store',
    'clock',
    'maxWait',
    'maxQueue',
    'maxQueuePerKey',
    'onStoreError',
    'deadline',
  ])
  const { algorithm: usual, ...defaults } = options
  if (usual !== undefined) checkAlgorithm(usual)
  // What is wrong with the defaults is wrong for every limiter, and is to be said now.
  if (options.store !== undefined) having('open', 'store', options.store, 'a store such as memoryStore()')
  createLimiter(unlimited(), { ...defaults, store: NO_STORE })

  type Async = S extends AsyncStore ? true : false
  interface Entry {
    readonly limiter: LedgerLimiter<Async>
    readonly own: Own
  }
  const entries = new Map<string, Entry>()
  const listeners = new Set<(event: RegistryEvent<Async>) => void>()

  /** The wait that a limiter of ours accepts, in microseconds. */
  function patience(own: Own): number {
    const { maxWait = defaults.maxWait } = own
    return maxWait === undefined ? Infinity : waitToUs('maxWait', maxWait)
  }

  function tell(change: RegistryEvent['change'], limiter: Limiter<Async>): void {
    if (REGISTRY.hasSubscribers) REGISTRY.publish({ limiter: limiter.name, change })
    for (const listener of [...listeners]) listener({ change, limiter })
  }

  function make(name: string, algorithm: Algorithm | undefined, own: Own): LedgerLimiter<Async> {
    if (algorithm === undefined)
      throw invalid(TypeError, 'algorithm', `an algorithm for '${name}'`, algorithm)
    checkAlgorithm(algorithm)
    const limiter = createLimiter(algorithm, { ...defaults, ...own, name }) as unknown as LedgerLimiter<Async>
    entries.set(name, { limiter, own })
    return limiter
  }

  function remove(name: string): boolean {
    const entry = entries.get(name)
    if (entry === undefined) return false
    entries.delete(name)
    entry.limiter.close()
    tell('removed', entry.limiter)
    return true
  }

  return {
    get size() {
      return entries.size
    },
    get(name, algorithm, own = {}) {
      checkOptions('get', own, ['maxWait'])
      if (algorithm !== undefined) checkAlgorithm(algorithm)
      const entry = entries.get(policyName('name', name))
      if (entry === undefined) {
        const limiter = make(name, algorithm === undefined ? usual : algorithm, own)
        tell('added', limiter)
        return limiter
      }
      const { limiter } = entry
      const isAnother = algorithm !== undefined && !isMadeWith(limiter, algorithm)
      const waitsOtherwise = own.maxWait !== undefined && patience(own) !== patience(entry.own)
      if (isAnother || waitsOtherwise)
        throw coded(
          new Error(
            `name: there is a limiter '${name}' with another algorithm or other options; replace() changes it`,
          ),
          'SLUICE_NAME_TAKEN',
          'name',
        )
      return limiter
    },
    find: name => entries.get(name)?.limiter,
    replace(name, algorithm, own = {}) {
      checkOptions('replace', own, ['maxWait'])
      checkAlgorithm(algorithm)
      const before = entries.get(policyName('name', name))
      const limiter = make(name, algorithm, own)
      before?.limiter.close()
      tell(before === undefined ? 'added' : 'replaced', limiter)
      return limiter
    },
    remove,
    subscribe(listener) {
      callable('listener', listener)
      // Each subscription is one of its own, also of the same function.
      const subscription = (event: RegistryEvent<Async>) => listener(event)
      listeners.add(subscription)
      return () => listeners.delete(subscription)
    },
    close() {
      for (const name of [...entries.keys()]) remove(name)
    },
    *[Symbol.iterator]() {
      for (const { limiter } of entries.values()) yield limiter
    },
  }
}

type Own = Pick<LimiterOptions, 'maxWait'>

/** For a limiter that is made to see whether it can be. */
const NO_STORE = { async: false, open: () => ({ async: false }) } as unknown as SyncStore

const REGISTRY = channelOf('sluice:registry')

/** Whether a limiter of ours, which all have an algorithm for their terms, decides as one would say. */
function isMadeWith({ terms }: { readonly terms: Terms }, algorithm: Algorithm): boolean {
  return terms.name === algorithm.name && sameArgs(terms as Algorithm, algorithm)
}
