import type { Twin } from '../twin.js'
import { PACK_PENALTY, READ_PENALTY } from './penalty.lua.js'
import { ZERO_LIMIT } from './prelude.lua.js'
import { DECISION_REPLY, STALE_REPLY } from './reply.lua.js'
import { readState, saveState, stateFields } from './state.lua.js'

/*
 * All that a decision needs of an algorithm, with `loadState(key, penaltyKey, a, now, conversions)`. It returns the state,
 * for how long the key is blocked, and a stale reply if the state cannot be used.
 */

/** Without conversions: a state that was written under other options, or before the clock jumped back, is stale. */
export function loadCurrentState(twin: Twin): string {
  return `${decisionParts(twin)}
local function loadState(key, penaltyKey, a, now)
  local s, penalty = readState(key, penaltyKey, a)
  local blocked, hasJumped = blockedFor(penalty, now)
  if s.isStale or hasJumped or s.written - now > JUMP then return s, blocked, staleReply(a, s) end
  return s, blocked
end
`
}

/**
 * With conversions: a list of [parameters before, parameters after, since or false], each one following on the one before. A
 * state is converted from the first one whose `before` has its args, and is stale if there is none. `false` stands for now.
 *
 * If a state was written more than a second after a change, its writer did not know of the change, and the state is converted
 * as of now.
 */
export function loadAnyState(twin: Twin): string {
  return `${ZERO_LIMIT}${decisionParts(twin)}${twin.shift}${twin.adopt}${PACK_PENALTY}
local function hasArgs(args, parameters)
  for i = 1, #args do
    if args[i] ~= parameters[i] then return false end
  end
  return true
end

local function followClock(parameters, s, now)
  if s.written - now <= JUMP then return end
  shift(parameters, s, s.written - now)
  s.written, s.isChanged = now, true
end

local function loadState(key, penaltyKey, a, now, conversions)
  local s, penalty = readState(key, penaltyKey, a)
  local blocked, hasJumped = blockedFor(penalty, now)
  if hasJumped then redis.call('SET', penaltyKey, packPenalty(now, readPenalty(penalty, now)), 'KEEPTTL') end
  if not s.isStale then
    followClock(a, s, now)
    return s, blocked
  end
  local args = argsOf(a, s)
  for i, conversion in ipairs(conversions) do
    if hasArgs(args, conversion[1]) then
      followClock(conversion[1], s, now)
      for j = i, #conversions do
        local since = conversions[j][3] or now
        if s.written - since > 1000000 or since - now > JUMP then since = now end
        adopt(conversions[j][2], s, since, conversions[j][1])
      end
      s.isChanged = true
      return s, blocked
    end
  end
  return s, blocked, staleReply(a, s)
end
`
}

function decisionParts(twin: Twin): string {
  return `${readState(twin)}${saveState(twin)}${stateFields(twin)}${twin.step}${READ_PENALTY}${DECISION_REPLY}${STALE_REPLY}`
}
