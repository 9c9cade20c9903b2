-- What nobody came for. A job held longer than it may be fails, for the reason for which it is held. Sets that were
-- empty are forgotten.
-- INCLUDE: keys time end_job expiry history park settle ties
local FORGET_MS = 60000

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

-- Up to `limit` jobs, by weight. Returns whether there may be more.
local function sweep_waits(limit, put_off_ms)
  local sets, queues, changed, left = redis.call('HKEYS', WAITS), {}, false, limit
  for _, set in ipairs(sets) do
    local queue = queue_of_set(set)
    if queue then
      queues[queue] = true
      local listed_ms = tonumber(string.match(redis.call('HGET', WAITS, set), '^%d+')) or 0
      if now_ms - listed_ms > FORGET_MS and redis.call('EXISTS', waits_key(set)) == 0 then
        redis.call('HDEL', WAITS, set)
        changed = true
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
