import type { JointAsk } from '../../limiter/joint/decide-all.js'
import { membersOf } from '../../limiter/joint/joint-limiter.js'
import type { LedgerLimiter } from '../../limiter/limiter-class.js'
import { limiterOf } from '../../limiter/limiter-of.js'
import { invalidPrivately } from '../../shared/errors.js'
import { andThen, isPromise, type MaybePromise } from '../../shared/maybe-promise.js'
import { checkCost } from '../../shared/validate.js'
import { ChoiceWatch } from '../lifecycle/misuse-warning.js'
import type { Exchange } from '../options.js'
import type { PolicyRule } from '../resolve-options.js'
import type { ClientKeys, Message } from './client-key.js'

/** What a request asks of a limiter, and by which policy. */
export interface Ask<X extends Exchange> {
  readonly rule: PolicyRule<X>
  readonly limiter: LedgerLimiter<boolean>
  readonly key: string
  readonly cost: number
}

/** Finds what policies ask for a request: a call for each callback, and a promise only where one answers later. */
export class Asker<X extends Exchange> {
  private readonly clients: ClientKeys<X>
  private readonly choices = new ChoiceWatch()

  constructor(clients: ClientKeys<X>) {
    this.clients = clients
  }

  /** Undefined for nothing: no limiter, no key, or nobody there any more. */
  ask(rule: PolicyRule<X>, request: X[0], message: Message): MaybePromise<Ask<X> | undefined> {
    const { limiter } = rule
    if (typeof limiter !== 'function') return this.askOf(rule, limiter, request, message)
    return andThen(limiter(request), chosen => {
      if (chosen === null) return undefined
      const limiter = limiterOf(chosen, 'a limiter made by createLimiter or combine, or null for no limit')
      this.choices.see(limiter)
      return this.askOf(rule, limiter, request, message)
    })
  }

  private askOf(
    rule: PolicyRule<X>,
    limiter: LedgerLimiter<boolean>,
    request: X[0],
    message: Message,
  ): MaybePromise<Ask<X> | undefined> {
    if (rule.key === undefined) {
      if (isGone(message)) return undefined
      return withCost(rule, limiter, request, this.clients.of(request, message))
    }
    const key = rule.key(request, () => this.clients.of(request, message))
    return isPromise(key)
      ? Promise.resolve(key).then(key => withCost(rule, limiter, request, statedKey(key)))
      : withCost(rule, limiter, request, statedKey(key))
  }
}

/** The same as asks of limiters that are not combinations. */
export function jointAsks<X extends Exchange>({ rule, limiter, key, cost }: Ask<X>): (JointAsk & Ask<X>)[] {
  const members = membersOf(limiter)
  // The members of a combination have names of their own.
  const own = members.length === 1 ? rule : { ...rule, name: undefined }
  return members.map(member => ({ rule: own, limiter: member, key, cost, isCheck: rule.countsAfter }))
}

/** Whether the client has hung up. */
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

function statedKey(key: unknown): string | null {
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
