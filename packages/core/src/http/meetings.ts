import type { Limiter } from '../limiter.js'
import type { PolicyReport } from './headers.js'

/*
 * What a request has met: each limiter and key, because a limiter that is mounted twice, on an app and on a route of it,
 * counts once; and each name in the fields, because a client could not tell two policies of one name apart. The request
 * carries it under a symbol of ours.
 */

/** Whether this request has been charged to the limiter with this key before. */
export function hasMet(request: unknown, limiter: Limiter, key: string): boolean {
  for (let meeting = (request as Host)[MEETINGS]; meeting !== undefined; meeting = meeting.before)
    if (meeting.limiter === limiter && meeting.key === key) return true
  return false
}

/** Notes that a request has been charged to a limiter. */
export function meet(request: unknown, limiter: Limiter, key: string): void {
  const host = request as Host
  host[MEETINGS] = { limiter, key, before: host[MEETINGS] }
}

/** What the fields of this request have told so far, this included, for dialects that tell of one limit only. */
export function reportsSoFar(request: unknown, reports: readonly PolicyReport[]): readonly PolicyReport[] {
  const host = request as Host
  host[REPORTS] = [...(host[REPORTS] ?? []), ...reports]
  return host[REPORTS]
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
const REPORTS = Symbol('sluice.reports')

interface Host {
  [MEETINGS]?: Meeting | undefined
  [NAMES]?: string[]
  [REPORTS]?: readonly PolicyReport[]
}

interface Meeting {
  readonly limiter: Limiter
  readonly key: string
  readonly before: Meeting | undefined
}
