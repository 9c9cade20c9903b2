-- KEYS: worker workers
-- ARGV: name incarnation lease_ms worker_ttl secret n_pairs
-- FLAGS: allow-oom
--@
local command, argv = redis.call, ARGV
local rare, groups_made
--@include/lib/member.lua:3
local schema = redis.pcall('HMGET', P .. 'schema', 'min_reader', 'min_writer', 'version', 'fusion')
if schema.err then return redis.error_reply('FUSION_SCHEMA broken') end
local needed = math.max(tonumber(schema[1]) or 0, tonumber(schema[2]) or 0)
if needed > SCHEMA then
return redis.error_reply('FUSION_SCHEMA ' .. (schema[3] or 0) .. ' ' .. needed .. ' ' .. (schema[4] or ''))
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
--@
rare = function(nth, ...)
if not groups_made then groups_made = {} end
if nth <= 2 then
if not groups_made[1] then
--@include/lib/layout.lua:7
local function is_new()
return redis.pcall('EXISTS', P .. 'schema', P .. 'workers', P .. 'queues', P .. 'seq', P .. 'cron:due') == 0
end
--@include/lib/layout.lua:12
local function begin_layout(by, newest)
local version, reader, writer = 2, 2, 2
if newest then version, reader, writer = SCHEMA, LEAST_READER, LEAST_WRITER end
for field, value in pairs({ version = version, min_reader = reader, min_writer = writer, fusion = FUSION, by = by,
at = now_iso }) do
if type(redis.pcall('HSETNX', P .. 'schema', field, value)) ~= 'number' then return 2 end
end
return version
end
--@
groups_made[1] = { is_new, begin_layout }
end
return groups_made[1][nth](...)
end
end
--@include/lib/life.lua:7
local function silence(key, beat)
beat = tonumber(beat)
if beat and beat > now_ms then
redis.pcall('HSET', key, 'beat_ms', now_ms)
beat = now_ms
end
return beat and now_ms - beat
end
--@include/lib/enter.lua:6
if not (schema[1] and schema[2] and schema[3]) then rare(2, argv[1], rare(1)) end
--@include/lib/enter.lua:8
local function write_member(key, ttl)
redis.call('HSETNX', key, 'birth', now_iso)
redis.call('HSET', key, 'incarnation', ARGV[2], 'schema', SCHEMA, 'lease_ms', ARGV[3], 'last_heartbeat',
now_iso, 'beat_ms', now_ms, unpack(ARGV, 7, 7 + ARGV[6] - 1))
redis.call('EXPIRE', key, ttl)
end
--@register.lua:10
local known, beat, lease = unpack(command('HMGET', KEYS[1], 'incarnation', 'beat_ms', 'lease_ms'))
if not known and command('EXISTS', KEYS[1]) == 1 then return 'taken' end
if known ~= argv[2] then
local silent = silence(KEYS[1], beat)
if known and silent and silent <= (tonumber(lease) or tonumber(argv[3])) then return 'taken' end
for _, exec in ipairs(command('HVALS', (P .. 'worker:' .. argv[1] .. ':jobs'))) do
if string.sub(exec, 1, #argv[2] + 1) ~= argv[2] .. ':' then
command('SADD', KEYS[2], KEYS[1])
return 'taken'
end
end
command('DEL', KEYS[1])
end
command('SADD', KEYS[2], KEYS[1])
command('SADD', P .. 'fleet', argv[1])
redis.pcall('SET', P .. 'callbacks:secret', argv[5], 'NX')
command('HSETNX', KEYS[1], 'state', 'started')
write_member(KEYS[1], argv[4])
local longest = tonumber(command('HGET', P .. 'reap', 'lease')) or 0
if tonumber(argv[3]) > longest then command('HSET', P .. 'reap', 'lease', argv[3]) end
return 'ok'
