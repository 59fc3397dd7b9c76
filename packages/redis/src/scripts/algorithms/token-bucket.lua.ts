import { tokenBucketConstants } from '@sluice/core/store'
import type { Twin } from '../twin.js'
import { GCRA_ADOPT, GCRA_GIVE_BACK, GCRA_NEW_END, GCRA_RESTS_AT, GCRA_SHIFT } from './gcra.lua.js'

export const tokenBucketTwin: Twin = {
  name: 'token-bucket',
  args: 3,
  lanes: '2',
  hasWholeFigures: true,
  constants: tokenBucketConstants,
  step: `
local function step(a, s, now, cost, maxWait, commit)
  if not a[4] then return zeroLimitStep(cost) end
  local lineEnd, part, sign = s[1], s[2], 1
  if lineEnd < now then
    if -lineEnd >= now then
      lineEnd, sign = -lineEnd, -1
    else
      lineEnd, part = now, 0
    end
  end
${GCRA_NEW_END}
  if cost > a[3] or newEnd > LATEST then return huge, huge, lineEnd - now, part end

  local wait = newEnd - a[8] - now
  if newPart > a[9] then wait = wait + 1 end
  if wait < 0 then wait = 0 end
  local retry = 0
  if wait > maxWait then
    retry = wait - maxWait
  elseif commit then
    lineEnd, part = newEnd, newPart
    s[1], s[2] = sign * newEnd, newPart
  end
  return wait, retry, lineEnd - now, part
end
${GCRA_RESTS_AT}`,
  shift: GCRA_SHIFT,
  adopt: GCRA_ADOPT,
  giveBack: `${GCRA_GIVE_BACK}
local function refund(a, s, now, permits, b)
  if not a[4] then return 0 end
  local nowUnits = units(a, now, 0)
  local held = sub(endOf(a, s), nowUnits)
  local bookedAhead = larger(sub(held, units(a, a[8], a[9])), big(0))
  if not b and #bookedAhead > 0 then return 0 end
  local notRefilled = b and sub(endOf(a, b.mark), nowUnits) or held
  local wanted = sub(smaller(permitsOf(a, permits), notRefilled), bookedAhead)
  return giveBackAtEnd(a, s, now, wanted, #bookedAhead > 0)
end

local function cancel(a, s, now, b)
  if not a[4] or now > b.act then return 0 end
  if now == b.act then return refund(a, s, now, b.cost, b) end
  local bookedAfter = larger(sub(endOf(a, s), endOf(a, b.mark)), big(0))
  if #bookedAfter > 0 and isCut(s) then return 0 end
  return giveBackAtEnd(a, s, now, sub(permitsOf(a, b.cost), bookedAfter), #bookedAfter > 0)
end
`,
}
