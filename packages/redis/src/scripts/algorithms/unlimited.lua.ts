import type { Twin } from '../twin.js'

/** Stores no state. A key can be blocked all the same. */
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
  storage: {
    read: `
local function readState(key, penaltyKey)
  return {created = 0, written = 0}, redis.call('MGET', penaltyKey)[1]
end
`,
    save: `
local function saveState()
end
`,
    fields: `
local function argsOf()
  return {}
end

local function lanesOf()
  return {}
end
`,
  },
}
