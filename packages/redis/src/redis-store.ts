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
import { decideTogether } from './decide-all.js'
import { globEscaped, prefixOf, unescaped } from './key-names.js'
import { RedisLedger, type Shelf } from './redis-ledger.js'
import { STORED } from './twins.js'

/** Options of `redisStore`. */
export interface RedisStoreOptions {
  /** What all keys begin with: at most 64 letters, digits and `_ . : -`; default `'sluice'`. */
  readonly prefix?: string | undefined
  /** How long a call may take before it counts as failed, and as charged; default `'100ms'`. */
  readonly deadline?: Duration | undefined
  /**
   * What an ask is answered while the server fails: `'allow'`, `'refuse'` (both as decisions of code SLUICE_STORE_ERROR), or
   * `'throw'`, the default, an error of that code.
   */
  readonly onStoreError?: OnStoreError | undefined
}

/** A store of `redisStore`. */
export interface RedisStore extends AsyncStore {
  /**
   * The keys that have a state on the server, of one limiter or of all with this prefix, by SCAN: while keys come and go,
   * one that was there all the time is listed at least once. It does not see through a `keyPrefix` of the client's own;
   * state a `prefix` here instead. Ends with an error of code SLUICE_STORE_ERROR when the server does not answer.
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
  /** The key as the limiter was asked for it; undefined when it has more than 128 bytes, and only its hash is there. */
  readonly key: string | undefined
  /** The algorithm whose state it is. */
  readonly algorithm: string
}

/**
 * A store on Redis 6.2 or later, or Valkey, for limits that many processes share. Decisions are those of memory to the
 * microsecond, by the server's clock; each is one call, whatever the number of policies.
 *
 * Takes a client of ioredis 5 and 6 (and what is made like it), or of node-redis 4 to 6. Every limiter on it needs a
 * `name`, which all processes share with its algorithm and options; the same name with others throws. Throws a TypeError or
 * RangeError (with `code` and `option`) for a client that is none and for bad options.
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

  const opened = new Map<string, Algorithm>()
  const nextId = ids()
  const shelf: Shelf = {
    commands,
    prefix,
    together: decideTogether(commands, nextId),
    nextId,
    changed: (name, algorithm) => opened.set(name, algorithm),
  }
  return {
    async: true,
    deadline,
    onStoreError,
    open(spec) {
      const { name, algorithm, clock, isNamed = true } = spec
      if (!isNamed)
        throw invalid(TypeError, 'name', 'a name for a limiter on a store that is shared', undefined)
      const ledger = new RedisLedger(shelf, name, algorithm, clock)
      const before = opened.get(name)
      if (before !== undefined && !(before.name === algorithm.name && sameArgs(before, algorithm)))
        throw nameTaken(name)
      opened.set(name, algorithm)
      return guarded(ledger, spec)
    },
    list: ({ name } = {}) => listed(commands, new Deadlines(deadlineUs / 1000), prefix, name),
  }
}

function nameTaken(name: string): Error {
  return coded(
    new Error(
      `name: '${name}' is in use on this store with another algorithm or other options; choose another name, or update ` +
        'the limiter that has it',
    ),
    'SLUICE_NAME_TAKEN',
    'name',
  )
}

/** Texts that no process has used before. */
function ids(): () => string {
  const process = randomBytes(9).toString('base64url')
  let count = 0
  return () => `${process}${(count++).toString(36)}`
}

async function* listed(
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

/** What the name of a key on the server tells; undefined for what is no state of ours. */
function storedKey(text: string, prefix: string): StoredKey | undefined {
  const end = text.indexOf('}:')
  const last = text.lastIndexOf(':')
  if (!text.startsWith(`${prefix}{`) || end === -1 || last <= end + 1) return undefined
  const [algorithm = ''] = text.slice(last + 1).split('.')
  if (!STORED.includes(algorithm)) return undefined
  return { name: text.slice(end + 2, last), key: unescaped(text.slice(prefix.length + 1, end)), algorithm }
}
