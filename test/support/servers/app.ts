import { once } from 'node:events'
import type { IncomingHttpHeaders, IncomingMessage, Server, ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import {
  type Algorithm,
  type AsyncStore,
  createLimiter,
  type Decision,
  type Duration,
  type LimiterOptions,
  type SyncStore,
  tokenBucket,
} from '@sluice/core'
import type {
  Ending,
  LimitDoor,
  LimiterDoor,
  PoliciesDoor,
  PolicyOptions,
  RefundRule,
  Refusal,
  RequestOptions,
} from '@sluice/core/http'

/*
 * An app with rate limits that does not depend on a framework. Each framework has a factory that builds it.
 */

/** What requests of all frameworks have in common. Callbacks of limits receive one. */
export interface AnyRequest {
  readonly headers: IncomingHttpHeaders
}

/** A rate limit whose callbacks do not depend on a framework. */
export type Limit = (
  | LimitDoor
  | LimiterDoor<[AnyRequest]>
  | (Omit<PoliciesDoor<[AnyRequest]>, 'policies'> & { readonly policies: readonly PolicyLimit[] })
) &
  Omit<RequestOptions<[AnyRequest]>, 'onRefused' | 'refund'> & {
    readonly onRefused?: (passage: Passage, refusal: Refusal) => unknown
    readonly refund?:
      | RefundRule
      | ((passage: Passage, ending: Ending) => boolean | Promise<boolean>)
      | undefined
  }

type PolicyLimit = Without<PolicyOptions<[AnyRequest]>, 'refund'> & {
  readonly refund?: RefundRule | undefined
}
type Without<Options, Name extends string> = Options extends unknown ? Omit<Options, Name> : never

/** The same limit for a framework, with callbacks that get a passage first. */
export function inWordsOf<Args extends readonly unknown[]>(
  limit: Limit,
  passageOf: (...exchange: Args) => Passage,
): never {
  const { onRefused, refund } = limit
  const withPassage =
    <Last>(callback: (passage: Passage, last: Last) => unknown) =>
    (...args: unknown[]) =>
      callback(passageOf(...(args.slice(0, -1) as unknown as Args)), args.at(-1) as Last)
  return {
    ...limit,
    ...(onRefused === undefined ? {} : { onRefused: withPassage(onRefused) }),
    ...(typeof refund === 'function' ? { refund: withPassage(refund) } : {}),
  } as never
}

/** A rate, and the options of a limiter of that rate. */
export interface Rate extends LimiterOptions<SyncStore | AsyncStore | undefined> {
  readonly limit: number
  readonly window: Duration
  /** Used in place of a token bucket of that rate, if the limit is given as a limiter. */
  readonly algorithm?: Algorithm
}

/** A way to give a limit. */
export interface Door {
  readonly name: string
  /** Whether the limit is a limiter, which has its own options. */
  readonly takesLimiter: boolean
  readonly hasSeveralPolicies: boolean
  limitOf(rate: Rate, options?: Partial<Limit>): Limit
}

/** Every way to give the same limit. The answers to a request are the same with each. */
export const doors: readonly Door[] = [
  door('a limit', false, rate => ratePolicy(rate)),
  door('a limiter', true, rate => ({ limiter: limiterOf(rate) })),
  door('a choice of limiters', true, rate => {
    const limiter = limiterOf(rate)
    return { limiter: async () => limiter }
  }),
  door('one policy', false, rate => ({ policies: [ratePolicy(rate)] })),
  door('several policies', false, rate => ({ policies: [sparePolicy(rate), ratePolicy(rate)] })),
  door('several policies of limiters', true, rate => {
    const limiter = limiterOf(rate)
    const { hidden, ...spare } = sparePolicy(rate)
    return { policies: [{ limiter: () => limiter }, { limiter: limiterOf(spare), hidden }] }
  }),
]

function door(name: string, takesLimiter: boolean, doorOf: (rate: Rate) => object): Door {
  return {
    name,
    takesLimiter,
    hasSeveralPolicies: name.startsWith('several'),
    limitOf: (rate, options) => ({ ...doorOf(rate), ...options }) as Limit,
  }
}

function ratePolicy({ limit, window, name, store, clock }: Rate): LimitDoor {
  return { limit, window, name, store, clock }
}

/** A hidden policy that never refuses. */
function sparePolicy({ clock }: Rate) {
  return { limit: 1_000_000, window: '1s', name: 'spare', clock, hidden: true } as const
}

function limiterOf({ limit, window, algorithm = tokenBucket({ limit, window }), ...options }: Rate) {
  return createLimiter(algorithm, options)
}

/** One request on its way through the app. */
export interface Passage {
  readonly req: IncomingMessage
  readonly res: ServerResponse
  /** The decision where users of the framework find it. */
  readonly decision: Decision | undefined
  /** Sets a header as an app would, replacing the old value. */
  setHeader(name: string, value: string | string[]): void
  /** Answers with JSON as an app would. */
  json(body: unknown): unknown
}

/** An app with one resource, `/api/items`, for every method. */
export interface App {
  /** Limits on the whole app, on the router at `/api`, and on the route itself. */
  readonly app?: readonly Limit[]
  readonly router?: readonly Limit[]
  readonly route?: readonly Limit[]
  /** Runs before any limiter; the request goes on afterwards. */
  readonly before?: (passage: Passage) => void
  /** Answers a granted request; default `{"ok":true}`. */
  readonly handler?: (passage: Passage) => unknown
}

export interface RunningServer {
  /** The address of the resource. */
  readonly url: string
  /** The errors that reached the framework's error handler, in order. */
  readonly errors: readonly unknown[]
  /** How often the handler has run. */
  readonly handled: number
  close(): Promise<void>
}

export interface ServerFactory {
  readonly name: string
  /** Starts the app on a free port of 127.0.0.1. */
  start(app: App): Promise<RunningServer>
}

/** What happened on a server. */
export class Log {
  readonly errors: unknown[] = []
  handled = 0
}

/** Listens on a free port. */
export async function running(server: Server, log: Log): Promise<RunningServer> {
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  return {
    url: `http://127.0.0.1:${port}/api/items`,
    errors: log.errors,
    get handled() {
      return log.handled
    },
    close() {
      const closed = new Promise<void>(resolve => server.close(() => resolve()))
      server.closeAllConnections()
      return closed
    },
  }
}
