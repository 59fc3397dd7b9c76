import type { Algorithm } from '../../algorithms/algorithm.js'
import { warnOnce } from '../../shared/warnings.js'
import type { Candidate, KeyTable } from './key-table.js'
import { blockLeftUs, type PenaltyLanes } from './penalties.js'

/*
 * Which key is forgotten when the states and the penalties of a limiter together fill the store. States go first, as long
 * as penalties have no more than half of the room. A block by hand goes only when there is no state.
 */

/** The key to forget for a new state or a block by hand. */
export function candidateOf(
  states: KeyTable<Algorithm>,
  penalties: KeyTable<PenaltyLanes> | undefined,
  maxKeys: number,
  nowUs: number,
): Candidate {
  const penalty =
    penalties === undefined || (states.size > 0 && penalties.size <= maxKeys / 2)
      ? undefined
      : leastPenalty(penalties, nowUs)
  return penalty === undefined || (penalty.load === 1 && states.size > 0)
    ? leastState(states, nowUs)
    : penalty
}

/** The penalty to forget first. */
export function leastPenalty(table: KeyTable<PenaltyLanes>, nowUs: number): Candidate {
  const passesInUs = (state: Float64Array, at: number) => blockLeftUs(state, at, nowUs)
  return table.leastLoaded(nowUs, PENALTY_SAMPLES, passesInUs)
}

/** The state with the least of the limit in use. If every sampled key is refused, the one that passes first. */
function leastState(table: KeyTable<Algorithm>, nowUs: number): Candidate {
  const { algorithm } = table
  const passesInUs = (state: Float64Array, at: number) =>
    algorithm.step(state, at, nowUs, 1, 0, false).retryAfterUs
  return table.leastLoaded(nowUs, STATE_SAMPLES, passesInUs)
}

/** Warns once in a process that keys are forgotten early. */
export function warnOfEviction({ load, passesInUs }: Candidate, maxKeys: number): void {
  if (passesInUs > 0)
    warnOnce(
      'SLUICE_FORGOT_REFUSED_KEY',
      () =>
        `A full memoryStore (maxKeys ${maxKeys}) forgot a refused key. ` +
        "Raise maxKeys, or set onFull: 'refuse'.",
    )
  else if (load > 0)
    warnOnce(
      'SLUICE_FORGOT_KEY',
      () => `A full memoryStore (maxKeys ${maxKeys}) forgot a key in use. Raise maxKeys.`,
    )
}

/** How many keys are compared to find the one to forget. */
const STATE_SAMPLES = 5
/** More, because few blocks by hand in a row must not hide the penalties behind them. */
const PENALTY_SAMPLES = 64
