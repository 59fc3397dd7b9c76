import { OUT, PRELUDE, TIME } from './prelude.lua.js'

/*
 * What is held against a key: see penalties.ts of core. KEYS: the penalty. ARGV: JSON of
 *
 *     ['strike', now or false, after, steps]      returns how long the key is blocked by now
 *     ['block', now or false, length]
 *     ['time', false]                             returns the time
 */
export const PENALTY_SCRIPT = `${PRELUDE}${TIME}${OUT}
local p = cjson.decode(ARGV[1])
local now = p[2]
local isOwnTime = not now
if isOwnTime then now = time() end
local value = redis.call('MGET', KEYS[1])[1]
local refusals, blocks, untilUs, forgotten, memory, written = 0, 0, 0, 0, 0, 0
if value and #value == 48 then
  refusals, blocks, untilUs, forgotten, memory, written = struct.unpack('<dddddd', value)
  if written - now > JUMP then untilUs, forgotten = untilUs - written + now, forgotten - written + now end
end

if p[1] == 'time' then return out(now) end
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
local slack = isOwnTime and 1000 or 3600000
redis.call('SET', KEYS[1], struct.pack('<dddddd', refusals, blocks, untilUs, forgotten, memory, now), 'PX',
  ceil((forgotten - now) / 1000) + slack)
return out(max(untilUs - now, 0))
`
