-- KEYS: job
-- ARGV: id due_ms
-- FLAGS: allow-oom
--@
local command, argv = redis.call, ARGV
local rare, groups_made
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
--@
rare = function(nth, ...)
if not groups_made then groups_made = {} end
if nth <= 4 then
if not groups_made[1] then
--@include/job/schedule.lua:17
local instants = {}
local soonest
--@include/job/schedule.lua:7
local function ring_scheduler(ms)
local bell, left = (P .. 'wake:' .. '_scheduler'), ms and math.max(ms - now_ms, 0)
if redis.call('EXISTS', bell) == 0 then redis.call('RPUSH', bell, '1') end
if left and left < 1000 then redis.pcall('PUBLISH', P .. 'pubsub:_due', string.format('due %d', left)) end
end
--@include/job/schedule.lua:23
local function score_at(ms)
local at = instants[ms]
if not at then
local first, range = ms / 1000, string.format('(%.17g', (ms + 1) / 1000)
local last = redis.call('ZRANGE', P .. 'scheduler:scheduled_jobs', range, first, 'BYSCORE', 'REV', 'LIMIT', 0, 1, 'WITHSCORES')[2]
local full = last and redis.call('ZRANGE', P .. 'scheduler:scheduled_jobs', last, last, 'BYSCORE', 'LIMIT', 100 - 1, 1)[1]
at = { score = tonumber(last) or first, count = full and 100 or 0 }
instants[ms] = at
end
if at.count >= 100 then
at.score, at.count = at.score + math.max(2 ^ -22, at.score * 2 ^ -52), 0
if (math.floor(tonumber(at.score) * 1000 + 0.001)) > ms then return score_at(ms + 1) end
end
at.count = at.count + 1
return at.score
end
--@include/job/schedule.lua:41
local function schedule(id, ms)
local known = instants[ms]
redis.call('ZADD', P .. 'scheduler:scheduled_jobs', score_at(ms), id)
if known then return end
soonest = math.min(soonest or ms, ms)
--@include/job/schedule.lua:47
local soon = string.format('(%.17g', (now_ms + 1) / 1000)
local before = redis.call('ZCOUNT', P .. 'scheduler:scheduled_jobs', soon, string.format('(%.17g', ms / 1000))
if before == 0 then ring_scheduler(ms) end
end
--@include/job/expiry.lua:6
local function expect_expiry(id, expires_at)
if tonumber(expires_at) then redis.pcall('ZADD', P .. 'expiring', expires_at, id) end
end
--@
groups_made[1] = { ring_scheduler, score_at, schedule, expect_expiry }
end
return groups_made[1][nth](...)
end
end
--@reschedule.lua:10
local status, queue, log_tag, ttl, reason, seq, timeout = unpack(command('HMGET', KEYS[1], 'status', 'origin',
'log_tag', 'ttl', 'reason', 'seq', 'queue_timeout'))
if not status then return 'missing' end
if not seq then return 'foreign' end
if status ~= 'scheduled' then return status end
local due = tonumber(argv[2])
local before = command('ZSCORE', P .. 'scheduler:scheduled_jobs', argv[1])
if before and (math.floor(tonumber(before) * 1000 + 0.001)) == due then return 'ok' end
rare(3, argv[1], due)
ttl = tonumber(ttl) and ttl * 1000 or tonumber(timeout)
if ttl and not reason then
local expires_at = math.floor(math.max(due, now_ms) + ttl)
command('HSET', KEYS[1], 'expires_at', expires_at)
rare(4, argv[1], expires_at)
end
emit('scheduled', argv[1], queue or '', log_tag, 'reason', 'rescheduled', 'due', iso(math.floor(due / 1000),
due % 1000 * 1000))
return 'ok'
