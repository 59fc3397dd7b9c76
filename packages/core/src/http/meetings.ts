import type { Limiter } from '../limiter.js'

/*
 * A limiter that meets the same key twice on one request, such as one mounted on an app and on a route of it, counts
 * once. Each request carries what it has met, under a symbol of ours.
 */

/** Whether this request has met the limiter with this key before; from now on it has. */
export function meetsAgain(request: unknown, limiter: Limiter, key: string): boolean {
  const host = request as { [MEETINGS]?: Meeting | undefined }
  const before = host[MEETINGS]
  for (let meeting = before; meeting !== undefined; meeting = meeting.before)
    if (meeting.limiter === limiter && meeting.key === key) return true
  host[MEETINGS] = { limiter, key, before }
  return false
}

const MEETINGS = Symbol('sluice.meetings')

interface Meeting {
  readonly limiter: Limiter
  readonly key: string
  readonly before: Meeting | undefined
}
