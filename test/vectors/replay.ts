import type { Algorithm } from '@sluice/core'
import { expect } from 'vitest'
import { OneKey, type OpenKey } from './one-key.js'
import { isError, type Rule, type Unplayed, unplayedSteps } from './rules.js'
import type { Case, Step } from './traces.js'

/** One of the original systems, in our words. */
export interface System {
  /** What the `system` of its traces begins with. */
  readonly prefix: string
  begin(config: object, open: OpenKey): Replica | Promise<Replica>
  /** What it does that we do not copy. */
  readonly rules: readonly Rule[]
  /** Why a case cannot be replayed yet. */
  leavesOut?(recorded: Case): string | undefined
}

/** A limiter of ours that does what one of the original system did. */
export interface Replica {
  /** Throws where the original is to throw. */
  play(step: Step): Promise<Comparison>
  /** Lets everybody who still waits go. */
  finish?(): unknown
}

/** The same figures of both; ours may be promises. */
export interface Comparison {
  readonly ours: Readonly<Record<string, unknown>>
  readonly theirs: Readonly<Record<string, unknown>>
}

/** Replays the steps of a case but those in `left`, and calls `replayed` for each that is answered alike. */
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

/** Theirs where ours is as near as it has to be. */
export function near(ours: number, theirs: number, tolerance: number): number {
  return Math.abs(ours - theirs) <= tolerance ? theirs : ours
}

export function unknownOp({ op }: Step): Error {
  return new Error(`Nobody has said how to replay the operation ${op}.`)
}
