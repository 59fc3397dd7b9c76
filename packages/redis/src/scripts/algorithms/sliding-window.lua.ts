import { slidingWindowConstants } from '@sluice/core/store'
import type { Twin } from '../twin.js'

/*
 * Parameters: limit, window, slices, 4 the length of a slice, and 5 the number of segments. Lanes: a ring of segments, each one
 * permits and the time of their newest grant.
 */
export const slidingWindowTwin: Twin = {
  name: 'sliding-window',
  args: 3,
  lanes: '2 * (a[3] + 1)',
  hasWholeFigures: true,
  variant: ([, , slices]) => (slices === 10 ? '' : `.${slices}`),
  constants: slidingWindowConstants,
  step: `
local function segmentAt(a, at)
  local slice = floor(at / a[4])
  return 1 + 2 * (slice - floor(slice / a[5]) * a[5])
end

local function newestOf(a, s)
  local newest = 0
  for i = 2, 2 * a[5], 2 do newest = max(newest, s[i]) end
  return newest
end

local function freesAt(a, s, at, permits)
  local missing = permits
  for ahead = 1, a[5] do
    local i = segmentAt(a, at + ahead * a[4])
    local ends = s[i + 1] + a[2]
    if ends > at then
      missing = missing - s[i]
      if missing <= 0 then return ends end
    end
  end
  return huge
end

local function decision(a, s, now, wait, used, oldest, newest)
  local balance = a[1] - used
  local refill = a[1] == 0 and huge or 0
  if balance < 0 then
    refill = freesAt(a, s, max(now, newest), 1 - balance) - now
  elseif used > 0 then
    refill = oldest + a[2] - now
  end
  return wait, wait, balance, refill, used > 0 and newest + a[2] - now or 0
end

local function step(a, s, now, cost, maxWait, commit)
  local newest = newestOf(a, s)
  local at = max(now, newest)
  local used, oldest = 0, huge
  for i = 1, 2 * a[5], 2 do
    if s[i + 1] + a[2] > at and s[i] ~= 0 then
      used = used + s[i]
      oldest = min(oldest, s[i + 1])
    end
  end
  if cost > 0 and used + cost > a[1] then
    local wait = cost > a[1] and huge or freesAt(a, s, at, used + cost - a[1]) - now
    return decision(a, s, now, wait, used, oldest, newest)
  end
  if cost == 0 or not commit then return decision(a, s, now, 0, used, oldest, newest) end

  local i = segmentAt(a, at)
  local before = s[i + 1] + a[2] > at and s[i] or 0
  s[i], s[i + 1] = before + cost, at
  if used == before then oldest = at end
  return decision(a, s, now, 0, used + cost, oldest, at)
end

local function restsAt(a, s)
  local rest = 0
  for i = 1, 2 * a[5], 2 do
    if s[i] ~= 0 then rest = max(rest, s[i + 1] + a[2]) end
  end
  return rest
end
`,
  // `rearrange` keeps the segments that still count in a window, and moves them back. Those in one slice become one segment.
  shift: `
local function rearrange(a, s, at, window, by)
  local kept = {}
  for i = 1, 2 * a[5], 2 do
    if s[i + 1] + window > at then kept[#kept + 1] = {s[i], s[i + 1] - by} end
    s[i], s[i + 1] = 0, 0
  end
  for _, segment in ipairs(kept) do
    local i = segmentAt(a, segment[2])
    s[i] = s[i] + segment[1]
    s[i + 1] = max(s[i + 1], segment[2])
  end
end

local function shift(a, s, by)
  rearrange(a, s, newestOf(a, s), a[2], by)
end
`,
  adopt: `
local function adopt(a, s, now, before)
  if before[3] ~= a[3] then
    for i = 1, #s do s[i] = 0 end
  else
    rearrange(a, s, max(now, newestOf(a, s)), min(before[2], a[2]), 0)
  end
end
`,
  giveBack: `
local function refund(a, s, now, permits, b)
  local at = max(now, newestOf(a, s))
  local bookedAt = b and newestOf(a, b.mark) or at
  local bookedSlice = floor(bookedAt / a[4])
  local given = 0
  for age = 0, b and 0 or a[5] - 1 do
    local i = segmentAt(a, max(0, bookedAt - age * a[4]))
    local stamp = s[i + 1]
    if floor(stamp / a[4]) == bookedSlice - age and stamp + a[2] > at then
      local taken = min(permits - given, s[i])
      s[i] = s[i] - taken
      if s[i] == 0 then s[i + 1] = 0 end
      given = given + taken
    end
  end
  return given
end

local function cancel(a, s, now, b)
  return now > b.act and 0 or refund(a, s, now, b.cost, b)
end
`,
}
