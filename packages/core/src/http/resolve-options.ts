import { tokenBucket } from '../algorithms/token-bucket.js'
import { createLimiter } from '../limiter/create-limiter.js'
import { limiterOf } from '../limiter/limiter-of.js'
import { coded, invalid } from '../shared/errors.js'
import { callable, checkCost, checkOptions, policyName } from '../shared/validate.js'
import {
  checkBlock,
  checkFlag,
  checkIpv6Prefix,
  checkMaxWait,
  checkOneOf,
  checkOneOfOrFalse,
  checkRefund,
  checkStatus,
} from './check-options.js'
import { FOREIGN_NAMES } from './foreign-names.js'
import type {
  CountingOptions,
  Exchange,
  HttpOptions,
  LimitDoor,
  LimiterDoor,
  PolicyOptions,
  RequestOptions,
} from './options.js'
import { accessOf } from './request/allow-deny.js'
import { clientFinder } from './request/forwarded.js'
import { partitionOf } from './response/partition.js'
import { bodyOf } from './response/problem.js'
import type { PolicyRule, Rules } from './types.js'

/** Checks the options of an adapter and fills in their defaults, once, when the middleware is made. */
export function resolveOptions<X extends Exchange>(options: HttpOptions<X>): Rules<X> {
  checkOptions(
    'rateLimit',
    options,
    [...LIMIT_DOOR, 'limiter', 'policies', ...REQUEST_OPTIONS],
    FOREIGN_NAMES,
  )
  for (const name of ['onRefused', 'onDecision'] as const)
    if (options[name] !== undefined) callable(name, options[name])
  const policies = resolvePolicies(options)
  const maxWaitMs = options.maxWait === undefined ? undefined : checkMaxWait(options.maxWait)
  if (maxWaitMs !== undefined && maxWaitMs > 0 && policies.some(({ countsAfter }) => countsAfter))
    throw notWith('count', "'maxWait'")
  const throws = checkFlag('throws', options.throws)
  if (throws && options.onRefused !== undefined)
    throw notWith('throws', "'onRefused', which sends a response")
  return {
    policies,
    maxWaitMs,
    throws,
    access: accessOf(options),
    status: checkStatus(options.status),
    body: bodyFunction(options.body),
    onDecision: options.onDecision,
    onStoreError: checkOneOf('onStoreError', options.onStoreError, ['throw', 'allow', 'refuse']),
    dryRun: checkFlag('dryRun', options.dryRun),
    skipPreflight: checkFlag('skipPreflight', options.skipPreflight),
    dialect: checkOneOfOrFalse('headers', options.headers, DIALECTS, 'draft-8'),
    legacy: checkOneOfOrFalse('legacyHeaders', options.legacyHeaders, ['epoch', 'delta'], undefined),
    paced: checkFlag('paced', options.paced),
    exposeHeaders: checkFlag('exposeHeaders', options.exposeHeaders),
    partition: options.partitionSecret === undefined ? undefined : partitionOf(options.partitionSecret),
    findClient: clientFinder(options),
    ipv6Prefix: checkIpv6Prefix(options.ipv6Prefix),
  }
}

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

function resolvePolicies<X extends Exchange>(options: HttpOptions<X>): readonly PolicyRule<X>[] {
  const { policies } = options
  if (policies === undefined) {
    if (Object.hasOwn(options, 'policies') && options.limit === undefined && options.limiter === undefined)
      throw invalid(TypeError, 'policies', A_LIST, policies)
    return [resolvePolicy(options, {}, undefined, 0)]
  }
  rejectBeside('policies', [...LIMIT_DOOR, 'limiter'], options)
  if (!Array.isArray(policies) || policies.length === 0)
    throw invalid(TypeError, 'policies', A_LIST, policies)
  const rules = policies.map((policy: PolicyOptions<X>, place) => {
    checkOptions('policies', policy, [...LIMIT_DOOR, 'limiter', ...COUNTING], FOREIGN_NAMES)
    const name = policy.limiter === undefined || policy.name === undefined ? undefined : policy.name
    return resolvePolicy(policy, options, name === undefined ? undefined : policyName('name', name), place)
  })
  checkNames(rules)
  return rules
}

