import type { Decision } from '../algorithms/decision.js'
import { andThen } from '../shared/maybe-promise.js'
import type { Booked } from '../store/store.js'
import type { Room } from './room.js'
import { type Ask, closedError, Line, type WaitingHost } from './waiting-line.js'

/** The waiting calls of a limiter: a line for each key. */
export class WaitingRoom<Async extends boolean> implements Room {
  readonly host: WaitingHost<Async>
  /** How many calls wait, or are being decided and may have to wait. */
  occupied = 0
  closed = false
  readonly #lines = new Map<string, Line<Async>>()

  constructor(host: WaitingHost<Async>) {
    this.host = host
  }

  /** Resolves when the permits are available, to the decision and its booking. Throws if a call cannot wait any more. */
  acquire(key: string, ask: Ask): Promise<Booked> {
    ask.signal?.throwIfAborted()
    if (this.closed) throw closedError(this.host.name)
    if (ask.cost === 0)
      return Promise.resolve(
        andThen(this.host.ledger.decide(key, 0, 0, false), (decision: Decision) => ({ decision })),
      )
    const line = this.#lines.get(key) ?? new Line(key, this)
    this.#lines.set(key, line)
    return line.acquire(ask)
  }

  /** Ends every wait, and rejects later calls. */
  close(): void {
    this.closed = true
    for (const line of this.#lines.values()) line.close()
  }

  /** Books the waiting calls again, of one key or all, because the state that they were booked on has changed. */
  rebook(key?: string): void {
    const lines = key === undefined ? this.#lines.values() : [this.#lines.get(key)]
    for (const line of lines) line?.rebook()
  }

  forget(key: string, line: Line<Async>): void {
    if (this.#lines.get(key) === line) this.#lines.delete(key)
  }

  occupy(change: number): void {
    const before = this.occupied
    this.occupied += change
    if (before === 0 || this.occupied === 0) this.host.onOccupied?.(this, this.occupied > 0)
  }
}
