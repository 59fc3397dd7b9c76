import { type Algorithm, sameArgs } from '../algorithms/algorithm.js'
import { waitToUs } from '../shared/duration.js'
import { coded, invalid } from '../shared/errors.js'
import { callable, checkOptions, policyName } from '../shared/validate.js'
import type { AsyncStore, SyncStore } from '../store/store.js'
import { checkLimiterOptions, createLimiter, LIMITER_OPTIONS } from './create-limiter.js'
import { channelOf } from './events.js'
import type { Limiter, LimiterOptions } from './limiter.js'
import { checkAlgorithm, type LedgerLimiter } from './limiter-class.js'
import { limiterOf } from './limiter-of.js'

/** Options of `createRegistry`: the defaults of its limiters. */
export interface RegistryOptions<S extends SyncStore | AsyncStore | undefined = undefined>
  extends Omit<LimiterOptions<S>, 'name'> {
  /** The algorithm of limiters that `get` makes without one. */
  readonly algorithm?: Algorithm | undefined
}

/** A change of a registry. */
export interface RegistryEvent<Async extends boolean = boolean> {
  readonly change: 'added' | 'replaced' | 'removed'
  readonly limiter: Limiter<Async>
}

/** Limiters by name. */
export interface Registry<Async extends boolean = boolean> extends Iterable<Limiter<Async>> {
  /** How many limiters there are. */
  readonly size: number
  /**
   * Returns the limiter of this name, and makes it if there is none. Throws an Error of code SLUICE_NAME_TAKEN if there is
   * one with another algorithm or another `maxWait`, and a TypeError if there is none and no algorithm for it.
   */
  get(name: string, algorithm?: Algorithm, options?: Pick<LimiterOptions, 'maxWait'>): Limiter<Async>
  /** The limiter of this name, or undefined. */
  find(name: string): Limiter<Async> | undefined
  /** Makes a limiter of this name, whose keys start afresh, and closes the one that it replaces. */
  replace(name: string, algorithm: Algorithm, options?: Pick<LimiterOptions, 'maxWait'>): Limiter<Async>
  /** Closes and removes the limiter of this name. Returns whether there was one. */
  remove(name: string): boolean
  /** Calls a listener for each change, until the returned function is called. */
  subscribe(listener: (event: RegistryEvent<Async>) => void): () => void
  /** Closes and removes all limiters. */
  close(): void
}

/**
 * Makes a registry: limiters by name that share a store, a clock and other defaults.
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
  checkOptions('createRegistry', options, ['algorithm', ...LIMITER_OPTIONS])
  const { algorithm: usual, ...defaults } = options
  if (usual !== undefined) checkAlgorithm(usual)
  checkLimiterOptions(defaults)

  type Async = S extends AsyncStore ? true : false
  interface Entry {
    readonly limiter: LedgerLimiter<Async>
    readonly own: Own
  }
  const entries = new Map<string, Entry>()
  const listeners = new Set<(event: RegistryEvent<Async>) => void>()

  /** The longest wait of a limiter with these options, in microseconds. */
  function maxWaitUsOf(own: Own): number {
    const { maxWait = defaults.maxWait } = own
    return maxWait === undefined ? Infinity : waitToUs('maxWait', maxWait)
  }

  function publish(change: RegistryEvent['change'], limiter: Limiter<Async>): void {
    if (REGISTRY.hasSubscribers) REGISTRY.publish({ limiter: limiter.name, change })
    for (const listener of [...listeners]) listener({ change, limiter })
  }

  function make(name: string, algorithm: Algorithm | undefined, own: Own): LedgerLimiter<Async> {
    if (algorithm === undefined)
      throw invalid(TypeError, 'algorithm', `an algorithm for '${name}'`, algorithm)
    checkAlgorithm(algorithm)
    const limiter = limiterOf<Async>(createLimiter(algorithm, { ...defaults, ...own, name }))
    entries.set(name, { limiter, own })
    return limiter
  }

  function remove(name: string): boolean {
    const entry = entries.get(name)
    if (entry === undefined) return false
    entries.delete(name)
    entry.limiter.close()
    publish('removed', entry.limiter)
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
        publish('added', limiter)
        return limiter
      }
      const { limiter } = entry
      const isAnother = algorithm !== undefined && !isMadeWith(limiter, algorithm)
      const hasOtherWait = own.maxWait !== undefined && maxWaitUsOf(own) !== maxWaitUsOf(entry.own)
      if (isAnother || hasOtherWait)
        throw coded(
          new Error(
            `name: limiter '${name}' exists with another algorithm or another maxWait; replace() changes it`,
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
      publish(before === undefined ? 'added' : 'replaced', limiter)
      return limiter
    },
    remove,
    subscribe(listener) {
      callable('listener', listener)
      // A new function, so that a listener can be subscribed twice.
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

const REGISTRY = channelOf('sluice:registry')

/** Whether a limiter of a registry, which is never a combination, has this algorithm with these options. */
function isMadeWith({ algorithm }: LedgerLimiter<boolean>, other: Algorithm): boolean {
  return algorithm.name === other.name && sameArgs(algorithm as Algorithm, other)
}
