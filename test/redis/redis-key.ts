import { setImmediate as nextTurn } from 'node:timers/promises'
import {
  type Alarm,
  type Algorithm,
  type Clock,
  createLimiter,
  type Decision,
  type Limiter,
  type Reservation,
} from '@sluice/core'
import { type ManualClock, manualClock } from '@sluice/core/testing'
import { type RedisStore, redisStore } from '@sluice/redis'
import type { Redis } from 'ioredis'
import { type Key, ratePerMs, START_MS, waited } from '../vectors/one-key.js'
import { nextName } from './parity.js'

const KEY = 'key'
const LONG_MS = 86_400_000

/** A client, and a way to wait until all its calls have settled. */
export class Quiet {
  readonly client: Redis
  #inFlight = 0

  constructor(client: Redis) {
    this.client = new Proxy(client, {
      get: (client, name) => {
        const value = Reflect.get(client, name)
        if (typeof value !== 'function') return value
        return (...args: unknown[]) => this.#counted(value.apply(client, args))
      },
    })
  }

  async wait(): Promise<void> {
    do await nextTurn()
    while (this.#inFlight > 0)
  }

  async #counted<T>(answer: Promise<T>): Promise<T> {
    this.#inFlight++
    try {
      return await answer
    } finally {
      this.#inFlight--
    }
  }
}

/** The keys of a server. */
export class Keys {
  readonly #quiet: Quiet
  readonly #store: RedisStore

  constructor(client: Redis) {
    this.#quiet = new Quiet(client)
    this.#store = redisStore(this.#quiet.client, { prefix: 'vectors', deadline: '1m' })
  }

  /** A limiter with one key on the server, and its clock. */
  async open(algorithm: Algorithm, startMs = START_MS): Promise<Key> {
    // A key never seen has rested since the epoch, so the epoch must be long ago.
    const clock = new Clockwork(algorithm.name === 'unlimited' ? startMs + LONG_MS : startMs)
    const limiter = createLimiter(algorithm, {
      name: nextName(),
      clock,
      store: this.#store,
      maxQueuePerKey: 1000,
    })
    if (algorithm.name === 'smooth-bursty') await spend(limiter, clock, algorithm.policy.limit)
    return new RedisKey(limiter, clock, this.#quiet)
  }
}

/**
 * The original starts with nothing stored, but on a server a key never seen has rested since the epoch. So all its permits
 * are spent first, and time goes on until the next one is granted without a wait.
 */
async function spend(limiter: Limiter<true>, { manual }: Clockwork, permits: number): Promise<void> {
  if (permits === 0) return
  await limiter.reserve(KEY, { cost: permits })
  const { waitMs } = await limiter.peek(KEY)
  manual.advance(waitMs)
}

/** A manual clock that knows its next alarm. */
class Clockwork implements Clock {
  readonly manual: ManualClock
  readonly #alarms = new Set<number>()

  constructor(startMs: number) {
    this.manual = manualClock({ startMs })
  }

  nowUs(): number {
    return this.manual.nowUs()
  }

  setAlarm(...alarm: Parameters<NonNullable<Clock['setAlarm']>>): Alarm {
    this.#alarms.add(alarm[0])
    return this.manual.setAlarm?.(...alarm) as Alarm
  }

  /** The next alarm up to an instant, or the instant. */
  nextUntil(us: number): number {
    const due = [...this.#alarms].filter(atUs => atUs > this.nowUs() && atUs <= us)
    return Math.min(us, ...due)
  }
}

class RedisKey implements Key {
  readonly #startMs: number
  readonly #limiter: Limiter<true>
  readonly #clock: Clockwork
  readonly #quiet: Quiet

  constructor(limiter: Limiter<true>, clock: Clockwork, quiet: Quiet) {
    this.#startMs = clock.manual.nowMs
    this.#limiter = limiter
    this.#clock = clock
    this.#quiet = quiet
  }

  async at(ms: number): Promise<void> {
    await this.#quiet.wait()
    const untilUs = Math.round((this.#startMs + ms) * 1000)
    do {
      // A caller that is woken calls the server, and must find the clock at its alarm.
      this.#clock.manual.set(this.#clock.nextUntil(untilUs) / 1000)
      await this.#quiet.wait()
    } while (this.#clock.nowUs() < untilUs)
  }

  update(algorithm: Algorithm): Promise<void> {
    return this.#limiter.update(algorithm)
  }

  take(cost = 1): Promise<Decision> {
    return this.#limiter.tryAcquire(KEY, { cost })
  }

  book(cost = 1, maxWait = Infinity): Promise<Reservation> {
    return this.#limiter.reserve(KEY, { cost, maxWait })
  }

  acquire(cost = 1, maxWait = Infinity): Promise<number | undefined> {
    return waited(this.#limiter.acquire(KEY, { cost, maxWait }))
  }

  drain(): Promise<number> {
    return this.#limiter.drain(KEY)
  }

  get now(): Promise<Decision> {
    return this.#quiet.wait().then(() => this.#limiter.peek(KEY))
  }

  get ratePerMs(): number {
    return ratePerMs(this.#limiter)
  }
}
