-- quarantine: failed jobs are set aside: they stay failed, and only a requeue by id runs them again.
-- ARGV: reason operation n_jobs
-- INCLUDE: writer keys mark each failures count_operation
-- Rest: ids
-- Returns: an answer per job: ok | missing | foreign (another program's) | error: why (a broken key) | its status,
--   which is not failed | of an operation also: see count_operation
local function quarantine(id)
  local status, origin, seq = unpack(redis.call('HMGET', job_key(id), 'status', 'origin', 'seq'))
  if not status then return 'missing' end
  if not seq and not is_ours(id, job_key(id), origin or '', status) then return 'foreign' end
  if status == 'failed' then
    pcall(quarantine_failure, id, job_key(id))
    redis.call('HSET', job_key(id), 'quarantined', A_reason)
  end
  return status == 'failed' and 'ok' or status
end

local answers = each(of_operation(A_operation, quarantine), REST, tonumber(A_n_jobs))
write_operation(A_operation)
return answers
