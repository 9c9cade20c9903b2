-- unlock: the run of a job gives a lock back, or waits for it no longer.
-- ARGV: name id execution call
-- INCLUDE: writer keys limit ties
-- Uses: tied
-- FLAGS: allow-oom
-- Returns: 1 if this call had the lock or waited for it, else 0
-- Events: queued
local key = job_key(A_id)
local status, exec, ties = unpack(redis.call('HMGET', key, 'status', 'execution_id', 'ties'))
if status ~= 'started' or exec ~= A_execution then return 0 end
tied[key] = ties or nil
return drop_lock(A_name, A_id, key, A_execution .. '/' .. A_call) and 1 or 0
