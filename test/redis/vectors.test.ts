import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { leftOut, replay, type System } from '../vectors/replay.js'
import { EXPECTED, systemOf } from '../vectors/systems.js'
import { type Case, OWN_TRACES, readTraces } from '../vectors/traces.js'
import { Keys } from './redis-key.js'
import { server } from './server.js'

/*
 * The golden traces of other systems, replayed on a server. The same rules as in memory say what is not copied, except those
 * of behaviour that is copied on Redis.
 */

const it = server()
const traces = readTraces(process.env.VECTORS_DIR ?? OWN_TRACES).filter(
  trace => systemOf(trace) !== undefined,
)
const replayed = new Map<string, number>()
let keys: Keys

beforeAll(() => {
  keys = new Keys(it.redis)
})

afterAll(() => {
  const counts = [...replayed].map(([file, steps]) => `${file} ${steps} steps`)
  console.log(`Golden traces replayed on Redis: ${counts.join(', ')}`)
})

describe.each(traces)('$file', trace => {
  const system = systemOf(trace) as System
  const planned = trace.cases
    .map(recorded => ({ recorded, left: leftOnRedis(system, recorded) }))
    .filter(({ recorded, left }) => left.length < recorded.steps.length)
  const count = () => replayed.set(trace.file, (replayed.get(trace.file) ?? 0) + 1)

  test.for(planned.map(plan => [plan.recorded.name, plan] as const))('%s', ([, { recorded, left }]) =>
    replay(system, recorded, left, count, (algorithm, startMs) => keys.open(algorithm, startMs)),
  )
})

test('there is a trace of every system', () => {
  const own = readTraces(OWN_TRACES)
  const missing = EXPECTED.filter(prefix => !own.some(({ system }) => system.startsWith(prefix)))
  expect(missing).toEqual([])
})

function leftOnRedis(system: System, recorded: Case): readonly number[] {
  const rules = system.rules.filter(({ copiedOnRedis = false }) => !copiedOnRedis)
  return leftOut(system, recorded, rules).map(({ index }) => index)
}
