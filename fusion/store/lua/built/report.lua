-- ARGV: worker n_jobs
-- FLAGS: allow-oom
--@
local argv = ARGV
--@include/lib/keys.lua:126
local function error_text(err)
local text = type(err) == 'table' and err.err or err
return (string.gsub(tostring(text), '%s+', ' '))
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
--@include/lib/emit.lua:25
local function give_back_numbers()
if reserved > 0 then redis.pcall('HINCRBY', P .. 'events:meta', 'n', -reserved) end
reserved = 0
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
--@report.lua:11
local function report(id, exec, progress, cursor, said)
local key = (P .. 'job:' .. id)
local status, holder, queue, log_tag, reached, shown, lost = unpack(redis.call('HMGET', key, 'status', 'execution_id',
'origin', 'log_tag', 'cursor', 'progress', 'lost'))
if status ~= 'started' or holder ~= exec then return 'stale' end
local fields = {}
if cursor ~= '' and cursor ~= reached then
fields = { 'cursor', cursor }
if lost and lost ~= '0' then fields = { 'cursor', cursor, 'lost', 0 } end
redis.call('HDEL', key, 'spared')
end
local news = progress ~= '' and progress ~= shown
if news then fields[#fields + 1], fields[#fields + 2] = 'progress', progress end
if fields[1] then redis.call('HSET', key, unpack(fields)) end
if news and said ~= '' then emit('progress', id, queue, log_tag, 'worker', ARGV[1], 'message', said) end
return 'ok'
end
--@report.lua:29
local answers, count = {}, tonumber(argv[2])
expected = 0
for i = 1, count do
if argv[3 + 5 * i - 1] ~= '' then expected = expected + 1 end
end
for i = 1, count do
local ok, answer = pcall(report, unpack(argv, 3 + 5 * i - 5, 3 + 5 * i - 1))
answers[i] = ok and answer or 'error: ' .. error_text(answer)
end
give_back_numbers()
return answers
