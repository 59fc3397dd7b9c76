import { afterAll, describe, expect, test } from 'vitest'
import { leftOut, replay } from './replay.js'
import { Report } from './report.js'
import { unplayedSteps } from './rules.js'
import { EXPECTED, SYSTEMS, systemOf } from './systems.js'
import { OWN_TRACES, readTraces } from './traces.js'

/** Traces of the same format in another directory can be replayed instead. */
const directory = process.env.VECTORS_DIR ?? OWN_TRACES
const traces = readTraces(directory)
const report = new Report()

for (const system of EXPECTED)
  if (!traces.some(trace => trace.system.startsWith(system)))
    report.remark(`${system}: no trace of it in ${directory}`)

for (const trace of traces) {
  const system = systemOf(trace)
  if (system === undefined) {
    report.remark(`${trace.file}: not replayed, there is no replica of ${trace.system}`)
    continue
  }
  report.file(trace)
  const planned = trace.cases.map(recorded => ({ recorded, left: leftOut(system, recorded) }))
  for (const { recorded, left } of planned) report.left(trace, recorded, left)
  describe(trace.file, () => {
    const replayed = planned.filter(({ recorded, left }) => left.length < recorded.steps.length)
    test.for(replayed.map(plan => [plan.recorded.name, plan] as const))('%s', ([, { recorded, left }]) =>
      replay(
        system,
        recorded,
        left.map(({ index }) => index),
        () => report.replayed(trace),
      ),
    )
  })
}

afterAll(() => console.log(String(report)))

describe('behaviour that is not copied', () => {
  const own = readTraces(OWN_TRACES)
  const recordedOf = (prefix: string) =>
    own.filter(({ system }) => system.startsWith(prefix)).flatMap(({ cases }) => cases)
  const rules = SYSTEMS.flatMap(system => system.rules.map(rule => ({ ...rule, rule, system })))

  test.each(rules)('$system.prefix: $reason', ({ instead }) => instead())

  test.each(rules)('$system.prefix: fails to replay without the rule "$reason"', async ({ rule, system }) => {
    const showing = recordedOf(system.prefix).filter(recorded => unplayedSteps(recorded, [rule]).length > 0)
    expect(showing).not.toEqual([])
    for (const recorded of showing) {
      const others = system.rules.filter(other => other !== rule)
      const left = unplayedSteps(recorded, others).map(({ index }) => index)
      await expect(replay(system, recorded, left), recorded.name).rejects.toThrow()
    }
  })

  test('every recorded quirk has a rule that explains it', () => {
    const unexplained = SYSTEMS.flatMap(system =>
      recordedOf(system.prefix).filter(recorded => recorded.quirk && leftOut(system, recorded).length === 0),
    )
    expect(unexplained.map(({ name }) => name)).toEqual([])
  })

  test('there is a trace of every system', () => {
    const missing = EXPECTED.filter(prefix => !own.some(({ system }) => system.startsWith(prefix)))
    expect(missing).toEqual([])
  })
})
