import { openOf, partsOf, saveOf } from './access.lua.js'
import { OUT, PRELUDE, TIME } from './prelude.lua.js'
import type { Twin } from './twin.js'

/*
 * One decision, in one call. KEYS: the state and the penalty. ARGV: JSON of
 *
 *     [terms, cost, maxWait, mode, now]      mode 0 looks, 1 takes, 2 takes and says what was booked
 *
 * with the server's time unless `now` is stated. This lies on every decision, and most of what a script costs is the
 * functions it makes and the numbers it returns: rare things are made where they are needed, or are left to whole.lua.ts, for
 * which the reply is 'whole' and the args that the state was written under.
 *
 * A reply is the figures, of which a second one of 0 is left out: a number, or a list of two or three. A decision that is not a
 * plain grant has three figures, then wait, retryAfter, and how long the key is blocked; what was booked follows as the time,
 * the birth of the key and its lanes.
 */

/** Longer than a state lasts, so that it is there as long as it means anything. */
export const TTL = `
local function ttlOf(a, s, now, isOwnTime)
  local rest = restsAt(a, s)
  if rest == huge then return 31536000000 end
  return min(max(ceil((rest - now) / 1000), 0), LATEST) + (isOwnTime and 1000 or 3600000)
end
`

/** How long a key is blocked; -1 when the clock has jumped back since the penalty was written. */
export const LEFT = `
local function leftOf(penalty, now)
  if not penalty or #penalty ~= 48 then return 0 end
  local _, _, untilUs, _, _, written = struct.unpack('<dddddd', penalty)
  if written - now > JUMP then return -1 end
  return max(untilUs - now, 0)
end
`

/** A whole reply, and what was booked. */
export const TOLD = `${OUT}
local function told(wait, retry, left, f, g, h)
  if wait == 0 and retry == 0 and left == 0 then
    if h then return {out(f), out(g), out(h)} end
    return {out(f), out(g)}
  end
  return {out(f), out(g), out(h or 0), out(wait), out(retry), out(left)}
end

local function toldWhileBlocked(a, s, left, now, cost, maxWait)
  local wait, retry, f, g, h = step(a, s, now, cost, maxWait, false)
  if cost == 0 then return told(0, 0, left, f, g, h) end
  wait, retry = step(a, s, now + left, cost, maxWait, false)
  return told(left + wait, left + retry, left, f, g, h)
end

local function booked(reply, wait, a, s, now)
  for i = #reply + 1, 3 do reply[i] = 0 end
  reply[4], reply[5], reply[6], reply[7], reply[8] = out(wait), 0, 0, out(now), out(s.birth)
  for i, lane in ipairs(lanesOf(a, s)) do reply[8 + i] = out(lane) end
  return reply
end
`

/** A grant whose figures go out as they are. */
const PLAIN_GRANT = `
if wait == 0 and retry == 0 and abs(f) < 4000000000000000 and g < 4000000000000000 then
  if h then return {f, g, h} end
  if g == 0 then return f end
  return {f, g}
end
`

export function decideScript(twin: Twin): string {
  return `${PRELUDE}${TIME}${openOf(twin)}${twin.step}
local p = cjson.decode(ARGV[1])
local a, cost, maxWait, mode, now = p[1], p[2], p[3], p[4], p[5]
local isOwnTime = not now
if isOwnTime then now = time() end
local s, penalty = open(KEYS[1], KEYS[2], a)
local left = 0
if penalty then
  ${LEFT}
  left = leftOf(penalty, now)
end
if s.isStale or left < 0 or s.written - now > JUMP then
  ${partsOf(twin)}
  local reply = {'whole'}
  for _, arg in ipairs(argsOf(a, s)) do reply[#reply + 1] = string.format('%.17g', arg) end
  return reply
end
if left > 0 then
  ${TOLD}
  return toldWhileBlocked(a, s, left, now, cost, maxWait)
end

local wait, retry, f, g, h = step(a, s, now, cost, maxWait, mode > 0)
if retry == 0 and cost > 0 and mode > 0 then
  ${saveOf(twin)}${TTL}
  save(KEYS[1], a, s, now, ttlOf(a, s, now, isOwnTime))
  if mode == 2 then
    ${partsOf(twin)}${TOLD}
    return booked(told(0, 0, 0, f, g, h), wait, a, s, now)
  end
end
${twin.hasWholeFigures ? PLAIN_GRANT : ''}
${TOLD}
return told(wait, retry, 0, f, g, h)
`
}
