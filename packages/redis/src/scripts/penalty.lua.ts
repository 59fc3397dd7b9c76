import { PACK_PENALTY, READ_PENALTY } from './parts/penalty.lua.js'
import { ENCODE, PRELUDE, TIME, TTL } from './parts/prelude.lua.js'
import { Script } from './script.js'

/*
 * Blocks, and refusals that count towards one. KEYS: the penalty. ARGV: JSON of
 *
 *     ['strike', now or false, after, steps]      counts a refusal; returns for how long the key is blocked now
 *     ['block', now or false, length]             returns the same
 *     ['time', false]                             returns the server's time
 */
export const penaltyScript = new Script(`${PRELUDE}${TIME}${ENCODE}${TTL}${READ_PENALTY}${PACK_PENALTY}
local p = cjson.decode(ARGV[1])
local now = p[2]
local isServerTime = not now
if isServerTime then now = serverTime() end
if p[1] == 'time' then return encode(now) end

local refusals, blocks, untilUs, forgetAt, memory = readPenalty(redis.call('MGET', KEYS[1])[1], now)
if now >= forgetAt then refusals, blocks, forgetAt, memory = 0, 0, 0, 0 end
if p[1] == 'block' then
  untilUs = max(untilUs, now + p[3])
else
  if now < untilUs then return encode(untilUs - now) end
  local after, steps = p[3], p[4]
  refusals = refusals + 1
  if refusals >= after then
    refusals = 0
    blocks = blocks + 1
    untilUs = now + steps[min(blocks, #steps)]
  end
  memory = max(unpack(steps))
end
forgetAt = max(forgetAt, max(now, untilUs) + memory)
local value = packPenalty(now, refusals, blocks, untilUs, forgetAt, memory)
redis.call('SET', KEYS[1], value, 'PX', ttlUntil(forgetAt, now, isServerTime))
return encode(max(untilUs - now, 0))
`)
