import { BIGINT } from '../parts/bigint.lua.js'

/*
 * What `tokenBucket` and `leakyBucket` share; see gcra.ts of core. Their parameters are limit, window, a third arg, and
 *
 *     4 denominator   5 interval in units   6 interval in us   7 its part   8 depth in us   9 its part   10 permits at once
 *
 * A limit of 0 has the args only. Lanes 1 and 2 are the end of the line; lane 1 is negative while the line is cut.
 */

/** Inside `step`: where the line, which ends at `lineEnd` and `part`, would end after a grant. */
export const GCRA_NEW_END = `
  local newEnd = lineEnd + cost * a[6]
  local newPart = part + cost * a[7]
  if newPart >= a[4] then
    local carry = floor(newPart / a[4])
    newEnd = newEnd + carry
    newPart = newPart - carry * a[4]
  end
  if cost == 0 then return 0, 0, lineEnd - now, part end
`

/** Goes with `step`. */
export const GCRA_RESTS_AT = `
local function restsAt(a, s)
  if not a[4] then return zeroLimitRestsAt(s) end
  return abs(s[1]) + (s[2] == 0 and 0 or 1)
end
`

export const GCRA_SHIFT = `
local function shift(a, s, by)
  if a[4] then s[1] = s[1] < 0 and s[1] + by or s[1] - by end
end
`

/** Exact arithmetic, in units of 1 / denominator microseconds. */
const GCRA_UNITS = `${BIGINT}
local function units(a, us, part)
  return add(mul(big(us), big(a[4])), big(part))
end

local function endOf(a, s)
  return units(a, abs(s[1]), s[2])
end

local function permitsOf(a, permits)
  return mul(big(permits), big(a[5]))
end

local function write(a, s, at, isCut)
  local us, part = divmod(at, big(a[4]))
  s[1] = toDouble(us) * (isCut and -1 or 1)
  s[2] = toDouble(part)
end

local function isCut(s)
  return s[1] < 0
end
`

/** `balanceOf` returns the fraction permits / scale, or nil for a key at rest. */
export const GCRA_ADOPT = `${GCRA_UNITS}
local function balanceOf(a, s, now)
  if not a[4] then
    if s[1] == -1 then return big(s[2]), big(1) end
    return nil
  end
  local debt = sub(endOf(a, s), units(a, now, 0))
  if debt.negative or #debt == 0 then return nil end
  local scale = big(a[5])
  return sub(mul(big(a[10]), scale), debt), scale
end

local function adopt(a, s, now, before)
  local permits, scale = balanceOf(before, s, now)
  local wasCut = before[4] and isCut(s)
  s[1], s[2] = 0, 0
  if not a[4] then for i = 1, #s do s[i] = 0 end end
  if not permits then return end
  if not a[4] then
    local quotient, rest = divmod(permits, scale)
    if permits.negative and #rest > 0 then quotient = sub(quotient, big(1)) end
    s[1], s[2] = -1, toDouble(quotient)
    return
  end
  local missing = sub(mul(big(a[10]), scale), permits)
  if missing.negative or #missing == 0 then return end
  local debt = divmod(sub(add(mul(missing, big(a[5])), scale), big(1)), scale)
  write(a, s, add(units(a, now, 0), debt), wasCut)
end
`

export const GCRA_GIVE_BACK = `
local function giveBackAtEnd(a, s, now, wanted, cuts)
  local at = endOf(a, s)
  local given = larger(smaller(wanted, sub(at, units(a, now, 0))), big(0))
  if #given > 0 then write(a, s, sub(at, given), cuts or isCut(s)) end
  return toDouble(given) / a[5]
end
`
