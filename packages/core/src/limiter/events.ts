import type { Policy } from '../algorithms/algorithm.js'
import type { Decision } from '../algorithms/decision.js'
import { builtin } from '../shared/node-module.js'

/*
 * Events: what limiters do, on the channels of node:diagnostics_channel, and nothing where that module is missing.
 * Nobody listening costs a look at a flag.
 *
 *     import { subscribe } from 'node:diagnostics_channel'
 *     subscribe('sluice:decision', message => {
 *       const { limiter, decision } = message as SluiceEvents['sluice:decision']
 *       count(limiter, decision.allowed)
 *     })
 *
 * Events carry keys, which may be personal data.
 */

/** What is published, by the name of the channel. */
export interface SluiceEvents {
  /** An ask was decided: `tryAcquire`, `reserve`, an `acquire` that has ended, or one of several at once. */
  'sluice:decision': {
    readonly limiter: string
    readonly key: string
    readonly cost: number
    readonly decision: Decision
  }
  /** An `acquire` has to wait. */
  'sluice:wait': {
    readonly limiter: string
    readonly key: string
    readonly cost: number
    readonly waitMs: number
  }
  /** Permits were given back by `release`, `cancel` or `refund`. */
  'sluice:release': { readonly limiter: string; readonly key: string; readonly permits: number }
  /** A key was drained of so many permits. */
  'sluice:drain': { readonly limiter: string; readonly key: string; readonly permits: number }
  /** A key was blocked for so long, by hand or for what it did. */
  'sluice:block': { readonly limiter: string; readonly key: string; readonly forMs: number }
  /** A block was lifted by hand. */
  'sluice:unblock': { readonly limiter: string; readonly key: string }
  /** A key was reset. */
  'sluice:reset': { readonly limiter: string; readonly key: string }
  /** A limiter has another algorithm or other options. */
  'sluice:update': { readonly limiter: string; readonly algorithm: string; readonly policy: Policy }
  /** A call to an asynchronous store failed. */
  'sluice:store-error': { readonly limiter: string; readonly error: unknown }
  /** A registry has added, replaced or removed a limiter. */
  'sluice:registry': { readonly limiter: string; readonly change: 'added' | 'replaced' | 'removed' }
}

/** A channel of node:diagnostics_channel, as far as it is used here. */
export interface Channel<Message> {
  readonly hasSubscribers: boolean
  publish(message: Message): void
}

/** The channel of an event; one without subscribers where there are no channels. */
export function channelOf<Name extends keyof SluiceEvents>(name: Name): Channel<SluiceEvents[Name]> {
  return diagnostics?.channel(name) ?? SILENT
}

const SILENT = { hasSubscribers: false, publish: () => {} }

const diagnostics = builtin<{ channel(name: string): Channel<unknown> }>('node:diagnostics_channel')
