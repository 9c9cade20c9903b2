-- KEYS: batches due
-- ARGV: batch nonce parent by open_ms keep_ms n_pairs
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
if nth <= 10 then
if not groups_made[1] then
--@include/deps/releasing.lua:11
local function do_later(what) redis.call('ZADD', P .. 'releasing', 'NX', now_ms, what) end
--@include/deps/releasing.lua:18
local function is_coming(graph)
return graph and (redis.call('ZSCORE', P .. 'graphs', graph) or redis.call('ZSCORE', P .. 'releasing', 'x ' .. graph))
end
--@include/deps/releasing.lua:23
local function give_up(graph)
do_later('x ' .. graph)
redis.call('ZREM', P .. 'graphs', graph)
end
--@include/batch/batch.lua:17
local function refuses_more(batch, by, as, id)
local created, closed, canceled = unpack(redis.call('HMGET', (P .. 'batch:' .. batch), 'created_at', 'closed_at',
'canceled_at'))
redis.call('ZCARD', (P .. 'batch:' .. batch .. ':members'))
redis.call('HGET', (P .. 'batch:' .. batch .. ':ended'), '')
local own = redis.call('SISMEMBER', (P .. 'batch:' .. batch .. ':open'), by or '') == 1
if not created then return 'missing' end
if as then return redis.call('HGET', (P .. 'batch:' .. batch), 'on_' .. as) ~= id and 'taken' or nil end
if canceled then return 'canceled' end
return closed and not own and 'closed' or nil
end
--@include/batch/batch.lua:30
local function set_due(batch)
local cancel, read, over, forget, closed, open_until = unpack(redis.call('HMGET', (P .. 'batch:' .. batch), 'cancel', 'read',
'over', 'forget_ms', 'closed_at', 'open_until'))
local due = (cancel or read and read ~= 'end') and now_ms or over and forget or not closed and open_until
if due then redis.call('ZADD', P .. 'batches:due', due, batch) else redis.call('ZREM', P .. 'batches:due', batch) end
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
--@include/batch/promised.lua:7
local function has_come(batch, as)
local id, called = unpack(redis.call('HMGET', (P .. 'batch:' .. batch), 'on_' .. as, as .. '_called'))
if not id or called then return true end
local own, graph = unpack(redis.call('HMGET', (P .. 'job:' .. id), 'batch', 'graph'))
return own == batch and not is_coming(graph)
end
--@include/batch/promised.lua:14
local function is_opened(batch) return has_come(batch, 'complete') and has_come(batch, 'success') end
--@include/batch/promised.lua:17
local function give_up_callbacks(batch)
for _, name in ipairs({ 'on_complete', 'on_success' }) do
local id = redis.call('HGET', (P .. 'batch:' .. batch), name)
local own, graph = unpack(id and redis.call('HMGET', (P .. 'job:' .. id), 'batch', 'graph') or {})
if own == batch and graph and redis.call('ZSCORE', P .. 'graphs', graph) then give_up(graph) end
end
end
--@
groups_made[1] = { do_later, is_coming, give_up, refuses_more, set_due, open_member, enter_batch, has_come, is_opened, give_up_callbacks }
end
return groups_made[1][nth](...)
end
end
--@open_batch.lua:10
local key = (P .. 'batch:' .. argv[1])
local created, nonce, closed, around = unpack(command('HMGET', key, 'created_at', 'nonce', 'closed_at', 'parent'))
--@open_batch.lua:13
if nonce == argv[2] then return { 'ok', created } end
if created and (closed or (around or '') ~= argv[3] or rare(9, argv[1])) then
return { 'duplicate' }
end
local depth = 1
if created then
rare(10, argv[1])
command('HDEL', key, 'name', 'on_complete', 'on_success')
command('HSET', key, 'kept', 1)
elseif argv[3] ~= '' then
local why = rare(4, argv[3], argv[4])
if why then return { why } end
depth = 1 + (tonumber(command('HGET', (P .. 'batch:' .. argv[3]), 'depth')) or 1)
if depth > 5 then return { 'deep' } end
end
if not created then command('HSET', key, 'created_at', now_iso, 'depth', depth) end
command('ZADD', KEYS[1], 'NX', now_ms, argv[1])
command('ZADD', KEYS[2], now_ms + argv[5], argv[1])
command('HSET', key, 'nonce', argv[2], 'open_ms', argv[5], 'open_until', now_ms + argv[5], 'keep_ms', argv[6])
if tonumber(argv[7]) > 0 then command('HSET', key, unpack(argv, 8, 8 + argv[7] - 1)) end
if not created and argv[3] ~= '' then
command('HSET', key, 'parent', argv[3])
rare(7, argv[3], '#' .. argv[1])
end
return { 'ok', created or now_iso }
