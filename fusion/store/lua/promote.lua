-- promote: scheduled jobs that are due go to their queues, a bounded number at a time.
-- KEYS: scheduled
-- ARGV: limit
-- INCLUDE: keys time score emit ring schedule callbacks end_job
-- FLAGS: allow-oom
-- Returns: {moved, ms to the next due one or -1}
-- Events: queued failed
-- A job that had a place gets it back; one that was enqueued for this time arrives now. Those of one instant go in the order of their
-- numbers, so a batch ends between two scores.
local MOST = 1000 -- entries of one score that are sorted; more have it only if others than Fusion's newer versions wrote them
local moved, rung, PUT_OFF = 0, {}, 30 -- seconds until a job whose queue is broken is looked at again, so that it keeps nobody else waiting

local function move(id, job)
  if job.err then error('a broken key') end -- put off
  local key = job_key(id)
  local status, queue, priority, seq, log_tag, front = unpack(job)
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

local limit = tonumber(A_limit)
local found = redis.call('ZRANGEBYSCORE', K_scheduled, '-inf', string.format('(%.17g', (now_ms + 1) / 1000), 'WITHSCORES', 'LIMIT', 0, limit + 1)
local count = #found / 2
if count > limit then
  local last = found[2 * count]
  repeat count = count - 1 until count == 0 or found[2 * count] ~= last
  if count == 0 then
    found = redis.call('ZRANGEBYSCORE', K_scheduled, last, last, 'WITHSCORES', 'LIMIT', 0, MOST)
    count = #found / 2
  end
end

local due = {}
for i = 1, count do
  local id, score = found[2 * i - 1], found[2 * i]
  local job = redis.pcall('HMGET', job_key(id), 'status', 'origin', 'priority', 'seq', 'log_tag', 'at_front', 'arrival')
  local before = due[i - 1]
  due[i] = { id = id, job = job, score = score, number = tonumber(job[4]) or tonumber(job[7]) or 0,
    group = before and before.group + (before.score == score and 0 or 1) or 1 }
end
if count > 1 and due[count].group < count then
  table.sort(due, function(a, b)
    if a.group ~= b.group then return a.group < b.group end
    if a.number ~= b.number then return a.number < b.number end
    return a.id < b.id
  end)
end
for i = 1, math.min(count, limit) do
  local id = due[i].id
  if not pcall(move, id, due[i].job) then redis.call('ZADD', K_scheduled, now_s + PUT_OFF, id) end
end
for queue in pairs(rung) do
  redis.call('SADD', QUEUES, queue_key(queue)) -- it may have been forgotten while the job waited for its time
  ring(queue)
end
local first = redis.call('ZRANGE', K_scheduled, 0, 0, 'WITHSCORES')
return { moved, first[1] and math.max(0, ms_of(first[2]) - now_ms) or -1 }