const A_LIST = 'a list such as [{ name, limit, window }, { limiter, key }]'

/** `defaults` are the options beside `policies`. */
function resolvePolicy<X extends Exchange>(
  options: (LimitDoor | LimiterDoor<X> | PolicyOptions<X>) & CountingOptions<X>,
  defaults: CountingOptions<X>,
  name: string | undefined,
  place: number,
): PolicyRule<X> {
  const key = options.key === undefined ? defaults.key : options.key
  const { cost = defaults.cost === undefined ? 1 : defaults.cost } = options
  if (key !== undefined) callable('key', key)
  const { unit = defaults.unit, hidden = defaults.hidden, count = defaults.count } = options
  const { refund = defaults.refund, block = defaults.block } = options
  const limiter = limiterFor(name === undefined ? options : { ...options, name: undefined })
  const checkedCost = typeof cost === 'function' ? cost : checkCost(cost)
  const countsAfter = checkOneOf('count', count, ['before', 'after']) === 'after'
  const refunds = refund === undefined ? undefined : checkRefund(refund)
  return {
    place,
    limiter,
    name,
    key,
    cost: checkedCost,
    countsAfter,
    refunds,
    settlesAtEnd: countsAfter || refunds !== undefined,
    ladder: block === undefined ? undefined : checkBlock(block),
    isOwn: options.limiter === undefined,
    hidden: checkFlag('hidden', hidden),
    unit: unit === undefined ? undefined : checkOneOf('unit', unit, UNITS),
  }
}

/** Clients cannot distinguish policies of the same name. */
function checkNames<X extends Exchange>(rules: readonly PolicyRule<X>[]): void {
  const names = new Set<string>()
  for (const { limiter, name = typeof limiter === 'function' ? undefined : limiter.name } of rules) {
    const folded = name?.toLowerCase()
    if (folded === undefined) continue
    if (names.has(folded)) throw invalid(RangeError, 'name', 'another name for each of the policies', name)
    names.add(folded)
  }
}

function limiterFor<X extends Exchange>(options: LimitDoor | LimiterDoor<X> | PolicyOptions<X>) {
  if (options.limiter === undefined) {
    // `limiter: undefined` is most likely a variable that has no value by mistake.
    if (Object.hasOwn(options, 'limiter') && options.limit === undefined) limiterOf(undefined)
    const { limit, window, name, store, clock } = options
    // Under the default name it would share keys with every other limit on the store that has none.
    if (store?.async && name === undefined)
      throw invalid(TypeError, 'name', 'a name, because limits on a shared store need one', name)
    return limiterOf(createLimiter(tokenBucket({ limit, window }), { name, store, clock }))
  }
  rejectBeside('limiter', LIMIT_DOOR, options)
  return typeof options.limiter === 'function' ? options.limiter : limiterOf(options.limiter)
}

/** The `body` option as a function; undefined for the default body. */
function bodyFunction<X extends Exchange>(body: RequestOptions<X>['body']): Rules<X>['body'] {
  if (body === undefined) return undefined
  if (typeof body === 'function') return body as Rules<X>['body']
  bodyOf(body, 'SLUICE_INVALID_OPTION')
  return () => body
}

/** Rejects options that have no effect beside `limiter` or `policies`. */
function rejectBeside(door: string, names: readonly string[], options: object): void {
  const extra = names.find(name => (options as Record<string, unknown>)[name] !== undefined)
  if (extra !== undefined) throw notWith(extra, `'${door}', which brings its own`)
}

function notWith(option: string, other: string): Error {
  return coded(new TypeError(`${option}: cannot be combined with ${other}`), 'SLUICE_INVALID_OPTION', option)
}
