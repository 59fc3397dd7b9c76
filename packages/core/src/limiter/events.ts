import type { Policy } from '../algorithms/algorithm.js'
import type { Decision } from '../algorithms/decision.js'
import { builtin } from '../shared/node-module.js'

/*
 * Events on the channels of node:diagnostics_channel; none where that module is missing. Without subscribers an event
 * costs the check of a flag.
 *
 *     import { subscribe } from 'node:diagnostics_channel'
 *     subscribe('sluice:decision', message => {
 *       const { limiter, decision } = message as SluiceEvents['sluice:decision']
 *       count(limiter, decision.allowed)
 *     })
 *
 * Events carry keys, which may be personal data.
 */

/** The message of each channel, by the channel's name. */
export interface SluiceEvents {
  /** A decision of `tryAcquire` or `reserve`, at the end of `acquire`, or of one of several limiters together. */
  'sluice:decision': {
    readonly limiter: string
    readonly key: string
    readonly cost: number
    readonly decision: Decision
  }
  /** A call of `acquire` has to wait. */
  'sluice:wait': {
    readonly limiter: string
    readonly key: string
    readonly cost: number
    readonly waitMs: number
  }
  /** `release`, `cancel` or `refund` gave permits back. */
  'sluice:release': { readonly limiter: string; readonly key: string; readonly permits: number }
  /** `drain` took this many permits. */
  'sluice:drain': { readonly limiter: string; readonly key: string; readonly permits: number }
  /** A key was blocked: by `block`, or because it was refused too often. */
  'sluice:block': { readonly limiter: string; readonly key: string; readonly forMs: number }
  /** `unblock` lifted the block of a key. */
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

/** The part of a diagnostics channel that is used here. */
export interface Channel<Message> {
  readonly hasSubscribers: boolean
  publish(message: Message): void
}

/** The channel of an event; one without subscribers where node:diagnostics_channel is missing. */
export function channelOf<Name extends keyof SluiceEvents>(name: Name): Channel<SluiceEvents[Name]> {
  return diagnostics?.channel(name) ?? SILENT
}

const SILENT = { hasSubscribers: false, publish: () => {} }

const diagnostics = builtin<{ channel(name: string): Channel<unknown> }>('node:diagnostics_channel')
