-- KEYS: due marks
-- ARGV: entry plan spec rev app version error
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
--@
rare = function(nth, ...)
if not groups_made then groups_made = {} end
if nth <= 2 then
if not groups_made[1] then
--@include/job/schedule.lua:17
local instants = {}
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
--@
groups_made[1] = { ring_scheduler, score_at }
end
return groups_made[1][nth](...)
end
if nth <= 4 then
if not groups_made[2] then
--@include/lib/layout.lua:7
local function is_new()
return redis.pcall('EXISTS', P .. 'schema', P .. 'workers', P .. 'queues', P .. 'seq', P .. 'cron:due') == 0
end
--@include/lib/layout.lua:12
local function begin_layout(by, newest)
local version, reader, writer = 2, 2, 2
if newest then version, reader, writer = SCHEMA, LEAST_READER, LEAST_WRITER end
for field, value in pairs({ version = version, min_reader = reader, min_writer = writer, fusion = FUSION, by = by,
at = now_iso }) do
if type(redis.pcall('HSETNX', P .. 'schema', field, value)) ~= 'number' then return 2 end
end
return version
end
--@
groups_made[2] = { is_new, begin_layout }
end
return groups_made[2][nth - 2](...)
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
--@cron_put.lua:9
local key = (P .. 'cron:entry:' .. argv[1])
local owner, plan, spec, rev, planned, paused = unpack(command('HMGET', key, 'app', 'plan', 'spec', 'rev', 'next',
'paused'))
if owner and owner ~= argv[5] then return 'taken ' .. owner end
if argv[5] ~= '' and is_outdated(argv[5], argv[6]) then return 'outdated' end
if not schema[2] and rare(3) then rare(4, 'cron_put', true) end
command('HSET', key, 'app', argv[5], 'version', argv[6], 'declared_at', now_iso)
command('HSETNX', key, 'created_at', now_iso)
if argv[7] ~= '' then
command('HSET', key, 'declared_error', argv[7])
if not owner then command('ZADD', KEYS[1], '+inf', argv[1]) end
return 'faulty'
end
command('HDEL', key, 'declared_error')
if rev == argv[4] and plan == argv[2] and spec == argv[3] then
command('ZADD', KEYS[1], 'NX', paused and '+inf' or now_s, argv[1])
return 'same'
end
--@cron_put.lua:28
local mark = tonumber(command('ZSCORE', KEYS[2], argv[1]))
if plan ~= argv[2] then
planned = tonumber(planned)
local undecided = plan and not paused and planned and planned <= now_s
local from = undecided and planned - 1 or now_s
--@cron_put.lua:34
if not mark or mark < from then command('ZADD', KEYS[2], from, argv[1]) end
--@cron_put.lua:36
if not undecided then command('HDEL', key, 'next') end
end
command('HSET', key, 'plan', argv[2], 'spec', argv[3], 'rev', argv[4])
command('HDEL', key, 'error', 'error_at')
command('ZADD', KEYS[1], paused and '+inf' or now_s, argv[1])
rare(1)
return plan and 'changed' or 'new'
