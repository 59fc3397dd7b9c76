import type { Limiter } from '../limiter.js'

/*
 * What a request has met: each limiter and key, because a limiter that is mounted twice, on an app and on a route of it,
 * counts once; and each name in the fields, because a client could not tell two policies of one name apart. The request
 * carries it under a symbol of ours.
 */

/** Whether this request has met the limiter with this key before; from now on it has. */
export function meetsAgain(request: unknown, limiter: Limiter, key: string): boolean {
  const host = request as Host
  const before = host[MEETINGS]
  for (let meeting = before; meeting !== undefined; meeting = meeting.before)
    if (meeting.limiter === limiter && meeting.key === key) return true
  host[MEETINGS] = { limiter, key, before }
  return false
}

/** The name of a policy in the fields of this request, with `-2` and so on if another one has it already. */
export function distinctName(request: unknown, name: string): string {
  const host = request as Host
  const names = host[NAMES]
  if (names === undefined) {
    host[NAMES] = [name]
    return name
  }
  const isTaken = (wanted: string) => names.some(taken => taken.toLowerCase() === wanted.toLowerCase())
  let distinct = name
  for (let number = 2; isTaken(distinct); number++) distinct = `${name}-${number}`
  names.push(distinct)
  return distinct
}

const MEETINGS = Symbol('sluice.meetings')
const NAMES = Symbol('sluice.names')

interface Host {
  [MEETINGS]?: Meeting | undefined
  [NAMES]?: string[]
}

interface Meeting {
  readonly limiter: Limiter
  readonly key: string
  readonly before: Meeting | undefined
}
