-- tend_batches: what is due of batches. One whose producer is gone is closed, or goes if that died before all that it
--   is to call back had come and nobody brought a member; one that was canceled goes on with that,
--   the times of members begin whose results nobody waits for any more, and one that ended long ago is forgotten; a
--   bounded number at a time.
-- KEYS: batches due
-- ARGV: limit duties
-- FLAGS: allow-oom
-- INCLUDE: keys time count batch cancel_members promised kin tell
-- Returns: {looked at, ms to the next or -1}
-- Events: canceled
local left, PUT_OFF = tonumber(A_limit), 30000 -- jobs; ms until one that can't be seen to (a broken key) is tried again

local function remove(batch)
  redis.call('ZREM', K_batches, batch)
  redis.call('UNLINK', batch_members_key(batch), batch_open_key(batch), batch_ended_key(batch), batch_key(batch))
  redis.call('ZREM', K_due, batch)
end

local function forget_batch(batch, parent, keep)
  if parent and redis.call('EXISTS', batch_key(parent)) == 1 and not redis.call('HGET', batch_key(parent), 'over') then
    redis.call('ZADD', K_due, now_ms + keep, batch) -- a member of that may come back, and it with it
    return
  end
  call_back_no_more(batch)
  local read, complete, success, kept = unpack(redis.call('HMGET', batch_key(batch), 'read', 'on_complete',
      'on_success', 'kept'))
  if (complete or success or kept) and read ~= 'end' then
    return let_read_end(batch) -- its members first
  end
  remove(batch)
end

-- Nobody has closed it in its time.
local function abandon(batch, parent)
  if redis.call('EXISTS', batch_members_key(batch)) == 0 and not is_opened(batch) then
    give_up_callbacks(batch)
    if parent then leave_batch(parent, '#' .. batch, 'deleted') end
    return remove(batch)
  end
  redis.call('HSET', batch_key(batch), 'closed_at', now_iso, 'closed_by', 'open_for')
  set_due(batch)
  settle_around(batch)
end

-- The time of a job that finished begins, if it has one.
local function begin_time(id)
  local key = job_key(id)
  local status, queue, ttl, func, pin = unpack(redis.call('HMGET', key, 'status', 'origin', 'result_ttl', 'func',
    'pin'))
  local score = time_from_now(ttl, func)
  if pin or status ~= 'finished' or not score then return end
  if redis.call('ZSCORE', set_of(status, queue), id) ~= 'inf' then return end
  redis.call('ZADD', set_of(status, queue), 'XX', score, id)
  redis.call('PEXPIRE', key, string.format('%d', 1000 * (tonumber(score) - now_s + 3600)))
end

local function read_no_more(batch, from, limit)
  local found = redis.call('ZRANGEBYSCORE', batch_members_key(batch), '(' .. from, '+inf', 'WITHSCORES', 'LIMIT', 0,
    limit)
  for i = 1, #found, 2 do
    if string.sub(found[i], 1, 1) ~= '#' then pcall(begin_time, found[i]) end
  end
  local more = #found == 2 * limit
  redis.call('HSET', batch_key(batch), 'read', more and found[#found] or 'end')
  left = left - #found / 2 + 1
  set_due(batch)
end

local function tend(batch)
  local key = batch_key(batch)
  local created, closed, open_until, cancel, read, over, forget, parent, keep = unpack(redis.call('HMGET', key,
      'created_at', 'closed_at', 'open_until', 'cancel', 'read', 'over', 'forget_ms', 'parent', 'keep_ms'))
  left = left - 1
  if not created then
    redis.call('ZREM', K_batches, batch)
    redis.call('ZREM', K_due, batch)
  elseif cancel then
    cancel_members(batch, left + 1)
    left = 0
  elseif read and read ~= 'end' then
    read_no_more(batch, read, left + 1)
  elseif not closed and tonumber(open_until) <= now_ms then
    abandon(batch, parent)
  elseif over and tonumber(forget) <= now_ms then
    forget_batch(batch, parent, keep)
  else
    set_due(batch)
  end
end

local looked = 0
for _, batch in ipairs(redis.call('ZRANGEBYSCORE', K_due, '-inf', now_ms, 'LIMIT', 0, A_limit)) do
  if left > 0 then
    looked = looked + 1
    if not pcall(tend, batch) then redis.call('ZADD', K_due, now_ms + PUT_OFF, batch) end
  end
end
write_tallies()
local first = redis.call('ZRANGE', K_due, 0, 0, 'WITHSCORES')[2]
local next_in = first and math.max(0, math.ceil(tonumber(first) - now_ms)) or -1
if next_in ~= 0 then tell(A_duties, 'tend', next_in) end
return { looked, next_in }
