import { leakyBucketConstants } from '@sluice/core/store'
import type { Twin } from '../twin.js'
import { GCRA_ADOPT, GCRA_GIVE_BACK, GCRA_NEW_END, GCRA_RESTS_AT, GCRA_SHIFT } from './gcra.lua.js'

/*
 * Parameters: limit, window, capacity, and those of gcra.lua.ts. Lane 3 is when the newest request leaves the bucket.
 */
export const leakyBucketTwin: Twin = {
  name: 'leaky-bucket',
  args: 3,
  lanes: '3',
  hasWholeFigures: true,
  constants: leakyBucketConstants,
  step: `
local function untilFits(a, lag, lagPart, cost)
  local space = a[3] + 1 - cost
  local part = space * a[7]
  local carry = floor(part / a[4])
  local tooLong = lag - (space * a[6] + carry)
  return tooLong + (lagPart > part - carry * a[4] and 1 or 0)
end

local function step(a, s, now, cost, maxWait, commit)
  if not a[4] then return zeroLimitStep(cost) end
  local lineEnd, part = s[1], s[2]
  if lineEnd < now then lineEnd, part = now, 0 end
${GCRA_NEW_END}
  if cost > a[3] + 1 or newEnd > LATEST then return huge, huge, lineEnd - now, part end

  local wait = lineEnd - now + (part > 0 and 1 or 0)
  local retry = max(wait - maxWait, untilFits(a, lineEnd - now, part, cost), 0)
  if retry == 0 and commit then
    lineEnd, part = newEnd, newPart
    s[1], s[2], s[3] = lineEnd, part, now + wait
  end
  return wait, retry, lineEnd - now, part
end
${GCRA_RESTS_AT}`,
  shift: `${GCRA_SHIFT}
local shiftLine = shift
local function shift(a, s, by)
  shiftLine(a, s, by)
  if a[4] then s[3] = s[3] - by end
end
`,
  adopt: GCRA_ADOPT,
  giveBack: `${GCRA_GIVE_BACK}
local function refund(a, s, now, permits, b)
  if not a[4] then return 0 end
  local nowUnits = units(a, now, 0)
  local free = endOf(a, s)
  local last = b and endOf(a, b.mark) or nowUnits
  if s[3] > now and less(last, free) then return 0 end
  local notRefilled = sub(b and last or free, nowUnits)
  return giveBackAtEnd(a, s, now, smaller(permitsOf(a, permits), notRefilled), false)
end

local function cancel(a, s, now, b)
  if not a[4] or now > b.act then return 0 end
  return refund(a, s, now, b.cost, b)
end
`,
}
