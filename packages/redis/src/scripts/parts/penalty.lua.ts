/*
 * The penalty of a key: its block, and its place on a ladder (see `Ladder` of core). It is stored in one string of six
 * doubles: refusals since the last block, blocks so far, the end of the block, when the ladder is forgotten, how long the
 * ladder remembers, and the time of the last write.
 */

/**
 * `readPenalty(value, now)` returns the first five of them, and whether the clock has jumped back since they were written;
 * then their times are moved back too. `blockedFor(value, now)` returns for how many microseconds the key is blocked, and
 * whether the clock has jumped.
 */
export const READ_PENALTY = `
local function readPenalty(value, now)
  if not value or #value ~= 48 then return 0, 0, 0, 0, 0, false end
  local refusals, blocks, untilUs, forgetAt, memory, written = struct.unpack('<dddddd', value)
  local by = written - now
  if by <= JUMP then return refusals, blocks, untilUs, forgetAt, memory, false end
  return refusals, blocks, untilUs - by, forgetAt - by, memory, true
end

local function blockedFor(value, now)
  local _, _, untilUs, _, _, hasJumped = readPenalty(value, now)
  return max(untilUs - now, 0), hasJumped
end
`

export const PACK_PENALTY = `
local function packPenalty(now, refusals, blocks, untilUs, forgetAt, memory)
  return struct.pack('<dddddd', refusals, blocks, untilUs, forgetAt, memory, now)
end
`
