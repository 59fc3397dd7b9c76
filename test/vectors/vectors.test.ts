import { afterAll, describe, expect, test } from 'vitest'
import { EXCEPTIONS, exceptionOf, leftOut } from './exceptions.js'
import { replay, type System } from './replay.js'
import { Report } from './report.js'
import { EXPECTED, systemOf } from './systems.js'
import { type Case, OWN_TRACES, readTraces, type Trace } from './traces.js'

/** Traces of the same form that lie elsewhere can be replayed instead. */
const directory = process.env.VECTORS_DIR ?? OWN_TRACES
const traces = readTraces(directory)
const report = new Report()

for (const system of EXPECTED)
  if (!traces.some(trace => trace.system.startsWith(system)))
    report.remark(`${system}: no trace of it in ${directory}`)

for (const trace of traces) {
  const system = systemOf(trace)
  if (system === undefined) {
    report.remark(`${trace.file}: not replayed, nobody has said how to replay ${trace.system}`)
    continue
  }
  report.file(trace)
  const planned = trace.cases.map(recorded => ({ recorded, left: reported(trace, system, recorded) }))
  describe(trace.file, () => {
    const replayed = planned.filter(({ recorded, left }) => left.length < recorded.steps.length)
    test.for(replayed.map(plan => [plan.recorded.name, plan] as const))('%s', ([, { recorded, left }]) =>
      replay(system, recorded, left, () => report.replayed(trace)),
    )
  })
}

/** The steps of a case that are not copied, for a reason that the report says. */
function reported(trace: Trace, system: System, recorded: Case): readonly number[] {
  const { steps, reason } = leftOut(trace, system, recorded)
  if (reason !== undefined) report.left(trace, recorded, steps, reason)
  return steps
}

afterAll(() => console.log(String(report)))

describe('what is not copied', () => {
  const own = readTraces(OWN_TRACES)

  test.each(EXCEPTIONS)('$case: $reason', ({ instead }) => instead())

  test.each(EXCEPTIONS)('$case of $system is recorded, and cannot be copied whole', async exception => {
    const trace = own.find(({ system }) => system.startsWith(exception.system))
    const recorded = trace?.cases.find(({ name }) => name === exception.case)
    const system = trace && systemOf(trace)
    if (recorded === undefined || system === undefined) throw new Error(`There is no case ${exception.case}.`)
    expect(exception.steps?.filter(step => !(step in recorded.steps)) ?? []).toEqual([])
    await expect(replay(system, recorded)).rejects.toThrow()
  })

  test('every quirk is named, or belongs to work that is still to come', () => {
    const unnamed = own.flatMap(trace => {
      const quirks = trace.cases.filter(({ quirk }) => quirk)
      return quirks.filter(quirk => !exceptionOf(trace, quirk) && !systemOf(trace)?.leavesOut?.(quirk))
    })
    expect(unnamed).toEqual([])
  })

  test('there is a trace of every system', () => {
    const missing = EXPECTED.filter(prefix => !own.some(({ system }) => system.startsWith(prefix)))
    expect(missing).toEqual([])
  })
})
