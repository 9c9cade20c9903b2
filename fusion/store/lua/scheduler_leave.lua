-- scheduler_leave: a scheduler that ends leaves the list.
-- KEYS: scheduler schedulers
-- ARGV: name incarnation
-- FLAGS: allow-oom
-- Returns: ok | stale (another has the name by now)
if redis.call('HGET', K_scheduler, 'incarnation') ~= A_incarnation then return 'stale' end
redis.call('DEL', K_scheduler)
redis.call('ZREM', K_schedulers, A_name)
return 'ok'
