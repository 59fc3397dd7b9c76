import { warnOnce } from '../../shared/warnings.js'
import type { Message } from '../types.js'

/*
 * Warns about limiters and middleware that are made for each request. They limit nothing, because every new limiter starts
 * with all its permits. Two signs are watched: a `limiter` function that returns ever new limiters, and middleware that
 * handles a request in the turn of the event loop in which it was made.
 */

/** Returns a function to call with every limiter that a `limiter` function returns. */
export function limiterCountWarning(): (limiter: object) => void {
  const seen = new WeakSet<object>()
  let last: object | undefined
  let count = 0
  return limiter => {
    if (limiter === last) return
    last = limiter
    if (seen.has(limiter)) return
    seen.add(limiter)
    if (++count > MOST_LIMITERS) warn(`A limiter function returned more than ${MOST_LIMITERS} limiters`)
  }
}

/** Returns a function to call with every request of a piece of middleware. Call it when the middleware is made. */
export function newMiddlewareWarning(): (message: Message) => void {
  // Where there is no setImmediate, the end of this turn cannot be observed.
  let isNew = globalThis.setImmediate !== undefined
  if (isNew)
    setImmediate(() => {
      isNew = false
    }).unref?.()
  return ({ socket }) => {
    if (!isNew) return
    isNew = false
    // A test may inject a request, without a connection, in the turn in which it makes the app.
    if (socket === undefined || !('server' in socket)) return
    if (++usedWhileNew > MOST_USED_WHILE_NEW) warn('rateLimit() is called for each request')
  }
}

const MOST_LIMITERS = 1000
const MOST_USED_WHILE_NEW = 10
let usedWhileNew = 0

function warn(observation: string): void {
  warnOnce(
    'SLUICE_MADE_PER_REQUEST',
    `${observation}. A limiter made for each request limits nothing: make it once, with a key per client.`,
  )
}
