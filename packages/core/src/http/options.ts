import { tokenBucket } from '../algorithms/token-bucket.js'
import type { MaybePromise } from '../answer.js'
import type { Clock } from '../clock.js'
import { checkCost } from '../cost.js'
import type { Decision } from '../decision.js'
import { type Duration, waitToUs } from '../duration.js'
import { coded, invalid } from '../errors.js'
import type { OnStoreError } from '../guarded-ledger.js'
import { membersOf } from '../joint-limiter.js'
import { LedgerLimiter } from '../ledger-limiter.js'
import { createLimiter, isLimiter, type Limiter } from '../limiter.js'
import { callable, checkOptions, policyName, wholeNumber } from '../options.js'
import type { AsyncStore, SyncStore } from '../store.js'
import type { Dialect, HeaderStyle, LegacyReset } from './dialects.js'
import type { QuotaUnit } from './headers.js'
import { type Partition, partitionOf } from './partition.js'
import { type Body, type Problem, statedBody } from './problem.js'
import { clientFinder, type FindClient, type ProxyOptions } from './proxies.js'

/** What a framework hands to a handler, the request first: `[Request, Response]` on Express. */
export type Exchange = readonly [request: unknown, ...rest: unknown[]]

/** What the key of a request may be; null for a request that is not limited. */
export type RequestKey = string | number | bigint | null

/** Options of every adapter's `rateLimit`: what limits, and how requests are told apart and answered. */
export type HttpOptions<X extends Exchange> = (LimitDoor | LimiterDoor<X> | PoliciesDoor<X>) &
  RequestOptions<X>

/** The easy door: `limit` requests at once, then one every `window / limit`, per client. */
export interface LimitDoor {
  /** Requests per `window`, and how many a client that was quiet may send at once; 0 refuses everything. */
  readonly limit: number
  /** The time in which `limit` requests refill. */
  readonly window: Duration
  /** The name in the headers: 1 to 64 printable ASCII characters, default `'default'`. */
  readonly name?: string | undefined
  /** Where the keys live; default a memory store of its own. */
  readonly store?: SyncStore | AsyncStore | undefined
  /** Where the time comes from; default the system's monotonic clock. */
  readonly clock?: Clock | undefined
  readonly limiter?: undefined
  readonly policies?: undefined
}

/** The second door: a limiter you own, or one chosen for each request; null for a request that is not limited. */
export interface LimiterDoor<X extends Exchange> {
  readonly limiter: Limiter | ((request: X[0]) => MaybePromise<Limiter | null>)
  readonly limit?: undefined
  readonly window?: undefined
  readonly name?: undefined
  readonly store?: undefined
  readonly clock?: undefined
  readonly policies?: undefined
}

/** The third door: several policies, decided together. A request passes all of them and is charged to all, or to none. */
export interface PoliciesDoor<X extends Exchange> {
  readonly policies: readonly PolicyOptions<X>[]
  readonly limiter?: undefined
  readonly limit?: undefined
  readonly window?: undefined
  readonly name?: undefined
  readonly store?: undefined
  readonly clock?: undefined
}

/** One of several policies: a limit or a limiter, and what differs from the options beside `policies`. */
export type PolicyOptions<X extends Exchange> = (
  | Omit<LimitDoor, 'policies'>
  | (Omit<LimiterDoor<X>, 'name' | 'policies'> & {
      /** The name in the headers; default the limiter's. */
      readonly name?: string | undefined
    })
) &
  CountingOptions<X>

/** How requests are counted. */
export interface CountingOptions<X extends Exchange> {
  /**
   * Who is limited: a non-empty text or a number per request, null for a request that is not limited. Default the
   * client's address, IPv6 by its /56 network.
   */
  readonly key?: ((request: X[0]) => MaybePromise<RequestKey>) | undefined
  /** Permits a request costs: a whole number, default 1. */
  readonly cost?: number | ((request: X[0]) => MaybePromise<number>) | undefined
  /** Counts, and is in no field: for limits that are not the client's own business; default false. */
  readonly hidden?: boolean | undefined
  /** What the quota counts, for the fields; default `'requests'`. */
  readonly unit?: QuotaUnit | undefined
}

