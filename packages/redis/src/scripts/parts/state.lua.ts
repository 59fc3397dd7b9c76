import type { Twin } from '../twin.js'

/*
 * How the state of a key is stored: one string of doubles, and a mark. The doubles are the lanes, when the key was created,
 * when it was last written, and the args it was written under. The mark is a byte that no UTF-8 text contains. A value of
 * another type, length or mark counts as no state, and the next grant replaces it.
 *
 *     readState(key, penaltyKey, a)     returns the state and the string of the penalty, by one MGET. The state has s.created
 *                                       and s.written (0 for a key never seen), and s.isStale if its args are not those of a
 *     saveState(key, a, s, now, ttl)    ttl in milliseconds
 *     argsOf(a, s)                      the args that the state was written under
 *     lanesOf(a, s)                     what a booking keeps of the state
 */

export function readState(twin: Twin): string {
  if (twin.storage !== undefined) return twin.storage.read
  const { args, lanes } = twin
  return `
local function readState(key, penaltyKey, a)
  local found = redis.call('MGET', key, penaltyKey)
  local value, n, s = found[1], ${lanes}, {}
  if value and ${isState('value', args)} then
    s = {struct.unpack(${formatOf(twin)}, value)}
    s.created, s.written = s[n + 1], s[n + 2]
    if ${argsDiffer(args)} then s.isStale = true end
  else
    for i = 1, n do s[i] = 0 end
    s.created, s.written = 0, 0
  end
  return s, found[2]
end
`
}

export function saveState(twin: Twin): string {
  if (twin.storage !== undefined) return twin.storage.save
  const { args, lanes } = twin
  return `
local function saveState(key, a, s, now, ttl)
  local n = ${lanes}
  if s.created == 0 then s.created = serverTime() end
  s[n + 1], s[n + 2] = s.created, now
  for i = 1, ${args} do s[n + 2 + i] = a[i] end
  s[n + ${args + 3}] = ${MARK}
  redis.call('SET', key, struct.pack(${formatOf(twin)}, unpack(s, 1, n + ${args + 3})), 'PX', ttl)
end
`
}

/** `argsOf` and `lanesOf`. */
export function stateFields(twin: Twin): string {
  if (twin.storage !== undefined) return twin.storage.fields
  const { args, lanes } = twin
  return `
local function argsOf(a, s)
  return {unpack(s, ${lanes} + 3, ${lanes} + 2 + ${args})}
end

local function lanesOf(a, s)
  return {unpack(s, 1, ${lanes})}
end
`
}

/** A Lua expression for the format of a state of n lanes: a constant if n is one. */
export function formatOf({ args, lanes }: Twin): string {
  const count = Number(lanes)
  return Number.isNaN(count)
    ? `'<' .. string.rep('d', n + ${args + 2}) .. 'B'`
    : `'<${'d'.repeat(count + args + 2)}B'`
}

/** A Lua condition: a value has the length of a state of n lanes, and the mark. */
export function isState(value: string, args: number): string {
  return `#${value} == 8 * n + ${8 * (args + 2) + 1} and string.byte(${value}, -1) == ${MARK}`
}

export const MARK = 0xf5

/** A Lua condition: the args of a state of n lanes are not those of a. */
export function argsDiffer(args: number): string {
  const places = Array.from({ length: args }, (_, index) => index + 1)
  return places.map(place => `s[n + ${2 + place}] ~= a[${place}]`).join(' or ')
}
