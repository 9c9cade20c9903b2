-- KEYS: queues survey wildcards
-- ARGV: interval_ms limit n_wildcards
-- FLAGS: allow-oom
--@
local command, try_command, argv = redis.call, redis.pcall, ARGV
local rare, groups_made
--@include/lib/keys.lua:93
local fifos = { scheduler = true }
local function in_fifo(queue)
local known = fifos[queue]
if known == nil then
known = redis.pcall('SISMEMBER', P .. 'fifos', queue) == 1
if not known and redis.pcall('TYPE', (P .. 'queue:' .. queue)).ok == 'list' then
known = true
redis.pcall('SADD', P .. 'fifos', queue)
end
fifos[queue] = known
end
return known
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
--@include/lib/ring.lua:10
local wildcards
--@include/lib/ring.lua:14
local function are_wildcards()
if not wildcards then
wildcards = redis.pcall('HGETALL', P .. 'wildcards')
if wildcards.err then wildcards = {} end
end
return wildcards[1]
end
--@
rare = function(nth, ...)
if not groups_made then groups_made = {} end
if nth <= 3 then
if not groups_made[1] then
--@include/lib/ring.lua:11
local woken
--@include/lib/ring.lua:23
local function wildcards_of(queue)
local found = {}
if not are_wildcards() or queue == 'failed' or string.sub(queue, 1, 1) == '_' then return found end
for i = 1, #wildcards, 2 do
local at = 1
for piece in string.gmatch(wildcards[i + 1], ' (%S+)') do
local ok, first, last = pcall(string.find, queue, piece, at)
at = ok and first and last + 1
if not at then break end
end
if at then found[#found + 1] = wildcards[i] end
end
return found
end
--@include/lib/ring.lua:39
local function push(bell, ...)
if redis.call('EXISTS', bell, P .. 'suspended', ...) == 0 then redis.call('RPUSH', bell, '1') end
end
--@include/lib/ring.lua:44
local function wake(wildcard, class)
woken = woken or {}
if not woken[wildcard] then push((P .. 'wake:' .. wildcard)) end
if class >= 2 and woken[wildcard] ~= 'high' then push((P .. 'wake:' .. wildcard .. ':high')) end
woken[wildcard] = class >= 2 and 'high' or woken[wildcard] or 'any'
end
--@
groups_made[1] = { wildcards_of, push, wake }
end
return groups_made[1][nth](...)
end
end
--@include/lib/ring.lua:52
local function ring(queue, class, known)
local bell, paused, closed = (P .. 'wake:' .. queue), (P .. 'paused:' .. queue), (P .. 'wake:' .. queue .. ':closed')
if redis.call('EXISTS', bell, P .. 'suspended', paused, closed) == 0 then redis.call('RPUSH', bell, '1') end
local any = are_wildcards()
local matching = any and rare(1, queue)
if matching and matching[1] then
class = class or (math.max(0, math.min(255, math.floor(tonumber((redis.pcall('ZREVRANGE', (fifos[queue] ~= false and in_fifo(queue) and (P .. 'fifo:' .. queue) or (P .. 'queue:' .. queue)), 0, 0, 'WITHSCORES')[2])) or 1))))
local stopped = not known and redis.call('EXISTS', P .. 'suspended', paused, closed) > 0
for _, wildcard in ipairs(matching) do
if not known then redis.pcall('ZADD', (P .. 'work:' .. wildcard), 'GT', class, queue) end
if not stopped then rare(3, wildcard, class) end
end
end
if class and class < 2 then return end
local high = (P .. 'wake:' .. queue .. ':high')
if redis.call('EXISTS', high, P .. 'suspended', paused, closed) > 0 then return end
local waiting = class and not (queue == 'scheduler') and 1 or redis.pcall('ZCOUNT', (fifos[queue] ~= false and in_fifo(queue) and (P .. 'fifo:' .. queue) or (P .. 'queue:' .. queue)), '2', '+inf')
if type(waiting) == 'number' and waiting > 0 then redis.call('RPUSH', high, '1') end
end
--@survey.lua:14
local fresh
for i = 4, 4 + 2 * argv[3] - 1, 2 do
fresh = command('HSET', KEYS[3], argv[i], now_ms .. argv[i + 1]) == 1 or fresh
end
local named = command('HGETALL', KEYS[3])
for i = 1, #named, 2 do
local age = now_ms - (tonumber(string.match(named[i + 1], '^%d+')) or 0)
if age > 3600000 then
command('HDEL', KEYS[3], named[i])
command('DEL', (P .. 'work:' .. named[i]), (P .. 'wake:' .. named[i]), (P .. 'wake:' .. named[i] .. ':high'))
elseif age < 0 then
command('HSET', KEYS[3], named[i], now_ms .. string.match(named[i + 1], '^%d+(.*)'))
end
end
--@survey.lua:29
local cursor, began = unpack(command('HMGET', KEYS[2], 'cursor', 'began'))
if fresh or not cursor or cursor == '0' then
local age = now_ms - (tonumber(began) or 0)
if not fresh and age >= 0 and age < tonumber(argv[1]) then return 0 end
cursor, began = '0', now_ms
end
--@survey.lua:36
local keys
cursor, keys = unpack(command('SSCAN', KEYS[1], cursor, 'COUNT', argv[2]))
command('HSET', KEYS[2], 'cursor', cursor, 'began', began)
for _, key in ipairs(keys) do
local queue = (string.sub(key, #P + 7))
local head = try_command('ZREVRANGE', (fifos[queue] ~= false and in_fifo(queue) and (P .. 'fifo:' .. queue) or (P .. 'queue:' .. queue)), 0, 0, 'WITHSCORES')[2]
local class = head and (math.max(0, math.min(255, math.floor(tonumber(head) or 1)))) or (queue == 'scheduler') and try_command('EXISTS', key) == 1 and 1
if class then
local missing
for _, wildcard in ipairs(rare(1, queue)) do
local known = try_command('ZSCORE', (P .. 'work:' .. wildcard), queue)
missing = missing or (tonumber(known) or -1) < class
end
if missing and command('EXISTS', (P .. 'paused:' .. queue), (P .. 'wake:' .. queue .. ':closed')) == 0 then ring(queue, class) end
end
end
return cursor == '0' and 0 or 1
