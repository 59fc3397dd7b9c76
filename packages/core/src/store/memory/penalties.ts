import type { Ladder } from '../store.js'
import type { Kept } from './key-table.js'

/*
 * Penalties: a blocked key is refused whatever its algorithm says. A block is set by hand or by a ladder. On a ladder, a
 * number of refusals blocks the key for the first step, as many more for the second step, and so on. The last step
 * repeats.
 *
 *     after 3, for 1 min and 10 min:   x x X - - - x x X - - - - - - -      x refused, X refused and blocked, - blocked
 *                                          1 min       10 min
 *
 * A refusal during a block does not count, so that it never lengthens the block. The ladder of a key is forgotten once
 * its longest step has passed without a refusal or a block.
 *
 * The penalties of a limiter in memory are a key table of their own. Its lanes:
 */
const BLOCKED_UNTIL_US = 0
/** Refusals since the last block of the ladder. */
const REFUSALS = 1
/** Blocks of the ladder so far. */
const BLOCKS = 2
/** How long the ladder is remembered. */
const MEMORY_US = 3
const FORGOTTEN_AT_US = 4
/** 1 if the block was set by hand. */
const BY_HAND = 5

/** What a key table must know about penalties. */
export interface PenaltyLanes extends Kept<PenaltyLanes> {}

export const PENALTY_LANES: PenaltyLanes = {
  lanes: 6,
  restsAt: (state, at) => state[at + FORGOTTEN_AT_US] as number,
  load: penaltyLoad,
  adopt() {},
}

/**
 * Which penalty is forgotten first: refusals before blocks of a ladder, and those that end first before the others. A
 * block by hand has a load of 1.
 */
function penaltyLoad(state: Float64Array, at: number, nowUs: number): number {
  const blockedForUs = blockLeftUs(state, at, nowUs)
  if (blockedForUs === 0) return shareOf((state[at + FORGOTTEN_AT_US] as number) - nowUs) / 2
  return state[at + BY_HAND] === 1 ? 1 : (1 + shareOf(blockedForUs)) / 2
}

/** From 0 to 1, the more the longer a time is. */
function shareOf(us: number): number {
  return us > 0 ? us / (us + DAY_US) : 0
}

const DAY_US = 86_400_000_000

/** How long a key is still blocked; 0 if it is not. */
export function blockLeftUs(state: Float64Array, at: number, nowUs: number): number {
  return Math.max((state[at + BLOCKED_UNTIL_US] as number) - nowUs, 0)
}

/** Counts a refusal on a ladder. */
export function strike(state: Float64Array, at: number, { after, stepsUs }: Ladder, nowUs: number): void {
  if (blockLeftUs(state, at, nowUs) > 0) return
  forgetOld(state, at, nowUs)
  const refusals = (state[at + REFUSALS] as number) + 1
  state[at + REFUSALS] = refusals
  if (refusals >= after) {
    const blocks = state[at + BLOCKS] as number
    const stepUs = stepsUs[Math.min(blocks, stepsUs.length - 1)] as number
    state[at + REFUSALS] = 0
    state[at + BLOCKS] = blocks + 1
    state[at + BLOCKED_UNTIL_US] = nowUs + stepUs
    state[at + BY_HAND] = 0
  }
  state[at + MEMORY_US] = Math.max(...stepsUs)
  remember(state, at, nowUs)
}

/** Blocks a key by hand. A block that ends later stays. */
export function block(state: Float64Array, at: number, forUs: number, nowUs: number): void {
  forgetOld(state, at, nowUs)
  state[at + BLOCKED_UNTIL_US] = Math.max(state[at + BLOCKED_UNTIL_US] as number, nowUs + forUs)
  state[at + BY_HAND] = 1
  remember(state, at, nowUs)
}

/** Forgets the ladder of a key once its time is over. */
function forgetOld(state: Float64Array, at: number, nowUs: number): void {
  if (nowUs < (state[at + FORGOTTEN_AT_US] as number)) return
  state[at + REFUSALS] = state[at + BLOCKS] = state[at + MEMORY_US] = state[at + FORGOTTEN_AT_US] = 0
}

function remember(state: Float64Array, at: number, nowUs: number): void {
  const quietFromUs = Math.max(nowUs, state[at + BLOCKED_UNTIL_US] as number)
  const forgottenAtUs = quietFromUs + (state[at + MEMORY_US] as number)
  state[at + FORGOTTEN_AT_US] = Math.max(state[at + FORGOTTEN_AT_US] as number, forgottenAtUs)
}
