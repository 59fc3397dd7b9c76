import type { LedgerLimiter } from '../limiter-class.js'
import type { SharedWaitHooks } from '../room.js'
import type { JointAsk } from './decide-all.js'

/** How many calls wait for a limiter together with others. */
interface SharedWaits {
  all: number
  readonly byKey: Map<string, number>
}

const waitsByLimiter = new WeakMap<LedgerLimiter<boolean>, SharedWaits>()

/** Counts the calls that wait for several limiters together, at each of them. */
export function sharedWaitHooks(
  asksOf: (key: string, cost: number) => readonly JointAsk[],
  members: readonly LedgerLimiter<boolean>[],
): SharedWaitHooks {
  return {
    /** A change of a member makes the waiting calls of the room book again. */
    onOccupied(room, isOccupied) {
      for (const { sharedRooms } of members) {
        if (isOccupied) sharedRooms.add(room)
        else sharedRooms.delete(room)
      }
    },
    onStanding(key, change) {
      for (const ask of asksOf(key, 1)) {
        const waits = waitsOf(ask.limiter)
        const count = (waits.byKey.get(ask.key) ?? 0) + change
        if (count === 0) waits.byKey.delete(ask.key)
        else waits.byKey.set(ask.key, count)
        waits.all += change
      }
    },
    /** Whether as many calls wait for a member together with others as may wait for it alone. */
    isCrowded: key =>
      asksOf(key, 1).some(ask => {
        const { maxQueue, maxQueuePerKey } = ask.limiter.bounds
        const { all, byKey } = waitsOf(ask.limiter)
        return all >= maxQueue || (byKey.get(ask.key) ?? 0) >= maxQueuePerKey
      }),
  }
}

function waitsOf(limiter: LedgerLimiter<boolean>): SharedWaits {
  const waits = waitsByLimiter.get(limiter) ?? { all: 0, byKey: new Map<string, number>() }
  waitsByLimiter.set(limiter, waits)
  return waits
}
