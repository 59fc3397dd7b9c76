/** What every script begins with. A clock that goes back by more than a minute has jumped. */
export const PRELUDE = `
local floor, ceil, abs, min, max, huge = math.floor, math.ceil, math.abs, math.min, math.max, math.huge
local LATEST, JUMP = 9007199254740991, 60000000
`

export const TIME = `
local function time()
  local t = redis.call('TIME')
  return t[1] * 1000000 + t[2]
end
`

/**
 * How numbers go out: whole ones as such, which a script's reply would cut others down to; large ones as text, because some
 * clients read integers by steps that round.
 */
export const OUT = `
local function out(x)
  if x == huge then return 'inf' end
  if x == floor(x) and abs(x) < 4000000000000000 then return x end
  return string.format('%.17g', x)
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
