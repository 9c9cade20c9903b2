-- KEYS: said
-- ARGV: n_lines
--@
local argv = ARGV
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
--@include/lib/emit.lua:8
local epoch, cap, number, reserved = nil, nil, 0, 0
local expected = 1
--@include/lib/emit.lua:12
local function reserve(count)
if not epoch then
epoch = redis.pcall('HGET', P .. 'events:meta', 'epoch')
if type(epoch) ~= 'string' then
epoch = string.format('%d%06d', now_s, now_us)
redis.pcall('HSET', P .. 'events:meta', 'epoch', epoch)
end
end
--@include/lib/emit.lua:21
local last = redis.pcall('HINCRBY', P .. 'events:meta', 'n', count == 1 and '1' or count == 2 and '2' or count)
if type(last) == 'number' then number, reserved = last - count, count end
end
--@include/lib/emit.lua:39
local function emit(event, id, queue, log_tag, ...)
if queue == '_callbacks' then return end
if reserved == 0 then
reserve(expected)
end
if reserved == 0 then return end
number, reserved = number + 1, reserved - 1
local n = string.format('%d', number)
if number % 16 == 0 then
local most
--@include/lib/emit.lua:31
do
if not cap then
local asked, upto = unpack(redis.pcall('HMGET', P .. 'events:meta', 'cap', 'cap_until'))
cap = (tonumber(asked) or 0) >= 1 and now_s < (tonumber(upto) or 0) and asked or CAP
end
most = cap
end
--@include/lib/emit.lua:49
redis.pcall('XADD', P .. 'events', 'MAXLEN', '~', most, '*', 'event', event, 'job_id', id, 'queue', queue,
'log_tag', log_tag or '', 'epoch', epoch, 'n', n, ...)
else
redis.pcall('XADD', P .. 'events', '*', 'event', event, 'job_id', id, 'queue', queue, 'log_tag', log_tag or '', 'epoch',
epoch, 'n', n, ...)
end
end
--@log_event.lua:8
if not redis.call('SET', KEYS[1], 1, 'PX', 60000, 'NX') then return tonumber(argv[1]) end
reserve(tonumber(argv[1]))
for i = 0, argv[1] - 1 do
local event, id, queue, log_tag, worker, age, dropped, message = unpack(argv, 2 + 8 * i, 2 + 8 * i + 7)
if dropped == '0' then
emit(event, id, queue, log_tag, 'source', 'log', 'worker', worker, 'at_ms', now_ms - age, 'message', message)
else
emit(event, id, queue, log_tag, 'source', 'log', 'worker', worker, 'at_ms', now_ms - age, 'dropped', dropped,
'message', message)
end
end
return tonumber(argv[1])
