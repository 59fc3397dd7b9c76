import { coded } from './errors.js'

/*
 * Deadlines for calls to a store: all of one length, so that they end in the order in which they began, and one timer for
 * all of them. When it rings, one more turn of the event loop passes before a call is declared late: after a stall of
 * this process the answers are in the socket already, and the store is not to be blamed for what we did not read.
 */
export class Deadlines {
  readonly spanMs: number
  private calls: Call[] = []
  /** Calls before this one have ended. */
  private front = 0
  private timer: ReturnType<typeof setTimeout> | undefined

  constructor(spanMs: number) {
    this.spanMs = spanMs
  }

  /** The answer of a call, or an error of code SLUICE_STORE_ERROR when it is late. A late answer is ignored. */
  keep<T>(answer: PromiseLike<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      const call: Call = {
        dueMs: performance.now() + this.spanMs,
        isOpen: true,
        expire: () => reject(tooLate(this.spanMs)),
      }
      const settle = () => {
        call.isOpen = false
        this.tidy()
      }
      answer.then(
        value => {
          settle()
          resolve(value)
        },
        error => {
          settle()
          reject(error)
        },
      )
      this.calls.push(call)
      this.timer ??= this.ringIn(this.spanMs)
    })
  }

  private ringIn(ms: number): ReturnType<typeof setTimeout> {
    const ring = () => {
      const nowMs = performance.now()
      afterPolling(() => this.expire(nowMs))
    }
    const timer = setTimeout(ring, Math.min(Math.max(1, Math.ceil(ms)), LONGEST_TIMER_MS))
    // Who awaits a call is kept alive by its socket; a store without one keeps nobody alive.
    ;(timer as { unref?(): void }).unref?.()
    return timer
  }

  /** Declares late what was due when the timer rang; what has come due since then gets its own turn. */
  private expire(nowMs: number): void {
    clearTimeout(this.timer)
    this.timer = undefined
    for (; this.front < this.calls.length; this.front++) {
      const call = this.calls[this.front] as Call
      if (!call.isOpen) continue
      if (call.dueMs > nowMs) break
      call.isOpen = false
      call.expire()
    }
    this.tidy()
    const next = this.calls[this.front]
    if (next !== undefined) this.timer = this.ringIn(next.dueMs - performance.now())
  }

  /** Lets go of calls that have ended, and of the timer with the last of them. */
  private tidy(): void {
    while (this.calls[this.front]?.isOpen === false) this.front++
    if (this.front === this.calls.length) {
      this.calls = []
      this.front = 0
      clearTimeout(this.timer)
      this.timer = undefined
    } else if (this.front > 1024 && this.front * 2 > this.calls.length) {
      this.calls = this.calls.slice(this.front)
      this.front = 0
    }
  }
}

/** Timers of node:timers hold no more. */
const LONGEST_TIMER_MS = 2 ** 31 - 1

interface Call {
  readonly dueMs: number
  isOpen: boolean
  readonly expire: () => void
}

/** Timers come before the polling of sockets, and immediates after it. */
function afterPolling(act: () => void): void {
  if (typeof setImmediate === 'function') setImmediate(act)
  else setTimeout(act, 0)
}

function tooLate(spanMs: number): Error {
  return coded(new Error(`the store has not answered within ${spanMs} ms`), 'SLUICE_STORE_ERROR', 'store')
}
