-- release_slot: a job of a concurrency key that runs, or one that has its lock, no longer counts among those that do.
-- ARGV: key id by
-- INCLUDE: writer keys limit ties
-- Uses: tied
-- FLAGS: allow-oom
-- Returns: 1 if it had a slot and had started, else 0
-- Events: slot_released queued
-- One that waits in its queue keeps its slot: it would be claimed beside others that have one.
if tonumber(redis.call('ZSCORE', holders_key(A_key), A_id)) ~= math.huge then return 0 end
local job, done = job_key(A_id), take_slot_back(A_key, A_id, A_by)
tied[job] = redis.call('HGET', job, 'ties') or nil
if tied[job] then drop_lock(A_key, A_id, job) end
return done and 1 or 0
