-- promote: scheduled jobs that are due go to their queues, a bounded number at a time.
-- KEYS: scheduled
-- ARGV: limit
-- INCLUDE: keys time score emit ring end_job
-- FLAGS: allow-oom
-- Returns: {moved, ms to the next due one or -1}
-- Events: queued failed
local moved, PUT_OFF = 0, 30 -- seconds until a job whose queue is broken is looked at again, so that it keeps nobody else waiting

local function move(id)
  local key = job_key(id)
  local status, queue, priority, seq, log_tag = unpack(redis.call('HMGET', key, 'status', 'origin', 'priority', 'seq', 'log_tag'))
  if status ~= 'scheduled' then
    if not status then fail_corrupt(id, queue or '', nil, 'the schedule names a job that has no data') end
  else
    line_up_again(queue, id, key, priority, seq)
    redis.call('HSET', key, 'status', 'queued')
    redis.call('PERSIST', key)
    emit('queued', id, queue, log_tag, 'reason', 'due')
    ring(queue)
    moved = moved + 1
  end
  redis.call('ZREM', K_scheduled, id)
end

for _, id in ipairs(redis.call('ZRANGEBYSCORE', K_scheduled, '-inf', now_ms / 1000, 'LIMIT', 0, A_limit)) do
  if not pcall(move, id) then redis.call('ZADD', K_scheduled, now_s + PUT_OFF, id) end
end
local due = redis.call('ZRANGE', K_scheduled, 0, 0, 'WITHSCORES')
return { moved, due[1] and math.max(0, math.ceil(tonumber(due[2]) * 1000 - now_ms)) or -1 }
