-- delete: forget jobs that are not running.
-- ARGV: n_jobs
-- FLAGS: allow-oom
-- INCLUDE: writer keys waits mark emit park expiry ties forget
-- Uses: tied
-- Rest: ids
-- Returns: an answer per job: deleted | missing | started | foreign (another program's job) | a status that only a
--   newer version knows
-- Events: deleted
local answers = {}
for i = 1, tonumber(A_n_jobs) do
  local id = ARGV[REST + i - 1]
  local key = job_key(id)
  local status, origin, log_tag, seq, set, expires, ties = unpack(redis.call('HMGET', key, 'status', 'origin',
    'log_tag', 'seq', 'waits_in', 'expires_at', 'ties'))
  if not status then
    redis.call('ZREM', FAILED, id)
    answers[i] = 'missing'
  elseif not seq and not is_ours(id, key, origin or '', status) then
    answers[i] = 'foreign'
  elseif status == 'started' then
    answers[i] = 'started'
  elseif is_foreign(status) and not set and not waits(id, origin or '') then
    answers[i] = status
  else
    if ties then tied[key] = ties end
    if set then unpark(id, key, origin or '') end
    forget(id, key, status, origin or '')
    forget_expiry(id, expires)
    emit('deleted', id, origin or '', log_tag)
    answers[i] = 'deleted'
  end
end
return answers
