import { goRate } from './go-rate.js'
import { guava } from './guava.js'
import { redisson } from './redisson.js'
import type { System } from './replay.js'
import { resilience4j } from './resilience4j.js'

export const SYSTEMS: readonly System[] = [guava, resilience4j, goRate, redisson]

export function systemOf({ system }: { readonly system: string }): System | undefined {
  return SYSTEMS.find(({ prefix }) => system.startsWith(prefix))
}

/** The systems that must have a trace, by the start of its `system`. */
export const EXPECTED = ['guava-bursty', 'guava-warmup', 'resilience4j', 'golang.org/x/time/rate', 'redisson']
