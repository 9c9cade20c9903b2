-- cancel_operation: an operation changes no further job. What it has done stays.
-- KEYS: operation operations
-- ARGV: id by
-- FLAGS: allow-oom
-- INCLUDE: writer time keys
-- Returns: canceled, also if it was before | done | missing
local status = redis.call('HGET', K_operation, 'status')
if not status then return 'missing' end
if status ~= 'running' then return status end
redis.call('HSET', K_operation, 'status', 'canceled', 'ended_at', now_iso, 'canceled_by', A_by)
redis.call('HDEL', K_operation, 'carrier', 'carried_until')
redis.call('ZADD', K_operations, now_ms, A_id)
redis.call('UNLINK', operation_seen_key(A_id))
return 'canceled'
