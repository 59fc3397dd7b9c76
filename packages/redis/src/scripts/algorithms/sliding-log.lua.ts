import type { Twin } from '../twin.js'

/*
 * A log is stored in one string: a head of ten doubles, and a run of two doubles (time, permits) for each instant at which
 * permits were granted. The head is
 *
 *     permits        of all runs                          count      the number after that of the newest run
 *     newest         the time of the newest run           base       is added to the times of runs
 *     countsFrom     runs before this time do not count   created    when the key was created
 *     first          the number of the oldest run         limit, window, maxBytes (which has no effect here)
 *
 * Runs are read in chunks from the oldest on, so a decision reads little of a long log. A grant appends its run and writes
 * the head. Runs before `first` and from `count` on are waste; the log is rewritten once more than half of it is waste. A
 * short log is rewritten each time, by one SET. A log without permits has no key.
 *
 * A run is identified by its time as written, which stays the same when the clock jumps back: only `base` changes then.
 *
 *     isLog         whether a value looks like a log and not like what another program wrote
 *     readChunk     reads the chunk of a run; chunks get longer while runs are read in order
 *     runAt         returns the time as written, and the permits
 */
const READ = `
local HEAD, RUN, SHORT, CHUNK, LONGEST_CHUNK = 80, 16, 59, 32, 1024

local function empty(s)
  s.permits, s.newest, s.countsFrom, s.first, s.count, s.base, s.created = 0, 0, 0, 0, 0, 0, 0
  s.stored, s.changed, s.written = 0, {}, 0
end

local function isLog(s, length)
  return s.permits > 0 and s.first >= 0 and s.first < s.count and HEAD + RUN * min(s.count, SHORT) <= length
    and s.first == floor(s.first) and s.count == floor(s.count)
end

local function readState(key, penaltyKey, a)
  local penalty = redis.call('MGET', penaltyKey)[1]
  local s = {key = key}
  empty(s)
  local found = redis.pcall('GETRANGE', key, 0, HEAD + RUN * SHORT - 1)
  if type(found) ~= 'string' or #found < HEAD + RUN then return s, penalty end
  local limit, window, maxBytes
  s.permits, s.newest, s.countsFrom, s.first, s.count, s.base, s.created, limit, window, maxBytes =
    struct.unpack('<dddddddddd', found)
  if not isLog(s, #found) then
    empty(s)
    return s, penalty
  end
  s.stored = s.count
  s.written = s.newest + s.base
  s.args = {limit, window, maxBytes}
  if limit ~= a[1] or window ~= a[2] then s.isStale = true end
  s.chunk, s.chunkFrom, s.chunkSize = found, -HEAD / RUN, CHUNK
  return s, penalty
end

local function readChunk(s, i)
  local after = s.chunkFrom + floor(#s.chunk / RUN)
  local goesOn = i == after or i == s.chunkFrom - 1
  local size = goesOn and min(2 * s.chunkSize, LONGEST_CHUNK) or CHUNK
  local from = i >= after and i or max(0, i - size + 1)
  local chunk = redis.call('GETRANGE', s.key, HEAD + RUN * from, HEAD + RUN * (from + size) - 1)
  s.chunk, s.chunkFrom, s.chunkSize = chunk, from, size
  s.numbers = goesOn and {struct.unpack('<' .. string.rep('dd', #chunk / RUN), chunk)} or nil
end

local function runAt(s, i)
  local changed = s.changed[i]
  if changed then return changed[1], changed[2] end
  local at = i - s.chunkFrom
  if at < 0 or RUN * (at + 1) > #s.chunk then
    readChunk(s, i)
    at = i - s.chunkFrom
  end
  local numbers = s.numbers
  if numbers then return numbers[2 * at + 1], numbers[2 * at + 2] end
  return struct.unpack('<dd', s.chunk, RUN * at + 1)
end
`

const FIELDS = `
local function argsOf(a, s)
  return s.args
end

local function lanesOf(a, s)
  return {s.newest}
end
`

const SAVE = `
local function headOf(a, s, first, count)
  return struct.pack('<dddddddddd', s.permits, s.newest, s.countsFrom, first, count, s.base, s.created, a[1], a[2], a[3])
end

local function runsOf(s)
  local runs = ''
  if s.stored > SHORT then
    runs = redis.call('GETRANGE', s.key, HEAD + RUN * s.first, HEAD + RUN * s.count - 1)
  elseif s.stored > 0 then
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

local function saveState(key, a, s, now, ttl)
  if s.permits == 0 then
    redis.call('DEL', key)
    return
  end
  if s.created == 0 then s.created = serverTime() end
  local held = s.count - s.first
  if s.stored <= SHORT or 2 * held < s.stored then
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
  storage: { read: READ, save: SAVE, fields: FIELDS },
  // `findOldest` sets s.oldest, the oldest run that counts, and s.used, the permits that count.
  step: `
local function expiredUntil(a, s, at)
  return max(at - a[2], s.countsFrom - 1)
end

local function findOldest(a, s, at)
  local expired = expiredUntil(a, s, at) - s.base
  local i, used = s.first, s.permits
  if s.count == 0 or s.newest <= expired then
    s.oldest, s.used = nil, 0
    return
  end
  local written, permits = runAt(s, i)
  while written <= expired do
    used = used - permits
    i = i + 1
    written, permits = runAt(s, i)
  end
  s.oldest, s.used = i, used
end

local function freesAt(a, s, permits)
  local missing = permits
  for i = s.oldest, s.count - 1 do
    local written, held = runAt(s, i)
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
    local _, held = runAt(s, s.count - 1)
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
  findOldest(a, s, at)
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
  s.countsFrom = expiredUntil(before, s, max(now, s.newest + s.base)) + 1
end
`,
  // `shrinkRun` takes permits out of a run. `findRun` returns the number of the run with a time as written, or nil.
  giveBack: `
local function shrinkRun(s, i, wanted)
  local written, held = runAt(s, i)
  local given = min(wanted, held)
  s.permits = s.permits - given
  if s.permits == 0 then
    empty(s)
    return given
  end
  s.changed[i] = {written, held - given}
  local newest, permits = runAt(s, s.count - 1)
  while permits == 0 do
    s.count = s.count - 1
    s.changed[s.count] = nil
    newest, permits = runAt(s, s.count - 1)
  end
  s.newest = newest
  return given
end

local function findRun(s, written)
  local low, high = s.first, s.count - 1
  while low <= high do
    local middle = floor((low + high) / 2)
    local found = runAt(s, middle)
    if found == written then return middle end
    if found < written then low = middle + 1 else high = middle - 1 end
  end
  return nil
end

local function refund(a, s, now, permits, b)
  local expired = expiredUntil(a, s, max(now, s.newest + s.base)) - s.base
  if b then
    local place = b.mark[1] > expired and findRun(s, b.mark[1])
    return place and shrinkRun(s, place, permits) or 0
  end
  local given = 0
  while given < permits and s.count > 0 and s.newest > expired do
    given = given + shrinkRun(s, s.count - 1, permits - given)
  end
  return given
end

local function cancel(a, s, now, b)
  return now > b.act and 0 or refund(a, s, now, b.cost, b)
end
`,
}
