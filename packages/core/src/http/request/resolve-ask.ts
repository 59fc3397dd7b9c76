import type { JointAsk } from '../../limiter/joint/decide-all.js'
import { membersOf } from '../../limiter/joint/joint-limiter.js'
import type { Limiter } from '../../limiter/limiter.js'
import type { LedgerLimiter } from '../../limiter/limiter-class.js'
import { limiterOf } from '../../limiter/limiter-of.js'
import { invalidPrivately } from '../../shared/errors.js'
import { andThen, isPromise, type MaybePromise } from '../../shared/maybe-promise.js'
import { checkCost } from '../../shared/validate.js'
import type { Exchange } from '../options.js'
import type { Ask, Message, PolicyRule } from '../types.js'
import type { Clients } from './client-key.js'

/**
 * Finds out which permits a request needs by a policy. Undefined if it needs none: there is no limiter or no key for it, or
 * its client has disconnected. A promise only if a callback returns one.
 */
export type ResolveAsk<X extends Exchange> = (
  rule: PolicyRule<X>,
  request: X[0],
  message: Message,
) => MaybePromise<Ask<X> | undefined>

/** `onChoice` is called with every limiter that a `limiter` function returns. */
export function createResolveAsk<X extends Exchange>(
  clients: Clients<X>,
  onChoice: (limiter: Limiter) => void,
): ResolveAsk<X> {
  return (rule, request, message) => {
    const { limiter } = rule
    if (typeof limiter !== 'function') return withKey(rule, limiter, request, message)
    return andThen(limiter(request), chosen => {
      if (chosen === null) return undefined
      const limiter = limiterOf(chosen, 'a limiter made by createLimiter or combine, or null for no limit')
      onChoice(limiter)
      return withKey(rule, limiter, request, message)
    })
  }

  function withKey(
    rule: PolicyRule<X>,
    limiter: LedgerLimiter<boolean>,
    request: X[0],
    message: Message,
  ): MaybePromise<Ask<X> | undefined> {
    if (rule.key === undefined) {
      if (isGone(message)) return undefined
      return withCost(rule, limiter, request, clients.keyOf(request, message))
    }
    const key = rule.key(request, () => clients.keyOf(request, message))
    return isPromise(key)
      ? Promise.resolve(key).then(key => withCost(rule, limiter, request, checkKey(key)))
      : withCost(rule, limiter, request, checkKey(key))
  }
}

/** The asks of the members if the limiter is a combination, otherwise the ask alone. */
export function jointAsks<X extends Exchange>({ rule, limiter, key, cost }: Ask<X>): (JointAsk & Ask<X>)[] {
  const members = membersOf(limiter)
  // The members of a combination have names of their own.
  const own = members.length === 1 ? rule : { ...rule, name: undefined }
  return members.map(member => ({ rule: own, limiter: member, key, cost, isCheck: rule.countsAfter }))
}

/** Whether the client has disconnected. */
export function isGone({ socket }: Message): boolean {
  return socket?.destroyed === true
}

function withCost<X extends Exchange>(
  rule: PolicyRule<X>,
  limiter: LedgerLimiter<boolean>,
  request: X[0],
  key: string | null,
): MaybePromise<Ask<X> | undefined> {
  if (key === null) return undefined
  if (typeof rule.cost === 'number') return { rule, limiter, key, cost: rule.cost }
  const cost = rule.cost(request)
  return isPromise(cost)
    ? Promise.resolve(cost).then(cost => ({ rule, limiter, key, cost: checkCost(cost) }))
    : { rule, limiter, key, cost: checkCost(cost) }
}

function checkKey(key: unknown): string | null {
  if (typeof key === 'string' && key !== '') return key
  if (key === null) return null
  if ((typeof key === 'number' && Number.isFinite(key)) || typeof key === 'bigint') return String(key)
  throw invalidPrivately(
    TypeError,
    'key',
    'a non-empty string, a number, or null for no limit',
    key,
    'SLUICE_INVALID_KEY',
  )
}
