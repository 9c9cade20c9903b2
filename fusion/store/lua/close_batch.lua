-- close_batch: a batch takes no more jobs but those that its own bring.
-- ARGV: batch
-- INCLUDE: writer keys time batch
-- Returns: ok | missing
local key = batch_key(A_batch)
if redis.call('EXISTS', key) == 0 then return 'missing' end
if not redis.call('HGET', key, 'closed_at') then -- HSETNX is not a producer's
  redis.call('HSET', key, 'closed_at', now_iso)
  set_due(A_batch)
  settle_around(A_batch)
end
return 'ok'
