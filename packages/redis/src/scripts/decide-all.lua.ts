import { loadAnyState, loadCurrentState } from './parts/load-state.lua.js'
import { PRELUDE, TIME, TTL } from './parts/prelude.lua.js'
import { argsDiffer, formatOf, isState, MARK } from './parts/state.lua.js'
import { Script } from './script.js'
import type { Twin } from './twin.js'
import { numberOf } from './twins.js'

/*
 * Several decisions as one atomic operation. First all of them are made; permits are taken only if all are grants. KEYS: a
 * state and a penalty for each. ARGV: JSON of [mode, now or false, asks], with the modes of decide.lua.ts. Each ask is
 *
 *     [number of the algorithm, parameters, cost, isCheck, conversions]
 *
 * and takes nothing if it is a check. The reply is a list of replies as in parts/reply.lua.ts. If all asks are plain grants of
 * two figures, as nearly all are, the reply is one list of all figures. A stale reply has the place of its ask (from 1)
 * after the word.
 *
 * A script that converts states is long, so there are two: the fast one replies that a state is stale, and then the one that
 * converts is run.
 */
export function decideAllScript(twins: readonly Twin[], converts: boolean): Script {
  const algorithms = twins.map(
    twin => `
algorithms[${numberOf(twin)}] = function()
${converts ? loadAnyState(twin) : loadCurrentState(twin)}
  return {
    load = loadState, step = step, reply = decisionReply, blocked = blockedReply, addBooking = addBooking,
    save = function(key, a, s) saveState(key, a, s, now, ttlUntil(restsAt(a, s), now, isServerTime)) end,
  }
end
`,
  )
  return new Script(`${PRELUDE}${TIME}${TTL}
local p = cjson.decode(ARGV[1])
local mode, now, asks = p[1], p[2], p[3]
local isServerTime = not now
if isServerTime then now = serverTime() end
${!converts && twins.every(({ storage }) => storage === undefined) ? grantAll(twins) : ''}
local algorithms = {}
${algorithms.join('')}

local used, states, replies, isGranted = {}, {}, {}, true
for i, ask in ipairs(asks) do
  local number, a, cost = ask[1], ask[2], ask[3]
  local algorithm = algorithms[number]
  if type(algorithm) == 'function' then
    algorithm = algorithm()
    algorithms[number] = algorithm
  end
  local s, blocked, stale = algorithm.load(KEYS[2 * i - 1], KEYS[2 * i], a, now, ask[5])
  if stale then
    table.insert(stale, 2, i)
    return stale
  end
  if blocked > 0 then
    replies[i] = algorithm.blocked(a, s, blocked, now, cost, 0)
    isGranted = isGranted and cost == 0
  else
    local wait, retry, f, g, h = algorithm.step(a, s, now, cost, 0, false)
    if retry > 0 or mode == 0 or cost == 0 or ask[4] then replies[i] = algorithm.reply(wait, retry, 0, f, g, h) end
    isGranted = isGranted and retry == 0
  end
  used[i], states[i] = algorithm, s
end

local takes = mode > 0 and isGranted
for i, ask in ipairs(asks) do
  local a, s, algorithm, cost = ask[2], states[i], used[i], ask[3]
  if not replies[i] then
    local wait, retry, f, g, h = algorithm.step(a, s, now, cost, 0, takes)
    replies[i] = algorithm.reply(wait, retry, 0, f, g, h)
    if takes then
      s.isChanged = false
      algorithm.save(KEYS[2 * i - 1], a, s)
      if mode == 2 then algorithm.addBooking(replies[i], wait, a, s, now) end
    end
  end
  if mode > 0 and s.isChanged and s.created ~= 0 then algorithm.save(KEYS[2 * i - 1], a, s) end
end
return replies
`)
}

/**
 * Tries the usual case first: every ask is granted, no key is blocked, and no state is stale. It makes few functions, reads
 * all keys at once, and writes nothing until all are granted. In any other case it returns false, and the rest of the script
 * decides.
 */
function grantAll(twins: readonly Twin[]): string {
  const functions = twins.map(
    twin => `
steps[${numberOf(twin)}], rests[${numberOf(twin)}] = (function()
${twin.step}
  return step, restsAt
end)()`,
  )
  const unpacked = twins.map((twin, index) => {
    const { args, lanes } = twin
    return `
    ${index === 0 ? 'if' : 'elseif'} number == ${numberOf(twin)} then
      n, count = ${lanes}, ${args}
      if value and ${isState('value', args)} then
        s = {struct.unpack(${formatOf(twin)}, value)}
        if ${argsDiffer(args)} then return false end
      end`
  })
  const packed = twins.map(
    (twin, index) => `
    ${index === 0 ? 'if' : 'elseif'} number == ${numberOf(twin)} then
      value = struct.pack(${formatOf(twin)}, unpack(s, 1, n + ${twin.args + 3}))`,
  )
  return `
local function grantAll()
  local steps, rests = {}, {}
  ${functions.join('')}
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
    if wait > 0 or retry > 0 or h or abs(f) > SAFE or g ~= floor(g) then return false end
    if s[n + 1] == 0 then s[n + 1] = isServerTime and now or serverTime() end
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
      redis.call('SET', KEYS[2 * i - 1], value, 'PX', ttlUntil(rests[number](a, s), now, isServerTime))
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
