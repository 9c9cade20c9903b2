-- delete: forget jobs that are not running.
-- ARGV: n_jobs
-- FLAGS: allow-oom
-- INCLUDE: writer keys waits time emit forget
-- Rest: ids
-- Returns: an answer per job: deleted | missing | started | a status that only a newer version knows
-- Events: deleted
local answers = {}
for i = 1, tonumber(A_n_jobs) do
  local id = ARGV[REST + i - 1]
  local key = job_key(id)
  local status, origin, log_tag = unpack(redis.call('HMGET', key, 'status', 'origin', 'log_tag'))
  if not status then
    redis.call('ZREM', FAILED, id)
    answers[i] = 'missing'
  elseif status == 'started' then
    answers[i] = 'started'
  elseif is_foreign(status) and not waits(id, origin or '') then
    answers[i] = status
  else
    forget(id, key, status, origin or '')
    emit('deleted', id, origin or '', log_tag)
    answers[i] = 'deleted'
  end
end
return answers
