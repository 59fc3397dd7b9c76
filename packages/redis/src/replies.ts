import type { Algorithm, Booked, Booking, Decision } from '@sluice/core'
import { blockedElsewhere } from '@sluice/core/store'
import type { OptionsVersion } from './options-version.js'

/** A booking on a server. */
export interface RedisBooking extends Booking {
  /** When the key was created. A key that was reset or expired since has another time. */
  readonly createdUs: number
  /** The name of the note that says it was given back. */
  readonly id: string
  /** The options it was made under. */
  readonly options: OptionsVersion
}

/** Reads a number that scripts/parts/prelude.lua.ts has encoded. */
export function numberIn(reply: unknown): number {
  if (typeof reply === 'number') return reply
  const value = textIn(reply)
  if (value === 'inf') return Number.POSITIVE_INFINITY
  const number = typeof value === 'string' && value !== '' ? Number(value) : Number.NaN
  if (Number.isNaN(number)) throw unexpectedReply()
  return number
}

/** Some clients return strings as bytes. */
function textIn(value: unknown): unknown {
  return value instanceof Uint8Array ? Buffer.from(value).toString('latin1') : value
}

export function unexpectedReply(): Error {
  return new TypeError('the server sent a reply that no script of @sluice/redis returns')
}

/** The args in the reply to a state that must be converted first; undefined for other replies. */
export function staleArgsIn(reply: unknown): readonly number[] | undefined {
  return Array.isArray(reply) && textIn(reply[0]) === 'stale' ? reply.slice(1).map(numberIn) : undefined
}

/** Reads a decision; see scripts/parts/reply.lua.ts. */
export function decisionIn(reply: unknown, algorithm: Algorithm): Decision {
  const read = algorithm.read as NonNullable<Algorithm['read']>
  if (!Array.isArray(reply)) return read.call(algorithm, 0, 0, [numberIn(reply), 0])
  if (reply.length < 2) throw unexpectedReply()
  if (reply.length <= FIGURES) return read.call(algorithm, 0, 0, reply.map(numberIn))
  const [first, second, third, waitUs, retryAfterUs, blockedUs] = reply.slice(0, BOOKED_FROM).map(numberIn)
  const figures = [first, second, third] as readonly number[]
  const decision = read.call(algorithm, waitUs as number, retryAfterUs as number, figures)
  return (blockedUs as number) > 0 ? blockedElsewhere(decision, blockedUs as number) : decision
}

/** Reads a decision, and the booking if there is one. */
export function bookedIn(
  reply: unknown,
  cost: number,
  options: OptionsVersion,
  nextId: () => string,
): Booked {
  const decision = decisionIn(reply, options.algorithm)
  if (!Array.isArray(reply) || reply.length <= BOOKED_FROM) return { decision }
  const atUs = numberIn(reply[BOOKED_FROM])
  const booking: RedisBooking = {
    atUs,
    actUs: atUs + numberIn(reply[WAIT]),
    cost,
    createdUs: numberIn(reply[BOOKED_FROM + 1]),
    mark: Float64Array.from(reply.slice(BOOKED_FROM + 2), numberIn),
    id: nextId(),
    options,
  }
  return { decision, booking }
}

const FIGURES = 3
const WAIT = 3
const BOOKED_FROM = 6
