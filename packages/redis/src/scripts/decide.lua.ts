import { PENALTY } from './parts/penalty.lua.js'
import { OUT, PRELUDE, TIME, TTL } from './parts/prelude.lua.js'
import { openOf, partsOf, saveOf, WHOLE } from './parts/state.lua.js'
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
if wait == 0 and retry == 0 and abs(f) < SURE and g < SURE then
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
local left, hasJumped = 0, s.written - now > JUMP
if penalty then
  ${PENALTY}
  local jumped
  left, jumped = leftOf(penalty, now)
  hasJumped = hasJumped or jumped
end
if s.isStale or hasJumped then
  ${partsOf(twin)}${WHOLE}
  return wholeReply(a, s)
end
if left > 0 then
  ${TOLD}
  return toldWhileBlocked(a, s, left, now, cost, maxWait)
end

local wait, retry, f, g, h = step(a, s, now, cost, maxWait, mode > 0)
if retry == 0 and cost > 0 and mode > 0 then
  ${saveOf(twin)}${TTL}
  save(KEYS[1], a, s, now, ttlUntil(restsAt(a, s), now, isOwnTime))
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
