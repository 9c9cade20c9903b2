-- KEYS: events
-- ARGV: keep abandoned_s limit
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
--@include/lib/groups.lua:4
local function named(flat)
local found = {}
for i = 1, #flat, 2 do found[flat[i]] = flat[i + 1] end
return found
end
--@include/lib/groups.lua:11
local function groups_of(stream)
local found, groups = redis.pcall('XINFO', 'GROUPS', stream), {}
if found.err then return groups end
for i, flat in ipairs(found) do groups[i] = named(flat) end
return groups
end
--@events_trim.lua:9
local function parts(id)
local ms, seq = string.match(id, '^(%d+)-(%d+)$')
return tonumber(ms), tonumber(seq)
end
--@events_trim.lua:14
local function is_before(a, b)
local a_ms, a_seq = parts(a)
local b_ms, b_seq = parts(b)
return a_ms < b_ms or a_ms == b_ms and a_seq < b_seq
end
--@events_trim.lua:20
local excess = command('XLEN', KEYS[1]) - argv[1]
if excess <= 0 then return 0 end
local low
for _, group in ipairs(groups_of(KEYS[1])) do
local served = tonumber(redis.pcall('HGET', (P .. 'sink:' .. group.name), 'served_ms'))
if served and served > now_ms then
redis.pcall('HSET', (P .. 'sink:' .. group.name), 'served_ms', now_ms)
served = now_ms
end
if not served or now_ms - served < argv[2] * 1000 then
local needed = group['last-delivered-id']
if group.pending > 0 then needed = command('XPENDING', KEYS[1], group.name)[2] end
if not low or is_before(needed, low) then low = needed end
end
end
if not low then return 0 end
return command('XTRIM', KEYS[1], 'MINID', '~', low, 'LIMIT', math.min(excess, argv[3]))
