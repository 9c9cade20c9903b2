-- KEYS: worker queues functions keyless
-- ARGV: number most n_series
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
--@include/job/series.lua:4
local SERIES_TIERS = { { 'minute', 60, 25 * 3600 }, { 'hour', 24, 31 * 86400 } }
--@include/job/series.lua:8
local function series_key(tier, scope, name, step)
local place = step % tier[2]
local number = string.format('%d', (step - place) / tier[2])
return P .. 'history:' .. tier[1] .. ':' .. scope .. ':' .. name .. ':' .. number, string.format('%d', place)
end
--@include/job/series.lua:15
local function series_name(known_names, name, most)
if name == '(other)' then return name end
local known = redis.call('ZSCORE', known_names, name)
if not known and redis.call('ZCARD', known_names) >= tonumber(most) then
redis.call('ZREMRANGEBYSCORE', known_names, '-inf', now_ms - 30 * 86400000)
if redis.call('ZCARD', known_names) >= tonumber(most) then return '(other)' end
end
if not known or now_ms - known > 3600000 then redis.call('ZADD', known_names, now_ms, name) end
return name
end
--@note_history.lua:14
if (tonumber(command('HGET', KEYS[1], 'history')) or 0) >= tonumber(argv[1]) then return 1 end
if command('EXISTS', KEYS[1]) == 1 then command('HSET', KEYS[1], 'history', argv[1]) end
--@note_history.lua:18
local touched = {}
local function add(tier, scope, name, step, field, count)
local key, place = series_key(tier, scope, name, step)
redis.call('HINCRBY', key, place .. ':' .. field, count)
touched[key] = tier[3]
end
--@note_history.lua:26
local MOST = { slowest = true, peak = true }
local function keep(scope, name, hour, field, figure)
local key, place = series_key(SERIES_TIERS[2], scope, name, hour)
local before = tonumber(redis.call('HGET', key, place .. ':' .. field) or '') or -1
if tonumber(figure) > before then redis.call('HSET', key, place .. ':' .. field, figure) end
touched[key] = SERIES_TIERS[2][3]
end
--@note_history.lua:35
local function note_keyless(name, count)
local all, known = redis.call('HGETALL', KEYS[4]), 0
for i = 1, #all, 2 do
local old = now_ms - (tonumber(string.match(all[i + 1], '(%d+)$')) or 0) > 86400000
if old then redis.call('HDEL', KEYS[4], all[i]) else known = known + 1 end
end
local before = redis.call('HGET', KEYS[4], name)
if not before and known >= tonumber(ARGV[2]) then
name = '(other)'
before = redis.call('HGET', KEYS[4], name)
end
local sum = (tonumber(string.match(before or '', '^%d+')) or 0) + count
redis.call('HSET', KEYS[4], name, string.format('%d %d', sum, now_ms))
redis.call('PEXPIRE', KEYS[4], 86400000)
end
--@note_history.lua:51
local at = 4
for _ = 1, tonumber(argv[3]) do
local scope, name, n = argv[at], argv[at + 1], tonumber(argv[at + 2])
if scope == 'keyless' then
note_keyless(name, argv[at + 5])
n = 0
else
name = series_name(scope == 'queue' and KEYS[2] or KEYS[3], name, argv[2])
end
for i = at + 3, at + 3 * n, 3 do
local minute = (now_s - now_s % 60) / 60 - argv[i]
local hour = (minute - minute % 60) / 60
if MOST[argv[i + 1]] then
keep(scope, name, hour, argv[i + 1], argv[i + 2])
else
add(SERIES_TIERS[1], scope, name, minute, argv[i + 1], argv[i + 2])
add(SERIES_TIERS[2], scope, name, hour, argv[i + 1], argv[i + 2])
end
end
at = at + 3 + 3 * tonumber(argv[at + 2])
end
for key, kept in pairs(touched) do command('EXPIRE', key, kept) end
return 1
