import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'

/** The recorded cases of one system. */
export interface Trace {
  readonly file: string
  readonly system: string
  readonly cases: readonly Case[]
}

/** The recorded steps of one limiter. */
export interface Case {
  readonly name: string
  readonly quirk?: boolean | string
  readonly config: object
  readonly steps: readonly Step[]
}

export interface Step {
  readonly t: number
  readonly op: string
  readonly args: object
  readonly result: unknown
}

/** The traces in this repository. */
export const OWN_TRACES = join(import.meta.dirname, 'data')

export function readTraces(directory: string): Trace[] {
  return readdirSync(directory)
    .filter(file => file.endsWith('.json'))
    .map(file => ({ file, ...JSON.parse(readFileSync(join(directory, file), 'utf8'), numberOf) }))
}

/** JSON cannot write every number; the traces write those as strings. */
function numberOf(_name: string, value: unknown): unknown {
  if (value === 'Inf') return Infinity
  const isNumber = typeof value === 'string' && /^(Infinity|NaN|-?\d{16,})$/.test(value)
  return isNumber ? Number(value) : value
}
