/** What every script begins with. A clock that goes back by more than a minute has jumped. */
export const PRELUDE = `
local floor, ceil, abs, min, max, huge = math.floor, math.ceil, math.abs, math.min, math.max, math.huge
local LATEST, JUMP, SURE = 9007199254740991, 60000000, 4000000000000000
`

export const TIME = `
local function time()
  local t = redis.call('TIME')
  return t[1] * 1000000 + t[2]
end
`

/**
 * How numbers go out: whole ones as such, which a script's reply would cut others down to; those that are not surely small
 * enough as text, because some clients read integers by steps that round.
 */
export const OUT = `
local function out(x)
  if x == huge then return 'inf' end
  if x == floor(x) and abs(x) < SURE then return x end
  return string.format('%.17g', x)
end
`

/**
 * Milliseconds for which a value is kept that means something until an instant: longer than that, and much longer where the
 * time is not the server's.
 */
export const TTL = `
local function ttlUntil(at, now, isOwnTime)
  if at == huge then return 31536000000 end
  return min(max(ceil((at - now) / 1000), 0), LATEST) + (isOwnTime and 1000 or 3600000)
end
`

/** How algorithms behave at a limit of 0; see closed.ts of core. */
export const CLOSED = `
local function closed(cost)
  local wait = cost == 0 and 0 or huge
  return wait, wait, 0, 0
end

local function closedRestsAt(s)
  return s[1] == -1 and huge or 0
end
`
