-- promote: scheduled jobs that are due go to their queues, a bounded number at a time.
-- KEYS: scheduled
-- ARGV: limit
-- INCLUDE: keys time score emit ring callbacks end_job
-- FLAGS: allow-oom
-- Returns: {moved, ms to the next due one or -1}
-- Events: queued failed
-- A job that had a place gets it back; one that was enqueued for this time arrives now.
local moved, rung, PUT_OFF = 0, {}, 30 -- seconds until a job whose queue is broken is looked at again, so that it keeps nobody else waiting

local function move(id)
  local key = job_key(id)
  local status, queue, priority, seq, log_tag, front = unpack(redis.call('HMGET', key, 'status', 'origin', 'priority', 'seq', 'log_tag', 'at_front'))
  if status ~= 'scheduled' then
    if not status then fail_corrupt(id, queue or '', nil, 'the schedule names a job that has no data') end
    if status and is_foreign(status) then error('left to a newer version') end -- put off
  else
    if tonumber(seq) then
      redis.call('ZADD', ready_key(queue), score_of(queue, priority, seq), id)
      redis.call('HSET', key, 'status', 'queued')
    else
      seq = front and -redis.call('INCR', P .. 'seq:front') or next_seq()
      if front then
        redis.call('ZADD', ready_key(queue), score_of(queue, priority, seq), id)
        redis.call('HDEL', key, 'at_front')
      else
        line_up(queue, id, priority, seq)
      end
      redis.call('HSET', key, 'status', 'queued', 'seq', seq, 'enqueued_at', now_iso)
    end
    redis.call('PERSIST', key)
    emit('queued', id, queue, log_tag, 'reason', 'due')
    rung[queue] = true
    moved = moved + 1
  end
  redis.call('ZREM', K_scheduled, id)
end

local ids = redis.call('ZRANGEBYSCORE', K_scheduled, '-inf', now_ms / 1000, 'LIMIT', 0, A_limit)
for _, id in ipairs(ids) do
  if not pcall(move, id) then redis.call('ZADD', K_scheduled, now_s + PUT_OFF, id) end
end
for queue in pairs(rung) do
  redis.call('SADD', QUEUES, queue_key(queue)) -- it may have been forgotten while the job waited for its time
  ring(queue)
end
local due = redis.call('ZRANGE', K_scheduled, 0, 0, 'WITHSCORES')
return { moved, due[1] and math.max(0, math.ceil(tonumber(due[2]) * 1000 - now_ms)) or -1 }