/** Options that go with every door. */
export interface RequestOptions<X extends Exchange> extends CountingOptions<X>, ProxyOptions {
  /**
   * The longest a request may be held until its permits are there, at most 60 s; default 0, a request is never held (with
   * a leaky bucket: as long as its queue is). A longer wait is a refusal, and nothing is taken. A client that hangs up
   * while it is held gives its permits back.
   */
  readonly maxWait?: Duration | undefined
  /**
   * Called for a refused request, with status and headers set. May answer it (before it returns, or before the promise
   * it returns settles); otherwise the default answer follows.
   */
  readonly onRefused?: ((...args: [...exchange: X, refusal: Refusal]) => unknown) | undefined
  /** Called with every decision before it takes effect; may be async. */
  readonly onDecision?: ((request: X[0], outcome: Outcome) => unknown) | undefined
  /** The status of a refusal, 400 to 599; default 429. */
  readonly status?: number | undefined
  /** The body of a refusal: a text, an object to be JSON, or a function that returns either; default a problem+json body. */
  readonly body?:
    | Answer
    | ((request: X[0], refusal: Omit<Refusal, 'body'>) => MaybePromise<Answer>)
    | undefined
  /** Decides and counts, says so in fields and to `onDecision`, and lets every request pass; default false. */
  readonly dryRun?: boolean | undefined
  /** CORS preflight requests are not counted and get no fields; default false, because it is an uncounted way in. */
  readonly skipPreflight?: boolean | undefined
  /**
   * What happens to a request while the limiter's store fails: it passes without fields, it is refused with 503, or the
   * error goes to the framework (the default). A limiter may have said so itself.
   */
  readonly onStoreError?: OnStoreError | undefined
  /**
   * The dialect of the RateLimit fields, or false for none; default `'draft-8'`, which 9 to 11 are written like.
   * Retry-After is sent either way.
   */
  readonly headers?: Dialect | false | undefined
  /** X-RateLimit fields as well, their reset as seconds since the `'epoch'` or as a `'delta'`; default false. */
  readonly legacyHeaders?: LegacyReset | false | undefined
  /** Windows announce, as buckets do, for how long what is left should last, not when more is there; default false. */
  readonly paced?: boolean | undefined
  /** Lists our fields in Access-Control-Expose-Headers, so that scripts of other origins may read them; default false. */
  readonly exposeHeaders?: boolean | undefined
  /**
   * A secret; with it the fields carry a partition key, a keyed hash (HMAC-SHA-256, 9 bytes) of the key that is counted by.
   * Off by default: shared caches would replay it to others.
   */
  readonly partitionSecret?: string | undefined
  /** How many bits of an IPv6 address are one client, 32 to 128; default 56, the network of a home. */
  readonly ipv6Prefix?: number | undefined
}

/** The body of an answer. */
export type Answer = string | object

/** A refused request, as `onRefused` sees it. */
export interface Refusal {
  /** What the limiter decided. */
  readonly decision: Decision
  /** The status of the answer, 429 unless stated otherwise, 503 for a store that fails. */
  readonly status: number
  /** The seconds in Retry-After; undefined when waiting cannot help. */
  readonly retryAfter: number | undefined
  /** What the refusal is about, and the default body. */
  readonly problem: Problem
  /** The body of the answer. */
  readonly body: Body
}

/** A decision, as `onDecision` sees it. */
export interface Outcome {
  readonly decision: Decision
  /** Whether the request is refused; never in a dry run, whose `decision` says what would have been. */
  readonly refused: boolean
}

/** Options, checked and with every default in place. */
export interface Rules<X extends Exchange> extends HeaderStyle {
  readonly policies: readonly PolicyRule<X>[]
  /** Undefined for what the limiter's algorithm says. */
  readonly maxWaitMs: number | undefined
  readonly status: number
  readonly body: ((request: X[0], refusal: Omit<Refusal, 'body'>) => MaybePromise<unknown>) | undefined
  readonly onDecision: RequestOptions<X>['onDecision']
  readonly onStoreError: OnStoreError
  readonly dryRun: boolean
  readonly skipPreflight: boolean
  readonly paced: boolean
  readonly exposeHeaders: boolean
  readonly partition: Partition | undefined
  readonly findClient: FindClient | undefined
  readonly ipv6Prefix: number
}

/** One policy of a route. */
export interface PolicyRule<X extends Exchange> {
  /** Where it stands among them. */
  readonly place: number
  readonly limiter: Limiter | ((request: X[0]) => MaybePromise<Limiter | null>)
  /** The name in the fields; undefined for the limiter's. */
  readonly name: string | undefined
  readonly key: ((request: X[0]) => MaybePromise<RequestKey>) | undefined
  readonly cost: number | ((request: X[0]) => MaybePromise<number>)
  readonly hidden: boolean
  readonly unit: QuotaUnit | undefined
}

