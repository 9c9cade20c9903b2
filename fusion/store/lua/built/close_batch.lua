-- ARGV: batch
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
if nth <= 8 then
if not groups_made[1] then
--@include/deps/releasing.lua:11
local function do_later(what) redis.call('ZADD', P .. 'releasing', 'NX', now_ms, what) end
--@include/deps/releasing.lua:14
local function release_later(id) do_later('u ' .. id) end
--@include/batch/batch.lua:30
local function set_due(batch)
local cancel, read, over, forget, closed, open_until = unpack(redis.call('HMGET', (P .. 'batch:' .. batch), 'cancel', 'read',
'over', 'forget_ms', 'closed_at', 'open_until'))
local due = (cancel or read and read ~= 'end') and now_ms or over and forget or not closed and open_until
if due then redis.call('ZADD', P .. 'batches:due', due, batch) else redis.call('ZREM', P .. 'batches:due', batch) end
end
--@include/batch/batch.lua:39
local function settle_batch(batch)
local key = (P .. 'batch:' .. batch)
if redis.call('EXISTS', (P .. 'batch:' .. batch .. ':open')) == 1 then return end
local closed, over, ended, succeeded, parent, keep, complete, success = unpack(redis.call('HMGET', key, 'closed_at',
'over', 'ended_at', 'success_at', 'parent', 'keep_ms', 'on_complete', 'on_success'))
if not closed or over then return end
local whole = redis.call('EXISTS', (P .. 'batch:' .. batch .. ':ended')) == 0
redis.call('HSET', key, 'over', 1)
if not ended then
redis.call('HSET', key, 'ended_at', now_iso)
if complete then release_later(complete) end
end
if whole and not succeeded then
redis.call('HSET', key, 'success_at', now_iso)
if success then release_later(success) end
end
redis.call('HSET', key, 'forget_ms', now_ms + (tonumber(keep) or 0))
set_due(batch)
return parent, whole and 'finished' or 'failed'
end
--@include/batch/batch.lua:61
local function open_member(batch, member)
if redis.call('SADD', (P .. 'batch:' .. batch .. ':open'), member) == 0 then return end
local members = (P .. 'batch:' .. batch .. ':members')
if redis.call('ZADD', members, 'NX', redis.call('ZCARD', members) + 1, member) == 1 then return end
local was = redis.call('HGET', (P .. 'batch:' .. batch .. ':ended'), member)
if was then
redis.call('HDEL', (P .. 'batch:' .. batch .. ':ended'), member)
redis.call('HINCRBY', (P .. 'batch:' .. batch), was, -1)
end
end
--@include/batch/batch.lua:73
local function enter_batch(batch, member)
local key = (P .. 'batch:' .. batch)
local created, over, parent = unpack(redis.call('HMGET', key, 'created_at', 'over', 'parent'))
if not created then return end
open_member(batch, member)
if over then
redis.call('HDEL', key, 'over', 'forget_ms')
set_due(batch)
if parent then enter_batch(parent, '#' .. batch) end
end
end
--@include/batch/batch.lua:109
local function leave_batch(batch, member, outcome)
while batch and redis.call('SISMEMBER', (P .. 'batch:' .. batch .. ':open'), member) == 1 do
if outcome ~= 'finished' then
redis.call('HSET', (P .. 'batch:' .. batch .. ':ended'), member, outcome)
redis.call('HINCRBY', (P .. 'batch:' .. batch), outcome, 1)
end
redis.call('SREM', (P .. 'batch:' .. batch .. ':open'), member)
local around, how = settle_batch(batch)
batch, member, outcome = around, '#' .. batch, how
end
end
--@include/batch/batch.lua:122
local function settle_around(batch)
local around, how = settle_batch(batch)
if around then leave_batch(around, '#' .. batch, how) end
end
--@
groups_made[1] = { do_later, release_later, set_due, settle_batch, open_member, enter_batch, leave_batch, settle_around }
end
return groups_made[1][nth](...)
end
end
--@close_batch.lua:5
local key = (P .. 'batch:' .. argv[1])
if command('EXISTS', key) == 0 then return 'missing' end
if not command('HGET', key, 'closed_at') then
command('HSET', key, 'closed_at', now_iso)
rare(3, argv[1])
rare(8, argv[1])
end
return 'ok'
