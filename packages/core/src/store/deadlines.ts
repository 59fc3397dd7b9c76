import { coded } from '../shared/errors.js'

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

  /**
   * The answer of a call, if it `isAnswer`; otherwise what `failed` makes of the error, which is one of code
   * SLUICE_STORE_ERROR when the call is late. A late answer is ignored. One promise, because this lies on every decision.
   */
  keep<T>(
    answer: PromiseLike<T>,
    isAnswer: (value: unknown) => boolean,
    failed: (error: unknown) => unknown,
  ): Promise<T> {
    return new Promise((resolve, reject) => {
      const call = new Call(performance.now() + this.spanMs, () => reject(failed(tooLate(this.spanMs))))
      answer.then(
        value => {
          if (!this.ended(call)) return
          if (isAnswer(value)) resolve(value)
          else reject(failed(noAnswer()))
        },
        error => {
          if (this.ended(call)) reject(failed(error))
        },
      )
      this.calls.push(call)
      this.timer ??= this.ringIn(this.spanMs)
    })
  }

  /** Whether a call ends in time. */
  private ended(call: Call): boolean {
    const isInTime = call.isOpen
    call.isOpen = false
    this.tidy()
    return isInTime
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

class Call {
  readonly dueMs: number
  readonly expire: () => void
  isOpen = true

  constructor(dueMs: number, expire: () => void) {
    this.dueMs = dueMs
    this.expire = expire
  }
}

/** A store has answered with what cannot be an answer. */
export function noAnswer(): Error {
  return coded(new TypeError('the store has answered with what is no answer'), 'SLUICE_STORE_ERROR', 'store')
}

/** Timers come before the polling of sockets, and immediates after it. */
function afterPolling(act: () => void): void {
  if (typeof setImmediate === 'function') setImmediate(act)
  else setTimeout(act, 0)
}

function tooLate(spanMs: number): Error {
  return coded(new Error(`the store has not answered within ${spanMs} ms`), 'SLUICE_STORE_ERROR', 'store')
}
