import { loadAnyState } from './parts/load-state.lua.js'
import { PRELUDE, TIME, TTL } from './parts/prelude.lua.js'
import { Script } from './script.js'
import type { Twin } from './twin.js'

/*
 * Every verb on one key, for states of any age. KEYS: the state, the penalty, and for verbs that give permits back a note. ARGV:
 * JSON of
 *
 *     [verb, parameters, now or false, conversions, ...]
 *     'decide', ..., cost, maxWait, mode                     as in decide.lua.ts
 *     'cancel' or 'refund', ..., act, cost, created, mark, at, conversions of the mark
 *     'release', ..., permits
 *     'drain', ..., permits                                  takes these permits, or as many as are left
 *
 * Conversions: see parts/load-state.lua.ts. A converted state is written even if the verb is refused, or else each later call
 * would convert it again, as of its own time.
 *
 * The note says how many permits a call has given back. A client may send a command again when a connection breaks; the
 * second run finds the note and gives nothing back. A booking from before a jump of the clock gives nothing back, because its
 * mark does not match the state any more.
 */
export function anyVerbScript(twin: Twin): Script {
  return new Script(`${PRELUDE}${TIME}${TTL}${loadAnyState(twin)}${twin.giveBack}
local p = cjson.decode(ARGV[1])
local verb, a, now, conversions = p[1], p[2], p[3], p[4]
local isServerTime = not now
if isServerTime then now = serverTime() end
local s, blocked, stale = loadState(KEYS[1], KEYS[2], a, now, conversions)
if stale then return stale end

local function save()
  saveState(KEYS[1], a, s, now, ttlUntil(restsAt(a, s), now, isServerTime))
end

if verb == 'decide' then
  local cost, maxWait, mode = p[5], p[6], p[7]
  if blocked > 0 then return blockedReply(a, s, blocked, now, cost, maxWait) end
  local wait, retry, f, g, h = step(a, s, now, cost, maxWait, mode > 0)
  local isTaken = retry == 0 and cost > 0
  if mode > 0 and (isTaken or s.isChanged and s.created ~= 0) then
    save()
    if mode == 2 and isTaken then return addBooking(decisionReply(0, 0, 0, f, g, h), wait, a, s, now) end
  end
  return decisionReply(wait, retry, 0, f, g, h)
end

if verb == 'drain' then
  local least, most = 0, blocked > 0 and 1 or p[5] + 1
  local cost = most - 1
  while most - least > 1 do
    local _, retry = step(a, s, now, cost, 0, false)
    if retry == 0 then least = cost else most = cost end
    cost = floor((least + most) / 2)
  end
  if least > 0 then
    step(a, s, now, least, 0, true)
    save()
  end
  return encode(least)
end

local note = redis.call('GET', KEYS[3])
if note then return note end
local given = 0
if verb == 'release' then
  if s.created ~= 0 then given = refund(a, s, now, p[5], nil) end
else
  local b = {act = p[5], cost = p[6], mark = p[8]}
  if s.created ~= 0 and s.created == p[7] and p[9] - s.written <= JUMP then
    for _, change in ipairs(p[10]) do adopt(change[2], b.mark, change[3] or now, change[1]) end
    if verb == 'refund' and now >= b.act then
      given = refund(a, s, now, b.cost, b)
    else
      given = cancel(a, s, now, b)
    end
  end
end
given = string.format('%.17g', given)
if tonumber(given) > 0 then
  save()
  redis.call('SET', KEYS[3], given, 'PX', 300000)
end
return given
`)
}
