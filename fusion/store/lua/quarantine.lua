-- quarantine: failed jobs are set aside: they stay failed, but only who asks for them by name requeues them.
-- ARGV: reason n_jobs
-- INCLUDE: writer keys each
-- Rest: ids
-- Returns: an answer per job: ok | missing | error: why (a broken key) | its status, which is not failed
local function quarantine(id)
  local status = redis.call('HGET', job_key(id), 'status')
  if not status then return 'missing' end
  if status == 'failed' then redis.call('HSET', job_key(id), 'quarantined', A_reason) end
  return status == 'failed' and 'ok' or status
end

return each(quarantine, REST, tonumber(A_n_jobs))
