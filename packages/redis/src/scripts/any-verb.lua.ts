import { TOLD } from './decide.lua.js'
import { PENALTY, PENALTY_TEXT } from './parts/penalty.lua.js'
import { CLOSED, PRELUDE, TIME, TTL } from './parts/prelude.lua.js'
import { openOf, partsOf, saveOf, WHOLE } from './parts/state.lua.js'
import type { Twin } from './twin.js'

/*
 * Everything else that is done to one key, in one call. KEYS: the state, the penalty, and where what is given back is
 * noted. ARGV: JSON of
 *
 *     [verb, terms, now or false, conversions, ...]
 *     'decide', ..., cost, maxWait, mode                          as decide.lua.ts
 *     'cancel' and 'refund', ..., act, cost, birth, mark, at, conversions of the mark
 *     'release', ..., permits
 *     'drain', ..., permits                                       as many of them as are there
 *
 * Conversions are [terms before, terms after, since or false], one after the other: a state is converted when its args are
 * those of the first one's `before`; when they are none of those the reply is 'whole' and the args. A clock that has jumped
 * back takes the state with it. A state that was changed so is written whatever is decided, or it would be changed again by
 * each ask, as of then. What is given back is noted for some minutes beside the state, so that a command that a client sends
 * again gives back nothing twice. A booking of before a jump gives back nothing: its mark says nothing of the state any more.
 */

/** All of a twin, and what goes around it. */
export function heartOf(twin: Twin): string {
  return `${CLOSED}${openOf(twin)}${saveOf(twin)}${partsOf(twin)}${twin.step}${twin.shift}${twin.adopt}${TTL}${PENALTY}${PENALTY_TEXT}${TOLD}${WHOLE}
local function isOf(args, terms)
  for i = 1, #args do
    if args[i] ~= terms[i] then return false end
  end
  return true
end

local function jumpBack(terms, s, now)
  if s.written - now <= JUMP then return end
  shift(terms, s, s.written - now)
  s.written, s.isChanged = now, true
end

-- Opens a state in today's terms and by today's clock; a third value is the reply when nobody has said how.
local function opened(key, penaltyKey, a, now, conversions)
  local s, penalty = open(key, penaltyKey, a)
  local left, hasJumped = leftOf(penalty, now)
  if hasJumped then redis.call('SET', penaltyKey, penaltyText(now, penaltyIn(penalty, now)), 'KEEPTTL') end
  if not s.isStale then
    jumpBack(a, s, now)
    return s, left
  end
  local args = argsOf(a, s)
  for i, conversion in ipairs(conversions) do
    if isOf(args, conversion[1]) then
      jumpBack(conversion[1], s, now)
      for j = i, #conversions do
        -- Who has written long after did not know of the change.
        local since = conversions[j][3] or now
        if s.written - since > 1000000 or since - now > JUMP then since = now end
        adopt(conversions[j][2], s, since, conversions[j][1])
      end
      s.isChanged = true
      return s, left
    end
  end
  return s, left, wholeReply(a, s)
end
`
}

export function wholeScript(twin: Twin): string {
  return `${PRELUDE}${TIME}${heartOf(twin)}${twin.giveBack}
local p = cjson.decode(ARGV[1])
local verb, a, now, conversions = p[1], p[2], p[3], p[4]
local isOwnTime = not now
if isOwnTime then now = time() end
local s, left, unknown = opened(KEYS[1], KEYS[2], a, now, conversions)
if unknown then return unknown end

if verb == 'decide' then
  local cost, maxWait, mode = p[5], p[6], p[7]
  if left > 0 then return toldWhileBlocked(a, s, left, now, cost, maxWait) end
  local wait, retry, f, g, h = step(a, s, now, cost, maxWait, mode > 0)
  local isTaken = retry == 0 and cost > 0
  if mode > 0 and (isTaken or s.isChanged and s.birth ~= 0) then
    save(KEYS[1], a, s, now, ttlUntil(restsAt(a, s), now, isOwnTime))
    if mode == 2 and isTaken then return booked(told(0, 0, 0, f, g, h), wait, a, s, now) end
  end
  return told(wait, retry, 0, f, g, h)
end

if verb == 'drain' then
  local least, most = 0, left > 0 and 1 or p[5] + 1
  local cost = most - 1
  while most - least > 1 do
    local _, retry = step(a, s, now, cost, 0, false)
    if retry == 0 then least = cost else most = cost end
    cost = floor((least + most) / 2)
  end
  if least > 0 then
    step(a, s, now, least, 0, true)
    save(KEYS[1], a, s, now, ttlUntil(restsAt(a, s), now, isOwnTime))
  end
  return out(least)
end

local noted = redis.call('GET', KEYS[3])
if noted then return noted end
local given = 0
if verb == 'release' then
  if s.birth ~= 0 then given = refund(a, s, now, p[5], nil) end
else
  local b = {act = p[5], cost = p[6], mark = p[8]}
  if s.birth ~= 0 and s.birth == p[7] and p[9] - s.written <= JUMP then
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
  save(KEYS[1], a, s, now, ttlUntil(restsAt(a, s), now, isOwnTime))
  redis.call('SET', KEYS[3], given, 'PX', 300000)
end
return given
`
}
