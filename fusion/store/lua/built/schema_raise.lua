-- KEYS: schema workers schedulers relays
-- ARGV: version min_reader min_writer by
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
--@include/lib/member.lua:3
local schema = redis.pcall('HMGET', P .. 'schema', 'min_reader', 'min_writer', 'version', 'fusion')
if schema.err then return redis.error_reply('FUSION_SCHEMA broken') end
local needed = math.max(tonumber(schema[1]) or 0, tonumber(schema[2]) or 0)
if needed > SCHEMA then
return redis.error_reply('FUSION_SCHEMA ' .. (schema[3] or 0) .. ' ' .. needed .. ' ' .. (schema[4] or ''))
end
--@schema_raise.lua:10
if tonumber(argv[1]) <= (tonumber(schema[3]) or 2) then return { 'ok' } end
local required, older = math.max(tonumber(argv[2]), tonumber(argv[3])), { 'older' }
--@schema_raise.lua:13
local function ask(kind, name, key)
local known = redis.pcall('HMGET', key, 'schema', 'incarnation')
if known.err or not known[2] then return end
local knows = tonumber(known[1]) or 2
if knows >= required then return end
older[#older + 1] = kind
older[#older + 1] = name
older[#older + 1] = knows
end
--@schema_raise.lua:23
for _, key in ipairs(command('SMEMBERS', KEYS[2])) do ask('worker', (string.sub(key, #P + 8)), key) end
for _, name in ipairs(command('ZRANGE', KEYS[3], 0, -1)) do ask('scheduler', name, (P .. 'scheduler:process:' .. name)) end
for _, name in ipairs(command('ZRANGE', KEYS[4], 0, -1)) do ask('relay', name, (P .. 'relay:' .. name)) end
if #older > 1 then return older end
--@schema_raise.lua:28
command('HSET', KEYS[1], 'version', argv[1], 'min_reader', argv[2], 'min_writer', argv[3], 'fusion',
FUSION, 'by', argv[4], 'at', now_iso)
return { 'ok' }
