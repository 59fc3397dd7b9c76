/*
 * What `smoothBursty` and `smoothWarmingUp` share; see smooth.ts of core, also for the lanes. Their parameters after the args
 * are
 *
 *     INTERVAL   MAX_STORED   STORE (idle time that stores a permit)   FRESH (permits stored for a key never seen)
 *
 * and then those that only one of them has. A limit of 0 has the args only. A key never seen has been idle since the epoch,
 * because the processes have no common start.
 */

/** Names for the places of the parameters. */
export function smoothParameters(args: number): string {
  return `
local INTERVAL, MAX_STORED, STORE, FRESH = ${args + 1}, ${args + 2}, ${args + 3}, ${args + 4}
`
}

/** Goes after `spendingUs(a, stored, spent)`. */
export const SMOOTH_STEP = `
local function storedAfter(a, stored, idle)
  if idle <= 0 or a[MAX_STORED] == 0 then return min(stored, a[MAX_STORED]) end
  return min(a[MAX_STORED], stored + idle / a[STORE])
end

local function idleUntil(a, stored, target)
  if stored >= target then return 0 end
  local idle = max(1, ceil((target - stored) * a[STORE]))
  while idle > 1 and stored + (idle - 1) / a[STORE] >= target do idle = idle - 1 end
  while stored + idle / a[STORE] < target do idle = idle + 1 end
  return idle
end

local function step(a, s, now, cost, maxWait, commit)
  if not a[INTERVAL] then return zeroLimitStep(cost) end
  local free, stored = s[1], s[2]
  if free == 0 then free, stored = min(0, now), a[FRESH] end
  local wait = max(free - now, 0)
  if cost == 0 then return 0, 0, free - now, stored end
  local available = storedAfter(a, stored, now - free)
  local spent = min(cost, available)
  local costs = spendingUs(a, available, spent) + floor((cost - spent) * a[INTERVAL])
  local grantAt = now + wait
  if grantAt + costs > LATEST then return huge, huge, free - now, stored end
  if wait > maxWait then return wait, wait - maxWait, free - now, stored end
  if commit then
    free, stored = grantAt + costs, available - spent
    s[1], s[2], s[3], s[4], s[5] = free, stored, spent, grantAt, cost
  end
  return wait, 0, free - now, stored
end

local function restsAt(a, s)
  if not a[INTERVAL] then return zeroLimitRestsAt(s) end
  if s[1] == 0 then return 0 end
  return max(s[1] + idleUntil(a, s[2], a[MAX_STORED]), idleUntil(a, a[FRESH], a[MAX_STORED]))
end
`

export const SMOOTH_SHIFT = `
local function shift(a, s, by)
  if not a[INTERVAL] or s[1] == 0 then return end
  s[1] = s[1] - by
  s[4] = s[4] - by
end
`

/** Goes after `storedFor(a, balance)` and `permitsIn(stored)`. */
export const SMOOTH_ADOPT = `
local function balanceOf(a, s, now)
  if not a[INTERVAL] then
    if s[1] == -1 then return s[2] end
    return nil
  end
  if restsAt(a, s) <= now then return nil end
  local untilFree = s[1] - now
  return floor(permitsIn(storedAfter(a, s[2], -untilFree)) - max(untilFree, 0) / a[INTERVAL]) - 1
end

local function adopt(a, s, now, before)
  if a[INTERVAL] and before[INTERVAL] then
    local untilFree = s[1] - now
    local stored = storedAfter(before, s[2], -untilFree)
    local most = before[MAX_STORED]
    s[2] = most == 0 and a[FRESH] or (stored * a[MAX_STORED]) / most
    s[3] = most == 0 and 0 or (s[3] * a[MAX_STORED]) / most
    if untilFree < 0 then s[1] = now end
    return
  end
  local permits = balanceOf(before, s, now)
  for i = 1, 5 do s[i] = 0 end
  if not permits then return end
  if a[INTERVAL] then
    s[1], s[2] = now + max(0, ceil(-permits * a[INTERVAL])), storedFor(a, permits)
  else
    s[1], s[2] = -1, permits
  end
end
`

/** Goes before `refund`. */
export const SMOOTH_SHARE = `
local function giveBackShare(a, s, act, cost, mark, wanted, most)
  local costs = mark[1] - act
  if most <= 0 or costs <= 0 then return 0 end
  local share = min(wanted, most / costs)
  local spent = mark[3] * share
  s[1] = s[1] - floor(costs * share)
  s[2] = min(a[MAX_STORED], s[2] + spent)
  s[3] = max(0, s[3] - spent)
  s[5] = max(0, s[5] - cost * share)
  return cost * share
end

local function hasWaiter(s, now)
  return s[4] > now
end

local function hasLaterBooking(s, now, b)
  return hasWaiter(s, now) and s[1] > b.mark[1]
end
`

/** Goes after `refund`. */
export const SMOOTH_CANCEL = `
local function cancel(a, s, now, b)
  if not a[INTERVAL] or now > b.act then return 0 end
  if now == b.act then return refund(a, s, now, b.cost, b) end
  if hasLaterBooking(s, now, b) then return 0 end
  return giveBackShare(a, s, b.act, b.cost, b.mark, 1, s[1] - now)
end
`
