-- Cron entries. The job of a tick, or of a run by hand, is made of the entry's fields as the caller read them (`rev`
-- says that they still are those).
-- INCLUDE: keys time states

-- Whether this job has not ended: then an entry that must not overlap waits for its next tick.
local function is_live(id)
  local status = id and id ~= '' and redis.pcall('HGET', job_key(id), 'status')
  return type(status) == 'string' and not is_terminal(status)
end

-- Never fails the decision it reports.
local function note_decision(entry, tick, outcome, what)
  local history = cron_history_key(entry)
  redis.pcall('RPUSH', history, string.format('%d %s %d %s', tick, outcome, now_ms, what))
  redis.pcall('LTRIM', history, -50, -1)
end

-- A cron entry goes. Its mark stays, so that an entry of that id never runs a tick twice; marks of entries long gone
-- are cleared, some at a time.
local OLD = 400 * 86400

local function forget_entry(entry)
  redis.call('ZREM', CRON_DUE, entry)
  redis.call('DEL', cron_entry_key(entry), cron_history_key(entry))
  for _, other in ipairs(redis.call('ZRANGEBYSCORE', CRON_MARKS, '-inf', now_s - OLD, 'LIMIT', 0, 20)) do
    if redis.call('EXISTS', cron_entry_key(other)) == 0 then redis.call('ZREM', CRON_MARKS, other) end
  end
end

-- Versions are whole numbers joined by dots: 1.10 is higher than 1.9.
local function is_higher(a, b)
  local left, right = string.gmatch(a, '%d+'), string.gmatch(b, '%d+')
  while true do
    local x, y = left(), right()
    if not x and not y then return false end
    x, y = tonumber(x) or 0, tonumber(y) or 0
    if x ~= y then return x > y end
  end
end

-- Whether a scheduler that lives speaks for a higher version of this app: then this one is on its way out and says
-- nothing.
local function is_outdated(app, version)
  for _, name in ipairs(redis.call('ZREVRANGE', SCHEDULERS, 0, 99)) do -- those heard of last
    local theirs, other, beat, lease = unpack(redis.pcall('HMGET', scheduler_key(name), 'app', 'version', 'beat_ms',
        'lease_ms'))
    local lives = now_ms - (tonumber(beat) or 0) <= (tonumber(lease) or 0)
    if theirs == app and other and is_higher(other, version) and lives then return true end
  end
  return false
end
