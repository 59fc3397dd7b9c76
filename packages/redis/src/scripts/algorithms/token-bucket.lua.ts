import type { Twin } from '../twin.js'
import {
  EXACT_LINE_ADOPT,
  EXACT_LINE_ASK,
  EXACT_LINE_GIVE_BACK,
  EXACT_LINE_SHIFT,
  EXACT_LINE_STEP,
  exactLine,
} from './gcra.lua.js'

export const tokenBucketTwin: Twin = {
  name: 'token-bucket',
  args: 3,
  lanes: '2',
  hasWholeFigures: true,
  constants: ([limit = 0, windowUs = 0, burst = 0]) =>
    limit === 0 || burst === 0 ? [] : exactLine(limit, windowUs, burst),
  step: `
local function step(a, s, now, cost, maxWait, commit)
  if not a[4] then return closed(cost) end
  local ends, part, sign = s[1], s[2], 1
  if ends < now then
    if -ends >= now then
      ends, sign = -ends, -1
    else
      ends, part = now, 0
    end
  end
${EXACT_LINE_ASK}
  if cost > a[3] or newEnds > LATEST then return huge, huge, ends - now, part end

  local wait = newEnds - a[8] - now
  if newPart > a[9] then wait = wait + 1 end
  if wait < 0 then wait = 0 end
  local retry = 0
  if wait > maxWait then
    retry = wait - maxWait
  elseif commit then
    ends, part = newEnds, newPart
    s[1], s[2] = sign * newEnds, newPart
  end
  return wait, retry, ends - now, part
end
${EXACT_LINE_STEP}`,
  shift: EXACT_LINE_SHIFT,
  adopt: EXACT_LINE_ADOPT,
  giveBack: `${EXACT_LINE_GIVE_BACK}
local function refund(a, s, now, permits, b)
  if not a[4] then return 0 end
  local present = units(a, now, 0)
  local held = sub(endOf(a, s), present)
  local bookedAhead = larger(sub(held, units(a, a[8], a[9])), big(0))
  if not b and #bookedAhead > 0 then return 0 end
  local notRefilled = b and sub(endOf(a, b.mark), present) or held
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
