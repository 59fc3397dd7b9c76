import { OUT, PRELUDE, TIME, TTL } from './prelude.lua.js'

/*
 * What is held against a key: see penalties.ts of core. It lies in one string: refusals, blocks, the end of the block, when
 * all of it is forgotten, how long the ladder remembers, and when that was written, as doubles.
 */

/** Reads a penalty by today's clock. A last value says whether that has jumped back since it was written. */
export const PENALTY = `
local function penaltyIn(value, now)
  if not value or #value ~= 48 then return 0, 0, 0, 0, 0, false end
  local refusals, blocks, untilUs, forgotten, memory, written = struct.unpack('<dddddd', value)
  local by = written - now
  if by <= JUMP then return refusals, blocks, untilUs, forgotten, memory, false end
  return refusals, blocks, untilUs - by, forgotten - by, memory, true
end

local function leftOf(value, now)
  local _, _, untilUs, _, _, hasJumped = penaltyIn(value, now)
  return max(untilUs - now, 0), hasJumped
end
`

/** The text of a penalty as of now. */
export const PENALTY_TEXT = `
local function penaltyText(now, refusals, blocks, untilUs, forgotten, memory)
  return struct.pack('<dddddd', refusals, blocks, untilUs, forgotten, memory, now)
end
`

/*
 * KEYS: the penalty. ARGV: JSON of
 *
 *     ['strike', now or false, after, steps]      returns how long the key is blocked by now
 *     ['block', now or false, length]
 *     ['time', false]                             returns the time
 */
export const PENALTY_SCRIPT = `${PRELUDE}${TIME}${OUT}${TTL}${PENALTY}${PENALTY_TEXT}
local p = cjson.decode(ARGV[1])
local now = p[2]
local isOwnTime = not now
if isOwnTime then now = time() end
if p[1] == 'time' then return out(now) end

local refusals, blocks, untilUs, forgotten, memory = penaltyIn(redis.call('MGET', KEYS[1])[1], now)
if now >= forgotten then refusals, blocks, forgotten, memory = 0, 0, 0, 0 end
if p[1] == 'block' then
  untilUs = max(untilUs, now + p[3])
else
  if now < untilUs then return out(untilUs - now) end
  local after, steps = p[3], p[4]
  refusals = refusals + 1
  if refusals >= after then
    refusals = 0
    blocks = blocks + 1
    untilUs = now + steps[min(blocks, #steps)]
  end
  memory = max(unpack(steps))
end
forgotten = max(forgotten, max(now, untilUs) + memory)
local value = penaltyText(now, refusals, blocks, untilUs, forgotten, memory)
redis.call('SET', KEYS[1], value, 'PX', ttlUntil(forgotten, now, isOwnTime))
return out(max(untilUs - now, 0))
`
