-- KEYS: scheduler schedulers
-- ARGV: name incarnation lease_ms ttl n_pairs
-- FLAGS: allow-oom
--@
local rare, groups_made
--@include/lib/member.lua:3
local schema = redis.pcall('HMGET', P .. 'schema', 'min_reader', 'min_writer', 'version', 'fusion')
if schema.err then return redis.error_reply('FUSION_SCHEMA broken') end
local needed = math.max(tonumber(schema[1]) or 0, tonumber(schema[2]) or 0)
if needed > SCHEMA then
return redis.error_reply('FUSION_SCHEMA ' .. (schema[3] or 0) .. ' ' .. needed .. ' ' .. (schema[4] or ''))
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
if not (schema[1] and schema[2] and schema[3]) then rare(2, ARGV[1], rare(1)) end
--@include/lib/enter.lua:8
local function write_member(key, ttl)
redis.call('HSETNX', key, 'birth', now_iso)
redis.call('HSET', key, 'incarnation', ARGV[2], 'schema', SCHEMA, 'lease_ms', ARGV[3], 'last_heartbeat',
now_iso, 'beat_ms', now_ms, unpack(ARGV, 6, 6 + ARGV[5] - 1))
redis.call('EXPIRE', key, ttl)
end
--@include/lib/enter.lua:16
local function enter_list(key, list, ttl)
local known, beat, lease = unpack(redis.call('HMGET', key, 'incarnation', 'beat_ms', 'lease_ms'))
if known and known ~= ARGV[2] then
local silent = silence(key, beat)
if silent and silent <= (tonumber(lease) or tonumber(ARGV[3])) then return false end
redis.call('DEL', key)
end
redis.call('ZADD', list, now_ms, ARGV[1])
write_member(key, ttl)
return true
end
--@include/lib/enter.lua:30
local function drop_silent(list, prefix)
--@include/lib/enter.lua:32
for _, name in ipairs(redis.call('ZRANGEBYSCORE', list, '(' .. now_ms, '+inf', 'LIMIT', 0, 20)) do
silence(prefix .. name, redis.pcall('HGET', prefix .. name, 'beat_ms'))
redis.call('ZADD', list, now_ms, name)
end
for _, name in ipairs(redis.call('ZRANGEBYSCORE', list, '-inf', now_ms - ARGV[3] - 60000, 'LIMIT', 0, 20)) do
local last, granted = unpack(redis.pcall('HMGET', prefix .. name, 'beat_ms', 'lease_ms'))
local silent = silence(prefix .. name, last)
if not silent or silent > (tonumber(granted) or 0) + 60000 then
redis.call('DEL', prefix .. name)
redis.call('ZREM', list, name)
end
end
end
--@scheduler_beat.lua:8
if not enter_list(KEYS[1], KEYS[2], ARGV[4]) then return 'taken' end
drop_silent(KEYS[2], (P .. 'scheduler:process:' .. ''))
return 'ok'
