import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { memoryStore } from '@sluice/core'
import { manualClock } from '@sluice/core/testing'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { asOnRedis } from './algorithms.js'
import { Actor, BOUND, type Deed, HAMMERED } from './hammer-limiters.js'
import { server } from './server.js'

const here = server()
const PROCESSES = ['a', 'b', 'c']
const MS = 2000

let deeds: Deed[]
const children: ChildProcess[] = []

beforeAll(async () => {
  const file = join(import.meta.dirname, 'hammer.ts')
  for (const name of PROCESSES)
    children.push(fork(file, [String(here.port), name, String(MS)], { execArgv: ['--import', 'tsx'] }))
  await Promise.all(children.map(message))
  for (const child of children) child.send('go')
  const reports = (await Promise.all(children.map(message))) as [Deed[]][]
  deeds = reports.flatMap(([deeds]) => deeds).toSorted((a, b) => a.order - b.order)
}, 60_000)

/** The next message of a process. Throws if the process ends first. */
function message(child: ChildProcess): Promise<unknown[]> {
  const ended = once(child, 'exit').then(([code]) => {
    throw new Error(`a process ended with code ${code}`)
  })
  return Promise.race([once(child, 'message'), ended])
}

afterAll(() => {
  for (const child of children) child.kill()
})

test('several processes get the answers that one process would get, in the order of the server', async () => {
  const clock = manualClock()
  const model = new Actor(memoryStore(), asOnRedis, clock)
  const differences: unknown[] = []
  for (const deed of deeds) {
    clock.set(deed.atUs / 1000)
    const answer = await model.do(deed)
    if (answer !== deed.answer) differences.push({ ...deed, model: answer })
  }
  const granted = deeds.filter(({ answer }) => answer.includes('"allowed":true')).length
  console.log(
    `${PROCESSES.length} processes, ${deeds.length} answers, ${granted} grants, ${differences.length} differences`,
  )
  expect(differences.slice(0, 3)).toEqual([])
  expect(new Set(deeds.map(({ limiter }) => limiter)).size).toBe(HAMMERED.length)
  expect(new Set(deeds.map(({ id }) => id[0])).size).toBe(PROCESSES.length)
})

test('the server ran every call once, in the order of time', () => {
  const orders = deeds.map(({ order }) => order)
  expect(orders).toEqual(Array.from({ length: deeds.length }, (_, index) => index + 1))
  const times = deeds.map(({ atUs }) => atUs)
  expect(times).toEqual(times.toSorted((a, b) => a - b))
})

test('the grants reach the bound of the limit exactly', () => {
  const asked = deeds.filter(({ limiter }) => limiter === 'bound')
  const answers = asked.map(({ atUs, answer }): Answer => ({ ...JSON.parse(answer), atUs: BigInt(atUs) }))
  const [first, last] = [answers[0], answers.at(-1)] as [Answer, Answer]
  const granted = answers.filter(({ allowed }) => allowed).length
  // In units of which a microsecond refills `limit`.
  const [limit, burst] = [BigInt(BOUND.limit), BigInt(BOUND.burst)]
  const permit = 1_000_000n
  let fullAt = first.atUs * limit
  let idle = 0n
  for (const { atUs, allowed } of answers) {
    if (atUs * limit > fullAt) {
      idle += atUs * limit - fullAt
      fullAt = atUs * limit
    }
    if (allowed) fullAt += permit
  }
  const bound = burst + ((last.atUs - first.atUs) * limit - idle) / permit
  console.log(`${asked.length} asks, ${granted} grants, the bound is ${bound}`)
  // Permits left at the end could have been granted too.
  expect(BigInt(granted + last.remaining)).toBe(bound)
  expect(granted).toBeLessThan(asked.length)
})

interface Answer {
  readonly atUs: bigint
  readonly allowed: boolean
  readonly remaining: number
}
