-- KEYS: scheduler schedulers
-- ARGV: name incarnation
-- FLAGS: allow-oom
--@
local command = redis.call
--@scheduler_leave.lua:6
if command('HGET', KEYS[1], 'incarnation') ~= ARGV[2] then return 'stale' end
command('DEL', KEYS[1])
command('ZREM', KEYS[2], ARGV[1])
return 'ok'
