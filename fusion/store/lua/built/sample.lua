-- KEYS: queues sample names
-- ARGV: interval_ms limit most duties
-- FLAGS: allow-oom
--@
local command, argv = redis.call, ARGV
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
--@include/lib/tell.lua:5
local function tell(channel, ...)
redis.pcall('PUBLISH', channel, table.concat({ ... }, ' '))
end
--@sample.lua:11
local CLASSES = { { '0', '(1' }, { '1', '(2' }, { '2', '+inf' } }
--@sample.lua:14
local function seconds_of(text)
local y, m, d, hours, minutes, seconds = string.match(text or '', '^(%d%d%d%d)-(%d%d)-(%d%d)T(%d%d):(%d%d):(%d%d)')
if not y then return nil end
y, m = m + 0 <= 2 and y - 1 or y + 0, tonumber(m)
local era = math.floor(y / 400)
local yoe = y - era * 400
local doy = math.floor((153 * (m + (m > 2 and -3 or 9)) + 2) / 5) + d - 1
local days = era * 146097 + yoe * 365 + math.floor(yoe / 4) - math.floor(yoe / 100) + doy - 719468
return days * 86400 + hours * 3600 + minutes * 60 + seconds
end
--@sample.lua:26
local function look(queue, key)
local ready, figures, any = (fifos[queue] ~= false and in_fifo(queue) and (P .. 'fifo:' .. queue) or (P .. 'queue:' .. queue)), {}, false
for class, range in ipairs(CLASSES) do
local depth, age = redis.pcall('ZCOUNT', ready, range[1], range[2]), 0
if type(depth) ~= 'number' then return nil end
local inbox = class == 2 and (queue == 'scheduler') and redis.pcall('LLEN', key)
if type(inbox) == 'number' then depth = depth + inbox end
if depth > 0 then
any = true
local head = redis.pcall('ZREVRANGEBYSCORE', ready, range[2], range[1], 'LIMIT', 0, 1)
local came = head[1] and redis.pcall('HMGET', (P .. 'job:' .. head[1]), 'enqueued_at', 'created_at') or {}
local since = seconds_of(came[1] or came[2])
if since then age = math.max(0, now_s - since) end
end
figures[class * 2 - 1], figures[class * 2] = depth, age
end
return figures, any
end
--@sample.lua:47
local SETS = { 'blocked:', 'deferred:', 'finished:', 'canceled:', 'stopped:' }
local function counts_of(queue)
local found = { redis.pcall('ZCOUNT', (P .. 'wip:' .. queue), 100000000000, '(+inf') }
for _, set in ipairs(SETS) do found[#found + 1] = redis.pcall('ZCARD', P .. set .. queue) end
for i, count in ipairs(found) do if type(count) ~= 'number' then found[i] = 0 end end
found[#found + 1] = redis.call('EXISTS', (P .. 'paused:' .. queue))
return found
end
--@sample.lua:57
local function keep(tier, queue, step, figures)
local key, place = series_key(tier, 'waiting', queue, step)
local before, most = redis.call('HGET', key, place), {}
for word in string.gmatch(before or '', '%d+') do most[#most + 1] = tonumber(word) end
for i, figure in ipairs(figures) do most[i] = string.format('%d', math.max(most[i] or 0, figure)) end
redis.call('HSET', key, place, table.concat(most, ' ', 1, 6))
redis.call('EXPIRE', key, tier[3])
end
--@sample.lua:70
local function note_flow(queue, figures)
local rows = redis.pcall('HGETALL', P .. 'totals:' .. queue)
if rows.err then return end
local came, went, failed = 0, 0, 0
for i = 1, #rows, 2 do
local what, count = string.match(rows[i], '^(%a+)'), tonumber(rows[i + 1]) or 0
if what == 'enqueued' or what == 'requeued' then came = came + count
else went = went + count end
if what == 'failed' then failed = failed + count end
end
local key = P .. 'flow:' .. queue
local before = redis.pcall('GET', key)
if type(before) == 'table' then return end
local first, last = string.match(before or '', '^(%d+ %d+ %d+ %d+) (%d+ %d+ %d+ %d+)')
local now = string.format('%d %d %d %d', now_ms, came, went, failed)
if not first then
first = now
elseif now_ms - tonumber(string.match(first, '^%d+')) > 60000 then
first = last
end
local words = { first, now }
if figures then
for _, figure in ipairs(figures) do words[#words + 1] = string.format('%d', figure) end
for _, count in ipairs(counts_of(queue)) do words[#words + 1] = string.format('%d', count) end
end
redis.call('SET', key, table.concat(words, ' '), 'PX', 5 * 60000)
end
--@sample.lua:98
local cursor, began = unpack(command('HMGET', KEYS[2], 'cursor', 'began'))
if not cursor or cursor == '0' then
local age = now_ms - (tonumber(began) or 0)
if age >= 0 and age < tonumber(argv[1]) then return 0 end
cursor, began = '0', now_ms
end
local keys
cursor, keys = unpack(command('SSCAN', KEYS[1], cursor, 'COUNT', argv[2]))
command('HSET', KEYS[2], 'cursor', cursor, 'began', began)
local this_minute = (now_s - now_s % 60) / 60
for _, key in ipairs(keys) do
local queue = (string.sub(key, #P + 7))
local figures, any = look(queue, key)
note_flow(queue, figures)
if any and series_name(KEYS[3], queue, argv[3]) ~= '(other)' then
keep(SERIES_TIERS[1], queue, this_minute, figures)
keep(SERIES_TIERS[2], queue, (this_minute - this_minute % 60) / 60, figures)
end
end
if cursor == '0' then tell(argv[4], 'sample') end
return cursor == '0' and 0 or 1
