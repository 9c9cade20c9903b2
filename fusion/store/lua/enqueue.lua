-- enqueue: accept jobs into one queue, all of them or none.
-- KEYS: queues
-- ARGV: queue nonce n_jobs
-- INCLUDE: keys time score emit ring schedule accept
-- Rest: per job: id priority place ttl_ms n_pairs pairs... (place: see due_of)
-- Returns: {'ok', enqueued_at} | {'duplicate', id, status}
-- Events: queued scheduled
-- Same id + same nonce is a resend and answers as the first time; same id + other nonce is a new life of an ended job, or refused.
-- No allow-oom here: at maxmemory the first write is refused and nothing has happened.
local at, fresh, seen, first_answer, targets, several = REST, {}, {}, now_iso, {}, 0
for _ = 1, tonumber(A_n_jobs) do
  local id, n = ARGV[at], tonumber(ARGV[at + 4])
  local status, nonce, origin, created_at = unpack(redis.call('HMGET', job_key(id), 'status', 'nonce', 'origin', 'created_at'))
  if status and nonce == A_nonce then
    first_answer = created_at
  elseif seen[id] or status and not is_terminal(status) then
    return { 'duplicate', id, status or 'queued' }
  else
    local due, front = due_of(ARGV[at + 2])
    fresh[#fresh + 1] = { id = id, priority = ARGV[at + 1], due = due, front = front, ttl = tonumber(ARGV[at + 3]),
      first = at + 5, last = at + 4 + n, ended = status and set_of(status, origin or A_queue) }
    local target = due and due > now_ms and 'schedule' or front and 'front' or 'back'
    if not targets[target] then targets[target], several = true, several + 1 end
  end
  seen[id] = true
  at = at + 5 + n
end
if #fresh == 0 then return { 'ok', first_answer } end

if several > 1 then -- jobs go to several keys: a broken one refuses them all now, not the rest of them later
  redis.call('ZCARD', ready_key(A_queue))
  if is_list(A_queue) then redis.call('LLEN', queue_key(A_queue)) end
  if targets.schedule then redis.call('ZCARD', SCHEDULED) end
end
redis.call('SADD', K_queues, queue_key(A_queue))
local seq = redis.call('INCRBY', P .. 'seq', #fresh) - #fresh
reserve(#fresh)
local best
for i, job in ipairs(fresh) do
  local later = accept(A_queue, job.id, job.priority, job.due, job.front, job.ttl, A_nonce, seq + i, job.ended, job.first, job.last)
  if not later then best = math.max(best or 0, tonumber(job.priority)) end
end
if best then ring(A_queue, best) end
return { 'ok', now_iso }
