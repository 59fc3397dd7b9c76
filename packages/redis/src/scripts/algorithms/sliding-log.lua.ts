import type { Twin } from '../twin.js'

/*
 * A log lies in one string: ten doubles, and a run of two doubles (time, permits) for each time at which something was
 * granted. The ten are
 *
 *     permits of all runs held   time of the newest run   time from which runs count   number of the oldest run held
 *     number after the newest one   what is to be added to the times of runs   birth   limit, window, maxBytes
 *
 * Runs are read in chunks, from the oldest on, so that a decision over a long log reads little of it. A grant writes its run
 * behind the newest, and the head; what lies before the oldest run held, or behind the newest, is dropped by writing the
 * log anew once it is more than half of the string. A short log is written anew each time, by one SET.
 *
 * A log without permits is none, and has no key; so the birth of a key is that of its log. A run is known by its time as
 * written, which does not change when the clock has jumped and all times are moved. There is no `maxBytes` here.
 */
const OPEN = `
local HEAD, RUN, SHORT, CHUNK, LONGEST_CHUNK = 80, 16, 59, 32, 1024

local function empty(s)
  s.permits, s.newest, s.countsFrom, s.first, s.count, s.base, s.birth = 0, 0, 0, 0, 0, 0, 0
  s.slots, s.changed, s.written = 0, {}, 0
end

-- What another has written there is no log, unless it looks like one.
local function isLog(s, length)
  return s.permits > 0 and s.first >= 0 and s.first < s.count and HEAD + RUN * min(s.count, SHORT) <= length
    and s.first == floor(s.first) and s.count == floor(s.count)
end

local function open(key, penaltyKey, a)
  local penalty = redis.call('MGET', penaltyKey)[1]
  local s = {key = key}
  empty(s)
  local found = redis.pcall('GETRANGE', key, 0, HEAD + RUN * SHORT - 1)
  if type(found) ~= 'string' or #found < HEAD + RUN then return s, penalty end
  local limit, window, maxBytes
  s.permits, s.newest, s.countsFrom, s.first, s.count, s.base, s.birth, limit, window, maxBytes =
    struct.unpack('<dddddddddd', found)
  if not isLog(s, #found) then
    empty(s)
    return s, penalty
  end
  s.slots = s.count
  s.written = s.newest + s.base
  s.args = {limit, window, maxBytes}
  if limit ~= a[1] or window ~= a[2] then s.isStale = true end
  s.chunk, s.chunkFrom, s.chunkSize = found, -HEAD / RUN, CHUNK
  return s, penalty
end

-- Reads the chunk that a run is in: a longer one each time when runs are read one after the other.
local function read(s, i)
  local after = s.chunkFrom + floor(#s.chunk / RUN)
  local goesOn = i == after or i == s.chunkFrom - 1
  local size = goesOn and min(2 * s.chunkSize, LONGEST_CHUNK) or CHUNK
  local from = i >= after and i or max(0, i - size + 1)
  local chunk = redis.call('GETRANGE', s.key, HEAD + RUN * from, HEAD + RUN * (from + size) - 1)
  s.chunk, s.chunkFrom, s.chunkSize = chunk, from, size
  s.numbers = goesOn and {struct.unpack('<' .. string.rep('dd', #chunk / RUN), chunk)} or nil
end

-- Time as written, and permits.
local function run(s, i)
  local changed = s.changed[i]
  if changed then return changed[1], changed[2] end
  local at = i - s.chunkFrom
  if at < 0 or RUN * (at + 1) > #s.chunk then
    read(s, i)
    at = i - s.chunkFrom
  end
  local numbers = s.numbers
  if numbers then return numbers[2 * at + 1], numbers[2 * at + 2] end
  return struct.unpack('<dd', s.chunk, RUN * at + 1)
end
`

const PARTS = `
local function argsOf(a, s)
  return s.args
end

local function lanesOf(a, s)
  return {s.newest}
end
`

const SAVE = `
local function headOf(a, s, first, count)
  return struct.pack('<dddddddddd', s.permits, s.newest, s.countsFrom, first, count, s.base, s.birth, a[1], a[2], a[3])
end

-- The runs held, as they are by now.
local function runsOf(s)
  local runs = ''
  if s.slots > SHORT then
    runs = redis.call('GETRANGE', s.key, HEAD + RUN * s.first, HEAD + RUN * s.count - 1)
  elseif s.slots > 0 then
    runs = string.sub(s.chunk, HEAD + RUN * s.first + 1, HEAD + RUN * s.count)
  end
  for i, changed in pairs(s.changed) do
    if i >= s.first and i < s.count then
      local at = RUN * (i - s.first)
      runs = string.sub(runs, 1, at) .. struct.pack('<dd', changed[1], changed[2]) .. string.sub(runs, at + RUN + 1)
    end
  end
  return runs
end

local function save(key, a, s, now, ttl)
  if s.permits == 0 then
    redis.call('DEL', key)
    return
  end
  if s.birth == 0 then s.birth = time() end
  local held = s.count - s.first
  if s.slots <= SHORT or 2 * held < s.slots then
    redis.call('SET', key, headOf(a, s, 0, held) .. runsOf(s), 'PX', ttl)
    return
  end
  for i, changed in pairs(s.changed) do
    if i < s.count then redis.call('SETRANGE', key, HEAD + RUN * i, struct.pack('<dd', changed[1], changed[2])) end
  end
  redis.call('SETRANGE', key, 0, headOf(a, s, s.first, s.count))
  redis.call('PEXPIRE', key, ttl)
end
`

