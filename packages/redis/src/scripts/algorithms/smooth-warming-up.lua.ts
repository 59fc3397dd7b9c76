import { smoothWarmingUpConstants } from '@sluice/core/store'
import type { Twin } from '../twin.js'
import {
  SMOOTH_ADOPT,
  SMOOTH_CANCEL,
  SMOOTH_SHARE,
  SMOOTH_SHIFT,
  SMOOTH_STEP,
  smoothParameters,
} from './smooth.lua.js'

/** Its own parameters are 9 threshold and 10 slope. */
export const smoothWarmingUpTwin: Twin = {
  name: 'smooth-warming-up',
  args: 4,
  lanes: '5',
  constants: smoothWarmingUpConstants,
  step: `${smoothParameters(4)}
local function spendingUs(a, stored, spent)
  local interval, slope = a[INTERVAL], a[10]
  local above = stored - a[9]
  if above <= 0 then return floor(interval * spent) end
  local spentAbove = min(above, spent)
  local dearest = interval + above * slope
  local cheapest = interval + (above - spentAbove) * slope
  return floor((spentAbove * (dearest + cheapest)) / 2) + floor(interval * (spent - spentAbove))
end
${SMOOTH_STEP}`,
  shift: SMOOTH_SHIFT,
  adopt: `
local function storedFor(a)
  return a[MAX_STORED]
end

local function permitsIn()
  return 1
end
${SMOOTH_ADOPT}`,
  giveBack: `${SMOOTH_SHARE}
local function refund(a, s, now, permits, b)
  if not a[INTERVAL] then return 0 end
  local debt = s[1] - now
  if b then
    if hasLaterBooking(s, now, b) then return 0 end
    return giveBackShare(a, s, b.act, b.cost, b.mark, permits / b.cost, min(b.mark[1] - now, debt))
  end
  local cost = s[5]
  if cost == 0 or hasWaiter(s, now) then return 0 end
  return min(permits, giveBackShare(a, s, s[4], cost, {unpack(s, 1, 5)}, min(1, permits / cost), debt))
end
${SMOOTH_CANCEL}`,
}
