-- cron_fault: an entry that a scheduler can't read gets this error, and is looked at again later; the others go on.
-- KEYS: entry due
-- ARGV: id rev error
-- INCLUDE: time
-- FLAGS: allow-oom
-- Returns: ok | stale
local PUT_OFF = 30
local rev = redis.pcall('HGET', K_entry, 'rev')
if type(rev) == 'table' or not rev and A_rev == '' then -- an index entry without a plan, or of a key that is no entry
  redis.call('ZREM', K_due, A_id)
  return 'ok'
end
if rev ~= A_rev then return 'stale' end
redis.call('HSET', K_entry, 'error', A_error, 'error_at', now_iso)
if redis.call('HEXISTS', K_entry, 'paused') == 0 then redis.call('ZADD', K_due, now_s + PUT_OFF, A_id) end
return 'ok'
