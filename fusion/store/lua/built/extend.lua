-- KEYS: worker
-- ARGV: incarnation lease_ms worker_ttl state n_jobs
-- FLAGS: allow-oom
--@
local command, argv = redis.call, ARGV
--@include/lib/member.lua:3
local schema = redis.pcall('HMGET', P .. 'schema', 'min_reader', 'min_writer', 'version', 'fusion')
if schema.err then return redis.error_reply('FUSION_SCHEMA broken') end
local needed = math.max(tonumber(schema[1]) or 0, tonumber(schema[2]) or 0)
if needed > SCHEMA then
return redis.error_reply('FUSION_SCHEMA ' .. (schema[3] or 0) .. ' ' .. needed .. ' ' .. (schema[4] or ''))
end
--@include/lib/keys.lua:126
local function error_text(err)
local text = type(err) == 'table' and err.err or err
return (string.gsub(tostring(text), '%s+', ' '))
end
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
--@extend.lua:10
local function renew(id, exec)
local status, holder, queue, cancel = unpack(redis.call('HMGET', (P .. 'job:' .. id), 'status', 'execution_id', 'origin',
'cancel'))
if status ~= 'started' or holder ~= exec then return 'lost' end
redis.call('ZADD', (P .. 'wip:' .. queue), now_ms + ARGV[2], id)
return cancel == 'stop' and 'stopped' or cancel and 'canceled' or 'ok'
end
--@extend.lua:18
local answers = { 'ok' }
for i = 0, tonumber(argv[5]) - 1 do
local ok, answer = pcall(renew, argv[6 + 2 * i], argv[6 + 2 * i + 1])
answers[#answers + 1] = ok and answer or 'error: ' .. error_text(answer)
end
if command('HGET', KEYS[1], 'incarnation') ~= argv[1] then
answers[1] = 'unregistered'
else
command('HSET', KEYS[1], 'last_heartbeat', now_iso, 'beat_ms', now_ms, 'state', argv[4])
command('EXPIRE', KEYS[1], argv[3])
end
return answers
