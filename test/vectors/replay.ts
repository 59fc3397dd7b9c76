import type { Algorithm } from '@sluice/core'
import { expect } from 'vitest'
import { OneKey, type OpenKey } from './one-key.js'
import { isError, type Rule, type Unplayed, unplayedSteps } from './rules.js'
import type { Case, Step } from './traces.js'

/** An original system whose traces are replayed here. */
export interface System {
  /** The start of the `system` of its traces. */
  readonly prefix: string
  begin(config: object, open: OpenKey): Replica | Promise<Replica>
  /** Its behaviours that we do not copy. */
  readonly rules: readonly Rule[]
  /** Why a case cannot be replayed yet. */
  leavesOut?(recorded: Case): string | undefined
}

/** A Sluice limiter that replays a limiter of the original system. */
export interface Replica {
  /** Throws if the original should throw. */
  play(step: Step): Promise<Comparison>
  /** Lets all waiters pass. */
  finish?(): unknown
}

/** The same figures of both systems. Ours may be promises. */
export interface Comparison {
  readonly ours: Readonly<Record<string, unknown>>
  readonly theirs: Readonly<Record<string, unknown>>
}

/** Replays the steps of a case except those in `left`, and calls `replayed` for each step with equal answers. */
export async function replay(
  system: System,
  { config, steps }: Case,
  left: readonly number[] = [],
  replayed: () => void = () => {},
  open: OpenKey = inMemory,
): Promise<void> {
  const replica = await system.begin(config, open)
  const played: [label: string, comparison: Comparison][] = []
  for (const [index, step] of steps.entries())
    if (!left.includes(index)) played.push([labelOf(index, step), await play(replica, step)])
  await replica.finish?.()
  for (const [label, { ours, theirs }] of played) {
    expect(await settled(ours), label).toEqual(theirs)
    replayed()
  }
}

/** The steps of a case that are not replayed, and why. */
export function leftOut(system: System, recorded: Case, rules = system.rules): readonly LeftOut[] {
  const reason = system.leavesOut?.(recorded)
  if (reason !== undefined) return [...recorded.steps.keys()].map(index => ({ index, reason }))
  return unplayedSteps(recorded, rules).map(({ index, rule }: Unplayed) => ({ index, reason: rule.reason }))
}

export interface LeftOut {
  readonly index: number
  readonly reason: string
}

function inMemory(algorithm: Algorithm, startMs?: number): OneKey {
  return new OneKey(algorithm, startMs)
}

async function play(replica: Replica, step: Step): Promise<Comparison> {
  if (!isError(step)) return replica.play(step)
  try {
    return { ours: (await replica.play(step)).ours, theirs: { throws: true } }
  } catch {
    return { ours: { throws: true }, theirs: { throws: true } }
  }
}

async function settled(figures: Comparison['ours']): Promise<Record<string, unknown>> {
  const entries = Object.entries(figures).map(async ([name, figure]) => [name, await figure])
  return Object.fromEntries(await Promise.all(entries))
}

function labelOf(index: number, { t, op, args }: Step): string {
  return `step ${index}: ${op} ${JSON.stringify(args)} at ${t}`
}

/** Their figure if ours is close enough, otherwise ours. */
export function near(ours: number, theirs: number, tolerance: number): number {
  return Math.abs(ours - theirs) <= tolerance ? theirs : ours
}

export function unknownOp({ op }: Step): Error {
  return new Error(`The operation ${op} cannot be replayed yet.`)
}
