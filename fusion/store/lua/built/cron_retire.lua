-- KEYS: due apps
-- ARGV: app version n_entries
-- FLAGS: allow-oom
--@
local command, argv = redis.call, ARGV
--@include/lib/writer.lua:4
local schema = redis.pcall('HMGET', P .. 'schema', 'min_writer', 'version')
if schema.err then return redis.error_reply('FUSION_SCHEMA broken') end
if (tonumber(schema[1]) or 0) > SCHEMA then
local by = command('HGET', P .. 'schema', 'fusion') or ''
return redis.error_reply('FUSION_SCHEMA ' .. (schema[2] or 0) .. ' ' .. schema[1] .. ' ' .. by)
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
--@include/cron/cron.lua:22
local function forget_entry(entry)
redis.call('ZREM', P .. 'cron:due', entry)
redis.call('DEL', (P .. 'cron:entry:' .. entry), (P .. 'cron:history:' .. entry))
for _, other in ipairs(redis.call('ZRANGEBYSCORE', P .. 'cron:marks', '-inf', now_s - (400 * 86400), 'LIMIT', 0, 20)) do
if redis.call('EXISTS', (P .. 'cron:entry:' .. other)) == 0 then redis.call('ZREM', P .. 'cron:marks', other) end
end
end
--@include/cron/cron.lua:31
local function is_higher(a, b)
local left, right = string.gmatch(a, '%d+'), string.gmatch(b, '%d+')
while true do
local x, y = left(), right()
if not x and not y then return false end
x, y = tonumber(x) or 0, tonumber(y) or 0
if x ~= y then return x > y end
end
end
--@include/cron/cron.lua:43
local function is_outdated(app, version)
for _, name in ipairs(redis.call('ZREVRANGE', P .. 'schedulers', 0, 99)) do
local theirs, other, beat, lease = unpack(redis.pcall('HMGET', (P .. 'scheduler:process:' .. name), 'app', 'version', 'beat_ms',
'lease_ms'))
local lives = now_ms - (tonumber(beat) or 0) <= (tonumber(lease) or 0)
if theirs == app and other and is_higher(other, version) and lives then return true end
end
return false
end
--@cron_retire.lua:10
if is_outdated(argv[1], argv[2]) then return { 'outdated', {}, {} } end
local declared, removed, left = {}, {}, {}
for i = 1, tonumber(argv[3]) do declared[argv[4 + i - 1]] = true end
local before = command('HGET', KEYS[2], argv[1])
local higher = before and is_higher(argv[2], before)
for _, entry in ipairs(command('ZRANGE', KEYS[1], 0, -1)) do
if not declared[entry] and redis.pcall('HGET', (P .. 'cron:entry:' .. entry), 'app') == argv[1] then
if higher then
forget_entry(entry)
removed[#removed + 1] = entry
else
left[#left + 1] = entry
end
end
end
command('HSET', KEYS[2], argv[1], argv[2])
return { 'ok', removed, left }
