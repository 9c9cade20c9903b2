-- ARGV: n_jobs
--@
local rare, groups_made
--@include/lib/keys.lua:126
local function error_text(err)
local text = type(err) == 'table' and err.err or err
return (string.gsub(tostring(text), '%s+', ' '))
end
--@include/lib/time.lua:2
local clock = redis.call('TIME')
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
--@
rare = function(nth, ...)
if not groups_made then groups_made = {} end
if nth <= 2 then
if not groups_made[1] then
--@include/job/lines.lua:8
local function drop_log(id)
redis.call('UNLINK', (P .. 'log:' .. id))
redis.call('ZREM', P .. 'logs', id)
local size = redis.call('HGET', P .. 'logs:sizes', id)
if not size then return false end
redis.call('HDEL', P .. 'logs:sizes', id)
if redis.call('HINCRBY', P .. 'logs:sizes', '*', -size) <= 0 and redis.call('EXISTS', P .. 'logs') == 0 then
redis.call('DEL', P .. 'logs:sizes')
end
return true
end
--@include/job/lines.lua:21
local function drop_oldest_logs(total)
local dropped = 0
while total > 67108864 do
local id = redis.call('ZRANGE', P .. 'logs', 0, 0)[1]
if not id then break end
drop_log(id)
dropped = dropped + 1
total = tonumber(redis.call('HGET', P .. 'logs:sizes', '*')) or 0
end
if dropped > 0 then redis.call('HINCRBY', P .. 'dropped', 'logs', dropped) end
end
--@
groups_made[1] = { drop_log, drop_oldest_logs }
end
return groups_made[1][nth](...)
end
end
--@write_logs.lua:8
local function write(id, exec, attempt, left_out, lines)
local key, log = (P .. 'job:' .. id), (P .. 'log:' .. id)
local status, holder = unpack(redis.call('HMGET', key, 'status', 'execution_id'))
if status and holder and holder ~= exec then return 'stale' end
if not status or lines == '' then
rare(1, id)
return status and 'ok' or 'missing'
end
redis.call('ZADD', P .. 'logs', now_ms, id)
local was = tonumber(redis.call('HGET', P .. 'logs:sizes', id)) or 0
local size = #lines + 400
redis.call('HSET', P .. 'logs:sizes', id, size)
local total = redis.call('HINCRBY', P .. 'logs:sizes', '*', size - was)
redis.call('HSET', log, 'lines', lines, 'left_out', left_out, 'attempt', attempt, 'at', now_ms)
local ttl = redis.call('PTTL', key)
if ttl > 0 then redis.call('PEXPIRE', log, ttl) else redis.call('PERSIST', log) end
rare(2, total)
return 'ok'
end
--@write_logs.lua:28
local answers = {}
for i = 1, tonumber(ARGV[1]) do
local ok, answer = pcall(write, unpack(ARGV, 2 + 5 * i - 5, 2 + 5 * i - 1))
answers[i] = ok and answer or 'error: ' .. error_text(answer)
end
return answers