export const slidingLogTwin: Twin = {
  name: 'sliding-log',
  args: 3,
  lanes: '1',
  hasWholeFigures: true,
  constants: () => [],
  access: { open: OPEN, save: SAVE, parts: PARTS },
  step: `
local function deadUntil(a, s, at)
  return max(at - a[2], s.countsFrom - 1)
end

-- Finds the oldest run that counts, and how many permits count.
local function look(a, s, at)
  local dead = deadUntil(a, s, at) - s.base
  local i, used = s.first, s.permits
  if s.count == 0 or s.newest <= dead then
    s.oldest, s.used = nil, 0
    return
  end
  local written, permits = run(s, i)
  while written <= dead do
    used = used - permits
    i = i + 1
    written, permits = run(s, i)
  end
  s.oldest, s.used = i, used
end

local function freesAt(a, s, permits)
  local missing = permits
  for i = s.oldest, s.count - 1 do
    local written, held = run(s, i)
    missing = missing - held
    if missing <= 0 then return written + s.base + a[2] end
  end
  return huge
end

local function figures(a, s, now)
  local limit, used = a[1], s.used
  local refill = limit == 0 and huge or 0
  if used > 0 then refill = freesAt(a, s, max(used - limit, 0) + 1) - now end
  return limit - used, refill, used == 0 and 0 or s.newest + s.base + a[2] - now
end

local function append(s, at, permits)
  local written = at - s.base
  if s.count > 0 and s.newest == written then
    local _, held = run(s, s.count - 1)
    s.changed[s.count - 1] = {written, held + permits}
  else
    s.changed[s.count] = {written, permits}
    s.count = s.count + 1
  end
  s.newest = written
  s.permits = s.permits + permits
end

local function step(a, s, now, cost, maxWait, commit)
  local at = max(now, s.newest + s.base)
  look(a, s, at)
  if cost > 0 and s.used + cost > a[1] then
    local wait = cost > a[1] and huge or freesAt(a, s, s.used + cost - a[1]) - now
    return wait, wait, figures(a, s, now)
  end
  if cost > 0 and commit then
    if s.oldest then
      s.first, s.permits = s.oldest, s.used
    else
      empty(s)
    end
    append(s, at, cost)
    s.oldest, s.used = s.first, s.permits
  end
  return 0, 0, figures(a, s, now)
end

local function restsAt(a, s)
  return s.permits == 0 and 0 or s.newest + s.base + a[2]
end
`,
  shift: `
local function shift(a, s, by)
  s.base = s.base - by
  s.countsFrom = s.countsFrom - by
end
`,
  adopt: `
local function adopt(a, s, now, before)
  s.countsFrom = deadUntil(before, s, max(now, s.newest + s.base)) + 1
end
`,
  giveBack: `
local function take(s, i, wanted)
  local written, held = run(s, i)
  local given = min(wanted, held)
  s.permits = s.permits - given
  if s.permits == 0 then
    empty(s)
    return given
  end
  s.changed[i] = {written, held - given}
  local newest, permits = run(s, s.count - 1)
  while permits == 0 do
    s.count = s.count - 1
    s.changed[s.count] = nil
    newest, permits = run(s, s.count - 1)
  end
  s.newest = newest
  return given
end

-- The number of the run that was written at a time, if it is held.
local function find(s, written)
  local low, high = s.first, s.count - 1
  while low <= high do
    local middle = floor((low + high) / 2)
    local found = run(s, middle)
    if found == written then return middle end
    if found < written then low = middle + 1 else high = middle - 1 end
  end
  return nil
end

local function refund(a, s, now, permits, b)
  local dead = deadUntil(a, s, max(now, s.newest + s.base)) - s.base
  if b then
    local place = b.mark[1] > dead and find(s, b.mark[1])
    return place and take(s, place, permits) or 0
  end
  local given = 0
  while given < permits and s.count > 0 and s.newest > dead do
    given = given + take(s, s.count - 1, permits - given)
  end
  return given
end

local function cancel(a, s, now, b)
  return now > b.act and 0 or refund(a, s, now, b.cost, b)
end
`,
}
