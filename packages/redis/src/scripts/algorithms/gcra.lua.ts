import { BIGINT } from '../parts/bigint.lua.js'

/*
 * What `tokenBucket` and `leakyBucket` share; see exact-line.ts of core. Their terms are limit, window, a third arg, and
 *
 *     4 denominator   5 units   6 interval   7 its part   8 depth   9 its part   10 at once
 *
 * all of which are missing for a limit of 0. Lanes 1 and 2 are the end of the line; lane 1 is negative while it is cut.
 */
export function exactLine(limit: number, windowUs: number, atOnce: number): number[] {
  const shared = greatestCommonDivisor(limit, windowUs)
  const denominator = limit / shared
  const intervalUnits = windowUs / shared
  const intervalUs = Math.floor(intervalUnits / denominator)
  const intervalPart = intervalUnits - intervalUs * denominator
  const carry = Math.floor((atOnce * intervalPart) / denominator)
  const depthUs = atOnce * intervalUs + carry
  const depthPart = atOnce * intervalPart - carry * denominator
  return [denominator, intervalUnits, intervalUs, intervalPart, depthUs, depthPart, atOnce]
}

function greatestCommonDivisor(a: number, b: number): number {
  while (b > 0) [a, b] = [b, a % b]
  return a
}

/** In `step`: where the line, which ends at `ends` and `part`, would end after the ask. */
export const EXACT_LINE_ASK = `
  local newEnds = ends + cost * a[6]
  local newPart = part + cost * a[7]
  if newPart >= a[4] then
    local carry = floor(newPart / a[4])
    newEnds = newEnds + carry
    newPart = newPart - carry * a[4]
  end
  if cost == 0 then return 0, 0, ends - now, part end
`

/** What goes with `step`. */
export const EXACT_LINE_STEP = `
local function restsAt(a, s)
  if not a[4] then return closedRestsAt(s) end
  return abs(s[1]) + (s[2] == 0 and 0 or 1)
end
`

export const EXACT_LINE_SHIFT = `
local function shift(a, s, by)
  if a[4] then s[1] = s[1] < 0 and s[1] + by or s[1] - by end
end
`

/** In units of 1 / denominator microseconds. Balances are permits / scale, and nothing for a key at rest. */
const EXACT_LINE = `${BIGINT}
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

export const EXACT_LINE_ADOPT = `${EXACT_LINE}
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

export const EXACT_LINE_GIVE_BACK = `
local function giveBackAtEnd(a, s, now, wanted, cuts)
  local at = endOf(a, s)
  local given = larger(smaller(wanted, sub(at, units(a, now, 0))), big(0))
  if #given > 0 then write(a, s, sub(at, given), cuts or isCut(s)) end
  return toDouble(given) / a[5]
end
`
