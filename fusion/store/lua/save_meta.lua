-- save_meta: store a job's meta; with an execution, only while that execution holds the job.
-- KEYS: job
-- ARGV: execution meta
-- INCLUDE: writer
-- FLAGS: allow-oom
-- Returns: ok | missing | stale | foreign (another program's job)
local job = redis.call('HMGET', K_job, 'status', 'execution_id', 'seq')
if not job[1] then return 'missing' end
if not job[3] and redis.call('HEXISTS', K_job, 'success_callback_name') == 1 then return 'foreign' end
if A_execution ~= '' and (job[1] ~= 'started' or job[2] ~= A_execution) then return 'stale' end
redis.call('HSET', K_job, 'meta', A_meta)
return 'ok'
