-- What nobody came for. A job held longer than it may be fails, for the reason for which it is held. While an older
-- worker lives, which knows no blocked jobs and may have their task, held ones go back to their queues from time to
-- time. Sets that were empty are forgotten.
-- INCLUDE: keys time emit end_job expiry history park ring settle ties limit
-- Uses: tied
local READMIT, FORGET_MS = 20, 60000

local function fail_held(id, queue)
  local key = job_key(id)
  local job = read_job(key)
  if job.status ~= 'blocked' then return redis.call('ZREM', P .. 'blocked:' .. queue, id) end
  local attempts, why, more = (tonumber(job.attempts) or 0) + 1, job.reason or 'held', {}
  local class = string.match(why, '^[%a_][%w_.]*') or ''
  note_attempt(key, nil, 'failed', why, more, nil, now_iso)
  fail_job(id, key, queue, job.priority, nil, job.log_tag, job.failure_ttl, why, { 'reason', class, 'attempts',
    attempts }, 'attempts', attempts, 'lost', 0, 'ended_at', now_iso, 'error_class', class, unpack(more))
  unpark(id, key, queue)
  forget_expiry(id, job.expires_at)
  redis.call('HDEL', key, 'held_since')
end

-- Of one set, so many at most. Returns how much work, by weight, that was.
local function readmit(set, queue, count, why)
  local done = 0
  for _, id in ipairs(redis.call('ZREVRANGE', waits_key(set), 0, count - 1)) do
    local key = job_key(id)
    local status, log_tag, own, ties = unpack(redis.call('HMGET', key, 'status', 'log_tag', 'waits_in', 'ties'))
    if status == 'blocked' and own == set then
      redis.call('ZADD', ready_key(queue), redis.call('ZSCORE', waits_key(set), id), id)
      redis.call('HSET', key, 'status', 'queued')
      unpark(id, key, queue)
      emit('queued', id, queue, log_tag, 'reason', why)
      if ties then tied[key] = ties end
      if not on_arrive(id, key, queue) then ring(queue) end
    else
      redis.call('ZREM', waits_key(set), id)
    end
    done = done + weight_of(key)
  end
  return done
end

-- Whether a worker lives that knows no blocked jobs, and whether one does that knows them; but for `leaving`.
local function who_lives(leaving)
  local older, knowing = false, false
  for _, worker in ipairs(redis.call('SMEMBERS', P .. 'workers')) do
    local incarnation, waits, beat, lease, queues = unpack(redis.pcall('HMGET', worker, 'incarnation', 'waits',
        'beat_ms', 'lease_ms', 'queues'))
    if worker ~= leaving and incarnation and queues ~= '_callbacks'
        and now_ms - (tonumber(beat) or 0) <= (tonumber(lease) or 0) then
      older, knowing = older or not waits, knowing or waits
    end
  end
  return older, knowing
end

-- A worker leaves the list. After the last one that knows blocked jobs an older version may come, to which they must
-- not be lost. `left`: what this call may do. Returns whether all is done.
local function readmit_all(leaving, left)
  if left <= 0 then return false end
  if redis.call('EXISTS', WAITS) == 0 then return true end
  local _, knowing = who_lives(leaving)
  for _, set in ipairs(knowing and {} or redis.call('HKEYS', WAITS)) do
    local queue = queue_of_set(set)
    while queue and redis.call('EXISTS', waits_key(set)) == 1 do
      if left <= 0 then return false end
      local ok, done = pcall(readmit, set, queue, math.min(left, READMIT), 'its worker ended')
      if not ok then break end -- a broken key: it stays
      left = left - done
    end
  end
  return true
end

-- Up to `limit` jobs, by weight. Returns whether there may be more.
local function sweep_waits(limit, put_off_ms)
  local sets, queues, older, changed, left = redis.call('HKEYS', WAITS), {}, nil, false, limit
  for _, set in ipairs(sets) do
    local queue = queue_of_set(set)
    if queue then
      queues[queue] = true
      if redis.call('EXISTS', waits_key(set)) == 0 then
        if now_ms - (tonumber(string.match(redis.call('HGET', WAITS, set), '^%d+')) or 0) > FORGET_MS then
          redis.call('HDEL', WAITS, set)
          changed = true
        end
      elseif string.sub(set, 1, 5) == 'held:' and left > 0 then
        if older == nil then older = who_lives() end
        if older then
          local ok, done = pcall(readmit, set, queue, math.min(READMIT, left), 'an older worker may have its task')
          left = left - (ok and done or 1)
        end
      end
    end
  end
  if changed and redis.call('HLEN', WAITS) == 1 then
    redis.call('DEL', WAITS)
  elseif changed then
    redis.call('HSET', WAITS, 'version', string.format('%d%06d', now_s, now_us))
  end
  for queue in pairs(queues) do
    local blocked = P .. 'blocked:' .. queue
    for _, id in ipairs(left > 0 and redis.call('ZRANGEBYSCORE', blocked, '-inf', now_ms, 'LIMIT', 0, left) or {}) do
      if left <= 0 then break end
      if not pcall(fail_held, id, queue) then redis.call('ZADD', blocked, now_ms + put_off_ms, id) end
      left = left - weight_of(job_key(id))
    end
  end
  return left <= 0
end
