import { ENCODE } from './prelude.lua.js'

/*
 * The reply to a decision is its figures: a list of two or three, or one number if there are two and the second one is 0. The
 * reply to a refusal or to a grant with a wait has three figures, then the wait, retryAfter, and for how long the key is
 * blocked. A booking follows as the time, when the key was created, and the lanes.
 */

/**
 * `decisionReply`; `blockedReply` for a blocked key, which decides as of the end of the block; `addBooking`, which extends
 * the reply to a grant.
 */
export const DECISION_REPLY = `${ENCODE}
local function decisionReply(wait, retry, blocked, f, g, h)
  if wait == 0 and retry == 0 and blocked == 0 then
    if h then return {encode(f), encode(g), encode(h)} end
    return {encode(f), encode(g)}
  end
  return {encode(f), encode(g), encode(h or 0), encode(wait), encode(retry), encode(blocked)}
end

local function blockedReply(a, s, blocked, now, cost, maxWait)
  local wait, retry, f, g, h = step(a, s, now, cost, maxWait, false)
  if cost == 0 then return decisionReply(0, 0, blocked, f, g, h) end
  wait, retry = step(a, s, now + blocked, cost, maxWait, false)
  return decisionReply(blocked + wait, blocked + retry, blocked, f, g, h)
end

local function addBooking(reply, wait, a, s, now)
  for i = #reply + 1, 3 do reply[i] = 0 end
  reply[4], reply[5], reply[6], reply[7], reply[8] = encode(wait), 0, 0, encode(now), encode(s.created)
  for i, lane in ipairs(lanesOf(a, s)) do reply[8 + i] = encode(lane) end
  return reply
end
`

/** Replies that a state must be converted first, with the args it was written under. Goes after `stateFields`. */
export const STALE_REPLY = `
local function staleReply(a, s)
  local reply = {'stale'}
  for _, arg in ipairs(argsOf(a, s)) do reply[#reply + 1] = string.format('%.17g', arg) end
  return reply
end
`
