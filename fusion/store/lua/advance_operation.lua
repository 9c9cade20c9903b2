-- advance_operation: a part of an operation is done: the walk goes on behind it, or is over.
-- KEYS: operation operations
-- ARGV: id part step place cursor run_id skipped over
-- FLAGS: allow-oom
-- INCLUDE: writer time keys
-- Returns: ok | done (there is nothing more) | stale (another carrier was first, or it was canceled) | missing
-- Compare-and-set on the number of the part. `step`: of this call, so that a resend answers alike. `place`: the set
-- that the walk is in; `cursor`: how far, of the server whose `run_id` that is; `skipped`: what was passed over in it
-- and no script of a job counts.
local status, part, step = unpack(redis.call('HMGET', K_operation, 'status', 'part', 'step'))
if not status then return 'missing' end
if step == A_step then return A_over == '1' and 'done' or 'ok' end
if status ~= 'running' or part ~= A_part then return 'stale' end
redis.call('HSET', K_operation, 'part', part + 1, 'step', A_step, 'place', A_place, 'cursor', A_cursor,
  'run_id', A_run_id)
if A_skipped ~= '0' then redis.call('HINCRBY', K_operation, 'skipped', A_skipped) end
if A_over ~= '1' then return 'ok' end
redis.call('HSET', K_operation, 'status', 'done', 'ended_at', now_iso)
redis.call('HDEL', K_operation, 'carrier', 'carried_until')
redis.call('ZADD', K_operations, now_ms, A_id)
redis.call('UNLINK', operation_seen_key(A_id))
return 'done'
