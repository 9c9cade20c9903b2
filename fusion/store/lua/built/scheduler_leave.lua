-- KEYS: scheduler schedulers
-- ARGV: name incarnation
-- FLAGS: allow-oom
--@scheduler_leave.lua:6
if redis.call('HGET', KEYS[1], 'incarnation') ~= ARGV[2] then return 'stale' end
redis.call('DEL', KEYS[1])
redis.call('ZREM', KEYS[2], ARGV[1])
return 'ok'
