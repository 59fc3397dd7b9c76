import type { Booked } from '@sluice/core'
import type { Together, TogetherAsk } from '@sluice/core/store'
import type { Commands } from './clients.js'
import { CONVERT_ATTEMPTS, changedTooFast, type Present, type RedisLedger } from './redis-ledger.js'
import { argsIn, bookedIn, noReply, numberIn } from './replies.js'
import { type Company, companyOf } from './twins.js'

/** Several asks of one server in one call, whatever their subjects; all of them are charged, or none. */
export function decideTogether(commands: Commands, nextId: () => string): Together {
  return {
    decide(asks, commit, books) {
      const merged = mergedByKey(asks)
      const mode = commit ? (books ? 2 : 1) : 0
      const told = (replies: readonly unknown[]) => answersOf(asks, merged, replies)
      const company = companyOf(merged.map(({ present }) => present.terms.twin))
      const keys = merged.flatMap(({ keys }) => keys)
      // The short script knows no limit of 0.
      const script = company.script(merged.some(({ present }) => present.terms.isClosed))
      return commands.run(script, keys, argumentOf(company, merged, mode), reply =>
        argsIn(reply) === undefined
          ? told(reply as readonly unknown[])
          : converted(company, keys, merged, mode, reply as readonly unknown[]).then(told),
      ) as Promise<readonly Booked[]>
    },
  }

  function answersOf(
    asks: readonly TogetherAsk[],
    merged: readonly Merged[],
    replies: readonly unknown[],
  ): readonly Booked[] {
    if (!Array.isArray(replies) || replies.length !== merged.length * (Array.isArray(replies[0]) ? 1 : 2))
      throw noReply()
    const answers: Booked[] = new Array(asks.length)
    for (const [index, ask] of merged.entries()) {
      const booked = bookedIn(replyAt(replies, index), ask.cost, ask.present.era, nextId)
      for (const place of ask.places) answers[place] = { decision: booked.decision }
      // The first of those that ask the same has the booking of all.
      answers[ask.places[0] as number] = booked
    }
    return answers
  }

  /** Asks again, with how the states that were written under other args are to be converted. */
  async function converted(
    company: Company,
    keys: readonly string[],
    asks: readonly Merged[],
    mode: number,
    first: readonly unknown[],
  ): Promise<readonly unknown[]> {
    let reply = first
    for (let attempt = 0; attempt < CONVERT_ATTEMPTS * asks.length; attempt++) {
      const [, place, ...args] = reply.map((part, index) => (index === 0 ? 0 : numberIn(part)))
      const { ledger, present, conversions } = asks[(place as number) - 1] as Merged
      conversions.splice(0, Infinity, ...ledger.conversionsFrom(args, present))
      const argument = argumentOf(company, asks, mode)
      reply = await commands.run(company.script(true), keys, argument, reply => reply as readonly unknown[])
      if (argsIn(reply) === undefined) return reply
    }
    throw changedTooFast()
  }
}

/** The reply of one of several asks: one of a list, or two figures of plain grants. */
function replyAt(replies: readonly unknown[], place: number): unknown {
  return Array.isArray(replies[0]) ? replies[place] : replies.slice(2 * place, 2 * place + 2)
}

interface Merged {
  readonly ledger: RedisLedger
  readonly present: Present
  readonly keys: readonly [state: string, penalty: string]
  readonly isCheck: boolean
  /** Where the asks stand that are one here. */
  readonly places: number[]
  readonly conversions: unknown[]
  cost: number
}

/** Limiters of one name share their keys; what they ask of one key is one ask. */
function mergedByKey(asks: readonly TogetherAsk[]): readonly Merged[] {
  const merged: Merged[] = []
  for (let place = 0; place < asks.length; place++) {
    const { ledger, key, cost, isCheck = false } = asks[place] as TogetherAsk
    const own = ledger as RedisLedger
    const keys = own.keysOf(key)
    const same = merged.find(other => other.keys[0] === keys[0] && other.isCheck === isCheck)
    if (same === undefined)
      merged.push({
        ledger: own,
        present: own.present,
        keys,
        isCheck,
        places: [place],
        conversions: [],
        cost,
      })
    else {
      same.cost += cost
      same.places.push(place)
    }
  }
  return merged
}

/** As together.lua.ts takes it. */
function argumentOf(company: Company, asks: readonly Merged[], mode: number): string {
  let told = ''
  for (const { present, cost, isCheck, conversions } of asks) {
    const { algorithm, text } = present.terms
    const changes = conversions.length === 0 ? '[]' : JSON.stringify(conversions)
    const number = company.names.indexOf(algorithm.name) + 1
    told += `${told === '' ? '' : ','}[${number},${text},${cost},${isCheck},${changes}]`
  }
  return `[${mode},${(asks[0] as Merged).ledger.nowUs()},[${told}]]`
}
