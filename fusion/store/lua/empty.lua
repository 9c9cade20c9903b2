-- empty: forget the waiting jobs of a queue, blocked and deferred ones too, a bounded number at a time.
-- ARGV: queue limit keep
-- FLAGS: allow-oom
-- INCLUDE: writer keys mark count emit park expiry inbox ties kin on_end trash states lines
-- Uses: tied
-- Returns: {deleted, again, how many of them are in the trash: with `keep` 1, if there is room}
-- Events: deleted
-- `limit`: by weight.
local ready, limit, deleted, kept = ready_key(A_queue), tonumber(A_limit), 0, 0
local left = limit
local has_logs = redis.call('EXISTS', LOGS) == 1

local function remove(id, key, log_tag, expires_at, ties, seq, origin, class, deferred)
  if ties then tied[key] = ties end
  left = left - weight_of(key)
  local counters = ties and counters_of_key(key)
  on_end(id, key, A_queue, 'deleted')
  if ties then forget_kin(id, key) end
  if has_logs then drop_log(id) end
  local ok, moved = A_keep == '1', nil
  if ok then ok, moved = pcall(put_into_trash, id, key, A_queue, deferred) end
  if ok and moved then
    redis.call('UNLINK', dependents_key(id))
    kept = kept + 1
  elseif redis.call('UNLINK', key, dependents_key(id)) == 0 then
    return
  end
  meet(seq, nil, nil, origin or A_queue, class)
  tally('deleted', origin or A_queue, class, counters)
  forget_expiry(id, expires_at)
  emit('deleted', id, A_queue, log_tag)
  deleted = deleted + 1
end

local function drop(id)
  local key = job_key(id)
  local job = redis.pcall('HMGET', key, 'status', 'log_tag', 'origin', 'seq', 'expires_at', 'ties', 'priority')
  if job.err or is_elsewhere(job[1]) then return end
  if not job[4] and not is_list(A_queue) and is_rqs(key) then return end
  local origin = job[3] -- an outsider may have pushed the id of a job that waits in another queue
  if origin and origin ~= A_queue and tonumber(redis.pcall('ZSCORE', ready_key(origin), id)) then return end
  remove(id, key, job[2], job[5], job[6], job[4], origin, job[7])
end

local function empty()
  -- First what is deferred, so that no end of another releases it.
  local deferred, others = redis.call('ZRANGE', set_of('deferred', A_queue), 0, limit - 1), 0
  for _, id in ipairs(deferred) do
    if left <= 0 then return 1 end
    local key = job_key(id)
    local job = redis.pcall('HMGET', key, 'status', 'log_tag', 'expires_at', 'ties', 'priority', 'seq')
    if not job.err and job[1] == 'deferred' and not job[6] then
      others = others + 1 -- stock RQ's wait there as well
    else
      if not job.err and job[1] == 'deferred' then
        remove(id, key, job[2], job[3], job[4], true, A_queue, job[5], true)
      end
      redis.call('ZREM', set_of('deferred', A_queue), id)
    end
  end
  if #deferred == limit and others < limit then return 1 end

  -- Then what is blocked: nobody is to be admitted to the queue for one that goes. One of a newer version's waits
  -- where only that knows; it is left alone.
  local blocked, alien = redis.call('ZRANGE', P .. 'blocked:' .. A_queue, 0, limit - 1), 0
  for _, id in ipairs(blocked) do
    if left <= 0 then return 1 end
    local key = job_key(id)
    local job = redis.pcall('HMGET', key, 'status', 'log_tag', 'waits_in', 'expires_at', 'ties', 'priority')
    if job.err or job[1] ~= 'blocked' then
      redis.call('ZREM', P .. 'blocked:' .. A_queue, id)
    elseif not job[3] then
      alien = alien + 1
    else
      unpark(id, key, A_queue)
      remove(id, key, job[2], job[4], job[5], true, A_queue, job[6])
    end
  end
  if #blocked == limit and alien < limit then return 1 end

  local ids = redis.call('ZRANGE', ready, 0, limit - 1)
  for _, id in ipairs(ids) do
    if left <= 0 then return 1 end
    redis.call('ZREM', ready, id)
    drop(id)
  end
  if #ids == limit then return 1 end
  if not is_list(A_queue) then return 0 end

  -- They leave the list all at once, so first of all: how many.
  local inbox, struck, count, room = redis.call('LRANGE', queue_key(A_queue), 0, limit - 1), nil, 0, left
  while count < #inbox and room > 0 do
    count = count + 1
    local key = job_key(inbox[count])
    local ties = redis.pcall('HGET', key, 'ties')
    if type(ties) == 'string' then tied[key] = ties end
    room = room - weight_of(key)
  end
  struck = redis.call('EXISTS', inbox_key(A_queue)) == 1
  redis.call('LTRIM', queue_key(A_queue), count, -1)
  passed(A_queue, count)
  for i = 1, count do
    local id = inbox[i]
    drop(id)
    -- a job that was put back stands a second time further behind
    if struck and redis.call('EXISTS', job_key(id)) == 0 then strike(A_queue, id) end
  end
  return redis.call('EXISTS', queue_key(A_queue))
end

local ok, again = pcall(empty)
write_tallies()
if not ok then return error_reply(again) end
return { deleted, again, kept }
