import { heartOf } from './any-verb.lua.js'
import { TOLD } from './decide.lua.js'
import { PENALTY } from './parts/penalty.lua.js'
import { CLOSED, PRELUDE, TIME, TTL } from './parts/prelude.lua.js'
import { differ, formatOf, isState, MARK, openOf, partsOf, saveOf, WHOLE } from './parts/state.lua.js'
import type { Twin } from './twin.js'

/*
 * Several decisions as one act, in one call: all are made first, and only if all are grants is anything taken. KEYS: a state
 * and a penalty for each. ARGV: JSON of [mode, now or false, asks], with modes as in decide.lua.ts, each ask
 *
 *     [number of the algorithm, terms, cost, isCheck, conversions]
 *
 * The reply is a list of replies like those of decide.lua.ts; where all asks are plain grants of two figures, which is what
 * nearly all are, the figures in one list; or 'whole', which ask (from 1) and its args, when a state has to be converted: by
 * the script that can, which is another one, because what converts is long.
 */
export function togetherScript(twins: readonly Twin[], converts: boolean): string {
  const algorithms = twins.map(
    (twin, index) => `
made[${index + 1}] = function()
${converts ? heartOf(twin) : partialHeartOf(twin)}
  return {
    opened = opened, step = step, told = told, blocked = toldWhileBlocked, booked = booked,
    save = function(key, a, s) save(key, a, s, now, ttlUntil(restsAt(a, s), now, isOwnTime)) end,
  }
end
`,
  )
  return `${PRELUDE}${TIME}${TTL}
local p = cjson.decode(ARGV[1])
local mode, now, asks = p[1], p[2], p[3]
local isOwnTime = not now
if isOwnTime then now = time() end
${!converts && twins.every(({ access }) => access === undefined) ? plainGrants(twins) : ''}
local made = {}
${algorithms.join('')}

local its, states, replies, isGranted = {}, {}, {}, true
for i, ask in ipairs(asks) do
  local number, a, cost = ask[1], ask[2], ask[3]
  local it = made[number]
  if type(it) == 'function' then
    it = it()
    made[number] = it
  end
  local s, left, unknown = it.opened(KEYS[2 * i - 1], KEYS[2 * i], a, now, ask[5])
  if unknown then
    table.insert(unknown, 2, i)
    return unknown
  end
  if left > 0 then
    replies[i] = it.blocked(a, s, left, now, cost, 0)
    isGranted = isGranted and cost == 0
  else
    local wait, retry, f, g, h = it.step(a, s, now, cost, 0, false)
    if retry > 0 or mode == 0 or cost == 0 or ask[4] then replies[i] = it.told(wait, retry, 0, f, g, h) end
    isGranted = isGranted and retry == 0
  end
  its[i], states[i] = it, s
end

local takes = mode > 0 and isGranted
for i, ask in ipairs(asks) do
  local a, s, it, cost = ask[2], states[i], its[i], ask[3]
  if not replies[i] then
    local wait, retry, f, g, h = it.step(a, s, now, cost, 0, takes)
    replies[i] = it.told(wait, retry, 0, f, g, h)
    if takes then
      s.isChanged = false
      it.save(KEYS[2 * i - 1], a, s)
      if mode == 2 then it.booked(replies[i], wait, a, s, now) end
    end
  end
  if mode > 0 and s.isChanged and s.birth ~= 0 then it.save(KEYS[2 * i - 1], a, s) end
end
return replies
`
}

/**
 * Tries what nearly always comes out: that all asks are granted, of keys that are neither blocked nor written under other
 * options. The functions are few, the keys are read at once, and nothing is written before all are granted; otherwise what
 * follows begins anew.
 */
function plainGrants(twins: readonly Twin[]): string {
  const made = twins.map(
    (twin, index) => `
steps[${index + 1}], rests[${index + 1}] = (function()
${twin.step}
  return step, restsAt
end)()`,
  )
  const unpacked = twins.map((twin, index) => {
    const { args, lanes } = twin
    return `
    ${index === 0 ? 'if' : 'elseif'} number == ${index + 1} then
      n, count = ${lanes}, ${args}
      if value and ${isState('value', args)} then
        s = {struct.unpack(${formatOf(twin)}, value)}
        if ${differ(args)} then return false end
      end`
  })
  const packed = twins.map(
    (twin, index) => `
    ${index === 0 ? 'if' : 'elseif'} number == ${index + 1} then
      value = struct.pack(${formatOf(twin)}, unpack(s, 1, n + ${twin.args + 3}))`,
  )
  return `
local function grantAll()
  local steps, rests = {}, {}
  ${made.join('')}
  local found = redis.call('MGET', unpack(KEYS))
  local states, lengths, reply = {}, {}, {}
  for i = 1, #asks do
    local ask = asks[i]
    local number, a, cost = ask[1], ask[2], ask[3]
    local value, s, n, count = found[2 * i - 1], nil, nil, nil
    if found[2 * i] or cost == 0 then return false end
    ${unpacked.join('')}
    end
    if not s then
      s = {}
      for lane = 1, n + 2 do s[lane] = 0 end
    elseif s[n + 2] - now > JUMP then
      return false
    end
    local wait, retry, f, g, h = steps[number](a, s, now, cost, 0, not ask[4])
    if wait > 0 or retry > 0 or h or abs(f) > SURE or g ~= floor(g) then return false end
    if s[n + 1] == 0 then s[n + 1] = isOwnTime and now or time() end
    s[n + 2] = now
    for arg = 1, count do s[n + 2 + arg] = a[arg] end
    s[n + 3 + count] = ${MARK}
    states[i], lengths[i] = s, n
    reply[2 * i - 1], reply[2 * i] = f, g
  end
  for i = 1, #asks do
    local ask, s = asks[i], states[i]
    if not ask[4] then
      local number, a, n = ask[1], ask[2], lengths[i]
      local value
      ${packed.join('')}
      end
      redis.call('SET', KEYS[2 * i - 1], value, 'PX', ttlUntil(rests[number](a, s), now, isOwnTime))
    end
  end
  return reply
end
if mode == 1 then
  local reply = grantAll()
  if reply then return reply end
end
`
}

/** Without what converts. */
function partialHeartOf(twin: Twin): string {
  return `${CLOSED}${openOf(twin)}${saveOf(twin)}${partsOf(twin)}${twin.step}${PENALTY}${TOLD}${WHOLE}
local function opened(key, penaltyKey, a, now)
  local s, penalty = open(key, penaltyKey, a)
  local left, hasJumped = leftOf(penalty, now)
  if s.isStale or hasJumped or s.written - now > JUMP then return s, left, wholeReply(a, s) end
  return s, left
end
`
}
