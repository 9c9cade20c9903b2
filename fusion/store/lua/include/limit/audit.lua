-- Looks whether what is written down of concurrency keys is so, some keys at a time, and some holders of each: where
-- one has more, chance finds which. What is found is mended and
-- counted: each is a mistake of Fusion's, or somebody wrote there. Keys without jobs go a day after the last.
-- INCLUDE: keys time limit
-- RARER: is_lock holds_rightly audit_key audit_lock
local AUDITED, HOLDERS, FORGET_KEY_MS = 50, 300, 86400000 -- keys, and holders of them all, a call

-- Whether a job's run has the lock of a name, or is first of those that wait for it.
local function is_lock(name, id)
  local status, locks = unpack(redis.pcall('HMGET', job_key(id), 'status', 'locks'))
  if status ~= 'started' then return false end
  locks = locks_of(locks)
  for i = 1, #locks, 3 do
    if locks[i] == name then return redis.call('ZRANGE', locks_key(name), 0, 0)[1] == id end
  end
  return false
end

-- Whether a holder is what it should be. One that was admitted waits in its queue, one that started runs, or waits for
-- its next try, or is to run alone, or for a worker that has its task.
local function holds_rightly(name, id, score)
  local status, own, set = unpack(redis.pcall('HMGET', job_key(id), 'status', 'concurrency_key', 'waits_in'))
  if own ~= name then return is_lock(name, id) end
  if tonumber(score) == math.huge then return status == 'started' or status == 'scheduled' or status == 'queued' end
  if status == 'blocked' and string.sub(set or '', 1, 5) == 'held:' then -- for a time
    return redis.call('ZSCORE', LIMITS_DUE, name .. ' ' .. id .. ' held')
  end
  return status == 'queued' or status == 'blocked' and string.sub(set or '', 1, 10) == 'probation:'
end

-- Frees the lock of a name if the first in its line should not be there. Returns 1 if it did, else 0.
local function audit_lock(name)
  local first = redis.call('ZRANGE', locks_key(name), 0, 0)[1]
  if not first or is_lock(name, first) then return 0 end
  free_lock(name, first)
  return 1
end

-- `share`: how many holders.
local function audit_key(name, used, share)
  local held, found = holders_key(name), 0
  local size = redis.call('ZCARD', held)
  local from = size > share and (now_us + size) % (size - share + 1) or 0
  local holders = redis.call('ZRANGE', held, from, from + share - 1, 'WITHSCORES')
  for i = 1, #holders, 2 do
    if not holds_rightly(name, holders[i], holders[i + 1]) then
      redis.call('ZREM', held, holders[i])
      found = found + 1
    end
  end
  found = found + audit_lock(name)
  local limit, due = limit_of(name)
  if not due and redis.call('ZCARD', held) + found < limit and redis.call('EXISTS', queue_up_key(name)) == 1
      and not redis.call('ZSCORE', LIMITS_DUE, name) then
    found = found + 1
  end
  settle_key(name)
  if found > 0 then redis.call('INCRBY', LIMITS_AUDIT, found) end
  if now_ms - used < FORGET_KEY_MS then return end
  local pinned, paused, rate, tat, held_back = unpack(redis.call('HMGET', limit_key(name), 'pinned', 'paused',
      'pinned_rate', 'tat', 'held_back'))
  -- a start uses up time of its rate, and of a slow one more than a day
  local holds = (tonumber(tat) or 0) > now_s * 1000000 or closed_until(paused, held_back)
  if pinned or rate or holds or redis.call('EXISTS', held, queue_up_key(name)) > 0 then
    redis.call('ZADD', LIMITS, now_ms, name)
  else
    redis.call('DEL', limit_key(name))
    redis.call('ZREM', LIMITS, name)
  end
end

-- From a cursor on; returns the next.
local function audit_limits(cursor)
  local following, found = unpack(redis.call('ZSCAN', LIMITS, cursor, 'COUNT', AUDITED))
  local share = math.max(1, math.floor(2 * HOLDERS / math.max(2, #found))) -- a small set comes as a whole
  for i = 1, #found, 2 do pcall(audit_key, found[i], tonumber(found[i + 1]), share) end
  return following
end
