-- lock: the run of a job takes the lock of a name, which is a slot of that concurrency key, or waits in line for it.
-- ARGV: name id execution call last
-- INCLUDE: writer keys time score limit sound ties
-- Uses: tied
-- FLAGS: allow-oom
-- `call`: the caller's own word for this lock, the same each time it asks. `last`: 1 = it waits no longer
-- Returns: number of the lock, above that of each lock of the name before | waits and its place in line | timeout |
--   again (another call of the run has or wants it) | own (the job's own key) | many (locks of one run) | stale
--   (another execution or none holds the job)
-- Events: queued blocked
-- Whatever ends the run frees its locks.
local MOST_LOCKS, key = 10, job_key(A_id)
local status, exec, queue, ties, own, text = unpack(redis.call('HMGET', key, 'status', 'execution_id', 'origin', 'ties',
    'concurrency_key', 'locks'))
if status ~= 'started' or exec ~= A_execution then return 'stale' end
if own == A_name then return 'own' end
tied[key] = ties or ''
local locks, run, at = locks_of(text), A_execution .. '/', nil
for i = #locks - 2, 1, -3 do
  if string.sub(locks[i + 1], 1, #run) ~= run then -- of a run that a worker without locks has ended
    drop_lock(locks[i], A_id, key, locks[i + 1])
    for _ = 1, 3 do table.remove(locks, i) end
  end
end
for i = 1, #locks, 3 do
  if locks[i] == A_name then at = i end
end
if at and locks[at + 1] ~= run .. A_call then return 'again' end
if at and locks[at + 2] ~= '0' then return locks[at + 2] end
local broken = broken_limit(A_name, queue)
if broken then return redis.error_reply(broken) end
if not at then
  if #locks >= 3 * MOST_LOCKS then return 'many' end
  redis.call('ZADD', locks_key(A_name), next_seq(), A_id)
  at = #locks + 1
  locks[at], locks[at + 1], locks[at + 2] = A_name, run .. A_call, '0'
  write_locks(key, locks)
  redis.call('ZADD', LIMITS, now_ms, A_name)
end
settle_lock(A_name)
if redis.call('ZSCORE', holders_key(A_name), A_id) then
  locks[at + 2] = string.format('%d', next_seq())
  write_locks(key, locks)
  return locks[at + 2]
end
if A_last ~= '1' then -- the first has it, mostly
  local place = redis.call('ZCARD', locks_key(A_name)) - redis.call('ZREVRANK', locks_key(A_name), A_id)
  return 'waits ' .. math.max(1, place - 1)
end
drop_lock(A_name, A_id, key)
return 'timeout'
