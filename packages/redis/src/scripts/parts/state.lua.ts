import type { Twin } from '../twin.js'

/*
 * Where a state lies: in one string, its lanes, the birth of the key, when it was written and under which args, as doubles, and
 * a byte that marks it as ours. One MGET reads it together with what is held against the key (penalty.lua.ts), to which a
 * value of another type is none; and what has not the length and the mark of a state is none either, and is written over by
 * the next grant.
 *
 * `open` returns the state, with s.birth and s.written (0 for a key never seen), and s.isStale when `argsOf` are not those of
 * the ask; and the penalty. `save` writes it, for so many milliseconds. `lanesOf` is what a booking keeps.
 */

export function openOf(twin: Twin): string {
  if (twin.access !== undefined) return twin.access.open
  const { args, lanes } = twin
  return `
local function open(key, penaltyKey, a)
  local found = redis.call('MGET', key, penaltyKey)
  local value, n, s = found[1], ${lanes}, {}
  if value and ${isState('value', args)} then
    s = {struct.unpack(${formatOf(twin)}, value)}
    s.birth, s.written = s[n + 1], s[n + 2]
    if ${differ(args)} then s.isStale = true end
  else
    for i = 1, n do s[i] = 0 end
    s.birth, s.written = 0, 0
  end
  return s, found[2]
end
`
}

export function saveOf(twin: Twin): string {
  if (twin.access !== undefined) return twin.access.save
  const { args, lanes } = twin
  return `
local function save(key, a, s, now, ttl)
  local n = ${lanes}
  if s.birth == 0 then s.birth = time() end
  s[n + 1], s[n + 2] = s.birth, now
  for i = 1, ${args} do s[n + 2 + i] = a[i] end
  s[n + ${args + 3}] = ${MARK}
  redis.call('SET', key, struct.pack(${formatOf(twin)}, unpack(s, 1, n + ${args + 3})), 'PX', ttl)
end
`
}

export function partsOf(twin: Twin): string {
  if (twin.access !== undefined) return twin.access.parts
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

/** The format of a state, which is a text where the number of lanes is one. */
export function formatOf({ args, lanes }: Twin): string {
  const count = Number(lanes)
  return Number.isNaN(count)
    ? `'<' .. string.rep('d', n + ${args + 2}) .. 'B'`
    : `'<${'d'.repeat(count + args + 2)}B'`
}

/** Whether a value has the length of a state of n lanes, and the mark. */
export function isState(value: string, args: number): string {
  return `#${value} == 8 * n + ${8 * (args + 2) + 1} and string.byte(${value}, -1) == ${MARK}`
}

/** Not in a text of UTF-8. */
export const MARK = 0xf5

export function differ(args: number): string {
  const places = Array.from({ length: args }, (_, index) => index + 1)
  return places.map(place => `s[n + ${2 + place}] ~= a[${place}]`).join(' or ')
}

/** The reply for a state that the script cannot read as it is, after `partsOf`. */
export const WHOLE = `
local function wholeReply(a, s)
  local reply = {'whole'}
  for _, arg in ipairs(argsOf(a, s)) do reply[#reply + 1] = string.format('%.17g', arg) end
  return reply
end
`
