-- ARGV: reason operation n_jobs
--@
local argv = ARGV
local rare, groups_made
--@include/lib/writer.lua:4
local schema = redis.pcall('HMGET', P .. 'schema', 'min_writer', 'version')
if schema.err then return redis.error_reply('FUSION_SCHEMA broken') end
if (tonumber(schema[1]) or 0) > SCHEMA then
local by = redis.call('HGET', P .. 'schema', 'fusion') or ''
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
--@include/lib/keys.lua:126
local function error_text(err)
local text = type(err) == 'table' and err.err or err
return (string.gsub(tostring(text), '%s+', ' '))
end
--@include/lib/keys.lua:132
local function error_reply(err)
local text = error_text(err)
return redis.error_reply(string.match(text, '[A-Z]+ .+') or text)
end
--@include/job/mark.lua:6
local function waits(id, queue)
if tonumber(redis.pcall('ZSCORE', (fifos[queue] ~= false and in_fifo(queue) and (P .. 'fifo:' .. queue) or (P .. 'queue:' .. queue)), id)) then return true end
return (queue == 'scheduler') and type(redis.pcall('LPOS', (P .. 'queue:' .. queue), id)) == 'number'
end
--@include/job/mark.lua:12
local function is_rqs(key) return redis.call('HEXISTS', key, 'success_callback_name') == 1 end
--@include/job/mark.lua:16
local function is_ours(id, key, queue, status)
if redis.call('HEXISTS', key, 'raw_id') == 1 then return true end
if (queue == 'scheduler') and not is_elsewhere(status) then return true end
if is_rqs(key) then return false end
return queue == '' and not is_elsewhere(status) or waits(id, queue) or tonumber(redis.pcall('ZSCORE', P .. 'queue:failed',
id)) ~= nil
end
--@include/lib/each.lua:4
local function each(call, first, count)
local answers = {}
for i = 1, count do
local ok, answer = pcall(call, ARGV[first + i - 1])
if not ok then
local reply = error_reply(answer)
if not string.find(reply.err, '^-?WRONGTYPE') then return reply end
answer = 'error: ' .. string.gsub(reply.err, '^-', '')
end
answers[i] = answer
end
return answers
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
--@include/operation/count_operation.lua:10
local DONE = { ok = true, canceled = true, stopped = true, pending = true, deleted = true, kept = true }
local SKIPPED = { foreign = true, list = true, quarantined = true, unknown = true }
--@
rare = function(nth, ...)
if not groups_made then groups_made = {} end
if nth <= 10 then
if not groups_made[1] then
--@include/operation/count_operation.lua:13
local cutoff, states, noted, examples
--@include/failures/failures.lua:12
local function is_counted_in(recount, failed_ms) return not recount or tonumber(failed_ms) <= tonumber(recount) end
--@include/failures/failures.lua:106
local function quarantine_failure(id, key)
local group, quarantined = unpack(redis.call('HMGET', key, 'failure_group', 'quarantined'))
if not group or quarantined then return end
local failed_ms = redis.call('ZSCORE', (P .. 'failure:' .. group .. ':jobs'), id)
if failed_ms and is_counted_in(redis.call('HGET', (P .. 'failure:' .. group), 'recount'), failed_ms) then
redis.call('HINCRBY', (P .. 'failure:' .. group), 'quarantined', 1)
end
end
--@include/operation/count_operation.lua:16
local function entered_of(status, created, enqueued, started, ended)
if is_terminal(status) then return ended end
if status == 'started' then return started end
local came = enqueued or created
return ended and came and ended > came and ended or came
end
--@include/operation/count_operation.lua:24
local function in_time(status, entered)
if not string.find(states, ' ' .. status .. ' ', 1, true) then return false end
return not entered or entered <= cutoff
end
--@include/operation/count_operation.lua:30
local function open_count(operation)
local status
status, cutoff, states = unpack(redis.call('HMGET', (P .. 'operation:' .. operation), 'status', 'cutoff', 'states'))
noted, examples, states = {}, {}, ' ' .. (states or '') .. ' '
return status == 'running'
end
--@include/operation/count_operation.lua:37
local function add_count(field) noted[field] = (noted[field] or 0) + 1 end
--@include/operation/count_operation.lua:40
local function count_operation(id, answer)
local why = string.match(answer, '^%a+') or 'error'
if DONE[answer] then
add_count('done')
if answer == 'kept' then add_count('kept') end
else
add_count(SKIPPED[answer] and 'skipped' or 'refused')
add_count('why:' .. why)
examples['example:' .. why] = id
end
end
--@include/operation/count_operation.lua:53
local function is_new_to(operation, id)
local key = (P .. 'operation:' .. operation .. ':seen')
if redis.call('SADD', key, id) == 0 then return false end
redis.call('PEXPIRE', key, 604800000)
if redis.call('SCARD', key) > 10000 then redis.call('SREM', key, id) end
return true
end
--@include/operation/count_operation.lua:63
local function of_operation(operation, call)
if operation == '' then return call end
if not open_count(operation) then return function() return 'over' end end
return function(id)
local key = (P .. 'job:' .. id)
local row = redis.pcall('HMGET', key, 'status', 'operation', 'seq', 'created_at', 'enqueued_at', 'started_at',
'ended_at')
local status, mark, seq = row[1], row[2], row[3]
if not row.err then
if mark == operation then return 'counted' end
if not status and redis.call('EXISTS', key) == 0 then return 'missing' end
if status and is_elsewhere(status) or status == 'queued' then
if not in_time(status, entered_of(status, row[4], row[5], row[6], row[7])) then
return string.find(states, ' ' .. status .. ' ', 1, true) and 'late' or status
end
else
status = nil
end
end
local answer
if row.err or not status then
answer = row.err and 'error: ' .. error_text(row) or 'unknown'
if not is_new_to(operation, id) then return 'counted' end
elseif seq then
redis.call('HSET', key, 'operation', operation)
local ok
ok, answer = pcall(call, id)
if not ok then
local text = error_text(answer)
if not string.find(text, '^-?WRONGTYPE') then
redis.pcall('HDEL', key, 'operation')
error(answer, 0)
end
answer = 'error: ' .. text
end
else
if not is_new_to(operation, id) then return 'counted' end
local ok
ok, answer = pcall(call, id)
if not ok then
redis.call('SREM', (P .. 'operation:' .. operation .. ':seen'), id)
error(answer, 0)
end
end
if answer == 'missing' then return answer end
count_operation(id, answer)
return answer
end
end
--@include/operation/count_operation.lua:114
local function write_operation(operation)
if not noted then return end
for field, n in pairs(noted) do redis.call('HINCRBY', (P .. 'operation:' .. operation), field, n) end
for field, id in pairs(examples) do redis.call('HSETNX', (P .. 'operation:' .. operation), field, id) end
noted = nil
end
--@
groups_made[1] = { is_counted_in, quarantine_failure, entered_of, in_time, open_count, add_count, count_operation, is_new_to, of_operation, write_operation }
end
return groups_made[1][nth](...)
end
end
--@quarantine.lua:7
local function quarantine(id)
local status, origin, seq = unpack(redis.call('HMGET', (P .. 'job:' .. id), 'status', 'origin', 'seq'))
if not status then return 'missing' end
if not seq and not is_ours(id, (P .. 'job:' .. id), origin or '', status) then return 'foreign' end
if status == 'failed' then
pcall(rare, 2, id, (P .. 'job:' .. id))
redis.call('HSET', (P .. 'job:' .. id), 'quarantined', ARGV[1])
end
return status == 'failed' and 'ok' or status
end
--@quarantine.lua:18
local answers = each(rare(9, argv[2], quarantine), 4, tonumber(argv[3]))
rare(10, argv[2])
return answers
