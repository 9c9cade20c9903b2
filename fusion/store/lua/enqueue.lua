-- enqueue: accept jobs into one queue, all of them or none.
-- KEYS: queues
-- ARGV: queue nonce n_jobs
-- INCLUDE: keys time score emit ring
-- Rest: per job: id priority place(back|front) ttl_ms n_pairs pairs...
-- Returns: {'ok', enqueued_at} | {'duplicate', id, status}
-- Events: queued
-- Same id + same nonce is a resend and answers as the first time; same id + other nonce is a new life of an ended job, or refused.
-- No allow-oom here: at maxmemory the first write is refused and nothing has happened.
local at, fresh, seen, first_answer = REST, {}, {}, now_iso
for _ = 1, tonumber(A_n_jobs) do
  local id, n = ARGV[at], tonumber(ARGV[at + 4])
  local status, nonce, origin, enqueued_at = unpack(redis.call('HMGET', job_key(id), 'status', 'nonce', 'origin', 'enqueued_at'))
  if status and nonce == A_nonce then
    first_answer = enqueued_at
  elseif seen[id] or status and not is_terminal(status) then
    return { 'duplicate', id, status or 'queued' }
  else
    fresh[#fresh + 1] = { id = id, priority = ARGV[at + 1], front = ARGV[at + 2] == 'front', ttl = tonumber(ARGV[at + 3]),
      first = at + 5, last = at + 4 + n, ended = status and set_of(status, origin or A_queue) }
  end
  seen[id] = true
  at = at + 5 + n
end
if #fresh == 0 then return { 'ok', first_answer } end

redis.call('SADD', K_queues, queue_key(A_queue))
local seq = redis.call('INCRBY', P .. 'seq', #fresh) - #fresh
reserve(#fresh)
local best = 0
for i, job in ipairs(fresh) do
  local id, key, mine = job.id, job_key(job.id), seq + i
  -- index first: should the hash be refused, an entry without data is found and reported; data without an entry is not
  if job.front then
    mine = -redis.call('INCR', P .. 'seq:front')
    redis.call('ZADD', ready_key(A_queue), score_of(A_queue, job.priority, mine), id)
  else
    line_up(A_queue, id, job.priority, mine)
  end
  best = math.max(best, tonumber(job.priority))
  redis.call('DEL', key)
  redis.call('HSET', key, 'status', 'queued', 'origin', A_queue, 'original_queue', A_queue, 'created_at', now_iso,
    'enqueued_at', now_iso, 'priority', job.priority, 'seq', mine, 'nonce', A_nonce, unpack(ARGV, job.first, job.last))
  if job.ttl then redis.call('HSET', key, 'expires_at', now_ms + job.ttl) end
  if job.ended then redis.call('ZREM', job.ended, id) end
  local log_tag
  for j = job.first, job.last, 2 do
    if ARGV[j] == 'log_tag' then log_tag = ARGV[j + 1] end
  end
  emit('queued', id, A_queue, log_tag, 'priority', job.priority)
end
ring(A_queue, best)
return { 'ok', now_iso }
