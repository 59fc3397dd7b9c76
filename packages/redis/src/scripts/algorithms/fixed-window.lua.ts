import type { Twin } from '../twin.js'

/*
 * Parameters: limit, window, and 1 if windows are aligned to the epoch. Lanes: the start of the window, and the permits used
 * in it.
 */
export const fixedWindowTwin: Twin = {
  name: 'fixed-window',
  args: 3,
  lanes: '2',
  hasWholeFigures: true,
  constants: () => [],
  step: `
local function startOf(a, now)
  return a[3] == 1 and floor(now / a[2]) * a[2] or now
end

local function step(a, s, now, cost, maxWait, commit)
  local start, used = s[1], s[2]
  if used == 0 or now >= start + a[2] then start, used = startOf(a, now), 0 end
  local endsIn = start + a[2] - now
  local wait = 0
  if cost > 0 and used + cost > a[1] then
    wait = cost > a[1] and huge or endsIn
  elseif commit and cost > 0 then
    used = used + cost
    s[1], s[2] = start, used
  end
  return wait, wait, used, endsIn
end

local function restsAt(a, s)
  return s[2] == 0 and 0 or s[1] + a[2]
end
`,
  shift: `
local function shift(a, s, by)
  if s[2] == 0 then return end
  if a[3] == 1 then by = ceil(by / a[2]) * a[2] end
  s[1] = s[1] - by
end
`,
  adopt: `
local function adopt(a, s, now, before)
  if now >= s[1] + before[2] or s[2] == 0 then
    s[1], s[2] = 0, 0
  elseif a[3] == 1 then
    s[1] = max(startOf(a, now), startOf(a, s[1]))
  end
end
`,
  giveBack: `
local function refund(a, s, now, permits, b)
  if now >= s[1] + a[2] or b and b.mark[1] ~= s[1] then return 0 end
  local given = min(permits, s[2])
  s[2] = s[2] - given
  if s[2] == 0 then s[1] = 0 end
  return given
end

local function cancel(a, s, now, b)
  return now > b.act and 0 or refund(a, s, now, b.cost, b)
end
`,
}
