import { warnOnce } from '../../shared/warnings.js'
import type { Message } from '../request/client-key.js'

/*
 * What is made for each request limits nothing: every limiter starts afresh. It shows in two ways, a function that comes
 * up with ever new limiters, and middleware that meets a request in the turn of the event loop in which it was made.
 */

/** Watches what a `limiter` function comes up with. */
export class ChoiceWatch {
  private readonly seen = new WeakSet<object>()
  private last: object | undefined
  private distinct = 0

  see(limiter: object): void {
    if (limiter === this.last) return
    this.last = limiter
    if (this.seen.has(limiter)) return
    this.seen.add(limiter)
    if (++this.distinct > MOST_CHOICES)
      warn(`A limiter function has returned more than ${MOST_CHOICES} different limiters`)
  }
}

/** Watches how old a piece of middleware is when it meets its first request. */
export class AgeWatch {
  private isYoung = true

  constructor() {
    // Where there is no setImmediate, nothing is young for longer than it takes to say so.
    const immediate = globalThis.setImmediate?.(() => {
      this.isYoung = false
    })
    if (immediate === undefined) this.isYoung = false
    else immediate.unref?.()
  }

  see({ socket }: Message): void {
    if (!this.isYoung) return
    this.isYoung = false
    // What a test injects past the network may come in the very turn in which the app was made.
    if (socket === undefined || !('server' in socket)) return
    if (++metYoung > MOST_YOUNG) warn('rateLimit() is called while requests run')
  }
}

const MOST_CHOICES = 1000
const MOST_YOUNG = 10
let metYoung = 0

function warn(what: string): void {
  warnOnce(
    'SLUICE_MADE_PER_REQUEST',
    `${what}. A limiter made for each request limits nothing: make limiters and ` +
      'middleware once, and tell clients apart by key.',
  )
}
