import { coded } from '../shared/errors.js'
import { noAnswer } from './store-error.js'

/**
 * Deadlines for calls to a store. All are of one length, so that they end in the order in which they began, and one timer
 * serves them all. When it fires, one more turn of the event loop passes before a call counts as late: after a stall of
 * this process the answers may already be in the socket, unread.
 */
export class Deadlines {
  readonly spanMs: number
  #calls: Call[] = []
  /** Calls before this one have ended. */
  #front = 0
  #timer: ReturnType<typeof setTimeout> | undefined

  constructor(spanMs: number) {
    this.spanMs = spanMs
  }

  /**
   * Resolves to the answer of a call if it `isAnswer`. Otherwise rejects with what `failed` makes of the error, which has
   * the code SLUICE_STORE_ERROR if the call is late or its answer invalid. A late answer is ignored. Makes a single
   * promise, because every decision of an asynchronous store passes here.
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
          if (!this.#end(call)) return
          if (isAnswer(value)) resolve(value)
          else reject(failed(noAnswer()))
        },
        error => {
          if (this.#end(call)) reject(failed(error))
        },
      )
      this.#calls.push(call)
      this.#timer ??= this.#setTimer(this.spanMs)
    })
  }

  /** Ends a call. Returns whether it has not ended before. */
  #end(call: Call): boolean {
    const wasOpen = call.isOpen
    call.isOpen = false
    this.#tidy()
    return wasOpen
  }

  #setTimer(ms: number): ReturnType<typeof setTimeout> {
    const fire = () => {
      const nowMs = performance.now()
      afterPolling(() => this.#expire(nowMs))
    }
    const timer = setTimeout(fire, Math.min(Math.max(1, Math.ceil(ms)), LONGEST_TIMER_MS))
    // The socket of the store keeps the process alive during a call; a store without a socket does not.
    ;(timer as { unref?(): void }).unref?.()
    return timer
  }

  /** Ends the calls that were due when the timer fired. Those that came due since then get their own turn. */
  #expire(nowMs: number): void {
    clearTimeout(this.#timer)
    this.#timer = undefined
    for (; this.#front < this.#calls.length; this.#front++) {
      const call = this.#calls[this.#front] as Call
      if (!call.isOpen) continue
      if (call.dueMs > nowMs) break
      call.isOpen = false
      call.expire()
    }
    this.#tidy()
    const next = this.#calls[this.#front]
    if (next !== undefined) this.#timer = this.#setTimer(next.dueMs - performance.now())
  }

  /** Drops the calls that have ended, and the timer if none is left. */
  #tidy(): void {
    while (this.#calls[this.#front]?.isOpen === false) this.#front++
    if (this.#front === this.#calls.length) {
      this.#calls = []
      this.#front = 0
      clearTimeout(this.#timer)
      this.#timer = undefined
    } else if (this.#front > 1024 && this.#front * 2 > this.#calls.length) {
      this.#calls = this.#calls.slice(this.#front)
      this.#front = 0
    }
  }
}

/** The longest delay that setTimeout takes. */
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

/** In a turn of the event loop timers run before sockets are read, and immediates after it. */
function afterPolling(act: () => void): void {
  if (typeof setImmediate === 'function') setImmediate(act)
  else setTimeout(act, 0)
}

function tooLate(spanMs: number): Error {
  return coded(new Error(`the store has not answered within ${spanMs} ms`), 'SLUICE_STORE_ERROR', 'store')
}
