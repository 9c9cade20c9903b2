-- extend: renew the leases of what a worker runs, and the worker's own registration.
-- KEYS: worker
-- ARGV: incarnation lease_ms worker_ttl state n_jobs
-- FLAGS: allow-oom
-- INCLUDE: member keys time
-- Rest: per job: id execution
-- Returns: {ok | unregistered, answer per job...}; answer: ok | canceled, stopped (that is wished) | lost
--   (another execution or none holds it) | error: why (a broken key; the others are renewed)
-- A lease that ran out and that nobody reaped is renewed like any other.
local function renew(id, exec)
  local status, holder, queue, cancel = unpack(redis.call('HMGET', job_key(id), 'status', 'execution_id', 'origin',
      'cancel'))
  if status ~= 'started' or holder ~= exec then return 'lost' end
  redis.call('ZADD', wip_key(queue), now_ms + A_lease_ms, id)
  return cancel == 'stop' and 'stopped' or cancel and 'canceled' or 'ok'
end

local answers = { 'ok' }
for i = 0, tonumber(A_n_jobs) - 1 do
  local ok, answer = pcall(renew, ARGV[REST + 2 * i], ARGV[REST + 2 * i + 1])
  answers[#answers + 1] = ok and answer or 'error: ' .. error_text(answer)
end
if redis.call('HGET', K_worker, 'incarnation') ~= A_incarnation then
  answers[1] = 'unregistered'
else
  redis.call('HSET', K_worker, 'last_heartbeat', now_iso, 'beat_ms', now_ms, 'state', A_state)
  redis.call('EXPIRE', K_worker, A_worker_ttl)
end
return answers
