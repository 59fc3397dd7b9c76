import type { Limiter } from '../../limiter/limiter.js'
import type { Dialect } from '../options.js'
import type { PolicyReport } from '../types.js'

/*
 * What the limits before have done with a request, stored on the request under a symbol:
 *
 * - each limiter and key that it was charged to, so that a limiter on an app and on one of its routes counts it once
 * - the policy names in its header fields, so that no two policies have the same name
 * - the reports in its header fields, and their draft
 */

/** Whether the request has been charged to the limiter with this key. */
export function wasCharged(request: unknown, limiter: Limiter, key: string): boolean {
  const record = (request as Recorded)[RECORD]
  if (record === undefined) return false
  for (let charge = record.charges; charge !== undefined; charge = charge.before)
    if (charge.limiter === limiter && charge.key === key) return true
  return false
}

/** Records that the request has been charged to the limiter with this key. */
export function recordCharge(request: unknown, limiter: Limiter, key: string): void {
  const record = recordOf(request)
  record.charges = { limiter, key, before: record.charges }
}

/** Records a policy name, and returns it; with `-2`, `-3` and so on appended if the request has the name already. */
export function distinctName(request: unknown, name: string): string {
  const record = recordOf(request)
  let distinct = name
  for (let number = 2; isTaken(record.names, distinct); number++) distinct = `${name}-${number}`
  record.names = { name: distinct, before: record.names }
  return distinct
}

/** Records reports, and returns them after those recorded before. Of those, refusals of a dry run are left out. */
export function recordReports(request: unknown, reports: readonly PolicyReport[]): readonly PolicyReport[] {
  const record = recordOf(request)
  const before = record.reports?.filter(({ violated }) => !violated)
  record.reports = before === undefined ? reports : [...before, ...reports]
  return record.reports
}

/** The draft for the header fields of this request: the first that was asked for, because a response must not mix two. */
export function recordDialect(request: unknown, dialect: Dialect | undefined): Dialect | undefined {
  if (dialect === undefined) return undefined
  const record = recordOf(request)
  record.dialect ??= dialect
  return record.dialect
}

const RECORD = Symbol('sluice')

interface Recorded {
  [RECORD]?: RequestRecord
}

class RequestRecord {
  charges: ChargeRecord | undefined
  names: NameRecord | undefined
  reports: readonly PolicyReport[] | undefined
  dialect: Dialect | undefined

  constructor() {
    this.charges = undefined
    this.names = undefined
    this.reports = undefined
    this.dialect = undefined
  }
}

interface ChargeRecord {
  readonly limiter: Limiter
  readonly key: string
  readonly before: ChargeRecord | undefined
}

interface NameRecord {
  readonly name: string
  readonly before: NameRecord | undefined
}

function recordOf(request: unknown): RequestRecord {
  const recorded = request as Recorded
  let record = recorded[RECORD]
  if (record === undefined) recorded[RECORD] = record = new RequestRecord()
  return record
}

function isTaken(names: NameRecord | undefined, name: string): boolean {
  if (names === undefined) return false
  return names.name.toLowerCase() === name.toLowerCase() || isTaken(names.before, name)
}
