-- ARGV: id token nth n_parents
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
--@include/lib/states.lua:3
local function is_terminal(status)
return status == 'finished' or status == 'stopped' or status == 'canceled' or status == 'failed'
end
--@include/lib/states.lua:9
local function is_elsewhere(status)
return status == 'started' or status == 'blocked' or status == 'scheduled' or status == 'deferred'
or is_terminal(status)
end
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
--@include/lib/keys.lua:113
local function set_of(status, queue)
if status == 'failed' then return P .. 'queue:failed' end
if status == 'scheduled' then return P .. 'scheduler:scheduled_jobs' end
if status == 'started' then return (P .. 'wip:' .. queue) end
if is_elsewhere(status) then return P .. status .. ':' .. queue end
return (fifos[queue] ~= false and in_fifo(queue) and (P .. 'fifo:' .. queue) or (P .. 'queue:' .. queue))
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
--@include/job/ties.lua:5
local tied
tied = {}
--@
rare = function(nth, ...)
if not groups_made then groups_made = {} end
if nth <= 2 then
if not groups_made[1] then
--@include/deps/kin.lua:23
local function is_parent(id, key)
return string.find(tied[key], 'c', 1, true) and redis.call('EXISTS', (P .. 'job:' .. id .. ':children')) == 1
end
--@include/deps/kin.lua:29
local function pin_while_read(id, key, expiry)
if not is_parent(id, key) then return false end
redis.call('ZADD', P .. 'pinned', 'NX', now_ms, id)
redis.call('HSET', key, 'pin', expiry)
return true
end
--@
groups_made[1] = { is_parent, pin_while_read }
end
return groups_made[1][nth](...)
end
if nth <= 11 then
if not groups_made[2] then
--@include/deps/releasing.lua:11
local function do_later(what) redis.call('ZADD', P .. 'releasing', 'NX', now_ms, what) end
--@include/deps/kin.lua:18
local function parent_in(member)
local sign, id = string.match(member, '^([?~]?)(.*)$')
return sign, id
end
--@include/deps/attach.lua:16
local function first_missing(parents, sent)
for _, member in ipairs(parents) do
local _, id = parent_in(member)
redis.call('ZCARD', (P .. 'job:' .. id .. ':children'))
if not (sent and sent[id]) and not redis.call('HGET', (P .. 'job:' .. id), 'seq') then return id end
end
end
--@include/deps/attach.lua:26
local function waits_for(sign, status, again)
if not status or status == 'finished' then return false end
return not is_terminal(status) or not again and sign ~= '?'
end
--@include/deps/attach.lua:54
local function name_child(parent, id)
local size = tonumber(redis.pcall('SCARD', (P .. 'job:' .. parent .. ':dependents')))
if size and size < 1000 then redis.pcall('SADD', (P .. 'job:' .. parent .. ':dependents'), id) end
end
--@include/deps/attach.lua:61
local function attach(id, parents, arrival, again, anew)
local waits, left = false, anew and redis.call('SMEMBERS', (P .. 'job:' .. id .. ':dependencies')) or {}
if left[1] then redis.call('SREM', (P .. 'job:' .. id .. ':dependencies'), unpack(left)) end
for _, member in ipairs(parents) do
local sign, parent = parent_in(member)
local key, children = (P .. 'job:' .. parent), (P .. 'job:' .. parent .. ':children')
local status, ties, queue, pin = unpack(redis.call('HMGET', key, 'status', 'ties', 'origin', 'pin'))
if status then
local ended, score = is_terminal(status), '+inf'
if waits_for(sign, status, again) then
score = ended and sign == '~' and (2 ^ 44) + arrival or arrival
redis.call('SADD', (P .. 'job:' .. id .. ':dependencies'), member)
waits = true
end
redis.call('ZADD', children, score, id)
name_child(parent, id)
ties = ties or ''
if not string.find(ties, 'c', 1, true) then
ties = ties .. 'c'
redis.call('HSET', key, 'ties', ties)
end
tied[key] = ties
if ended and not pin then
local set = set_of(status, queue)
local expiry = redis.call('ZSCORE', set, parent)
if expiry then
rare(2, parent, key, expiry)
redis.call('ZADD', set, '+inf', parent)
end
redis.call('PERSIST', key)
end
if ended and score == arrival then do_later('c ' .. parent) end
end
end
return waits
end
--@include/deps/cycle.lua:8
local function batches_around(batch, awaited)
local found, matters = {}, false
for _ = 1, 5 do
if not batch or found[batch] then break end
found[batch] = true
local parent, complete, success = unpack(redis.call('HMGET', (P .. 'batch:' .. batch), 'parent', 'on_complete',
'on_success'))
for _, id in ipairs({ complete or '', success or '' }) do
if id ~= '' and (awaited and awaited[id] or redis.call('EXISTS', (P .. 'job:' .. id .. ':children')) == 1) then matters = true end
end
batch = parent
end
return matters and found or nil
end
--@include/deps/cycle.lua:27
local function cycle_of(id, parents, sent, most, around)
local line, via, at = {}, {}, 1
most = most or 200
--@include/deps/cycle.lua:31
local function add(members, child)
for _, member in ipairs(members) do
local _, one = parent_in(member)
if one == id then
local path = { id }
while child do
table.insert(path, 1, child)
child = via[child]
end
table.insert(path, 1, id)
return path
end
if via[one] == nil and #line < most and not string.find(member, '^[*#]') then
via[one] = child or false
line[#line + 1] = one
end
end
end
--@include/deps/cycle.lua:50
local found = add(parents)
while not found and line[at] do
local one = line[at]
local unmet = (P .. 'job:' .. one .. ':dependencies')
at = at + 1
local status, batch, as = unpack(redis.call('HMGET', (P .. 'job:' .. one), 'status', 'batch', 'batch_as'))
if sent and sent[one] then
found = add(sent[one], one)
elseif status == 'deferred' then
if as and around and around[batch] then
found = add({ id }, one)
elseif as and redis.call('SCARD', (P .. 'batch:' .. batch .. ':open')) <= most then
found = add(redis.call('SMEMBERS', (P .. 'batch:' .. batch .. ':open')), one)
end
if found then
elseif redis.call('SCARD', unmet) <= most then
found = add(redis.call('SMEMBERS', unmet), one)
elseif redis.call('SISMEMBER', unmet, id) == 1 or redis.call('SISMEMBER', unmet, '?' .. id) == 1
or redis.call('SISMEMBER', unmet, '~' .. id) == 1 then
found = add({ id }, one)
end
end
end
return found, at
end
--@include/deps/cycle.lua:77
local function cycle_text(path)
if #path <= 6 then return table.concat(path, ' -> ') end
return table.concat(path, ' -> ', 1, 4) .. ' -> ... -> ' .. path[#path - 1] .. ' -> ' .. path[#path]
end
--@
groups_made[2] = { do_later, parent_in, first_missing, waits_for, name_child, attach, batches_around, cycle_of, cycle_text }
end
return groups_made[2][nth - 2](...)
end
end
--@add_parents.lua:8
local key = (P .. 'job:' .. argv[1])
local graph, arrival, status, batch, as = unpack(command('HMGET', key, 'graph', 'arrival', 'status', 'batch',
'batch_as'))
if not command('ZSCORE', P .. 'graphs', argv[2]) then
return status and (not graph or command('ZSCORE', P .. 'releasing', 'g ' .. argv[2])) and 'ok' or 'dropped'
end
if graph ~= argv[2] then return 'dropped' end
if command('HGET', (P .. 'job:' .. argv[1] .. ':parents'), argv[3]) then return 'ok' end
local parents = { unpack(argv, 5, 5 + argv[4] - 1) }
local missing = rare(5, parents, {})
if missing then return { 'missing', argv[1], missing } end
local awaited = {}
for _, member in ipairs(parents) do
local _, one = rare(4, member)
awaited[one] = true
end
local path = rare(10, argv[1], parents, nil, nil, batch and not as and rare(9, batch, awaited))
if path then return { 'cycle', argv[1], rare(11, path) } end
rare(8, argv[1], parents, tonumber(arrival))
command('HSET', (P .. 'job:' .. argv[1] .. ':parents'), argv[3], cjson.encode(parents))
command('ZADD', P .. 'graphs', 'XX', now_ms, argv[2])
return 'ok'
