-- events_read: the next events of a sink for one relay. What it was given before and never acknowledged, else what
--   relays that are dead
-- hold, else what is new.
-- KEYS: events sink
-- ARGV: sink relay count own dead
-- FLAGS: allow-oom
-- INCLUDE: member time groups life keys
-- Returns: {{entry id, {field, value ...}} ..., id of the last entry handed out to any relay of this sink}
-- own, dead: 1 = look there too. The first call makes the sink's group, from the oldest entry there is.
-- What the cap dropped is counted in the sink's hash: numbers that are missing before a new entry, and entries that
-- were handed out, are held by nobody any more and are gone from the stream.
local function dropped(count)
  if count > 0 then redis.call('HINCRBY', K_sink, 'dropped', count) end
end

local function read(from)
  local function ask(call) return call('XREADGROUP', 'GROUP', A_sink, A_relay, 'COUNT', A_count, 'STREAMS', K_events,
      from) end
  local reply = ask(redis.pcall)
  if reply and reply.err then
    if string.find(reply.err, 'NOGROUP') then
      redis.call('XGROUP', 'CREATE', K_events, A_sink, '0', 'MKSTREAM')
      redis.call('HSETNX', K_sink, 'created_at', now_iso)
    end
    reply = ask(redis.call)
  end
  return reply and reply[1][2] or {}
end

-- Of entries that were handed out before, those that are still there.
local function still_there(ids, rows)
  local found, there, lost = {}, {}, {}
  for _, row in ipairs(rows) do
    if row and row[2] then
      found[#found + 1] = row
      there[row[1]] = true
    end
  end
  for _, id in ipairs(ids) do
    if not there[id] then lost[#lost + 1] = id end
  end
  -- XCLAIM has seen to that itself, on servers >= 7
  if #lost > 0 then redis.call('XACK', K_events, A_sink, unpack(lost)) end
  dropped(#lost)
  return found
end

local function unfinished()
  local rows, ids = read('0'), {}
  for i, row in ipairs(rows) do ids[i] = row[1] end
  return still_there(ids, rows), #rows > 0
end

local function is_alive(relay)
  local beat, lease = unpack(redis.pcall('HMGET', relay_key(relay), 'beat_ms', 'lease_ms'))
  local silent = silence(relay_key(relay), beat)
  return silent and silent <= (tonumber(lease) or 0)
end

local function left_behind()
  local consumers = redis.pcall('XINFO', 'CONSUMERS', K_events, A_sink)
  if consumers.err then return {} end
  for _, flat in ipairs(consumers) do
    local consumer = named(flat)
    if consumer.name ~= A_relay and not is_alive(consumer.name) then
      if consumer.pending == 0 then
        redis.call('XGROUP', 'DELCONSUMER', K_events, A_sink, consumer.name)
      else
        local ids = {}
        local pending = redis.call('XPENDING', K_events, A_sink, '-', '+', A_count, consumer.name)
        for i, row in ipairs(pending) do ids[i] = row[1] end
        local rows = still_there(ids, redis.call('XCLAIM', K_events, A_sink, A_relay, 0, unpack(ids)))
        if #rows > 0 then return rows end
      end
    end
  end
  return {}
end

local function fresh()
  local rows = read('>')
  if #rows == 0 then return rows end
  local epoch, n = unpack(redis.call('HMGET', K_sink, 'read_epoch', 'read_n'))
  local missing = 0
  n = tonumber(n)
  for _, row in ipairs(rows) do
    local fields = row[2]
    local number = fields[9] == 'epoch' and fields[11] == 'n' and tonumber(fields[12])
    if number then
      if n and fields[10] == epoch and number > n + 1 then missing = missing + number - n - 1 end
      epoch, n = fields[10], number
    end
  end
  dropped(missing)
  if n then redis.call('HSET', K_sink, 'read_epoch', epoch, 'read_n', n) end
  return rows
end

local rows, more = {}, false
if A_own == '1' then
  repeat rows, more = unfinished() until #rows > 0 or not more
end
if #rows == 0 and A_dead == '1' then rows = left_behind() end
if #rows == 0 then rows = fresh() end
local last = '0-0'
for _, group in ipairs(groups_of(K_events)) do
  if group.name == A_sink then last = group['last-delivered-id'] end
end
return { rows, last }
