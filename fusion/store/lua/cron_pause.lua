-- cron_pause: no tick of an entry runs, and none is made up later.
-- KEYS: entry due
-- ARGV: id
-- INCLUDE: writer time
-- FLAGS: allow-oom
-- Returns: ok | missing
if redis.call('EXISTS', K_entry) == 0 then return 'missing' end
redis.call('HSETNX', K_entry, 'paused', now_iso)
redis.call('HDEL', K_entry, 'next')
redis.call('ZADD', K_due, '+inf', A_id)
return 'ok'
