import { randomBytes } from 'node:crypto'
import type { Algorithm, AsyncStore, Duration, OnStoreError } from '@sluice/core'
import {
  checkOnStoreError,
  checkOptions,
  coded,
  Deadlines,
  guarded,
  invalid,
  sameArgs,
  spanToUs,
  storeError,
} from '@sluice/core/store'
import { type Commands, commandsOf, type RedisClient } from './clients.js'
import { decideAll } from './decide-all.js'
import { globEscaped, prefixOf, unescaped } from './key-names.js'
import { RedisLedger, type StoreContext } from './redis-ledger.js'
import { STORED_ALGORITHMS } from './scripts/twins.js'

/** Options of `redisStore`. */
export interface RedisStoreOptions {
  /** The start of all keys on the server: at most 64 letters, digits and `_ . : -`; default `'sluice'`. */
  readonly prefix?: string | undefined
  /** How long a call may take; default `'100ms'`. A call that takes longer counts as failed, and its permits as taken. */
  readonly deadline?: Duration | undefined
  /**
   * What happens to a request while the server fails. `'allow'` grants and `'refuse'` refuses it, by a decision with the code
   * SLUICE_STORE_ERROR. `'throw'`, the default, throws an error with that code.
   */
  readonly onStoreError?: OnStoreError | undefined
}

/** The store that `redisStore` returns. */
export interface RedisStore extends AsyncStore {
  /**
   * Lists the keys that have a state on the server: those of one limiter, or all with this store's prefix. It uses SCAN: a key
   * that exists all the time is listed at least once, and maybe more often. It finds nothing if the client has a `keyPrefix` of
   * its own; use the store's `prefix` instead. Throws an error with the code SLUICE_STORE_ERROR if the server does not answer.
   *
   * @example
   * for await (const { key, name } of store.list({ name: 'per-user' })) console.log(name, key)
   */
  list(options?: { readonly name?: string | undefined }): AsyncIterableIterator<StoredKey>
}

/** A key on the server. */
export interface StoredKey {
  /** The name of the limiter. */
  readonly name: string
  /** The key that the limiter was called with; undefined if it has more than 128 bytes, because the server has only its hash. */
  readonly key: string | undefined
  /** The algorithm of its state, such as `token-bucket`. */
  readonly algorithm: string
}

/**
 * A store on Redis 6.2 or later, or on Valkey, for limits that several processes share. It decides as `memoryStore` does, to
 * the microsecond, by the server's clock. Each decision is one call, for any number of policies.
 *
 * `client` is a client of ioredis 5 or 6, iovalkey, or node-redis 4 to 6, for one server and not for a cluster. Every limiter
 * on the store needs a `name`. All processes use a name with the same algorithm and options; two limiters of one store that
 * use it with different ones throw an error with the code SLUICE_NAME_TAKEN. Throws a TypeError or RangeError (with `code` and
 * `option`) for a value that is no client, and for bad options.
 *
 * @example
 * const store = redisStore(new Redis(), { prefix: 'my-app' })
 * const perUser = createLimiter(tokenBucket({ limit: 600, window: '1m' }), { name: 'per-user', store })
 * const { allowed } = await perUser.tryAcquire('ann')
 */
export function redisStore(client: RedisClient, options: RedisStoreOptions = {}): RedisStore {
  const commands = commandsOf(client)
  checkOptions('redisStore', options, ['prefix', 'deadline', 'onStoreError'])
  const { deadline, onStoreError } = options
  const prefix = prefixOf(options.prefix)
  const deadlineUs = spanToUs('deadline', deadline === undefined ? 100 : deadline)
  if (onStoreError !== undefined) checkOnStoreError(onStoreError)

  const algorithms = new Map<string, Algorithm>()
  const nextId = ids()
  const context: StoreContext = {
    commands,
    prefix,
    together: decideAll(commands, nextId),
    nextId,
    onUpdate: (name, algorithm) => algorithms.set(name, algorithm),
  }
  return {
    async: true,
    deadline,
    onStoreError,
    open(spec) {
      const { name, algorithm, clock, isNamed = true } = spec
      if (!isNamed)
        throw invalid(TypeError, 'name', 'a name for a limiter on a store that is shared', undefined)
      const ledger = new RedisLedger(context, name, algorithm, clock)
      const before = algorithms.get(name)
      if (before !== undefined && !(before.name === algorithm.name && sameArgs(before, algorithm)))
        throw nameTaken(name)
      algorithms.set(name, algorithm)
      return guarded(ledger, spec)
    },
    list: ({ name } = {}) => list(commands, new Deadlines(deadlineUs / 1000), prefix, name),
  }
}

function nameTaken(name: string): Error {
  return coded(
    new Error(
      `name: '${name}' is in use on this store with another algorithm or other options; choose another name, or update ` +
        'the limiter that uses it',
    ),
    'SLUICE_NAME_TAKEN',
    'name',
  )
}

/** Makes strings that no other process makes. */
function ids(): () => string {
  const process = randomBytes(9).toString('base64url')
  let count = 0
  return () => `${process}${(count++).toString(36)}`
}

async function* list(
  commands: Commands,
  deadlines: Deadlines,
  prefix: string,
  name: string | undefined,
): AsyncIterableIterator<StoredKey> {
  const pattern = `${globEscaped(prefix)}{*}:${name === undefined ? '*' : globEscaped(name)}:*`
  let cursor = '0'
  do {
    const scanned = commands.scan(cursor, pattern, SCAN_COUNT)
    const [next, keys] = await deadlines.keep(scanned, Array.isArray, storeError)
    cursor = next
    for (const key of keys) {
      const stored = storedKey(key, prefix)
      if (stored !== undefined && (name === undefined || stored.name === name)) yield stored
    }
  } while (cursor !== '0')
}

const SCAN_COUNT = 500

/** Reads the name of a key on the server; undefined if it is not the key of a state. */
function storedKey(text: string, prefix: string): StoredKey | undefined {
  const end = text.indexOf('}:')
  const last = text.lastIndexOf(':')
  if (!text.startsWith(`${prefix}{`) || end === -1 || last <= end + 1) return undefined
  const [algorithm = ''] = text.slice(last + 1).split('.')
  if (!STORED_ALGORITHMS.includes(algorithm)) return undefined
  return { name: text.slice(end + 2, last), key: unescaped(text.slice(prefix.length + 1, end)), algorithm }
}
