import { cycleConstants } from '@sluice/core/store'
import type { Twin } from '../twin.js'

/*
 * Parameters: limit, period, offset, and 4 origin. Lanes: the number of the cycle of the last grant, plus one, and the balance
 * after it.
 */
export const cycleTwin: Twin = {
  name: 'cycle',
  args: 3,
  lanes: '2',
  hasWholeFigures: true,
  constants: cycleConstants,
  step: `
local function cycleAt(a, s, now)
  return max(floor((now - a[4]) / a[2]), s[1] - 1)
end

local function balanceIn(a, number, s)
  if s[1] == 0 then return a[1] end
  local elapsed = number - (s[1] - 1)
  return elapsed <= 0 and s[2] or min(a[1], s[2] + elapsed * a[1])
end

local function startOf(a, number)
  return a[4] + number * a[2]
end

local function cyclesUntil(a, cost, balance)
  return ceil((cost - balance) / a[1])
end

local function retryAfter(a, number, balance, now, cost, maxWait)
  local before = startOf(a, number + cyclesUntil(a, cost, balance)) - maxWait
  if cost <= a[1] then return before - now end
  local cappedIn = number + max(0, floor((a[1] - balance) / a[1])) + 1
  if before < startOf(a, cappedIn) then return before - now end
  local cycles = cyclesUntil(a, cost, a[1])
  if maxWait <= (cycles - 1) * a[2] then return huge end
  return max(startOf(a, cappedIn), startOf(a, cappedIn + cycles) - maxWait) - now
end

local function step(a, s, now, cost, maxWait, commit)
  local number = cycleAt(a, s, now)
  local balance = balanceIn(a, number, s)
  local wait, retry = 0, 0
  if cost > 0 and (balance < cost or a[1] == 0) then
    wait = startOf(a, number + cyclesUntil(a, cost, balance)) - now
    if a[1] == 0 or now + wait > LATEST then
      wait, retry = huge, huge
    elseif wait > maxWait then
      retry = retryAfter(a, number, balance, now, cost, maxWait)
      if cost > a[1] then wait = huge end
    end
  end
  if retry == 0 and commit and cost > 0 then
    balance = balance - cost
    s[1], s[2] = number + 1, balance
  end
  return wait, retry, balance, startOf(a, number + 1) - now
end

local function restsAt(a, s)
  local missing = a[1] - s[2]
  if s[1] == 0 or missing == 0 then return 0 end
  return startOf(a, s[1] - 1 + (missing < 0 and 1 or ceil(missing / a[1])))
end
`,
  shift: `
local function shift(a, s, by)
  if s[1] ~= 0 then s[1] = max(s[1] - ceil(by / a[2]), 1) end
end
`,
  adopt: `
local function adopt(a, s, now, before)
  if before[2] == a[2] and before[4] == a[4] then return end
  s[2] = min(a[1], balanceIn(before, cycleAt(before, s, now), s))
  s[1] = floor((now - a[4]) / a[2]) + 1
end
`,
  giveBack: `
local function giveBack(a, s, number, wanted)
  local balance = balanceIn(a, number, s)
  local given = max(0, min(wanted, a[1] - balance))
  if given > 0 then s[1], s[2] = number + 1, balance + given end
  return given
end

local function refund(a, s, now, permits, b)
  local number = cycleAt(a, s, now)
  local balance = balanceIn(a, number, s)
  if balance < 0 then return 0 end
  local before = b and balanceIn(a, number, b.mark) or balance
  return giveBack(a, s, number, min(permits, a[1] - before))
end

local function cancellable(a, cost, mark, balance)
  local bookedAfter = mark - balance
  if a[1] == 0 then return 0 end
  if bookedAfter <= 0 then return cost end
  local cycles = cyclesUntil(a, 0, mark)
  if cycles ~= cyclesUntil(a, 0, balance) then return 0 end
  return min(cost - bookedAfter, -mark - (cycles - 1) * a[1])
end

local function cancel(a, s, now, b)
  if now > b.act then return 0 end
  if now == b.act then return refund(a, s, now, b.cost, b) end
  local number = cycleAt(a, s, now)
  local mark = balanceIn(a, number, b.mark)
  return giveBack(a, s, number, cancellable(a, b.cost, mark, balanceIn(a, number, s)))
end
`,
}
