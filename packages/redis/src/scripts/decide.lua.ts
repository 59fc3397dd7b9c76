import { READ_PENALTY } from './parts/penalty.lua.js'
import { PRELUDE, TIME, TTL } from './parts/prelude.lua.js'
import { DECISION_REPLY, STALE_REPLY } from './parts/reply.lua.js'
import { readState, saveState, stateFields } from './parts/state.lua.js'
import { Script } from './script.js'
import type { Twin } from './twin.js'

/*
 * One decision. KEYS: the state and the penalty. ARGV: JSON of
 *
 *     [parameters, cost, maxWait, mode, now or false]
 *
 * Mode 0 only looks, mode 1 takes the permits, and mode 2 also returns the booking. The server's time is used unless `now` is
 * given. Replies: see parts/reply.lua.ts. A state that was written under other options, or before the clock jumped back, gets
 * a stale reply; the script of any verb can convert it.
 *
 * This script runs on every decision. Most of its time goes into the functions that it makes and the numbers that it returns,
 * so it makes the functions of rare cases only where they are needed.
 */
export function decideScript(twin: Twin): Script {
  return new Script(`${PRELUDE}${TIME}${readState(twin)}${twin.step}
local p = cjson.decode(ARGV[1])
local a, cost, maxWait, mode, now = p[1], p[2], p[3], p[4], p[5]
local isServerTime = not now
if isServerTime then now = serverTime() end
local s, penalty = readState(KEYS[1], KEYS[2], a)
local blocked, hasJumped = 0, s.written - now > JUMP
if penalty then
  ${READ_PENALTY}
  local jumped
  blocked, jumped = blockedFor(penalty, now)
  hasJumped = hasJumped or jumped
end
if s.isStale or hasJumped then
  ${stateFields(twin)}${STALE_REPLY}
  return staleReply(a, s)
end
if blocked > 0 then
  ${DECISION_REPLY}
  return blockedReply(a, s, blocked, now, cost, maxWait)
end

local wait, retry, f, g, h = step(a, s, now, cost, maxWait, mode > 0)
if retry == 0 and cost > 0 and mode > 0 then
  ${saveState(twin)}${TTL}
  saveState(KEYS[1], a, s, now, ttlUntil(restsAt(a, s), now, isServerTime))
  if mode == 2 then
    ${stateFields(twin)}${DECISION_REPLY}
    return addBooking(decisionReply(0, 0, 0, f, g, h), wait, a, s, now)
  end
end
${twin.hasWholeFigures ? PLAIN_GRANT : ''}
${DECISION_REPLY}
return decisionReply(wait, retry, 0, f, g, h)
`)
}

/** A grant whose figures need no encoding. */
const PLAIN_GRANT = `
if wait == 0 and retry == 0 and abs(f) < SAFE and g < SAFE then
  if h then return {f, g, h} end
  if g == 0 then return f end
  return {f, g}
end
`
