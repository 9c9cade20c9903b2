-- The logs of jobs: what their runs printed and logged last. `rq:logs` has the ids of jobs that have one by the ms of
-- the last write, `rq:logs:sizes` the bytes of each, and all bytes under `*`, which is no id.
-- INCLUDE: keys
-- RARER: drop_log audit_logs drop_oldest_logs
local MOST_LOG_BYTES, LOG_OVERHEAD = 67108864, 400 -- the second: of a hash and its two entries in the indexes

-- Whether there was one.
local function drop_log(id)
  redis.call('UNLINK', log_key(id))
  redis.call('ZREM', LOGS, id)
  local size = redis.call('HGET', LOG_SIZES, id)
  if not size then return false end
  redis.call('HDEL', LOG_SIZES, id)
  if redis.call('HINCRBY', LOG_SIZES, '*', -size) <= 0 and redis.call('EXISTS', LOGS) == 0 then
    redis.call('DEL', LOG_SIZES)
  end
  return true
end

-- Makes room: those go that were written to longest ago. They are counted.
local function drop_oldest_logs(total)
  local dropped = 0
  while total > MOST_LOG_BYTES do
    local id = redis.call('ZRANGE', LOGS, 0, 0)[1]
    if not id then break end
    drop_log(id)
    dropped = dropped + 1
    total = tonumber(redis.call('HGET', LOG_SIZES, '*')) or 0
  end
  if dropped > 0 then redis.call('HINCRBY', P .. 'dropped', 'logs', dropped) end
end

-- Looks at some logs, from where the last call stopped. Those go whose job is gone, or has finished and was not to keep
-- it: a run of it before had failed.
local function audit_logs(noted)
  local following, found = unpack(redis.call('ZSCAN', LOGS, redis.call('HGET', noted, 'logs') or '0', 'COUNT', 100))
  for i = 1, #found, 2 do
    local job = redis.pcall('HMGET', job_key(found[i]), 'status', 'keep_logs')
    if job.err or not job[1] or job[1] == 'finished' and not job[2] then drop_log(found[i]) end
  end
  redis.call('HSET', noted, 'logs', following)
end
