import type { Twin } from '../twin.js'
import {
  EXACT_LINE_ADOPT,
  EXACT_LINE_ASK,
  EXACT_LINE_GIVE_BACK,
  EXACT_LINE_SHIFT,
  EXACT_LINE_STEP,
  exactLine,
} from './gcra.lua.js'

/*
 * Terms: limit, window, capacity, and those of the exact line. Lane 3 is when the newest request leaves.
 */
export const leakyBucketTwin: Twin = {
  name: 'leaky-bucket',
  args: 3,
  lanes: '3',
  hasWholeFigures: true,
  constants: ([limit = 0, windowUs = 0]) => (limit === 0 ? [] : exactLine(limit, windowUs, 1)),
  step: `
local function untilRoom(a, lag, lagPart, cost)
  local room = a[3] + 1 - cost
  local part = room * a[7]
  local carry = floor(part / a[4])
  local tooLong = lag - (room * a[6] + carry)
  return tooLong + (lagPart > part - carry * a[4] and 1 or 0)
end

local function step(a, s, now, cost, maxWait, commit)
  if not a[4] then return closed(cost) end
  local ends, part = s[1], s[2]
  if ends < now then ends, part = now, 0 end
${EXACT_LINE_ASK}
  if cost > a[3] + 1 or newEnds > LATEST then return huge, huge, ends - now, part end

  local wait = ends - now + (part > 0 and 1 or 0)
  local retry = max(wait - maxWait, untilRoom(a, ends - now, part, cost), 0)
  if retry == 0 and commit then
    ends, part = newEnds, newPart
    s[1], s[2], s[3] = ends, part, now + wait
  end
  return wait, retry, ends - now, part
end
${EXACT_LINE_STEP}`,
  shift: `${EXACT_LINE_SHIFT}
local shiftLine = shift
local function shift(a, s, by)
  shiftLine(a, s, by)
  if a[4] then s[3] = s[3] - by end
end
`,
  adopt: EXACT_LINE_ADOPT,
  giveBack: `${EXACT_LINE_GIVE_BACK}
local function refund(a, s, now, permits, b)
  if not a[4] then return 0 end
  local present = units(a, now, 0)
  local free = endOf(a, s)
  local last = b and endOf(a, b.mark) or present
  if s[3] > now and less(last, free) then return 0 end
  local notRefilled = sub(b and last or free, present)
  return giveBackAtEnd(a, s, now, smaller(permitsOf(a, permits), notRefilled), false)
end

local function cancel(a, s, now, b)
  if not a[4] or now > b.act then return 0 end
  return refund(a, s, now, b.cost, b)
end
`,
}