/** Checks the options of an adapter once, when it is made. */
export function rulesOf<X extends Exchange>(options: HttpOptions<X>): Rules<X> {
  checkOptions('rateLimit', options, [...LIMIT_DOOR, 'limiter', 'policies', ...REQUEST_OPTIONS])
  for (const name of ['onRefused', 'onDecision'] as const)
    if (options[name] !== undefined) callable(name, options[name])
  return {
    policies: policiesOf(options),
    maxWaitMs: options.maxWait === undefined ? undefined : holdToMs(options.maxWait),
    status: statusOf(options.status),
    body: bodyOf(options.body),
    onDecision: options.onDecision,
    onStoreError: oneOf('onStoreError', options.onStoreError, ['throw', 'allow', 'refuse']),
    dryRun: flag('dryRun', options.dryRun),
    skipPreflight: flag('skipPreflight', options.skipPreflight),
    dialect: optionalOf('headers', options.headers, DIALECTS, 'draft-8'),
    legacy: optionalOf('legacyHeaders', options.legacyHeaders, ['epoch', 'delta'], undefined),
    paced: flag('paced', options.paced),
    exposeHeaders: flag('exposeHeaders', options.exposeHeaders),
    partition: options.partitionSecret === undefined ? undefined : partitionOf(options.partitionSecret),
    findClient: clientFinder(options),
    ipv6Prefix: prefixOf(options.ipv6Prefix),
  }
}

/** Checks what a `limiter` option, or a function given for it, has come up with. */
export function checkLimiter(value: unknown, expected = 'a limiter made by createLimiter'): Limiter {
  if (isLimiter(value)) {
    // Its name becomes a field; ours have been checked.
    if (value instanceof LedgerLimiter) return value
    policyName('limiter', value.name)
    if (typeof value.policy?.limit === 'number') return value
  }
  throw invalid(TypeError, 'limiter', expected, value, 'SLUICE_INVALID_LIMITER')
}

/** Proxies and browsers do not wait much longer, and each held request is a connection that is open. */
export const LONGEST_HOLD_MS = 60_000

const LIMIT_DOOR = ['limit', 'window', 'name', 'store', 'clock'] as const
const COUNTING = ['key', 'cost', 'hidden', 'unit'] as const
const REQUEST_OPTIONS = [
  ...COUNTING,
  'maxWait',
  'onRefused',
  'onDecision',
  'status',
  'body',
  'dryRun',
  'skipPreflight',
  'onStoreError',
  'headers',
  'legacyHeaders',
  'paced',
  'exposeHeaders',
  'partitionSecret',
  'ipv6Prefix',
  'trustedProxies',
  'hops',
  'forwardedHeader',
] as const
const DIALECTS = ['draft-8', 'draft-9', 'draft-10', 'draft-11', 'draft-7', 'draft-6'] as const
const UNITS = ['requests', 'content-bytes', 'concurrent-requests'] as const

function policiesOf<X extends Exchange>(options: HttpOptions<X>): readonly PolicyRule<X>[] {
  const { policies } = options
  if (policies === undefined) {
    if (Object.hasOwn(options, 'policies') && options.limit === undefined && options.limiter === undefined)
      throw invalid(TypeError, 'policies', A_LIST, policies)
    return [policyOf(options, {}, undefined, 0)]
  }
  rejectBeside('policies', [...LIMIT_DOOR, 'limiter'], options)
  if (!Array.isArray(policies) || policies.length === 0)
    throw invalid(TypeError, 'policies', A_LIST, policies)
  const rules = policies.map((policy: PolicyOptions<X>, place) => {
    checkOptions('policies', policy, [...LIMIT_DOOR, 'limiter', ...COUNTING])
    const name = policy.limiter === undefined || policy.name === undefined ? undefined : policy.name
    const rule = policyOf(policy, options, name === undefined ? undefined : policyName('name', name), place)
    // What is decided together has to be ours.
    if (typeof rule.limiter !== 'function') membersOf(rule.limiter)
    return rule
  })
  checkNames(rules)
  return rules
}

const A_LIST = 'a list of at least one policy such as [{ name, limit, window }, { limiter, key }]'

