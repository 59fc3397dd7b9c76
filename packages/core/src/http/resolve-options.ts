import { tokenBucket } from '../algorithms/token-bucket.js'
import { createLimiter, isLimiter } from '../limiter/create-limiter.js'
import { membersOf } from '../limiter/joint/joint-limiter.js'
import type { Limiter } from '../limiter/limiter.js'
import { LedgerLimiter } from '../limiter/limiter-class.js'
import { checkCost } from '../shared/cost.js'
import { type Duration, spanToUs, waitToUs } from '../shared/duration.js'
import { coded, invalid } from '../shared/errors.js'
import type { MaybePromise } from '../shared/maybe-promise.js'
import { callable, checkOptions, policyName, wholeNumber } from '../shared/validate.js'
import type { Ladder, OnStoreError } from '../store/store.js'
import type {
  BlockOptions,
  CountingOptions,
  Ending,
  Exchange,
  HttpOptions,
  LimitDoor,
  LimiterDoor,
  PolicyOptions,
  Refund,
  Refusal,
  RequestOptions,
} from './options.js'
import { type Access, accessOf } from './request/allow-deny.js'
import { clientFinder, type FindClient } from './request/forwarded.js'
import type { HeaderStyle } from './response/older-fields.js'
import { type Partition, partitionOf } from './response/partition.js'
import { statedBody } from './response/problem.js'
import type { QuotaUnit } from './response/ratelimit-fields.js'

/** Options, checked and with every default in place. */
export interface Rules<X extends Exchange> extends HeaderStyle {
  readonly policies: readonly PolicyRule<X>[]
  /** Undefined for what the limiter's algorithm says. */
  readonly maxWaitMs: number | undefined
  readonly status: number
  readonly body: ((request: X[0], refusal: Omit<Refusal, 'body'>) => MaybePromise<unknown>) | undefined
  readonly onDecision: RequestOptions<X>['onDecision']
  readonly onStoreError: OnStoreError
  readonly throws: boolean
  readonly access: Access | undefined
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
  readonly key: CountingOptions<X>['key']
  readonly cost: number | ((request: X[0]) => MaybePromise<number>)
  readonly countsAfter: boolean
  /** Whether a request is given back what it was charged, or is not counted; undefined for never. */
  readonly refunds: Refunds<X> | undefined
  readonly ladder: Ladder | undefined
  /** Whether the limiter was made for this policy, and is nobody else's. */
  readonly isOwn: boolean
  readonly hidden: boolean
  readonly unit: QuotaUnit | undefined
}

export type Refunds<X extends Exchange> = (exchange: X, ending: Ending) => MaybePromise<boolean>

/** Checks the options of an adapter once, when it is made. */
export function rulesOf<X extends Exchange>(options: HttpOptions<X>): Rules<X> {
  checkOptions('rateLimit', options, [...LIMIT_DOOR, 'limiter', 'policies', ...REQUEST_OPTIONS])
  for (const name of ['onRefused', 'onDecision'] as const)
    if (options[name] !== undefined) callable(name, options[name])
  const policies = policiesOf(options)
  const maxWaitMs = options.maxWait === undefined ? undefined : holdToMs(options.maxWait)
  if (maxWaitMs !== undefined && maxWaitMs > 0 && policies.some(({ countsAfter }) => countsAfter))
    throw combined('count', "'maxWait': what is counted after cannot be waited for")
  const throws = flag('throws', options.throws)
  if (throws && options.onRefused !== undefined)
    throw combined('throws', "'onRefused', which answers instead")
  return {
    policies,
    maxWaitMs,
    throws,
    access: accessOf(options),
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
const COUNTING = ['key', 'cost', 'count', 'refund', 'block', 'hidden', 'unit'] as const
const REQUEST_OPTIONS = [
  ...COUNTING,
  'maxWait',
  'onRefused',
  'throws',
  'onDecision',
  'status',
  'body',
  'dryRun',
  'allow',
  'deny',
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
  const { unit = usual.unit, hidden = usual.hidden, count = usual.count } = options
  const { refund = usual.refund, block = usual.block } = options
  const rule = {
    place,
    limiter: limiterOf(name === undefined ? options : { ...options, name: undefined }),
    name,
    key,
    cost: typeof cost === 'function' ? cost : checkCost(cost),
    countsAfter: oneOf('count', count, ['before', 'after']) === 'after',
    refunds: refund === undefined ? undefined : refundsOf(refund),
    ladder: block === undefined ? undefined : ladderOf(block),
    isOwn: options.limiter === undefined,
    hidden: flag('hidden', hidden),
    unit: unit === undefined ? undefined : oneOf('unit', unit, UNITS),
  }
  if (goesPastVerbs(rule) && typeof rule.limiter !== 'function') membersOf(rule.limiter)
  return rule
}

/** Whether something is left to do when a request of a policy has ended. */
export function isSettled<X extends Exchange>(rule: Pick<PolicyRule<X>, 'countsAfter' | 'refunds'>): boolean {
  return rule.countsAfter || rule.refunds !== undefined
}

/** Whether a policy needs a limiter of ours: what comes back, or is held against a key, goes past the verbs. */
export function goesPastVerbs<X extends Exchange>(
  rule: Pick<PolicyRule<X>, 'countsAfter' | 'refunds' | 'ladder'>,
): boolean {
  return isSettled(rule) || rule.ladder !== undefined
}

function refundsOf<X extends Exchange>(refund: Refund<X>): Refunds<X> | undefined {
  if (typeof refund === 'function') return (exchange, ending) => refund(...exchange, ending)
  if (typeof refund !== 'object' || refund === null || Array.isArray(refund))
    throw invalid(TypeError, 'refund', 'a function, or an object such as { ifFailed: true }', refund)
  checkOptions('refund', refund, ['ifSuccessful', 'ifFailed'])
  const ifSuccessful = flag('ifSuccessful', refund.ifSuccessful)
  const ifFailed = flag('ifFailed', refund.ifFailed)
  if (!ifSuccessful && !ifFailed) return undefined
  return (_, { status, aborted }) => (aborted || status >= 400 ? ifFailed : ifSuccessful)
}

function ladderOf(block: BlockOptions): Ladder {
  if (typeof block !== 'object' || block === null || Array.isArray(block))
    throw invalid(TypeError, 'block', "an object such as { after: 20, for: '10m' }", block)
  checkOptions('block', block, ['after', 'for'])
  const after = wholeNumber('after', block.after)
  if (after < 1) throw invalid(RangeError, 'after', 'at least 1 refusal', after)
  const steps = Array.isArray(block.for) ? block.for : [block.for]
  if (steps.length === 0)
    throw invalid(RangeError, 'for', "a duration, or a list such as ['1m', '10m']", steps)
  return { after, stepsUs: steps.map(step => spanToUs('for', step)) }
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
  if (extra !== undefined) throw combined(extra, `'${door}', which brings its own`)
}

function combined(option: string, other: string): Error {
  return coded(new TypeError(`${option}: cannot be combined with ${other}`), 'SLUICE_INVALID_OPTION', option)
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
