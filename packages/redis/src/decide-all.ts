import type { Booked } from '@sluice/core'
import type { Together, TogetherAsk } from '@sluice/core/store'
import type { Commands } from './clients.js'
import { CONVERT_ATTEMPTS, type Conversion, changedTooFast, type OptionsHistory } from './conversions.js'
import type { Mode, OptionsVersion } from './options-version.js'
import { bookedIn, staleArgsIn, unexpectedReply } from './replies.js'
import type { Script } from './scripts/script.js'
import { jointScriptOf } from './scripts/script-cache.js'
import { numberOf } from './scripts/twins.js'

/** What deciding over several ledgers at once needs of each. */
export interface JointLedger {
  readonly options: OptionsHistory
  /** The keys of a subject on the server. */
  keysOf(key: string): readonly [state: string, penalty: string]
  /** The time of a clock that replaces the server's; false for the server's time. */
  nowUs(): number | false
}

/** Makes what decides over several ledgers of one store in one call. All asks are charged, or none. */
export function decideAll(commands: Commands, nextId: () => string): Together {
  return {
    decide(asks, commit, books) {
      const targets = targetsOf(asks)
      const mode = commit ? (books ? 2 : 1) : 0
      const read = (replies: readonly unknown[]) => answersOf(asks, targets, replies)
      const keys = targets.flatMap(({ keys }) => keys)
      const twins = targets.map(({ options }) => options.twin)
      // The fast script has no code for limits of 0.
      const script = jointScriptOf(
        twins,
        targets.some(({ options }) => options.isZeroLimit),
      )
      return commands.run(script, keys, argumentOf(targets, mode), reply =>
        staleArgsIn(reply) === undefined
          ? read(reply as readonly unknown[])
          : convert(jointScriptOf(twins, true), keys, targets, mode, reply as readonly unknown[]).then(read),
      ) as Promise<readonly Booked[]>
    },
  }

  function answersOf(
    asks: readonly TogetherAsk[],
    targets: readonly Target[],
    replies: readonly unknown[],
  ): readonly Booked[] {
    if (!Array.isArray(replies) || replies.length !== targets.length * (Array.isArray(replies[0]) ? 1 : 2))
      throw unexpectedReply()
    const answers: Booked[] = new Array(asks.length)
    for (const [index, { cost, options, places }] of targets.entries()) {
      const booked = bookedIn(replyAt(replies, index), cost, options, nextId)
      for (const place of places) answers[place] = { decision: booked.decision }
      // The first of the merged asks has the booking of all of them.
      answers[places[0] as number] = booked
    }
    return answers
  }

  /** Runs the script again, with the conversions of the states that were written under other args. */
  async function convert(
    script: Script,
    keys: readonly string[],
    targets: readonly Target[],
    mode: Mode,
    first: readonly unknown[],
  ): Promise<readonly unknown[]> {
    let reply = first
    for (let attempt = 0; attempt < CONVERT_ATTEMPTS * targets.length; attempt++) {
      const [place, ...args] = staleArgsIn(reply) as readonly number[]
      const target = targets[(place as number) - 1] as Target
      target.conversions = target.ledger.options.conversionsFrom(args, target.options)
      const argument = argumentOf(targets, mode)
      reply = await commands.run(script, keys, argument, reply => reply as readonly unknown[])
      if (staleArgsIn(reply) === undefined) return reply
    }
    throw changedTooFast()
  }
}

/** The reply to one of several asks, out of a list of replies, or of a list of two figures for each. */
function replyAt(replies: readonly unknown[], place: number): unknown {
  return Array.isArray(replies[0]) ? replies[place] : replies.slice(2 * place, 2 * place + 2)
}

/** One key, and all that is asked of it. */
interface Target {
  readonly ledger: JointLedger
  readonly options: OptionsVersion
  readonly keys: readonly [state: string, penalty: string]
  readonly isCheck: boolean
  /** The places of the asks that were merged. */
  readonly places: number[]
  conversions: readonly Conversion[]
  cost: number
}

/** Limiters of one name share their keys, so the costs that they ask of one key add up. */
function targetsOf(asks: readonly TogetherAsk[]): readonly Target[] {
  const targets: Target[] = []
  for (const [place, { ledger: asked, key, cost, isCheck = false }] of asks.entries()) {
    // Only ledgers of this package have `decideAll` as their `together`.
    const ledger = asked as unknown as JointLedger
    const keys = ledger.keysOf(key)
    const same = targets.find(other => other.keys[0] === keys[0] && other.isCheck === isCheck)
    if (same === undefined) {
      const options = ledger.options.current
      targets.push({ ledger, options, keys, isCheck, places: [place], conversions: [], cost })
    } else {
      same.cost += cost
      same.places.push(place)
    }
  }
  return targets
}

/** The argument of scripts/decide-all.lua.ts. */
function argumentOf(targets: readonly Target[], mode: Mode): string {
  const asks = targets.map(({ options, cost, isCheck, conversions }) => {
    const { twin, parametersJson } = options
    return `[${numberOf(twin)},${parametersJson},${cost},${isCheck},${JSON.stringify(conversions)}]`
  })
  return `[${mode},${(targets[0] as Target).ledger.nowUs()},[${asks.join()}]]`
}
