-- lease_operation: a carrier takes an operation on for a while, so that no other does the same work meanwhile, or says
--   that it goes on.
-- KEYS: operation
-- ARGV: carrier lease_ms
-- FLAGS: allow-oom
-- INCLUDE: writer time
-- Returns: {running, its fields and their values...} | {busy, who carries it on} | {missing} | {its status: it is over}
-- Nothing rests on the lease but the work that is saved: each job is compared and counted where it is changed. A lease
-- of 0 gives it up.
local status, carrier, upto = unpack(redis.call('HMGET', K_operation, 'status', 'carrier', 'carried_until'))
if not status then return { 'missing' } end
if status ~= 'running' then return { status } end
if carrier and carrier ~= A_carrier and (tonumber(upto) or 0) > now_ms then return { 'busy', carrier } end
if A_lease_ms == '0' then
  redis.call('HDEL', K_operation, 'carrier', 'carried_until')
else
  redis.call('HSET', K_operation, 'carrier', A_carrier, 'carried_until', now_ms + tonumber(A_lease_ms))
end
return { status, unpack(redis.call('HGETALL', K_operation)) }
