import type { Twin } from '../twin.js'

/** Keeps no state: all there is to look for is whether the key is blocked. */
export const unlimitedTwin: Twin = {
  name: 'unlimited',
  args: 0,
  lanes: '0',
  hasWholeFigures: true,
  constants: () => [],
  step: `
local function step()
  return 0, 0, 0, 0
end

local function restsAt()
  return 0
end
`,
  shift: `
local function shift()
end
`,
  adopt: `
local function adopt()
end
`,
  giveBack: `
local function refund()
  return 0
end

local function cancel()
  return 0
end
`,
  access: {
    open: `
local function open(key, penaltyKey)
  return {birth = 0, written = 0}, redis.call('MGET', penaltyKey)[1]
end
`,
    save: `
local function save()
end
`,
    parts: `
local function argsOf()
  return {}
end

local function lanesOf()
  return {}
end
`,
  },
}
