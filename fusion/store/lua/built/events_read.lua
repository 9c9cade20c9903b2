-- KEYS: events sink
-- ARGV: sink relay count own dead
-- FLAGS: allow-oom
--@
local argv = ARGV
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
--@include/lib/life.lua:7
local function silence(key, beat)
beat = tonumber(beat)
if beat and beat > now_ms then
redis.pcall('HSET', key, 'beat_ms', now_ms)
beat = now_ms
end
return beat and now_ms - beat
end
--@events_read.lua:12
local function dropped(count)
if count > 0 then redis.call('HINCRBY', KEYS[2], 'dropped', count) end
end
--@events_read.lua:16
local function read(from)
local function ask(call) return call('XREADGROUP', 'GROUP', ARGV[1], ARGV[2], 'COUNT', ARGV[3], 'STREAMS', KEYS[1],
from) end
local reply = ask(redis.pcall)
if reply and reply.err then
if string.find(reply.err, 'NOGROUP') then
redis.call('XGROUP', 'CREATE', KEYS[1], ARGV[1], '0', 'MKSTREAM')
redis.call('HSETNX', KEYS[2], 'created_at', now_iso)
end
reply = ask(redis.call)
end
return reply and reply[1][2] or {}
end
--@events_read.lua:31
local function still_there(ids, rows)
local found, there, lost = {}, {}, {}
for _, row in ipairs(rows) do
if row and row[2] then
found[#found + 1] = row
there[row[1]] = true
end
end
for _, id in ipairs(ids) do
if not there[id] then lost[#lost + 1] = id end
end
--@events_read.lua:43
if #lost > 0 then redis.call('XACK', KEYS[1], ARGV[1], unpack(lost)) end
dropped(#lost)
return found
end
--@events_read.lua:48
local function unfinished()
local rows, ids = read('0'), {}
for i, row in ipairs(rows) do ids[i] = row[1] end
return still_there(ids, rows), #rows > 0
end
--@events_read.lua:54
local function is_alive(relay)
local beat, lease = unpack(redis.pcall('HMGET', (P .. 'relay:' .. relay), 'beat_ms', 'lease_ms'))
local silent = silence((P .. 'relay:' .. relay), beat)
return silent and silent <= (tonumber(lease) or 0)
end
--@events_read.lua:60
local function left_behind()
local consumers = redis.pcall('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])
if consumers.err then return {} end
for _, flat in ipairs(consumers) do
local consumer = named(flat)
if consumer.name ~= ARGV[2] and not is_alive(consumer.name) then
if consumer.pending == 0 then
redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], consumer.name)
else
local ids = {}
local pending = redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', ARGV[3], consumer.name)
for i, row in ipairs(pending) do ids[i] = row[1] end
local rows = still_there(ids, redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, unpack(ids)))
if #rows > 0 then return rows end
end
end
end
return {}
end
--@events_read.lua:80
local function fresh()
local rows = read('>')
if #rows == 0 then return rows end
local epoch, n = unpack(redis.call('HMGET', KEYS[2], 'read_epoch', 'read_n'))
local missing = 0
n = tonumber(n)
for _, row in ipairs(rows) do
local fields = row[2]
local number = fields[9] == 'epoch' and fields[11] == 'n' and tonumber(fields[12])
if number then
if n and fields[10] == epoch and number > n + 1 then missing = missing + number - n - 1 end
epoch, n = fields[10], number
end
end
dropped(missing)
if n then redis.call('HSET', KEYS[2], 'read_epoch', epoch, 'read_n', n) end
return rows
end
--@events_read.lua:99
local rows, more = {}, false
if argv[4] == '1' then
repeat rows, more = unfinished() until #rows > 0 or not more
end
if #rows == 0 and argv[5] == '1' then rows = left_behind() end
if #rows == 0 then rows = fresh() end
local last = '0-0'
for _, group in ipairs(groups_of(KEYS[1])) do
if group.name == argv[1] then last = group['last-delivered-id'] end
end
return { rows, last }
