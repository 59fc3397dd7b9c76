import {
  type Algorithm,
  createLimiter,
  type Limiter,
  type Reservation,
  type Store,
  tokenBucket,
} from '@sluice/core'
import type { ManualClock } from '@sluice/core/testing'
import { ALGORITHMS } from './algorithms.js'

/** The options of the limiter whose bound is measured: low, so that even a slow machine asks for more. */
export const BOUND = { limit: 60, window: '1s', burst: 20 } as const

interface Hammered {
  readonly name: string
  readonly algorithm: Algorithm
}

/** The limiters that several processes call at once. */
export const HAMMERED: readonly [Hammered, ...Hammered[]] = [
  { name: 'bound', algorithm: tokenBucket(BOUND) },
  ...ALGORITHMS.map(({ name, of }) => ({ name, algorithm: of(7, '300ms') })),
]

/** A call of one of them. */
export interface Act {
  readonly limiter: string
  readonly verb: 'tryAcquire' | 'peek' | 'reserve' | 'cancel' | 'refund' | 'release'
  readonly cost: number
  /** Identifies the reservation that is made or given back. */
  readonly id: string
}

/** A call, its answer, and when the server ran it. */
export interface Deed extends Act {
  readonly atUs: number
  /** How many scripts the server had run by then, this one included. */
  readonly order: number
  readonly answer: string
}

/** Calls the limiters of a store. */
export class Actor {
  private readonly limiters: ReadonlyMap<string, Limiter>
  private readonly reservations = new Map<string, Reservation>()

  constructor(
    store: Store,
    of: (algorithm: Algorithm) => Algorithm = algorithm => algorithm,
    clock?: ManualClock,
  ) {
    this.limiters = new Map(
      HAMMERED.map(({ name, algorithm }) => {
        const options = { name, clock, store: store as never, deadline: '10s' } as const
        return [name, createLimiter(of(algorithm), options) as Limiter]
      }),
    )
  }

  async do({ limiter: name, verb, cost, id }: Act): Promise<string> {
    const limiter = this.limiters.get(name) as Limiter
    if (verb === 'tryAcquire' || verb === 'peek') return text(await limiter[verb]('k', { cost }))
    if (verb === 'release') return text(await limiter.release('k', cost))
    if (verb !== 'reserve') return text(await this.reservations.get(id)?.[verb]())
    const maxWait = HAMMERED.find(({ name: of }) => of === name)?.algorithm.bookable ? '20ms' : 0
    const reservation = await limiter.reserve('k', { cost, maxWait })
    if (reservation.allowed) this.reservations.set(id, reservation)
    return text(reservation)
  }
}

function text(answer: unknown): string {
  return JSON.stringify(answer, (_, value) => (value === Number.POSITIVE_INFINITY ? 'never' : value))
}
