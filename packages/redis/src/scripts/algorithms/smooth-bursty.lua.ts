import { smoothBurstyConstants } from '@sluice/core/store'
import type { Twin } from '../twin.js'
import {
  SMOOTH_ADOPT,
  SMOOTH_CANCEL,
  SMOOTH_SHARE,
  SMOOTH_SHIFT,
  SMOOTH_STEP,
  smoothParameters,
} from './smooth.lua.js'

export const smoothBurstyTwin: Twin = {
  name: 'smooth-bursty',
  args: 3,
  lanes: '5',
  constants: smoothBurstyConstants,
  step: `${smoothParameters(3)}
local function spendingUs()
  return 0
end
${SMOOTH_STEP}`,
  shift: SMOOTH_SHIFT,
  adopt: `
local function storedFor(a, balance)
  return max(0, min(balance, a[MAX_STORED]))
end

local function permitsIn(stored)
  return stored + 1
end
${SMOOTH_ADOPT}`,
  giveBack: `${SMOOTH_SHARE}
local function refund(a, s, now, permits, b)
  if not a[INTERVAL] then return 0 end
  local debt = max(s[1] - now, 0)
  local stored = storedAfter(a, s[2], now - s[1])
  local wanted = permits
  if not b then
    wanted = hasWaiter(s, now) and 0 or permits
  elseif hasLaterBooking(s, now, b) then
    wanted = 0
  else
    wanted = min(permits, a[MAX_STORED] - b.mark[2] + (b.mark[1] - now) / a[INTERVAL])
  end
  if wanted <= 0 then return 0 end
  local given = min(debt, floor(wanted * a[INTERVAL]))
  local rest = given < debt and 0 or max(0, wanted - given / a[INTERVAL])
  local restored = min(rest, a[MAX_STORED] - stored)
  s[1] = now + debt - given
  s[2] = stored + restored
  return min(permits, given / a[INTERVAL] + restored)
end
${SMOOTH_CANCEL}`,
}
