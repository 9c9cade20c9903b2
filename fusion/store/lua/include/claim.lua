-- The claim half of `turn`. The next job is the highest class present in any of the worker's queues; the caller rotates the
-- queues' order, so equal classes are served round-robin.
local TAKE_OVER = 20 -- ids taken over from an inbox at a time

-- Ids that outsiders pushed to a LIST queue get a place of their own, in the order of the list.
local function take_over_one(queue, id)
  local key, ready = job_key(id), fifo_key(queue)
  local job = is_id(id) and redis.pcall('HMGET', key, 'status', 'data', 'origin')
  if not job or job.err then return fail_corrupt(id, queue, nil, 'the inbox names what is no job') end
  local status, data, origin = unpack(job)
  if is_elsewhere(status) then return end
  if not data then return fail_corrupt(id, queue, nil, 'the inbox names a job that has no data') end
  if origin and origin ~= queue and tonumber(redis.pcall('ZSCORE', ready_key(origin), id)) then return end -- it waits there
  if redis.call('ZSCORE', ready, id) then return end
  local seq = next_seq()
  redis.call('ZADD', ready, score_of(queue, 1, seq), id)
  redis.call('HSET', key, 'status', 'queued', 'seq', seq, 'origin', queue)
  mark_hooks(key)
  redis.call('SADD', QUEUES, queue_key(queue))
end

-- Whether there are more.
local function take_over(queue)
  local ids = redis.call('LRANGE', queue_key(queue), 0, TAKE_OVER - 1)
  for _, id in ipairs(ids) do take_over_one(queue, id) end
  if #ids > 0 then redis.call('LTRIM', queue_key(queue), #ids, -1) end
  return #ids == TAKE_OVER
end

local function entry(id, score)
  score = tonumber(score)
  return { id = id, class = class_of(score), bare = score == math.floor(score) }
end

-- The best entry of a queue, or false; `next` is the one behind it, false if there is none, nil if that is not known. Second: whether
-- the inbox held nothing but corrupt ids and there are more.
local function look(queue)
  local ready = ready_key(queue)
  local found, more = redis.call('ZREVRANGE', ready, '0', '1', 'WITHSCORES'), false
  if not found[1] and is_list(queue) then
    more = take_over(queue)
    found = redis.call('ZREVRANGE', ready, '0', '1', 'WITHSCORES')
  end
  if not found[1] then return false, more end
  local head = entry(found[1], found[2])
  if found[3] then head.next = entry(found[3], found[4]) elseif not is_list(queue) then head.next = false end
  return head, false
end

-- Lease the head of a queue. Returns the row of the reply, or false when the entry was no work.
local function take(queue, head, exec)
  local id, ready = head.id, ready_key(queue)
  local key = job_key(id)
  local job = is_id(id) and redis.pcall('HMGET', key, 'status', 'expires_at', 'deliveries', 'seq', 'origin', 'log_tag',
    RUN_FIELDS, 'hooks')
  if not job or job.err then
    fail_corrupt(id, queue, ready, 'the queue names what is no job')
    return false
  end
  local status, expires, deliveries, seq, origin, log_tag, data = unpack(job, 1, 7)
  if is_elsewhere(status) then
    redis.call('ZREM', ready, id)
    return false
  end
  if not data then
    fail_corrupt(id, queue, ready, 'the queue names a job that has no data')
    return false
  end
  if (tonumber(expires) or math.huge) <= now_ms then
    if job[7 + N_RUN_FIELDS] then hooked[key] = true end
    end_job(id, key, queue, 'canceled', CANCELED_TTL, ready, 'origin', queue, 'ended_at', now_iso, 'reason', 'expired')
    emit('expired', id, queue, log_tag, 'reason', 'waited longer than its ttl')
    return false
  end
  -- what may be of a wrong type comes before the job changes; R1's order otherwise
  redis.call('ZADD', wip_key(queue), now_ms + A_lease_ms, id)
  redis.call('HSET', worker_jobs_key(A_name), id, exec)
  redis.call('HSET', key, 'status', 'started', 'execution_id', exec, 'worker_name', A_name, 'started_at', now_iso,
    'deliveries', (tonumber(deliveries) or 0) + 1)
  if head.bare or not tonumber(seq) or origin ~= queue then -- an old producer's: it gets a place of its own, should it ever come back
    redis.call('HSET', key, 'seq', next_seq(), 'priority', head.class, 'origin', queue)
    redis.call('SADD', QUEUES, queue_key(queue))
    mark_hooks(key)
    for i, name in ipairs({ RUN_FIELDS }) do
      if name == 'origin' then job[6 + i] = queue end
    end
  end
  redis.call('PERSIST', key)
  redis.call('ZREM', ready, id)
  emit('processing', id, queue, log_tag, 'worker', A_name)
  return { queue, id, exec, unpack(job, 7, 6 + N_RUN_FIELDS) }
end
