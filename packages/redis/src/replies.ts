import type { Algorithm, Booked, Booking, Decision } from '@sluice/core'
import { blockedElsewhere, type Era } from '@sluice/core/store'

/** A booking on a server. */
export interface RedisBooking extends Booking {
  /** The life of the key that it was taken from. */
  readonly birth: number
  /** What it is noted by when it is given back. */
  readonly id: string
  /** The options it was taken under. */
  readonly era: Era
}

/** A number as scripts write it: whole ones as such, others as text. */
export function numberIn(reply: unknown): number {
  if (typeof reply === 'number') return reply
  const value = textIn(reply)
  if (value === 'inf') return Number.POSITIVE_INFINITY
  const number = typeof value === 'string' && value !== '' ? Number(value) : Number.NaN
  if (Number.isNaN(number)) throw noReply()
  return number
}

/** A text, also where a client gives texts as bytes. */
function textIn(value: unknown): unknown {
  return value instanceof Uint8Array ? Buffer.from(value).toString('latin1') : value
}

export function noReply(): Error {
  return new TypeError('the server has answered with what is no reply of a script of ours')
}

/** The args of a state that the short script could not read; undefined for a reply that answers. */
export function argsIn(reply: unknown): readonly number[] | undefined {
  return Array.isArray(reply) && textIn(reply[0]) === 'whole' ? reply.slice(1).map(numberIn) : undefined
}

/** The decision that a reply tells of; see decide.lua.ts. */
export function decisionIn(reply: unknown, algorithm: Algorithm): Decision {
  const read = algorithm.read as NonNullable<Algorithm['read']>
  if (!Array.isArray(reply)) return read.call(algorithm, 0, 0, [numberIn(reply), 0])
  if (reply.length < 2) throw noReply()
  if (reply.length <= FIGURES) return read.call(algorithm, 0, 0, reply.map(numberIn))
  const [first, second, third, waitUs, retryAfterUs, leftUs] = reply.slice(0, BOOKED_FROM).map(numberIn)
  const figures = [first, second, third] as readonly number[]
  const decision = read.call(algorithm, waitUs as number, retryAfterUs as number, figures)
  return (leftUs as number) > 0 ? blockedElsewhere(decision, leftUs as number) : decision
}

/** The same, and what was booked, if anything. */
export function bookedIn(reply: unknown, cost: number, era: Era, idOf: () => string): Booked {
  const decision = decisionIn(reply, era.algorithm)
  if (!Array.isArray(reply) || reply.length <= BOOKED_FROM) return { decision }
  const atUs = numberIn(reply[BOOKED_FROM])
  const booking: RedisBooking = {
    atUs,
    actUs: atUs + numberIn(reply[WAIT]),
    cost,
    birth: numberIn(reply[BOOKED_FROM + 1]),
    mark: Float64Array.from(reply.slice(BOOKED_FROM + 2), numberIn),
    id: idOf(),
    era,
  }
  return { decision, booking }
}

const FIGURES = 3
const WAIT = 3
const BOOKED_FROM = 6