function policyOf<X extends Exchange>(
  options: (LimitDoor | LimiterDoor<X> | PolicyOptions<X>) & CountingOptions<X>,
  usual: CountingOptions<X>,
  name: string | undefined,
  place: number,
): PolicyRule<X> {
  const key = options.key === undefined ? usual.key : options.key
  const { cost = usual.cost === undefined ? 1 : usual.cost } = options
  if (key !== undefined) callable('key', key)
  const { unit = usual.unit, hidden = usual.hidden } = options
  return {
    place,
    limiter: limiterOf(name === undefined ? options : { ...options, name: undefined }),
    name,
    key,
    cost: typeof cost === 'function' ? cost : checkCost(cost),
    hidden: flag('hidden', hidden),
    unit: unit === undefined ? undefined : oneOf('unit', unit, UNITS),
  }
}

/** A client could not tell policies of one name apart. */
function checkNames<X extends Exchange>(rules: readonly PolicyRule<X>[]): void {
  const names = new Set<string>()
  for (const { limiter, name = typeof limiter === 'function' ? undefined : limiter.name } of rules) {
    const folded = name?.toLowerCase()
    if (folded === undefined) continue
    if (names.has(folded)) throw invalid(RangeError, 'name', 'another name for each of the policies', name)
    names.add(folded)
  }
}

function limiterOf<X extends Exchange>(options: LimitDoor | LimiterDoor<X> | PolicyOptions<X>) {
  if (options.limiter === undefined) {
    // Most likely a variable that was not what it should be.
    if (Object.hasOwn(options, 'limiter') && options.limit === undefined) checkLimiter(undefined)
    const { limit, window, name, store, clock } = options
    // Somebody else's keys may lie there under the name that all have who state none.
    if (store?.async && name === undefined)
      throw invalid(TypeError, 'name', 'a name for the limit in a store that is shared', name)
    return createLimiter(tokenBucket({ limit, window }), { name, store, clock }) as Limiter
  }
  rejectBeside('limiter', LIMIT_DOOR, options)
  return typeof options.limiter === 'function' ? options.limiter : checkLimiter(options.limiter)
}

/** Options of one door are not for another. */
function rejectBeside(door: string, names: readonly string[], options: object): void {
  const extra = names.find(name => (options as Record<string, unknown>)[name] !== undefined)
  if (extra !== undefined)
    throw coded(
      new TypeError(`${extra}: cannot be combined with '${door}', which brings its own`),
      'SLUICE_INVALID_OPTION',
      extra,
    )
}

function holdToMs(duration: Duration): number {
  const ms = waitToUs('maxWait', duration) / 1000
  if (ms > LONGEST_HOLD_MS) throw invalid(RangeError, 'maxWait', 'at most 60 seconds', duration)
  return ms
}

function statusOf(status: unknown): number {
  if (status === undefined) return 429
  wholeNumber('status', status)
  if ((status as number) < 400 || (status as number) > 599)
    throw invalid(RangeError, 'status', 'a status from 400 to 599', status)
  return status as number
}

function bodyOf<X extends Exchange>(body: RequestOptions<X>['body']): Rules<X>['body'] {
  if (body === undefined) return undefined
  if (typeof body === 'function') return body as Rules<X>['body']
  statedBody(body, 'SLUICE_INVALID_OPTION')
  return () => body
}

function prefixOf(prefix: unknown): number {
  if (prefix === undefined) return 56
  wholeNumber('ipv6Prefix', prefix)
  if ((prefix as number) < 32 || (prefix as number) > 128)
    throw invalid(RangeError, 'ipv6Prefix', '32 to 128 bits', prefix)
  return prefix as number
}

function flag(option: string, value: unknown): boolean {
  if (value === undefined) return false
  if (typeof value !== 'boolean') throw invalid(TypeError, option, 'true or false', value)
  return value
}

/** One of some texts, the first unless stated. */
function oneOf<T extends string>(option: string, value: unknown, texts: readonly [T, ...T[]]): T {
  if (value === undefined) return texts[0]
  if ((texts as readonly unknown[]).includes(value)) return value as T
  throw invalid(TypeError, option, listed(texts), value)
}

/** One of some texts, or false for none. */
function optionalOf<T extends string>(
  option: string,
  value: unknown,
  texts: readonly T[],
  usual: T | undefined,
): T | undefined {
  if (value === undefined) return usual
  if (value === false) return undefined
  if ((texts as readonly unknown[]).includes(value)) return value as T
  throw invalid(TypeError, option, `${listed(texts)} or false`, value)
}

function listed(texts: readonly string[]): string {
  return texts.map(text => `'${text}'`).join(', ')
}
