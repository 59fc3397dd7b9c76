/**
 * The first lines of every script. LATEST is the last instant that is exact in a double. A clock has jumped if it went back
 * by more than JUMP. Integers below SAFE are exact in every client.
 */
export const PRELUDE = `
local floor, ceil, abs, min, max, huge = math.floor, math.ceil, math.abs, math.min, math.max, math.huge
local LATEST, JUMP, SAFE = 9007199254740991, 60000000, 4000000000000000
`

export const TIME = `
local function serverTime()
  local t = redis.call('TIME')
  return t[1] * 1000000 + t[2]
end
`

/**
 * Encodes a number for a reply. Redis cuts the fraction off a number, and some clients read large integers inexactly: both
 * kinds are sent as strings.
 */
export const ENCODE = `
local function encode(x)
  if x == huge then return 'inf' end
  if x == floor(x) and abs(x) < SAFE then return x end
  return string.format('%.17g', x)
end
`

/**
 * The time to live, in milliseconds, of a value that is needed until an instant. It is a second longer, and an hour longer if
 * `now` is not the server's time.
 */
export const TTL = `
local function ttlUntil(at, now, isServerTime)
  if at == huge then return 31536000000 end
  return min(max(ceil((at - now) / 1000), 0), LATEST) + (isServerTime and 1000 or 3600000)
end
`

/** How algorithms with other constants behave at a limit of 0; see zero-limit.ts of core. */
export const ZERO_LIMIT = `
local function zeroLimitStep(cost)
  local wait = cost == 0 and 0 or huge
  return wait, wait, 0, 0
end

local function zeroLimitRestsAt(s)
  return s[1] == -1 and huge or 0
end
`
