import type { Limiter } from '../../limiter/limiter.js'
import type { Dialect } from '../response/older-fields.js'
import type { PolicyReport } from '../response/ratelimit-fields.js'

/*
 * What a request has met: each limiter and key, because a limiter that is mounted twice, on an app and on a route of it,
 * counts once; each name in the fields, because a client could not tell two policies of one name apart; and what the
 * fields have told. The request carries it under one symbol of ours.
 */

/** Whether this request has been charged to the limiter with this key before. */
export function hasMet(request: unknown, limiter: Limiter, key: string): boolean {
  const record = (request as Host)[RECORD]
  if (record === undefined) return false
  for (let meeting = record.meetings; meeting !== undefined; meeting = meeting.before)
    if (meeting.limiter === limiter && meeting.key === key) return true
  return false
}

/** Notes that a request has been charged to a limiter. */
export function meet(request: unknown, limiter: Limiter, key: string): void {
  const record = recordOf(request)
  record.meetings = { limiter, key, before: record.meetings }
}

/** The name of a policy in the fields of this request, with `-2` and so on if another one has it already. */
export function distinctName(request: unknown, name: string): string {
  const record = recordOf(request)
  let distinct = name
  for (let number = 2; isTaken(record.names, distinct); number++) distinct = `${name}-${number}`
  record.names = { name: distinct, before: record.names }
  return distinct
}

/** What the fields of this request have told so far, this included; what a dry run would have refused does not count. */
export function reportsSoFar(request: unknown, reports: readonly PolicyReport[]): readonly PolicyReport[] {
  const record = recordOf(request)
  const before = record.reports?.filter(({ violated }) => !violated)
  record.reports = before === undefined ? reports : [...before, ...reports]
  return record.reports
}

/** The dialect of the fields of this request: the first that was spoken, because two on one response can be read by nobody. */
export function dialectOf(request: unknown, dialect: Dialect | undefined): Dialect | undefined {
  if (dialect === undefined) return undefined
  const record = recordOf(request)
  record.dialect ??= dialect
  return record.dialect
}

const RECORD = Symbol('sluice')

interface Host {
  [RECORD]?: Requested
}

/** What one request has met. */
class Requested {
  meetings: Meeting | undefined
  names: Name | undefined
  reports: readonly PolicyReport[] | undefined
  dialect: Dialect | undefined

  constructor() {
    this.meetings = undefined
    this.names = undefined
    this.reports = undefined
    this.dialect = undefined
  }
}

interface Meeting {
  readonly limiter: Limiter
  readonly key: string
  readonly before: Meeting | undefined
}

interface Name {
  readonly name: string
  readonly before: Name | undefined
}

function recordOf(request: unknown): Requested {
  const host = request as Host
  let record = host[RECORD]
  if (record === undefined) host[RECORD] = record = new Requested()
  return record
}

function isTaken(names: Name | undefined, name: string): boolean {
  if (names === undefined) return false
  return names.name.toLowerCase() === name.toLowerCase() || isTaken(names.before, name)
}
