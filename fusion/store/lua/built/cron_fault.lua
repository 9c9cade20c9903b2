-- KEYS: entry due
-- ARGV: id rev error
-- FLAGS: allow-oom
--@
local command, argv = redis.call, ARGV
--@include/lib/time.lua:2
local clock = command('TIME')
local now_s, now_us = clock[1] + 0, clock[2] + 0
local now_ms = now_s * 1000 + (now_us - now_us % 1000) / 1000
--@include/lib/time.lua:6
local minute, prefix
--@include/lib/time.lua:11
local function iso(seconds, micros)
local second = seconds % 60
if (seconds - second) / 60 ~= minute then
minute = (seconds - second) / 60
local of_day = minute % 1440
local z = (minute - of_day) / 1440 + 719468
local doe = z % 146097
local era = (z - doe) / 146097
local yoe = doe - (doe - doe % 1460) / 1460 + (doe - doe % 36524) / 36524 - (doe - doe % 146096) / 146096
yoe = (yoe - yoe % 365) / 365
local doy = doe - (365 * yoe + (yoe - yoe % 4) / 4 - (yoe - yoe % 100) / 100)
local mp = 5 * doy + 2
mp = (mp - mp % 153) / 153
local month = mp < 10 and mp + 3 or mp - 9
local before = 153 * mp + 2
prefix = string.format('%04d-%02d-%02dT%02d:%02d:', yoe + era * 400 + (month <= 2 and 1 or 0), month,
doy - (before - before % 5) / 5 + 1, of_day / 60, of_day % 60)
end
return string.format('%s%02d.%06dZ', prefix, second, micros)
end
--@include/lib/time.lua:32
local now_iso = iso(now_s, now_us)
--@cron_fault.lua:8
local rev = redis.pcall('HGET', KEYS[1], 'rev')
if type(rev) == 'table' or not rev and argv[2] == '' then
command('ZREM', KEYS[2], argv[1])
return 'ok'
end
if rev ~= argv[2] then return 'stale' end
command('HSET', KEYS[1], 'error', argv[3], 'error_at', now_iso)
if command('HEXISTS', KEYS[1], 'paused') == 0 then command('ZADD', KEYS[2], now_s + 30, argv[1]) end
return 'ok'
