-- KEYS: worker
-- ARGV: name incarnation token lease_ms worker_ttl special n_queues n_slots lowest n_outcomes minute minute_text
-- FLAGS: allow-oom
--@
local command, try_command, argv = redis.call, redis.pcall, ARGV
local rare, groups_made
--@include/lib/keys.lua:93
local fifos = { scheduler = true }
--@include/lib/time.lua:2
local clock = command('TIME')
local now_s, now_us = clock[1] + 0, clock[2] + 0
local now_ms = now_s * 1000 + (now_us - now_us % 1000) / 1000
--@include/lib/time.lua:6
local minute, prefix
--@include/lib/time.lua:8
if argv[11] then minute, prefix = argv[11] + 0, argv[12] end
--@include/lib/time.lua:32
local now_iso
--@include/lib/time.lua:11
do
--@include/lib/time.lua:32
local seconds, micros = now_s, now_us
--@include/lib/time.lua:12
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
now_iso = string.format('%s%02d.%06dZ', prefix, second, micros)
end
--@include/job/ties.lua:5
local tied
tied = {}
--@include/job/count.lua:11
local first_what, first_queue, first_class, first_count
local counts
--@include/lib/emit.lua:8
local epoch, cap, number, reserved = nil, nil, 0, 0
local expected = 1
--@include/lib/ring.lua:10
local wildcards
--@include/job/schedule.lua:18
local soonest
--@include/limit/limit.lua:31
local unrung
local unsettled
--@include/job/park.lua:19
local parked = false
--@include/job/callbacks.lua:7
local hooked = {}
--@include/job/end_job.lua:7
local ended_before = 0
local net_of, net
--@include/job/commit.lua:22
local nothing = {}
--@include/job/commit.lua:222
local left = { queue = nil }
local freed = { queue = nil }
--@include/job/commit.lua:230
local function commit(kind, id, exec, elapsed, age, delay, reason, more, raised, keyed)
local key = (P .. 'job:' .. id)
local queue, job
if keyed then
queue = rare(36, key, exec)
elseif kind == 'finished' then
queue = nil
--@include/job/commit.lua:203
repeat
--@include/job/commit.lua:236
local key, exec = key, exec
--@include/job/commit.lua:204
if redis.call('HLEN', key) ~= 10 then queue = nil break end
local found = redis.call('HMGET', key, 'status', 'execution_id', 'origin', 'func')
queue = found[1] == 'started' and found[2] == exec and found[4] and found[3]
until true
--@include/job/commit.lua:237
end
if not queue then
--@include/job/settle.lua:8
do
--@include/job/commit.lua:239
local key = key
--@include/job/settle.lua:9
local found = redis.call('HMGET', key, 'status', 'execution_id', 'origin', 'priority', 'seq', 'result_ttl',
'failure_ttl', 'cancel', 'lost', 'on_lost', 'attempts', 'log_tag', 'worker_name', 'reason', 'hooks', 'expires_at',
'func', 'ties', 'spared')
if found[15] then hooked[key] = true end
if found[18] then tied[key] = found[18] end
local read = { status = found[1], execution_id = found[2], origin = found[3], priority = found[4], seq = found[5],
result_ttl = found[6] or found[17] and 500,
failure_ttl = found[7], cancel = found[8], lost = found[9], on_lost = found[10],
attempts = found[11], log_tag = found[12], worker_name = found[13], ['reason'] = found[14],
expires_at = found[16], spared = found[19] }
job = read
end
--@include/job/commit.lua:240
if not job.status then return 'gone', false end
if job.execution_id ~= exec then return 'stale', false end
if job.status ~= 'started' then return job.status == 'failed' and kind ~= 'failed' and 'failed' or 'ok', false end
queue = job.origin
end
local wip = kind ~= 'finished' and (P .. 'wip:' .. queue)
local started
--@include/lib/time.lua:35
do
--@include/job/commit.lua:246
local back = age + elapsed
--@include/lib/time.lua:36
local micros = (now_us - back) % 1000000
--@include/lib/time.lua:11
do
--@include/lib/time.lua:37
local seconds, micros = now_s + (now_us - back - micros) / 1000000, micros
--@include/lib/time.lua:12
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
started = string.format('%s%02d.%06dZ', prefix, second, micros)
end
--@include/lib/time.lua:38
end
--@include/job/commit.lua:247
local ended
--@include/lib/time.lua:35
do
--@include/job/commit.lua:247
local back = age + 0
--@include/lib/time.lua:36
local micros = (now_us - back) % 1000000
--@include/lib/time.lua:11
do
--@include/lib/time.lua:37
local seconds, micros = now_s + (now_us - back - micros) / 1000000, micros
--@include/lib/time.lua:12
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
ended = string.format('%s%02d.%06dZ', prefix, second, micros)
end
--@include/lib/time.lua:38
end
--@include/job/commit.lua:248
freed[queue] = true
if kind == 'limited' and tied[key] then
pcall(rare, 16, key, now_ms + delay)
elseif kind == 'limited' then
pcall(rare, 126, queue, now_ms + delay)
end
--@include/job/commit.lua:255
if kind == 'repeat' and job.cancel then kind = 'finished' end
if kind == 'finished' then
local dropped = job and tonumber(job.result_ttl) == 0 and not rare(105, id, key)
local ttl = not job and 500 or tonumber(job.result_ttl) or RESULT_TTL
if dropped then rare(73, more) end
--@include/job/end_job.lua:11
do
--@include/job/commit.lua:260
local id, key, queue, class, status, ttl, leave = id, key, queue, job and job.priority, 'finished', ttl, nil
--@include/job/end_job.lua:12
local what = status == 'finished' and 'completed' or status
if what == 'expired' or what == 'discarded' then status = 'canceled' end
local seconds, expiry = ttl, '+inf'
if seconds >= 0 then
if seconds < 60 then seconds = 60 elseif seconds > (1e9) then seconds = (1e9) end
seconds = seconds - seconds % 1
--@include/job/end_job.lua:19
if (now_us + ended_before) % 1000000 == 0 then ended_before = ended_before + 1 end
local micros = now_us + ended_before
expiry = string.format('%d.%06d', now_s + seconds + (micros - micros % 1000000) / 1000000, micros % 1000000)
ended_before = ended_before + 1
end
local others = tied[key] ~= 'k' and tied[key]
local pinned = others and rare(35, id, key, expiry)
if pinned then seconds, expiry = -1, '+inf' end
redis.call('ZADD', status == 'failed' and P .. 'queue:failed' or P .. status .. ':' .. queue, expiry, id)
redis.call('HSET', key, 'status', status, 'started_at', started, 'ended_at', ended, unpack(more))
--@include/job/count.lua:41
do
--@include/job/end_job.lua:29
local what, queue, class, other = what, queue, class, tied[key] and rare(2, key)
--@include/job/count.lua:42
if not first_count then
first_what, first_queue, first_class, first_count = what, queue, class, 1
elseif what == first_what and queue == first_queue and class == first_class then
first_count = first_count + 1
else
rare(3, P .. 'totals' .. ':' .. queue, what, class, 1)
end
if other then rare(3, other, what, class, 1) end
end
--@include/job/end_job.lua:30
if seconds >= 0 and not (others and string.find(others, 'p', 1, true)) then
if seconds ~= net_of then net_of, net = seconds, string.format('%d', 1000 * (seconds + 3600)) end
redis.call('PEXPIRE', key, net)
else
redis.call('PERSIST', key)
end
if leave then
--@include/job/end_job.lua:38
if leave == P .. 'scheduler:scheduled_jobs' and status ~= 'failed' then redis.call('SADD', P .. 'queues', (P .. 'queue:' .. queue)) end
redis.call('ZREM', leave, id)
end
--@include/job/on_end.lua:7
repeat
--@include/job/end_job.lua:41
local id, key, queue, status = id, key, queue, status
--@include/job/on_end.lua:8
if tied[key] then
if string.find(tied[key], 'k', 1, true) then pcall(rare, 32, id, key, status) end
if tied[key] == 'k' then break end
if string.find(tied[key], 'u', 1, true) then pcall(rare, 107, id, key, status) end
if string.find(tied[key], 'b', 1, true) then pcall(rare, 115, id, key, queue, status) end
if string.find(tied[key], '[pc]') then pcall(rare, 106, id, key) end
if tied[key] and string.find(tied[key], 'l', 1, true) then pcall(rare, 31, id, key) end
end
until true
--@include/job/end_job.lua:42
if queue == '_callbacks' then redis.pcall('ZREM', P .. 'callbacks:open', id) end
if hooked[key] then rare(102, id, key, queue, status) end
end
--@include/job/commit.lua:262
if dropped then redis.call('HDEL', key, 'result') end
if job and (job.attempts or job.lost or job.reason or job.cancel or job.spared) then
redis.call('HDEL', key, 'lost', 'reason', 'exc_info', 'error_class', 'error_bases', 'error_frame', 'cancel',
'held_since', 'begun', 'spared', 'wanted', 'suspect')
end
local ids = left[queue]
if ids then ids[#ids + 1] = id else left[queue] = { id } end
--@include/lib/emit.lua:39
repeat
--@include/job/commit.lua:269
local event, id, queue, log_tag = 'completed', id, queue, job and job.log_tag
--@include/lib/emit.lua:40
if queue == '_callbacks' then break end
if reserved == 0 then
--@include/lib/emit.lua:12
do
--@include/lib/emit.lua:42
local count = expected
--@include/lib/emit.lua:13
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
--@include/lib/emit.lua:43
end
if reserved == 0 then break end
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
'log_tag', log_tag or '', 'epoch', epoch, 'n', n, 'worker', job and job.worker_name or ARGV[1], 'elapsed_us', elapsed, unpack(raised))
else
redis.pcall('XADD', P .. 'events', '*', 'event', event, 'job_id', id, 'queue', queue, 'log_tag', log_tag or '', 'epoch',
epoch, 'n', n, 'worker', job and job.worker_name or ARGV[1], 'elapsed_us', elapsed, unpack(raised))
end
until true
--@include/job/commit.lua:271
elseif kind == 'repeat' then
rare(132, id, key, queue, job, wip, started, ended, elapsed, delay, more, raised)
elseif kind == 'release' or kind == 'lost' or kind == 'struck' or kind == 'displaced' or kind == 'suspect' then
if rare(74, more) then
if job.lost and kind == 'release' then more[#more + 1], more[#more + 2] = 'lost', 0 end
job.lost = false
redis.call('HDEL', key, 'spared')
end
local begun = kind == 'displaced' or kind == 'suspect' or rare(66, more, 'spared')
if begun and not rare(69, key) then
if rare(66, more, 'suspect') then more[#more + 1], more[#more + 2] = 'suspect', 1 end
kind, reason = 'lost', reason .. ' (put back too often)'
elseif begun and kind == 'release' then
more[#more + 1], more[#more + 2] = 'lost', job.lost or 0
end
job.displaced, job.suspect = kind == 'displaced', kind == 'suspect'
job.unbegun = job.displaced or job.suspect
job.shared = job.unbegun or kind == 'struck' and (string.sub(exec, -1)) ~= "s"
local outcome = kind == 'release' and 'released' or 'lost'
if rare(70, outcome, id, key, queue, job, wip, reason, job.worker_name, more) then return 'failed', true end
elseif kind == 'stopped' or job.cancel and kind ~= 'failed' then
local status = kind == 'stopped' and kind or rare(68, job)
rare(66, more, 'within')
rare(67, key, job.worker_name, status, reason, more, started, ended)
rare(63, status, id, key, queue, job.priority, wip, job.log_tag, ' while running', unpack(more))
elseif not rare(75, kind, id, key, queue, job, wip, delay, reason, more) and rare(78, kind, id, key, queue, job,
wip, started, ended, elapsed, delay, reason, more, raised) then
return 'failed', true
end
return 'ok', true
end
--@include/job/claim.lua:101
local function look(queue, count, set, text, class)
if text then
local found = redis.call('ZREVRANGEBYSCORE', (P .. 'queue:' .. queue), text, '(' .. class, 'LIMIT', '0', count)
if found[1] then
return { found = found, at = 0, step = 1, whole = false, id = nil, class = class, score = nil }
end
end
local more = not set and fifos[queue] and not (queue == 'scheduler') and rare(141, queue)
--@include/job/claim.lua:110
local last = count == 1 and '0' or count == 2 and '1' or count - 1
local found = redis.pcall('ZREVRANGE', set and (P .. 'waits:' .. set) or (fifos[queue] ~= false and rare(83, queue) and (P .. 'fifo:' .. queue) or (P .. 'queue:' .. queue)), '0', last, 'WITHSCORES')
if set and found.err then
error(found)
elseif set then
elseif found.err and not fifos[queue] then
fifos[queue] = nil
if not rare(83, queue) then error(found) end
more = rare(141, queue)
found = redis.call('ZREVRANGE', (fifos[queue] ~= false and rare(83, queue) and (P .. 'fifo:' .. queue) or (P .. 'queue:' .. queue)), '0', count - 1, 'WITHSCORES')
elseif found.err then
error(found)
elseif not found[1] and (queue == 'scheduler') then
more = rare(140, queue)
found = redis.call('ZREVRANGE', (fifos[queue] ~= false and rare(83, queue) and (P .. 'fifo:' .. queue) or (P .. 'queue:' .. queue)), '0', count - 1, 'WITHSCORES')
end
local whole = #found < 2 * count and (set or not (queue == 'scheduler') or not found[1])
return { found = found, at = -1, step = 2, whole = whole, id = nil, class = nil, score = nil, aside = nil }, more
end
--@include/job/claim.lua:169
local LEASE_END, held_key, held = string.format('%d', now_ms + argv[4]), (P .. 'worker:' .. argv[1] .. ':jobs'), { nil, nil }
local leased = { queue = nil }
local unexpected = {}
--@include/job/claim.lua:173
local lacking
--@include/job/claim.lua:226
local reply = { nil, nil, nil, nil, nil, nil, nil, nil, nil, nil }
--@include/job/claim.lua:241
local chains = {}
local function take(queue, head, exec, set, behind)
local id = head.id
local key = (P .. 'job:' .. id)
local size = (#id <= 128 and (string.find(id, '^%w+$') or string.find(id, '^[%w_.:-]+$')) ~= nil) and redis.pcall('HLEN', key)
if size ~= 6 and type(size) ~= 'number' then
rare(122, id, queue, nil, 'the queue names what is no job')
return false
end
local fresh, job, name = false, nil, nil
local status, seq, data, origin, func, created_at, expires, deliveries, log_tag, ties
--@include/job/claim.lua:253
if size == 6 then
local found = redis.call('HMGET', key, 'status', 'origin', 'created_at', 'func', 'data')
status, origin, created_at, func, data = found[1], found[2], found[3], found[4], found[5]
fresh = status and origin and created_at and func and data and true
end
if not fresh then
if size <= 16 then
local found = redis.call('HGETALL', key)
job = {}
for i = 1, #found, 2 do job[found[i]] = found[i + 1] end
else
job = rare(146, key)
end
status, seq, data, origin, func = job.status, job.seq, job.data, job.origin, job.func
expires, deliveries, log_tag, ties = job.expires_at, job.deliveries, job.log_tag, job.ties
--@include/job/claim.lua:269
if ties == 'k' and size == (job.max_concurrent and 9 or 8) then
name, created_at = job.concurrency_key, job.created_at
fresh = name and status and origin and created_at and func and data and true
end
end
if not (fresh or seq) and redis.call('HEXISTS', key, 'success_callback_name') == 1 then
rare(122, id, queue, nil, 'the queue names a job of stock RQ')
return false
end
if set then
if status ~= 'blocked' or redis.call('HGET', key, 'waits_in') ~= set then return false end
elseif status ~= 'queued' and rare(80, status) then
return false
end
if ties then tied[key] = ties end
if not data then
rare(122, id, queue, nil, 'the queue names a job that has no data', not head.score or head.score % 1 ~= 0)
return false
end
if expires and (tonumber(expires) or math.huge) <= now_ms then
rare(147, id, key, queue, set, job)
unexpected[#unexpected + 1] = id
return false, true
end
--@include/job/claim.lua:294
local placed = (not head.score or head.score % 1 ~= 0) and (fresh or tonumber(seq))
local own = placed and origin == queue
if fresh and not own then seq = redis.call('HGET', key, 'seq') end
if own and not set and (deliveries or lacking) then
local task = lacking and (func or string.match(data, '^%["([%w_.]+)"'))
if rare(144, queue, id, key, head, task, deliveries, log_tag) then return nil end
end
local ahead = ties and (string.sub(exec, -1)) == "a"
if ahead and string.find(ties, 'm', 1, true) then return 'keyed' end
local others = ties ~= 'k' and ties
local keyed = ties and (not others or string.find(others, 'k', 1, true))
if keyed and not behind then
local ok, has
ok, has, name = pcall(rare, 23, id, key, queue, head.score, log_tag, ahead, name)
if not ok then return rare(145, id, key, queue, set, log_tag, has) end
if has == nil then return 'keyed' end
if not has then
if set then
redis.call('ZREM', (P .. 'waits:' .. set), id)
if string.sub(set, 1, 5) == 'held:' then redis.call('HSET', key, 'wanted', 1) end
rare(56, id, key, queue)
end
return nil
end
end
local entries = leased[queue]
if entries then
local n = #entries
entries[n + 1], entries[n + 2] = LEASE_END, id
else
redis.call('ZADD', (P .. 'wip:' .. queue), LEASE_END, id)
leased[queue] = {}
end
if not held[1] then redis.call('HSET', held_key, id, exec) end
local n = #held
held[n + 1], held[n + 2] = id, exec
redis.call('HSET', key, 'status', 'started', 'execution_id', exec, 'worker_name', ARGV[1], 'started_at', now_iso,
'deliveries', deliveries and (tonumber(deliveries) or 0) + 1 or '1')
if not own then
local was = redis.call('HGET', key, 'priority')
redis.call('HSET', key, 'seq', rare(40), 'priority', head.class, 'origin', queue)
rare(45, seq, origin, was, queue, head.class)
redis.call('SADD', P .. 'queues', (P .. 'queue:' .. queue))
rare(99, key)
if seq and origin then rare(138, key, origin, queue) end
if not seq and rare(137, key, data) then job.serializer = 'pickle' end
if job then job.origin = queue end
end
if not fresh then redis.call('PERSIST', key) end
if set then rare(97, id, key, queue) end
if set or not placed then rare(56, id, key, queue) end
--@include/job/claim.lua:22
do
--@include/job/claim.lua:345
local id, key, queue = id, key, queue
--@include/job/claim.lua:23
if tied[key] then
if tied[key] ~= 'k' and string.find(tied[key], 'u', 1, true) then pcall(rare, 107, id, key, 'started') end
end
end
--@include/job/claim.lua:346
if expires then unexpected[#unexpected + 1] = id end
--@include/lib/emit.lua:39
repeat
--@include/job/claim.lua:347
local event, id, queue, log_tag = 'processing', id, queue, log_tag
--@include/lib/emit.lua:40
if queue == '_callbacks' then break end
if reserved == 0 then
--@include/lib/emit.lua:12
do
--@include/lib/emit.lua:42
local count = expected
--@include/lib/emit.lua:13
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
--@include/lib/emit.lua:43
end
if reserved == 0 then break end
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
'log_tag', log_tag or '', 'epoch', epoch, 'n', n, 'worker', ARGV[1])
else
redis.pcall('XADD', P .. 'events', '*', 'event', event, 'job_id', id, 'queue', queue, 'log_tag', log_tag or '', 'epoch',
epoch, 'n', n, 'worker', ARGV[1])
end
until true
--@include/job/claim.lua:348
local follows = behind and exec .. ' ' .. behind.exec
if follows then redis.call('HSET', key, 'follows', follows) end
if name and not (behind or others and string.find(others, 'm', 1, true)) then
chains[#chains + 1] = { name = name, id = id, exec = exec }
end
--@include/job/claim.lua:354
local more
if others and string.find(others, '[bgmr]') or ahead and keyed then
if string.find(ties, 'g', 1, true) then rare(136, key) end
--@include/job/claim.lua:358
if string.find(ties, 'r', 1, true) then redis.call('HDEL', key, 'callback_error', 'result_error') end
if fresh then
more = { [7 + 1] = name, [7 + 2] = follows }
else
more = redis.call('HMGET', key, "takes", "batch", "given", "given_as", "gather", "repeats_left", "repeat_intervals", "concurrency_key", "follows")
end
end
--@include/job/claim.lua:366
local at = #reply + 4
reply[at - 3], reply[at - 2], reply[at - 1], reply[at] = ties and 7 or 6, queue, id, exec
if fresh and not more then
reply[at + 1], reply[at + 2], reply[at + 3] = data, func, created_at
if ties then reply[at + 4] = ties end
return true
end
local names, last = { "data", "func", "created_at", "ties", "origin", "log_tag", "serializer", "timeout", "ttl", "meta", "priority", "description", "attempts", "retryCount", "retry", "enqueued_at", "on_success", "on_failure", "held_since", "isolate", "on_stopped", "success_task_handler", "failed_task_handler", "callback_url", "on_lost", "signature", "cursor", "suspect", "keep_logs" }, 29
while not (more or job[names[last]]) do last = last - 1 end
for i = 1, last do reply[at + i] = job[names[i]] or false end
if more then
local n = 7 + (ahead and 2 or 0)
while n > 0 and not more[n] do n = n - 1 end
for i = 1, n do reply[at + last + i] = more[i] or false end
last = last + n
end
reply[at - 3] = last + 3
return true
end
--@include/job/wildcards.lua:4
local names, count = { [0] = nil }, 0
--@include/job/wildcards.lua:6
local bound, origin, tail, listed, crowded = {}, {}, {}, {}, false
--@include/gates/turn_gates.lua:5
local gates = {}
local opens
--@
rare = function(nth, ...)
if not groups_made then groups_made = {} end
if nth <= 36 then
if not groups_made[1] then
--@include/job/ties.lua:9
local key_alone = {}
--@include/job/count.lua:16
local counted = {}
--@include/limit/limit.lua:19
local steps_left = 80
--@include/limit/limit.lua:24
local arrivals = {}
local bounds = {}
local in_use = {}
--@include/job/ties.lua:10
local function note_key_alone(key, name) tied[key], key_alone[key] = 'k', name end
--@include/job/count.lua:17
local function counters_of_key(key, known)
local name = known or key_alone[key] or redis.call('HGET', key, 'concurrency_key')
if not name then return nil end
if not counted[name] then redis.pcall('ZADD', P .. 'limits', 'NX', now_ms, name) end
counted[name] = true
return (P .. 'limit:' .. name)
end
--@include/job/count.lua:25
local function note_more(hash, what, class, n)
local field = what .. ':' .. (class and class ~= '1' and string.format('%d', (math.max(0, math.min(255, math.floor(tonumber(class) or 1))))) or '1')
counts = counts or {}
counts[hash] = counts[hash] or {}
counts[hash][field] = (counts[hash][field] or 0) + n
end
--@include/job/count.lua:33
local function write_more()
for hash, fields in pairs(counts) do
for field, n in pairs(fields) do redis.pcall('HINCRBY', hash, field, n) end
end
counts = nil
end
--@include/limit/limit.lua:36
local function closed_until(paused, held_back)
local until_ms, hold = tonumber(paused) or 0, tonumber(held_back) or 0
if hold > until_ms and hold <= now_ms + 86400000 then until_ms = hold end
return until_ms > now_ms and until_ms or nil
end
--@include/limit/limit.lua:45
local function bounds_of(name)
local known = bounds[name]
if known then return known end
local max, pinned, paused, own_rate, rate, tat, held_back = unpack(redis.call('HMGET', (P .. 'limit:' .. name), 'max',
'pinned', 'paused', 'rate', 'pinned_rate', 'tat', 'held_back'))
local opens = (paused or held_back) and closed_until(paused, held_back)
if opens then
known = { limit = 0, opens = opens < math.huge and opens }
else
known = { limit = tonumber(pinned) or tonumber(max), tat = tat }
if rate or own_rate then known.interval, known.burst = rare(86, rate or own_rate) end
known.limit = known.limit or known.interval and math.huge or 1
end
bounds[name] = known
return known
end
--@include/limit/limit.lua:64
local function limit_of(name)
local known = bounds_of(name)
local limit, interval, burst, tat = known.limit, known.interval, known.burst, known.tat
if not interval then return limit, known.opens end
local held, now = (P .. 'limits:held:' .. name), now_s * 1000000 + now_us
local idle = redis.call('ZCOUNT', held, '-inf', '(+inf')
local room = rare(88, tat, now, interval, burst)
local upto = redis.call('ZCARD', held) - idle + room
if upto >= limit then return limit end
--@include/limit/limit.lua:74
return upto, room < burst and math.floor((now + rare(87, tat, now, interval, burst) - (burst - room - 1) * interval)
/ 1000) + 1 or nil
end
--@include/limit/limit.lua:79
local function look_at_limit(member, ms)
redis.call('ZADD', P .. 'limits:due', 'LT', ms, member)
soonest = math.min(soonest or ms, ms)
if (redis.call('ZRANGE', P .. 'limits:due', 0, 0)[1]) == member then rare(53, ms) end
end
--@include/limit/limit.lua:88
local function place_in_key(key, queue, score, arrives)
if not rare(90, queue) then return score end
local seq, known, priority, ran = unpack(redis.call('HMGET', key, 'seq', 'place_in_key', 'priority', 'deliveries'))
if not (known or arrives and not ran) or not tonumber(seq) or tonumber(seq) < 0 then return score end
local turn, place = string.match(known or '', '^(%S+) (%S+)$')
if turn ~= seq then
place = rare(40)
redis.call('HSET', key, 'place_in_key', seq .. ' ' .. string.format('%d', place))
end
return rare(39, queue, priority, place)
end
--@include/limit/limit.lua:101
local function put_in_line(name, id, key, queue, score, log_tag)
redis.call('ZADD', (P .. 'limits:waiting:' .. name), score, id)
redis.call('ZADD', P .. 'blocked:' .. queue, '+inf', id)
redis.call('HSET', key, 'status', 'blocked', 'waits_in', 'limit:' .. name)
redis.call('ZREM', (fifos[queue] ~= false and rare(83, queue) and (P .. 'fifo:' .. queue) or (P .. 'queue:' .. queue)), id)
rare(47, 'blocked', id, queue, log_tag, 'reason', 'limit', 'limit', name)
end
--@include/limit/limit.lua:111
local function admit(name, id, score, behind)
local key, took = (P .. 'job:' .. id), 0
local status, queue, log_tag, set, place = unpack(redis.call('HMGET', key, 'status', 'origin', 'log_tag', 'waits_in',
'place_in_key'))
if status ~= 'blocked' or set ~= 'limit:' .. name then
if status == 'started' and redis.call('ZRANGE', rare(81, name), 0, 0)[1] == id then
took = redis.call('ZADD', (P .. 'limits:held:' .. name), '+inf', id)
end
redis.call('ZREM', (P .. 'limits:waiting:' .. name), id)
return took
end
local at = score
if place then
local priority, seq = unpack(redis.call('HMGET', key, 'priority', 'seq'))
if tonumber(seq) then at = rare(39, queue, priority, seq) end
end
rare(41, queue, at, id)
if not behind then took = redis.call('ZADD', (P .. 'limits:held:' .. name), score, id) end
redis.call('HSET', key, 'status', 'queued')
redis.call('HDEL', key, 'waits_in')
redis.call('ZREM', P .. 'blocked:' .. queue, id)
redis.call('ZREM', (P .. 'limits:waiting:' .. name), id)
rare(47, 'queued', id, queue, log_tag, 'reason', 'admitted')
if behind then return took end
if unrung then unrung[queue] = true else rare(52, queue, (math.max(0, math.min(255, math.floor(tonumber(score) or 1))))) end
return took
end
--@include/limit/limit.lua:140
local function step_back(name, id, score)
local key = (P .. 'job:' .. id)
local status, queue, log_tag, set = unpack(redis.call('HMGET', key, 'status', 'origin', 'log_tag', 'waits_in'))
local alone = status == 'blocked' and string.sub(set or '', 1, 10) == 'probation:'
if status == 'queued' or alone then put_in_line(name, id, key, queue, score, log_tag) end
if alone then redis.call('ZREM', P .. 'waits:' .. set, id) end
redis.call('ZREM', (P .. 'limits:held:' .. name), id)
end
--@include/limit/limit.lua:150
local function settle_now(name, times)
local held, waiting = (P .. 'limits:held:' .. name), (P .. 'limits:waiting:' .. name)
local limit, due = limit_of(name)
if due and redis.call('EXISTS', waiting) == 1 then look_at_limit(name, due) end
local count, steps, admitted = redis.call('ZCARD', held), math.max(2 * times, steps_left), 0
while steps > 0 do
if count < limit then
local free = math.min(math.ceil(limit - count), steps)
local best = redis.call('ZRANGE', waiting, '0', free == 1 and '0' or free - 1, 'REV', 'WITHSCORES')
if not best[1] then return end
for i = 1, #best, 2 do
local ok, took = pcall(admit, name, best[i], best[i + 1])
if not ok then return look_at_limit(name, now_ms + 30000) end
count, admitted, steps, steps_left = count + took, admitted + took, steps - 1, steps_left - 1
end
if #best < 2 * free then return end
else
if count == admitted then return end
local worst = redis.call('ZRANGE', held, '0', '0', 'WITHSCORES')
if not worst[1] or worst[2] == 'inf' then return end
if count == limit then
local best = redis.call('ZRANGE', waiting, '0', '0', 'REV', 'WITHSCORES')
if not (best[1] and tonumber(best[2]) > tonumber(worst[2])) then return end
end
step_back(name, worst[1], worst[2])
if due then look_at_limit(name, due) end
due = nil
count, steps, steps_left = count - 1, steps - 1, steps_left - 1
end
end
look_at_limit(name, now_ms)
end
--@include/limit/limit.lua:183
local function settle_key(name)
arrivals[name], in_use[name] = nil, nil
if unrung then
unsettled = unsettled or {}
unsettled[name] = (unsettled[name] or 0) + 1
else
settle_now(name, 1)
end
end
--@include/limit/limit.lua:194
local function settle_all()
local names = unsettled
unsettled = nil
for name, times in pairs(names) do pcall(settle_now, name, times) end
end
--@include/limit/limit.lua:202
local function hold_key_back(key, ms)
local name = redis.call('HGET', key, 'concurrency_key')
if not name or (closed_until(nil, redis.call('HGET', (P .. 'limit:' .. name), 'held_back')) or 0) >= ms then return end
redis.call('HSET', (P .. 'limit:' .. name), 'held_back', string.format('%d', ms))
bounds[name] = nil
redis.call('ZADD', P .. 'limits', now_ms, name)
end
--@include/limit/limit.lua:212
local function name_limit(name, max, rate, named)
redis.call('ZADD', P .. 'limits', now_ms, name)
local max_now, rate_now = unpack(redis.call('HMGET', (P .. 'limit:' .. name), 'max', 'rate'))
local news = {}
if max and max ~= max_now and (named or not max_now) then news[1], news[2] = 'max', max end
if rate and rate ~= rate_now and (named or not rate_now) then news[#news + 1], news[#news + 2] = 'rate', rate end
if not news[1] then return false end
redis.call('HSET', (P .. 'limit:' .. name), unpack(news))
bounds[name] = nil
return true
end
--@include/limit/limit.lua:225
local function in_use_of(name)
local count = in_use[name] or redis.call('ZCOUNT', (P .. 'limits:held:' .. name), '+inf', '+inf')
in_use[name] = count
return count
end
--@include/limit/limit.lua:233
local function may_start(name)
local known = bounds_of(name)
local interval, burst, tat = known.interval, known.burst, known.tat
if in_use_of(name) >= known.limit then return false end
if not interval then return true end
local now = now_s * 1000000 + now_us
if rare(88, tat, now, interval, burst) < 1 then return false end
redis.call('HSET', (P .. 'limit:' .. name), 'tat', string.format('%.17g', rare(89, tat, now, interval, burst, 1)))
bounds[name] = nil
settle_key(name)
return true
end
--@include/limit/limit.lua:248
local function look_once(name, max, rate)
local known = bounds_of(name)
local max_now, rate_now = unpack(redis.call('HMGET', (P .. 'limit:' .. name), 'max', 'rate'))
if known.interval or known.opens or known.limit == 0 or max ~= max_now or rate ~= rate_now then return nil end
local held = (P .. 'limits:held:' .. name)
local worst = redis.call('ZRANGE', held, 0, 0, 'WITHSCORES')[2]
return { max = max, rate = rate, limit = known.limit, held = redis.call('ZCARD', held),
waiting = redis.call('EXISTS', (P .. 'limits:waiting:' .. name)) == 1, worst = tonumber(worst) or math.huge }
end
--@include/limit/limit.lua:259
local function arrive_like_others(name, id, key, queue, score, log_tag, known)
score = tonumber(score)
if known.held < known.limit and not known.waiting then
redis.call('ZADD', (P .. 'limits:held:' .. name), score, id)
known.held, known.worst = known.held + 1, math.min(known.worst, score)
return false
end
put_in_line(name, id, key, queue, score, log_tag)
known.waiting = true
if score <= known.worst then return true end
settle_key(name)
return redis.call('HGET', key, 'status') == 'blocked'
end
--@include/limit/limit.lua:276
local function arrive_at_limit(id, key, queue, named)
local name, max, rate, log_tag = unpack(redis.call('HMGET', key, 'concurrency_key', 'max_concurrent', 'rate',
'log_tag'))
if not name then return end
local known = named and arrivals[name]
if known == true then
known = look_once(name, max, rate)
arrivals[name] = known
elseif known and (known.max ~= max or known.rate ~= rate) then
known = nil
end
if known and not string.find(tied[key], 'd', 1, true) then
local score = redis.call('ZSCORE', (fifos[queue] ~= false and rare(83, queue) and (P .. 'fifo:' .. queue) or (P .. 'queue:' .. queue)), id)
if not score then return end
return arrive_like_others(name, id, key, queue, place_in_key(key, queue, score, true), log_tag, known)
end
local changed = name_limit(name, max, rate, named)
local score, held, way = redis.call('ZSCORE', (fifos[queue] ~= false and rare(83, queue) and (P .. 'fifo:' .. queue) or (P .. 'queue:' .. queue)), id), (P .. 'limits:held:' .. name), nil
if not score then
if changed then settle_key(name) end
return
end
score = place_in_key(key, queue, score, true)
if not named and redis.call('ZSCORE', held, id) then
redis.call('ZADD', held, score, id)
changed = true
elseif redis.call('ZCARD', held) < limit_of(name) and redis.call('EXISTS', (P .. 'limits:waiting:' .. name)) == 0 then
redis.call('ZADD', held, score, id)
elseif string.find(tied[key], 'd') then
way = 'discard'
else
put_in_line(name, id, key, queue, score, log_tag)
changed = true
end
if string.find(tied[key], 'd') then
tied[key] = string.gsub(tied[key], 'd', '')
redis.call('HSET', key, 'ties', tied[key])
end
if changed then settle_key(name) end
arrivals[name] = named or nil
return way or redis.call('HGET', key, 'status') == 'blocked'
end
--@include/limit/limit.lua:326
local function take_slot(id, key, queue, score, log_tag, ahead, name)
local duration
if not name then name, duration = unpack(redis.call('HMGET', key, 'concurrency_key', 'limit_duration')) end
if not name then return true end
local held, known, count = (P .. 'limits:held:' .. name), bounds_of(name), in_use_of(name)
if ahead and (duration or known.interval or count + 1 > known.limit / 2) then return nil end
--@include/limit/limit.lua:333
if not known.interval and count < known.limit and redis.call('ZADD', held, 'XX', 'CH', '+inf', id) == 1 then
in_use[name] = count + 1
else
local has = redis.call('ZSCORE', held, id)
if not has then
redis.call('ZADD', P .. 'limits', now_ms, name)
has = redis.call('ZCARD', held) < limit_of(name) and redis.call('EXISTS', (P .. 'limits:waiting:' .. name)) == 0
end
if not (has and may_start(name)) then
score = score or redis.call('ZSCORE', (fifos[queue] ~= false and rare(83, queue) and (P .. 'fifo:' .. queue) or (P .. 'queue:' .. queue)), id)
put_in_line(name, id, key, queue, place_in_key(key, queue, score), log_tag)
redis.call('ZREM', held, id)
settle_key(name)
return false
end
redis.call('ZADD', held, '+inf', id)
in_use[name] = nil
end
if duration then look_at_limit(name .. ' ' .. id, now_ms + duration) end
return true, not duration and name
end
--@include/limit/limit.lua:356
local function stop_counting(name, id, key)
if string.find(tied[key], 't') then redis.call('ZREM', P .. 'limits:due', name .. ' ' .. id) end
end
--@include/limit/limit.lua:383
local function keep_for_worker(id, key, score)
local name, wanted = unpack(redis.call('HMGET', key, 'concurrency_key', 'wanted'))
if not (wanted and name and redis.call('ZSCORE', (P .. 'limits:held:' .. name), id)) then return false end
redis.call('ZADD', (P .. 'limits:held:' .. name), score, id)
redis.call('ZREM', P .. 'limits:due', name .. ' ' .. id .. ' held')
look_at_limit(name .. ' ' .. id .. ' held', now_ms + 30000)
redis.call('HDEL', key, 'wanted')
settle_key(name)
return true
end
--@include/limit/limit.lua:396
local function pass_slot_on(name, id, follower)
local next_id, exec = string.match(follower, '^(%S+) (%S+)$')
local status, now = unpack(redis.call('HMGET', (P .. 'job:' .. (next_id or '')), 'status', 'execution_id'))
if status ~= 'started' or now ~= exec then return false end
redis.call('ZADD', (P .. 'limits:held:' .. name), '+inf', next_id)
redis.call('ZREM', (P .. 'limits:held:' .. name), id)
return true
end
--@include/limit/limit.lua:411
local function locks_of(text)
local found = {}
for word in string.gmatch(text or '', '%S+') do found[#found + 1] = word end
return found
end
--@include/limit/limit.lua:417
local function write_locks(key, locks)
local ties, has = tied[key] or '', locks[1] and 'l' or ''
tied[key] = string.gsub(ties, 'l', '') .. has
if locks[1] then
redis.call('HSET', key, 'ties', tied[key], 'locks', table.concat(locks, ' '))
elseif tied[key] ~= '' then
redis.call('HSET', key, 'ties', tied[key])
redis.call('HDEL', key, 'locks')
else
tied[key] = nil
redis.call('HDEL', key, 'ties', 'locks')
end
end
--@include/limit/limit.lua:431
local function settle_lock(name)
local first = redis.call('ZRANGE', rare(81, name), 0, 0)[1]
if first and not redis.call('ZSCORE', (P .. 'limits:held:' .. name), first) then
redis.call('ZADD', (P .. 'limits:waiting:' .. name), '512', first)
end
settle_key(name)
end
--@include/limit/limit.lua:440
local function free_lock(name, id)
redis.call('ZREM', rare(81, name), id)
redis.call('ZREM', (P .. 'limits:held:' .. name), id)
redis.call('ZREM', (P .. 'limits:waiting:' .. name), id)
settle_lock(name)
end
--@include/limit/limit.lua:462
local function free_locks(id, key)
if not string.find(tied[key], 'l', 1, true) then return end
local locks = locks_of(redis.call('HGET', key, 'locks'))
write_locks(key, {})
for i = 1, #locks, 3 do pcall(free_lock, locks[i], id) end
end
--@include/limit/limit.lua:470
local function leave_limit(id, key, status)
local name, follower = key_alone[key], nil
if not name then name, follower = unpack(redis.call('HMGET', key, 'concurrency_key', 'followed_by')) end
if not name then return end
arrivals[name] = nil
stop_counting(name, id, key)
if follower then
redis.call('HDEL', key, 'followed_by')
if status == 'finished' and pass_slot_on(name, id, follower) then return end
end
--@include/limit/limit.lua:481
local stood = redis.call('ZREM', (P .. 'limits:held:' .. name), id) == 1 or redis.call('ZREM', (P .. 'limits:waiting:' .. name), id) == 1
if stood then settle_key(name) end
end
--@include/limit/limit.lua:487
local function return_to_limit(id, key, queue)
local name = redis.call('HGET', key, 'concurrency_key')
local score = name and redis.call('ZSCORE', (fifos[queue] ~= false and rare(83, queue) and (P .. 'fifo:' .. queue) or (P .. 'queue:' .. queue)), id)
if name then stop_counting(name, id, key) end
if not score then return end
if redis.call('ZSCORE', (P .. 'limits:held:' .. name), id) then
redis.call('ZADD', (P .. 'limits:held:' .. name), place_in_key(key, queue, score), id)
settle_key(name)
else
arrive_at_limit(id, key, queue)
end
end
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
--@include/job/commit.lua:211
local function queue_of_keyed(key, exec)
local size = redis.call('HLEN', key)
if size ~= 10 + 2 and size ~= 10 + 3 then return nil end
local status, execution_id, queue, func, ties, name, max = unpack(redis.call('HMGET', key, 'status', 'execution_id',
'origin', 'func', 'ties', 'concurrency_key', 'max_concurrent'))
if size ~= 10 + (max and 3 or 2) or ties ~= 'k' or not name then return nil end
if not (status == 'started' and execution_id == exec and func) then return nil end
note_key_alone(key, name)
return queue
end
--@
groups_made[1] = { note_key_alone, counters_of_key, note_more, write_more, closed_until, bounds_of, limit_of, look_at_limit, place_in_key, put_in_line, admit, step_back, settle_now, settle_key, settle_all, hold_key_back, name_limit, in_use_of, may_start, look_once, arrive_like_others, arrive_at_limit, take_slot, stop_counting, keep_for_worker, pass_slot_on, locks_of, write_locks, settle_lock, free_lock, free_locks, leave_limit, return_to_limit, is_parent, pin_while_read, queue_of_keyed }
end
return groups_made[1][nth](...)
end
if nth <= 78 then
if not groups_made[2] then
--@include/lib/ring.lua:11
local woken
--@include/job/schedule.lua:17
local instants = {}
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
--@include/lib/time.lua:35
local function iso_before(back)
local micros = (now_us - back) % 1000000
return iso(now_s + (now_us - back - micros) / 1000000, micros)
end
--@include/lib/score.lua:11
local function score_of(q, class, n) return ((class == '1' or (q == 'scheduler')) and 1 or (math.max(0, math.min(255, math.floor(tonumber(class) or 1))))) + 0.5 - n * (2 ^ -44) end
--@include/lib/score.lua:13
local function next_seq() return redis.call('INCR', P .. 'seq') end
--@include/lib/score.lua:16
local function enter_line(queue, score, id)
local added = redis.pcall('ZADD', (fifos[queue] ~= false and rare(83, queue) and (P .. 'fifo:' .. queue) or (P .. 'queue:' .. queue)), score, id)
if type(added) == 'number' then return end
if fifos[queue] ~= false then error(added) end
fifos[queue] = nil
if not rare(83, queue) then error(added) end
redis.call('ZADD', (fifos[queue] ~= false and rare(83, queue) and (P .. 'fifo:' .. queue) or (P .. 'queue:' .. queue)), score, id)
end
--@include/lib/score.lua:35
local function line_up_again(queue, id, key, priority, seq)
if not tonumber(seq) then
seq = next_seq()
redis.call('HSET', key, 'seq', seq)
end
enter_line(queue, score_of(queue, priority, seq), id)
end
--@include/job/count.lua:41
local function tally(what, queue, class, other)
if not first_count then
first_what, first_queue, first_class, first_count = what, queue, class, 1
elseif what == first_what and queue == first_queue and class == first_class then
first_count = first_count + 1
else
rare(3, P .. 'totals' .. ':' .. queue, what, class, 1)
end
if other then rare(3, other, what, class, 1) end
end
--@include/job/count.lua:52
local function write_tallies()
if not first_count then return end
if counts then
rare(3, P .. 'totals' .. ':' .. first_queue, first_what, first_class, first_count)
rare(4)
else
local class = (first_class == '1' or not first_class) and '1' or string.format('%d', (math.max(0, math.min(255, math.floor(tonumber(first_class) or 1)))))
redis.pcall('HINCRBY', P .. 'totals' .. ':' .. first_queue, first_what .. ':' .. class,
first_count == 1 and '1' or first_count)
end
first_count = nil
end
--@include/job/count.lua:68
local function meet(seq, from, was, queue, class)
if not seq then
tally('enqueued', queue, class)
elseif from and (from ~= queue or (math.max(0, math.min(255, math.floor(tonumber(was) or 1)))) ~= (math.max(0, math.min(255, math.floor(tonumber(class) or 1)))))
and redis.call('SISMEMBER', P .. 'queues', (P .. 'queue:' .. from)) == 1 then
tally('deleted', from, was)
tally('requeued', queue, class)
end
end
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
--@include/lib/ring.lua:14
local function are_wildcards()
if not wildcards then
wildcards = redis.pcall('HGETALL', P .. 'wildcards')
if wildcards.err then wildcards = {} end
end
return wildcards[1]
end
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
--@include/lib/ring.lua:52
local function ring(queue, class, known)
local bell, paused, closed = (P .. 'wake:' .. queue), (P .. 'paused:' .. queue), (P .. 'wake:' .. queue .. ':closed')
if redis.call('EXISTS', bell, P .. 'suspended', paused, closed) == 0 then redis.call('RPUSH', bell, '1') end
local any = are_wildcards()
local matching = any and wildcards_of(queue)
if matching and matching[1] then
class = class or (math.max(0, math.min(255, math.floor(tonumber((redis.pcall('ZREVRANGE', (fifos[queue] ~= false and rare(83, queue) and (P .. 'fifo:' .. queue) or (P .. 'queue:' .. queue)), 0, 0, 'WITHSCORES')[2])) or 1))))
local stopped = not known and redis.call('EXISTS', P .. 'suspended', paused, closed) > 0
for _, wildcard in ipairs(matching) do
if not known then redis.pcall('ZADD', (P .. 'work:' .. wildcard), 'GT', class, queue) end
if not stopped then wake(wildcard, class) end
end
end
if class and class < 2 then return end
local high = (P .. 'wake:' .. queue .. ':high')
if redis.call('EXISTS', high, P .. 'suspended', paused, closed) > 0 then return end
local waiting = class and not (queue == 'scheduler') and 1 or redis.pcall('ZCOUNT', (fifos[queue] ~= false and rare(83, queue) and (P .. 'fifo:' .. queue) or (P .. 'queue:' .. queue)), '2', '+inf')
if type(waiting) == 'number' and waiting > 0 then redis.call('RPUSH', high, '1') end
end
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
--@include/limit/limit.lua:504
local function on_arrive(id, key, queue, named)
if tied[key] then return rare(22, id, key, queue, named) end
end
--@include/limit/limit.lua:512
local function on_leave(id, key, queue, how)
if tied[key] then
pcall(rare, 32, id, key, how)
pcall(rare, 31, id, key)
end
end
--@include/limit/limit.lua:521
local function on_return(id, key, queue)
if tied[key] then
pcall(rare, 31, id, key)
if tied[key] then rare(33, id, key, queue) end
end
end
--@include/job/on_end.lua:7
local function on_end(id, key, queue, status)
if tied[key] then
if string.find(tied[key], 'k', 1, true) then pcall(rare, 32, id, key, status) end
if tied[key] == 'k' then return end
if string.find(tied[key], 'u', 1, true) then pcall(rare, 107, id, key, status) end
if string.find(tied[key], 'b', 1, true) then pcall(rare, 115, id, key, queue, status) end
if string.find(tied[key], '[pc]') then pcall(rare, 106, id, key) end
if tied[key] and string.find(tied[key], 'l', 1, true) then pcall(rare, 31, id, key) end
end
end
--@include/job/expiry.lua:6
local function expect_expiry(id, expires_at)
if tonumber(expires_at) then redis.pcall('ZADD', P .. 'expiring', expires_at, id) end
end
--@include/job/expiry.lua:10
local function forget_expiry(id, expires_at)
if expires_at then redis.pcall('ZREM', P .. 'expiring', id) end
end
--@include/job/end_job.lua:11
local function end_job(id, key, queue, class, status, ttl, leave, ...)
local what = status == 'finished' and 'completed' or status
if what == 'expired' or what == 'discarded' then status = 'canceled' end
local seconds, expiry = ttl, '+inf'
if seconds >= 0 then
if seconds < 60 then seconds = 60 elseif seconds > (1e9) then seconds = (1e9) end
seconds = seconds - seconds % 1
--@include/job/end_job.lua:19
if (now_us + ended_before) % 1000000 == 0 then ended_before = ended_before + 1 end
local micros = now_us + ended_before
expiry = string.format('%d.%06d', now_s + seconds + (micros - micros % 1000000) / 1000000, micros % 1000000)
ended_before = ended_before + 1
end
local others = tied[key] ~= 'k' and tied[key]
local pinned = others and rare(35, id, key, expiry)
if pinned then seconds, expiry = -1, '+inf' end
redis.call('ZADD', status == 'failed' and P .. 'queue:failed' or P .. status .. ':' .. queue, expiry, id)
redis.call('HSET', key, 'status', status, ...)
tally(what, queue, class, tied[key] and rare(2, key))
if seconds >= 0 and not (others and string.find(others, 'p', 1, true)) then
if seconds ~= net_of then net_of, net = seconds, string.format('%d', 1000 * (seconds + 3600)) end
redis.call('PEXPIRE', key, net)
else
redis.call('PERSIST', key)
end
if leave then
--@include/job/end_job.lua:38
if leave == P .. 'scheduler:scheduled_jobs' and status ~= 'failed' then redis.call('SADD', P .. 'queues', (P .. 'queue:' .. queue)) end
redis.call('ZREM', leave, id)
end
on_end(id, key, queue, status)
if queue == '_callbacks' then redis.pcall('ZREM', P .. 'callbacks:open', id) end
if hooked[key] then rare(102, id, key, queue, status) end
end
--@include/job/end_job.lua:47
local function call_off(status, id, key, queue, class, leave, log_tag, why, ...)
end_job(id, key, queue, class, status, 86400, leave, 'ended_at', now_iso, 'reason', status, ...)
if status == 'stopped' then
emit('stopped', id, queue, log_tag, 'reason', status .. why)
else
emit('canceled', id, queue, log_tag, 'reason', status .. why)
end
end
--@include/job/end_job.lua:57
local function fail_job(id, key, queue, class, leave, log_tag, ttl, reason, told, ...)
end_job(id, key, queue, class, 'failed', tonumber(ttl) or FAILURE_TTL, leave, 'reason', reason, ...)
pcall(rare, 121, id, key)
emit('failed', id, queue, log_tag, unpack(told))
end
--@include/job/end_job.lua:82
local function discard(id, key, queue, log_tag, tell)
local class, hooks = unpack(redis.call('HMGET', key, 'priority', 'hooks'))
if tell and hooks then hooked[key] = true end
end_job(id, key, queue, class, 'discarded', 86400, (fifos[queue] ~= false and rare(83, queue) and (P .. 'fifo:' .. queue) or (P .. 'queue:' .. queue)), 'ended_at', now_iso, 'reason', 'discarded')
--@include/job/end_job.lua:87
forget_expiry(id, true)
emit('canceled', id, queue, log_tag, 'reason', 'discarded')
end
--@include/job/history.lua:3
local function cut(fields, name)
for i = #fields - 1, 1, -2 do
if fields[i] == name then
table.remove(fields, i)
return table.remove(fields, i)
end
end
end
--@include/job/history.lua:16
local function note_attempt(key, worker, outcome, error, more, started, ended)
local found, entry = redis.call('HMGET', key, 'history', 'started_at'), {}
local ok, known = pcall(cjson.decode, cut(more, 'attempt'))
if ok and type(known) == 'table' then entry = known end
entry.start, entry['end'] = started or found[2] or nil, ended
entry.worker, entry.outcome, entry.error = worker or nil, outcome, string.sub(error or '', 1, 1024)
local lines = {}
for line in string.gmatch(found[1] or '', '[^\n]+') do lines[#lines + 1] = line end
lines[#lines + 1] = cjson.encode(entry)
more[#more + 1] = 'history'
more[#more + 1] = table.concat(lines, '\n', math.max(1, #lines - 9))
end
--@include/job/settle.lua:23
local function wish_of(job) return job.cancel == 'stop' and 'stopped' or 'canceled' end
--@include/job/settle.lua:28
local function let_off(key) return redis.call('HINCRBY', key, 'spared', 1) <= 5 end
--@include/job/settle.lua:40
local function settle(outcome, id, key, queue, job, leave, reason, worker, more)
local before, size = tonumber(job.lost) or 0, cut(more, 'suspect')
local shared = job.shared and math.max(before, math.min(before + 1, PROBATION))
local lost = outcome == 'lost' and (job.unbegun and before or shared or before + 1)
note_attempt(key, worker, outcome, reason, more, nil, now_iso)
if lost then
more[#more + 1] = 'lost'
more[#more + 1] = lost
end
if job.cancel then
call_off(wish_of(job), id, key, queue, job.priority, leave, job.log_tag, ' while running; ' .. reason,
unpack(more))
return
elseif lost and (job.on_lost == 'fail' or lost >= MAX_LOST and not job.shared and job.on_lost ~= 'again') then
local why = string.gsub(reason, ' %[FUS%-%d%d%d%]', '') .. (job.on_lost == 'fail' and ' (on_lost="fail")'
or ' (lost ' .. lost .. ' times: a poison pill; requeue it once the cause is mended)') .. ' [FUS-152]'
redis.call('HDEL', key, 'error_bases', 'error_frame', 'suspect')
fail_job(id, key, queue, job.priority, leave, job.log_tag, job.failure_ttl, why, { 'reason', why, 'worker',
worker or '', 'lost', lost }, 'ended_at', now_iso, 'exc_info', 'fusion.exceptions.JobLost: ' .. why,
'error_class', 'fusion.exceptions.JobLost', unpack(more))
return true
end
--@include/job/settle.lua:63
if lost then
more[#more + 1] = 'reason'
more[#more + 1] = reason
if size or job.suspect then more[#more + 1], more[#more + 2] = 'suspect', size or 1 end
end
local pause = 0
--@include/job/settle.lua:70
if lost and lost > 1 and not job.unbegun then
local chance = tonumber(string.sub(redis.sha1hex(id .. lost), 1, 4), 16) / 65536
pause = math.floor(1000 * 2 ^ math.min(lost - 2, 6) * (0.5 + chance))
end
if pause > 0 then
schedule(id, now_ms + pause)
else
line_up_again(queue, id, key, job.priority, job.seq)
end
redis.call('HSET', key, 'status', pause > 0 and 'scheduled' or 'queued', unpack(more))
redis.call('PERSIST', key)
expect_expiry(id, job.expires_at)
redis.call('ZREM', leave, id)
if pause == 0 then ring(queue) end
if job.displaced then
emit('displaced', id, queue, job.log_tag, 'worker', worker, 'reason', reason)
elseif lost then
emit('abandoned', id, queue, job.log_tag, 'reason', reason, 'worker', worker, 'lost', lost, 'delay_ms', pause, 'blame', (job.shared or job.unbegun) and 'shared' or 'job')
--@include/job/settle.lua:89
else
emit('released', id, queue, job.log_tag, 'worker', worker, 'reason', reason)
end
on_return(id, key, queue)
end
--@include/job/commit.lua:12
local function error_of(reason, more)
local class, frame
for i = 1, #more, 2 do
if more[i] == 'error_class' then class = more[i + 1] elseif more[i] == 'error_frame' then frame = more[i + 1] end
end
class = class or string.match(reason, '^[%a_][%w_.]*') or ''
return frame and class .. ' at ' .. frame or class
end
--@include/job/commit.lua:34
local function gives_up_place(more)
for i = #more - 1, 1, -2 do
if more[i] == 'seq' then
table.remove(more, i)
table.remove(more, i)
return true
end
end
return false
end
--@include/job/commit.lua:46
local function set_result_aside(more)
for i = 1, #more, 2 do
if more[i] == 'result' then more[i] = 'result_once' end
end
end
--@include/job/commit.lua:53
local function has_moved(more)
for i = 1, #more, 2 do
if more[i] == 'cursor' then return true end
end
return false
end
--@include/job/commit.lua:61
local function put_off(kind, id, key, queue, job, wip, delay, reason, more)
local since = kind == 'held' and (tonumber(redis.call('HGET', key, 'held_since')) or now_ms)
local task = cut(more, 'task') or ''
if kind ~= 'later' and kind ~= 'limited' and not (since and now_ms - since < HOLD_MS) then return false end
local set = since and string.find(task, '^[%w_.]+$') and #task <= 200 and 'held:' .. queue .. ':' .. task
if set and rare(94, set) then
rare(96, id, key, queue, set, score_of(queue, job.priority, tonumber(job.seq) or next_seq()), since + HOLD_MS, reason,
'reason', reason, 'held_since', since, unpack(more))
else
schedule(id, now_ms + (since and math.max(delay, math.min(math.floor((now_ms - since) / 2), 8 * delay)) or delay))
redis.call('HSET', key, 'status', 'scheduled', 'reason', reason, unpack(more))
if since then redis.call('HSET', key, 'held_since', since) else redis.call('HDEL', key, 'held_since') end
on_leave(id, key, queue)
end
expect_expiry(id, job.expires_at)
redis.call('ZREM', wip, id)
emit('held', id, queue, job.log_tag, 'worker', job.worker_name, 'reason', error_of(reason, more))
return true
end
--@include/job/commit.lua:82
local function line_up_behind(queue, id, key, priority)
local seq = rare(93, queue, priority, next_seq(), redis.call('HGET', key, 'fair_key') or '')
redis.call('HSET', key, 'seq', seq)
enter_line(queue, score_of(queue, priority, seq), id)
end
--@include/job/commit.lua:90
local function delay_within(key, delay, more)
local within = tonumber(cut(more, 'within') or nil)
if not within then return delay end
local since = tonumber(redis.call('HGET', key, 'retry_since'))
local left = (since or now_ms) + within - now_ms
if left <= 0 then
cut(more, 'retryCount')
return nil
end
if not since then more[#more + 1], more[#more + 2] = 'retry_since', now_ms end
return math.min(delay, left)
end
--@include/job/commit.lua:104
local function fail_or_retry(kind, id, key, queue, job, wip, started, ended, elapsed, delay, reason, more, raised)
local worker, attempts = job.worker_name, (tonumber(job.attempts) or 0) + 1
if kind == 'retry' then delay = delay_within(key, delay, more) end
local over = not delay
if over then
kind = 'failed'
gives_up_place(more)
cut(more, 'keep_slot')
end
note_attempt(key, worker, kind == 'retry' and 'retry' or 'failed', reason, more, started, ended)
--@include/job/commit.lua:115
redis.call('HDEL', key, 'error_class', 'error_bases', 'error_frame', 'held_since', 'suspect', 'spared')
if kind ~= 'retry' then
local told = { 'worker', worker or '', 'reason', error_of(reason, more), 'attempts', attempts, 'elapsed_us',
elapsed, unpack(raised) }
fail_job(id, key, queue, job.priority, wip, job.log_tag, job.failure_ttl, reason, told, 'attempts', attempts,
'lost', 0, 'started_at', started, 'ended_at', ended, unpack(more))
return over
end
local back, keeps_slot = gives_up_place(more), cut(more, 'keep_slot')
--@include/job/commit.lua:125
local at_once
if delay <= 0 and back then
at_once = pcall(line_up_behind, queue, id, key, job.priority)
elseif delay <= 0 then
at_once = pcall(line_up_again, queue, id, key, job.priority, job.seq)
end
if not at_once then schedule(id, now_ms + delay) end
if back and at_once then
redis.call('HSET', key, 'enqueued_at', now_iso)
elseif back then
redis.call('HSET', key, 'seq', '', 'arrival', job.seq or '')
end
redis.call('HSET', key, 'status', at_once and 'queued' or 'scheduled', 'attempts', attempts, 'lost', 0,
'started_at', started, 'ended_at', ended, 'reason', reason, unpack(more))
expect_expiry(id, job.expires_at)
redis.call('ZREM', wip, id)
emit('retry', id, queue, job.log_tag, 'worker', worker, 'reason', error_of(reason, more), 'attempts', attempts, 'elapsed_us', elapsed, 'delay_ms', delay, unpack(raised))
--@include/job/commit.lua:143
if not at_once and keeps_slot then
on_return(id, key, queue)
elseif not at_once then
on_leave(id, key, queue)
else
emit('queued', id, queue, job.log_tag, 'reason', 'due')
ring(queue)
on_return(id, key, queue)
end
end
--@
groups_made[2] = { iso, iso_before, score_of, next_seq, enter_line, line_up_again, tally, write_tallies, meet, reserve, emit, are_wildcards, wildcards_of, push, wake, ring, ring_scheduler, score_at, schedule, on_arrive, on_leave, on_return, on_end, expect_expiry, forget_expiry, end_job, call_off, fail_job, discard, cut, note_attempt, wish_of, let_off, settle, error_of, gives_up_place, set_result_aside, has_moved, put_off, line_up_behind, delay_within, fail_or_retry }
end
return groups_made[2][nth - 36](...)
end
if nth <= 155 then
if not groups_made[3] then
--@include/job/turns.lua:16
local fair = {}
--@include/lib/states.lua:3
local function is_terminal(status)
return status == 'finished' or status == 'stopped' or status == 'canceled' or status == 'failed'
end
--@include/lib/states.lua:9
local function is_elsewhere(status)
return status == 'started' or status == 'blocked' or status == 'scheduled' or status == 'deferred'
or is_terminal(status)
end
--@include/lib/keys.lua:62
local function locks_key(name) return P .. 'limits:locks:' .. name end
--@include/lib/keys.lua:71
local function unique_key(name) return P .. 'unique:' .. name end
--@include/lib/keys.lua:94
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
return (fifos[queue] ~= false and rare(83, queue) and (P .. 'fifo:' .. queue) or (P .. 'queue:' .. queue))
end
--@include/lib/keys.lua:126
local function error_text(err)
local text = type(err) == 'table' and err.err or err
return (string.gsub(tostring(text), '%s+', ' '))
end
--@include/lib/rate.lua:9
local function rate_of(text)
local count, period, burst = string.match(text or '', '^([1-9]%d*)/([1-9]%d*)/([1-9]%d*)$')
if count then return period * 1000 / count, tonumber(burst) end
end
--@include/lib/rate.lua:14
local function used_ahead(tat, at, interval, burst)
return math.min(math.max((tonumber(tat) or 0) - at, 0), burst * interval)
end
--@include/lib/rate.lua:19
local function rate_room(tat, at, interval, burst)
local ahead = used_ahead(tat, at, interval, burst)
return math.floor(burst - ahead / interval), at + math.max(0, ahead - (burst - 1) * interval)
end
--@include/lib/rate.lua:25
local function rate_spend(tat, at, interval, burst, count)
return at + used_ahead(tat, at, interval, burst) + count * interval
end
--@include/job/turns.lua:20
local function has_turns(queue)
if fair[queue] == nil then fair[queue] = redis.pcall('EXISTS', (P .. 'fair:' .. queue)) == 1 end
return fair[queue]
end
--@include/job/turns.lua:27
local function open_turns(queue, class, seq, named)
local at = queue .. ' ' .. class
if fair[at] then return fair[at] end
local key, name = (P .. 'fair:' .. queue), string.format('%d', class)
local known = redis.call('ZSCORE', key, name)
if not known and not named then return nil end
if fifos[queue] == false then fifos[queue] = nil end
local ready, turns = (fifos[queue] ~= false and rare(83, queue) and (P .. 'fifo:' .. queue) or (P .. 'queue:' .. queue)), { last = {}, count = 0 }
local first = tonumber(known) or class + 0.5
local best = redis.call('ZRANGE', ready, first, '(' .. name, 'BYSCORE', 'REV', 'LIMIT', 0, 1, 'WITHSCORES')[2]
turns.clock = tonumber(best) or rare(39, queue, class, seq)
if not known and best then
local last = redis.call('ZRANGE', ready, '(' .. name, first, 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')[2]
redis.call('ZADD', key, last, name .. ':')
end
if turns.clock ~= tonumber(known) then redis.call('ZADD', key, turns.clock, name) end
local exact = string.format('%.17g', turns.clock)
turns.begin = redis.call('ZCOUNT', key, exact, exact) > 1000 and turns.clock - 1 / (2 ^ 44) or turns.clock
fair[at], fair[queue] = turns, true
return turns
end
--@include/job/turns.lua:50
local function forget_turns(key, class, clock)
local from, upto = string.format('(%.17g', clock), string.format('(%d', class + 1)
local old = redis.call('ZRANGE', key, from, upto, 'BYSCORE', 'LIMIT', 0, 100)
if old[1] then redis.call('ZREM', key, unpack(old)) end
end
--@include/job/turns.lua:58
local function turn_of(queue, priority, seq, name)
if (queue == 'scheduler') or name == '' and not has_turns(queue) then return seq end
local class, key = (math.max(0, math.min(255, math.floor(tonumber(priority) or 1)))), (P .. 'fair:' .. queue)
local turns = open_turns(queue, class, seq, name ~= '')
if not turns then return seq end
local member = string.format('%d:', class) .. name
local last = turns.last[member] or tonumber(redis.call('ZSCORE', key, member))
local score = math.min(turns.begin, last and last - 1 / (2 ^ 44) or turns.begin)
redis.call('ZADD', key, score, member)
turns.last[member] = score
if turns.count % 50 == 0 then forget_turns(key, class, turns.clock) end
turns.count = turns.count + 1
return (class + 0.5 - score) * (2 ^ 44)
end
--@include/job/park.lua:15
local function has_room(set)
return redis.call('HEXISTS', P .. 'waits', set) == 1 or redis.call('HLEN', P .. 'waits') <= 1000
end
--@include/job/park.lua:22
local function ring_set(set, class)
local queue = (string.match(set, '^%a+:([^:]+)'))
local paused, closed = (P .. 'paused:' .. queue), (P .. 'wake:' .. queue .. ':closed')
rare(50, (P .. 'wake:' .. set), paused, closed)
local best = class or (math.max(0, math.min(255, math.floor(tonumber((redis.pcall('ZREVRANGE', (P .. 'waits:' .. set), 0, 0, 'WITHSCORES')[2])) or 1))))
if best >= 2 then rare(50, (P .. 'wake:' .. set .. ':high'), paused, closed) end
end
--@include/job/park.lua:32
local function park(id, key, queue, set, score, until_ms, why, ...)
redis.call('ZADD', (P .. 'waits:' .. set), score, id)
redis.call('ZADD', P .. 'blocked:' .. queue, until_ms, id)
redis.call('HSET', key, 'status', 'blocked', 'waits_in', set, ...)
redis.call('PERSIST', key)
--@include/job/park.lua:39
local keeps = string.sub(set, 1, 10) == 'probation:'
or tied[key] and rare(25, id, key, rare(9, key, queue, score))
if not keeps then rare(57, id, key, queue) end
parked = true
if redis.call('HSETNX', P .. 'waits', set, string.format('%d %s', now_ms, string.sub(why, 1, 500))) == 1 then
redis.call('HSET', P .. 'waits', 'version', string.format('%d%06d', now_s, now_us))
--@include/job/park.lua:46
redis.pcall('PUBLISH', P .. 'pubsub:' .. '_fleet', '{"command": "look"}')
end
ring_set(set, (math.max(0, math.min(255, math.floor(tonumber(score) or 1)))))
end
--@include/job/park.lua:52
local function unpark(id, key, queue)
local set = redis.call('HGET', key, 'waits_in')
redis.call('ZREM', P .. 'blocked:' .. queue, id)
if set then
local limit = string.match(set, '^limit:(.*)')
redis.call('ZREM', limit and (P .. 'limits:waiting:' .. limit) or (P .. 'waits:' .. set), id)
redis.call('HDEL', key, 'waits_in')
end
end
--@include/job/park.lua:63
local function news_of_waits(known)
local version = redis.call('HGET', P .. 'waits', 'version') or ''
if version == known then return {} end
local news = { version }
for _, name in ipairs(version ~= '' and redis.call('HKEYS', P .. 'waits') or {}) do
if (string.match(name, '^%a+:([^:]+)')) then news[#news + 1] = name end
end
return news
end
--@include/job/callbacks.lua:12
local function mark_hooks(key)
local urls = redis.call('HMGET', key, 'success_task_handler', 'failed_task_handler', 'callback_url')
if urls[1] or urls[2] or urls[3] then redis.call('HSET', key, 'hooks', 1) end
end
--@include/job/callbacks.lua:21
local function is_full()
if redis.call('ZCARD', P .. 'callbacks:open') < CALLBACKS_MAX then return false end
local old = redis.call('ZRANGEBYSCORE', P .. 'callbacks:open', '-inf', now_s - (7 * 86400), 'LIMIT', 0, 100)
if old[1] then redis.call('ZREM', P .. 'callbacks:open', unpack(old)) else redis.call('INCR', P .. 'callbacks:refused') end
return not old[1]
end
--@include/job/callbacks.lua:34
local function accept_delivery(message)
if is_full() then return end
local seq = rare(40)
local id = string.format('cb-%d%06d-%d', now_s, now_us, seq)
local key = (P .. 'job:' .. id)
local said = cjson.encode(message)
local secret = redis.pcall('GET', P .. 'callbacks:secret')
local seal = type(secret) == 'string' and '"' .. redis.sha1hex(secret .. redis.sha1hex(secret .. id .. said)) .. '"'
or ''
redis.call('SADD', P .. 'queues', (P .. 'queue:' .. '_callbacks'))
redis.call('ZADD', (P .. 'queue:' .. '_callbacks'), rare(39, '_callbacks', 1, seq), id)
redis.call('HSET', key, 'status', 'queued', 'origin', '_callbacks', 'original_queue', '_callbacks', 'created_at',
now_iso, 'enqueued_at', now_iso, 'priority', 1, 'seq', seq, 'description', 'callback of ' .. message.job_id,
'on_lost', 'again', 'result_ttl', 86400, 'failure_ttl', 604800,
'data', '["fusion.courier.deliver",null,[' .. seal .. '],' .. said .. ']')
rare(45, nil, nil, nil, '_callbacks', 1)
redis.call('ZADD', P .. 'callbacks:open', now_s, id)
rare(56, id, key, '_callbacks')
rare(52, '_callbacks', 1)
return id
end
--@include/job/callbacks.lua:57
local function tell_ended(id, key, queue, status)
local success, failure, url, data, log_tag, attempts, ended_at, class, reason, func = unpack(redis.call('HMGET', key,
'success_task_handler', 'failed_task_handler', 'callback_url', 'data', 'log_tag', 'attempts', 'ended_at',
'error_class', 'reason', 'func'))
if class == 'fusion.exceptions.BadSignature' then return end
if status == 'canceled' and reason == 'expired' then status = reason end
local told = {}
local own = status == 'finished' and success or (status == 'failed' or status == 'expired') and failure
for i, target in ipairs({ own or '', url or '' }) do
if target ~= '' and (i == 1 or target ~= own) then
local ok, delivery = pcall(accept_delivery, { url = target, job_id = id, queue = queue, status = status,
log_tag = log_tag or nil,
task = string.match(func or '', '^[%w_.]+$') or string.match(data or '', '^%["([%w_.]+)"'),
attempts = tonumber(attempts) or 0, ended_at = ended_at or now_iso,
error = status == 'failed' and class or nil })
if not ok then redis.pcall('INCR', P .. 'callbacks:dropped') end
told[#told + 1] = ok and delivery or nil
end
end
if told[1] then redis.call('HSET', key, 'told', table.concat(told, ' ')) end
end
--@include/deps/releasing.lua:11
local function do_later(what) redis.call('ZADD', P .. 'releasing', 'NX', now_ms, what) end
--@include/deps/releasing.lua:14
local function release_later(id) do_later('u ' .. id) end
--@include/deps/kin.lua:37
local function keeps_result(id, key) return tied[key] and rare(34, id, key) end
--@include/deps/kin.lua:113
local function end_for_kin(id, key)
if string.find(tied[key], 'c', 1, true) then do_later('c ' .. id) end
if string.find(tied[key], 'p', 1, true) then do_later('p ' .. id) end
end
--@include/unique/unique.lua:32
local function let_go(id, key, status)
local name, upto, window = unpack(redis.call('HMGET', key, 'unique_key', 'unique_until', 'unique_window'))
local starts = status == 'started'
if not name or starts and upto ~= 'start' then return end
local own = unique_key(name)
if redis.call('GET', own) ~= id or redis.call('PTTL', own) >= 0 then return end
--@include/unique/unique.lua:39
redis.call('PEXPIRE', own, (starts or status == 'finished') and tonumber(window) or 0)
redis.call('ZREM', P .. 'uniques', name)
end
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
--@include/batch/batch.lua:128
local function let_read_end(batch)
if redis.call('HSETNX', (P .. 'batch:' .. batch), 'read', 0) == 1 then set_due(batch) end
end
--@include/batch/batch.lua:134
local function end_callback(batch, as, status, id, graph)
if status == 'failed' then return end
local key = (P .. 'batch:' .. batch)
if graph or redis.call('HGET', key, 'on_' .. as) ~= id then return end
local created, complete, success = unpack(redis.call('HMGET', key, 'created_at', 'on_complete', 'on_success'))
if not created then return end
redis.call('HSET', key, as .. '_called', 1)
local called = redis.call('HMGET', key, 'complete_called', 'success_called')
if (not complete or called[1]) and (not success or called[2]) then let_read_end(batch) end
end
--@include/batch/batch.lua:146
local function leave_batches(id, key, queue, status)
local batch, as, graph = unpack(redis.call('HMGET', key, 'batch', 'batch_as', 'graph'))
if as then return end_callback(batch, as, status, id, graph) end
if not batch then return end
leave_batch(batch, id, status)
if status ~= 'finished' then return end
local read, complete, success = unpack(redis.call('HMGET', (P .. 'batch:' .. batch), 'read', 'on_complete', 'on_success'))
if not read and (complete or success) then
redis.call('ZADD', set_of('finished', queue), '+inf', id)
redis.call('PERSIST', key)
end
end
--@include/failures/failures.lua:12
local function is_counted_in(recount, failed_ms) return not recount or tonumber(failed_ms) <= tonumber(recount) end
--@include/failures/failures.lua:14
local function count_failure(group, queue, quarantined, by)
local queues = (P .. 'failure:' .. group .. ':queues')
if tonumber(redis.call('ZINCRBY', queues, by, queue)) <= 0 then redis.call('ZREM', queues, queue) end
if quarantined then redis.call('HINCRBY', (P .. 'failure:' .. group), 'quarantined', by) end
end
--@include/failures/failures.lua:21
local function take_out_failure(group, id, queue, quarantined)
local key, jobs = (P .. 'failure:' .. group), (P .. 'failure:' .. group .. ':jobs')
local failed_ms = redis.call('ZSCORE', jobs, id)
if not failed_ms then return false end
redis.call('ZREM', jobs, id)
local example, recount = unpack(redis.call('HMGET', key, 'example', 'recount'))
if is_counted_in(recount, failed_ms) then
if queue then count_failure(group, queue, quarantined, -1) else redis.call('HSET', key, 'inexact', 1) end
end
if example == id then
local newest = redis.call('ZRANGE', jobs, -1, -1)[1]
if newest then
redis.call('HSET', key, 'example', newest)
else
redis.call('HDEL', key, 'example', 'quarantined', 'inexact', 'recount')
redis.call('ZADD', P .. 'failures:empty', redis.call('ZSCORE', P .. 'failures', group) or 0, group)
redis.pcall('UNLINK', (P .. 'failure:' .. group .. ':queues'))
end
end
return true
end
--@include/failures/failures.lua:52
local function drop_failure_group(group)
redis.call('UNLINK', (P .. 'failure:' .. group), (P .. 'failure:' .. group .. ':jobs'), (P .. 'failure:' .. group .. ':queues'))
redis.call('ZREM', P .. 'failures', group)
redis.call('ZREM', P .. 'failures:empty', group)
end
--@include/failures/failures.lua:60
local function failure_group_for(class, frame)
local group = string.sub(redis.sha1hex(class .. '\n' .. frame), 1, 12)
if not redis.call('ZSCORE', P .. 'failures', group) and redis.call('ZCARD', P .. 'failures') >= 1000 then
local gone = redis.call('ZRANGE', P .. 'failures:empty', 0, 0)[1]
if not gone then return 'other', 'other', '' end
drop_failure_group(gone)
end
return group, class, frame
end
--@include/failures/failures.lua:72
local function join_failure(id, key, failed_ms, again)
local class, frame, reason, func, queue, origin, quarantined, before = unpack(redis.call('HMGET', key, 'error_class',
'error_frame', 'reason', 'func', 'original_queue', 'origin', 'quarantined', 'failure_group'))
queue, failed_ms = queue or origin or '', failed_ms or now_ms
--@include/failures/failures.lua:77
if before then take_out_failure(before, id, queue, quarantined) end
if string.sub(queue, 1, 1) == '_' then return end
if not class or class == '' then class = string.match(string.sub(reason or '', 1, 200), '^[^:]+') or 'unknown' end
frame = frame and frame ~= '' and string.gsub(frame, ':%d+$', '') or func or ''
local group
group, class, frame = failure_group_for(class, frame)
local group_key = (P .. 'failure:' .. group)
redis.call('HSET', key, 'failure_group', group)
local is_new = redis.call('ZADD', (P .. 'failure:' .. group .. ':jobs'), failed_ms, id) == 1
--@include/failures/failures.lua:87
if not is_new then redis.call('HSET', group_key, 'inexact', 1) end
local first, last, recount, example = unpack(redis.call('HMGET', group_key, 'first', 'last', 'recount', 'example'))
first, last = math.min(tonumber(first) or failed_ms, failed_ms), math.max(tonumber(last) or failed_ms, failed_ms)
if last == failed_ms or not example or not redis.call('ZSCORE', (P .. 'failure:' .. group .. ':jobs'), example) then
example = id
end
redis.call('HSET', group_key, 'error_class', class, 'frame', frame, 'first', first, 'last', last, 'example', example)
redis.call('ZADD', P .. 'failures', last, group)
redis.call('ZREM', P .. 'failures:empty', group)
if is_counted_in(recount, failed_ms) then count_failure(group, queue, quarantined, 1) end
if again then return end
redis.call('HINCRBY', group_key, 'total', 1)
if now_ms - failed_ms >= 86400000 or failed_ms > now_ms then return end
local minute = math.floor(failed_ms / 60000)
local hour = P .. 'failure:' .. group .. ':' .. string.format('%d', math.floor(minute / 60))
if redis.call('HINCRBY', hour, minute % 60, 1) == 1 then redis.call('EXPIRE', hour, 90000) end
end
--@include/job/end_job.lua:66
local function fail_corrupt(id, queue, leave, what, known)
local why, record, raw = 'corrupt: ' .. what, id, string.sub(id, 1, 1024)
local kind = (#id <= 128 and (string.find(id, '^%w+$') or string.find(id, '^[%w_.:-]+$')) ~= nil) and redis.call('TYPE', (P .. 'job:' .. id)).ok
local marked = kind == 'hash' and redis.call('HEXISTS', (P .. 'job:' .. id), 'seq') == 1
local others = kind == 'hash' and not marked
if others or kind ~= 'hash' and kind ~= 'none' then record = 'corrupt-' .. redis.sha1hex(id) end
if kind == 'hash' then tied[(P .. 'job:' .. id)] = redis.call('HGET', (P .. 'job:' .. id), 'ties') end
local class = marked and redis.call('HGET', (P .. 'job:' .. id), 'priority')
rare(64, record, (P .. 'job:' .. record), queue, class, nil, '', nil, why, { 'reason', why }, 'origin', queue,
'original_queue', queue, 'ended_at', now_iso, 'exc_info', why, 'raw_id', raw, 'seq', '')
if not marked and not (known and kind == 'none') then rare(45, nil, nil, nil, queue, class) end
if leave then redis.call('ZREM', leave, id) end
end
--@include/gates/queue_gate.lua:14
local function gate_word(text, name) return string.match(' ' .. text, ' ' .. name .. '=(%S+)') end
--@include/gates/queue_gate.lua:18
local function held_until(text)
local ms = tonumber(gate_word(text, 'until'))
return ms and ms > now_ms and ms <= now_ms + 86400000 and ms or nil
end
--@include/gates/queue_gate.lua:23
local function without_until(text) return string.match(string.gsub(' ' .. text, ' until=%S+', ''), '^ ?(.*)$') end
--@include/gates/queue_gate.lua:26
local function hold_back(queue, ms)
local text = redis.call('HGET', P .. 'gates', queue) or ''
local known = held_until(text)
if known and known >= ms then return end
local rest = without_until(text)
redis.call('HSET', P .. 'gates', queue, (rest == '' and '' or rest .. ' ') .. string.format('until=%d', ms))
end
--@include/gates/queue_gate.lua:35
local function forget_until(queue, text)
local rest = without_until(text)
if rest == '' then redis.call('HDEL', P .. 'gates', queue) else redis.call('HSET', P .. 'gates', queue, rest) end
end
--@include/gates/queue_gate.lua:42
local function read_gate(queue, text)
local limit, interval, burst = tonumber(gate_word(text, 'limit')), rate_of(gate_word(text, 'rate'))
local max_wait, held_back = tonumber(gate_word(text, 'max_wait')), held_until(text)
if not held_back and gate_word(text, 'until') then forget_until(queue, text) end
if not (limit or interval or max_wait or held_back) then return nil end
local gate = { at = now_s * 1000000 + now_us, places = math.huge, tokens = math.huge, started = 0,
interval = interval, burst = burst, max_wait = max_wait }
gate.tat, gate.waiter, gate.named, gate.claims = unpack(redis.call('HMGET', (P .. 'gate:' .. queue), 'tat', 'waiter', 'named',
'claims'))
if limit then gate.places = limit - redis.call('ZCOUNT', (P .. 'wip:' .. queue), (1e11), '(+inf') end
if interval then gate.tokens, gate.opens = rate_room(gate.tat, gate.at, interval, burst) end
if held_back then gate.tokens, gate.opens = 0, math.max(gate.opens or 0, held_back * 1000) end
return gate
end
--@include/gates/queue_gate.lua:58
local function is_awaited(gate)
local age = now_ms - (tonumber(gate.named) or -3000)
return gate.waiter and age >= 0 and age < 3000
end
--@include/gates/queue_gate.lua:65
local function reopen(queue, changed)
local text = redis.call('HGET', P .. 'gates', queue)
local gate = text and read_gate(queue, text)
if gate and (gate.places < 1 or gate.tokens < 1 and not changed and is_awaited(gate)) then return end
if changed then redis.call('HDEL', (P .. 'gate:' .. queue), 'waiter', 'named') end
if redis.call('DEL', (P .. 'wake:' .. queue .. ':closed')) == 0 and not changed then return end
if redis.call('EXISTS', (fifos[queue] ~= false and rare(83, queue) and (P .. 'fifo:' .. queue) or (P .. 'queue:' .. queue)), (P .. 'queue:' .. queue)) > 0 then rare(52, queue) end
end
--@include/job/commit.lua:155
local function renew_ttl(id, key, delay)
local ttl, queue_timeout = unpack(redis.call('HMGET', key, 'ttl', 'queue_timeout'))
ttl = tonumber(ttl) and ttl * 1000 or tonumber(queue_timeout)
if not ttl then return end
local expires_at = string.format('%d', now_ms + delay + ttl)
redis.call('HSET', key, 'expires_at', expires_at)
rare(60, id, expires_at)
end
--@include/job/commit.lua:167
local function repeat_job(id, key, queue, job, wip, started, ended, elapsed, delay, more, raised)
if tonumber(job.result_ttl) == 0 then rare(73, more) end
rare(67, key, job.worker_name, 'finished', '', more, started, ended)
--@include/job/commit.lua:171
local at_once = delay <= 0 and pcall(rare, 76, queue, id, key, job.priority)
if not at_once then
rare(55, id, now_ms + delay)
more[#more + 1], more[#more + 2], more[#more + 3], more[#more + 4] = 'seq', '', 'arrival', job.seq or ''
end
redis.call('HSET', key, 'status', at_once and 'queued' or 'scheduled', 'enqueued_at', now_iso, 'started_at', started,
'ended_at', ended, 'lost', 0, unpack(more))
redis.call('HDEL', key, 'reason', 'exc_info', 'error_class', 'error_bases', 'error_frame', 'held_since', 'begun',
'spared', 'wanted', 'suspect', 'retry_since', 'progress', 'cursor')
renew_ttl(id, key, delay)
redis.call('ZREM', wip, id)
local counters = tied[key] and rare(2, key)
rare(43, 'completed', queue, job.priority, counters)
rare(43, 'requeued', queue, job.priority, counters)
rare(47, 'completed', id, queue, job.log_tag, 'worker', job.worker_name, 'elapsed_us', elapsed, unpack(raised))
if hooked[key] then tell_ended(id, key, queue, 'finished') end
if string.find(tied[key] or '', 'c', 1, true) then do_later('b ' .. id) end
rare(57, id, key, queue, 'finished')
if at_once then
rare(47, 'queued', id, queue, job.log_tag, 'reason', 'repeated')
if not rare(56, id, key, queue) then rare(52, queue) end
else
local due = now_ms + delay
rare(47, 'scheduled', id, queue, job.log_tag, 'reason', 'repeated', 'due', rare(37, math.floor(due / 1000), due % 1000 * 1000))
--@include/job/commit.lua:196
end
end
--@include/job/inbox.lua:17
local function passed(queue, count)
local key = (P .. 'inbox:' .. queue)
local left = redis.call('ZSCORE', key, '')
if not left then return end
redis.call('ZREMRANGEBYSCORE', key, '-inf', left + count)
if redis.call('EXISTS', key) == 1 then redis.call('ZADD', key, left + count, '') end
end
--@include/job/inbox.lua:27
local function is_struck(queue, id, position)
local key = (P .. 'inbox:' .. queue)
local left, upto = redis.call('ZSCORE', key, ''), redis.call('ZSCORE', key, id)
local moved = redis.call('ZSCORE', key, '>' .. id)
if upto and left + position <= tonumber(upto) then return moved and 'again' or 'struck' end
return moved and 'moved'
end
--@include/job/inbox.lua:38
local function move_back(queue, id)
local key = (P .. 'inbox:' .. queue)
local place = redis.call('ZSCORE', key, '') + redis.call('RPUSH', (P .. 'queue:' .. queue), id)
redis.call('ZADD', key, 'LT', place - 1, id)
redis.call('ZADD', key, place, '>' .. id)
end
--@include/job/claim.lua:11
local function take_given(key)
local given, parents = unpack(redis.call('HMGET', key, 'given', 'parents'))
local parent = not given and string.match(parents or '', '^%["[?~]?([%w_-]+)"')
if not parent then return end
local status, result, serializer = unpack(redis.call('HMGET', (P .. 'job:' .. parent), 'status', 'result', 'serializer'))
if status ~= 'finished' then return end
redis.call('HSET', key, 'given', result or 'null')
if result and serializer == 'pickle' then redis.call('HSET', key, 'given_as', 'pickle') end
end
--@include/job/claim.lua:32
local function note_pickle(key, data)
local first = string.byte(data)
if first == 0x78 or first == 0x80 then return redis.call('HSETNX', key, 'serializer', 'pickle') == 1 end
end
--@include/job/claim.lua:38
local function keep_origin(key, origin, queue)
if origin ~= queue then redis.call('HSETNX', key, 'original_queue', origin) end
end
--@include/job/claim.lua:43
local function take_over_one(queue, id, position)
local key, ready = (P .. 'job:' .. id), (P .. 'fifo:' .. queue)
local job = (#id <= 128 and (string.find(id, '^%w+$') or string.find(id, '^[%w_.:-]+$')) ~= nil) and redis.pcall('HMGET', key, 'status', 'data', 'origin', 'seq', 'ties', 'priority')
if not job or job.err then return fail_corrupt(id, queue, nil, 'the inbox names what is no job') end
local status, data, origin, known, ties, class = unpack(job)
if ties then tied[key] = ties end
if is_elsewhere(status) then return end
local struck = position and is_struck(queue, id, position)
if struck and not data then return end
if not data then return fail_corrupt(id, queue, nil, 'the inbox names a job that has no data') end
--@include/job/claim.lua:54
if origin and origin ~= queue and tonumber(redis.pcall('ZSCORE', (fifos[origin] ~= false and rare(83, origin) and (P .. 'fifo:' .. origin) or (P .. 'queue:' .. origin)), id)) then return end
if redis.call('ZSCORE', ready, id) then return end
if struck == 'again' then return end
if struck == 'struck' then return move_back(queue, id) end
local seq = turn_of(queue, 1, rare(40), '')
redis.call('ZADD', ready, rare(39, queue, 1, seq), id)
if not known then note_pickle(key, data) end
if known and origin then keep_origin(key, origin, queue) end
redis.call('HSET', key, 'status', 'queued', 'seq', seq, 'origin', queue)
rare(45, known, origin, class, queue, class)
mark_hooks(key)
redis.call('SADD', P .. 'queues', (P .. 'queue:' .. queue))
if (not known or ties) and rare(56, id, key, queue) == 'discard' then rare(65, id, key, queue, nil, true) end
end
--@include/job/claim.lua:70
local function take_over(queue)
local ids = redis.call('LRANGE', (P .. 'queue:' .. queue), 0, 20 - 1)
local struck = #ids > 0 and redis.call('EXISTS', (P .. 'inbox:' .. queue)) == 1
for i, id in ipairs(ids) do take_over_one(queue, id, struck and i) end
if #ids > 0 then
redis.call('LTRIM', (P .. 'queue:' .. queue), #ids, -1)
passed(queue, #ids)
end
return #ids == 20
end
--@include/job/claim.lua:84
local function gather(queue)
local waiting = redis.pcall('ZREVRANGE', (P .. 'queue:' .. queue), 0, 20 - 1, 'WITHSCORES')
for i = 1, #waiting, 2 do
redis.call('ZADD', (P .. 'fifo:' .. queue), waiting[i + 1], waiting[i])
redis.call('ZREM', (P .. 'queue:' .. queue), waiting[i])
end
if #waiting > 0 then return #waiting == 2 * 20 end
for _, name in ipairs({ ADOPT }) do
if name == queue then return take_over(queue) end
end
return false
end
--@include/job/claim.lua:145
local function score_in(queue, head)
return head.score or tonumber(redis.call('ZSCORE', (fifos[queue] ~= false and rare(83, queue) and (P .. 'fifo:' .. queue) or (P .. 'queue:' .. queue)), head.id))
end
--@include/job/claim.lua:153
local function pass_expired(queue)
local ready, aside, missing = (fifos[queue] ~= false and rare(83, queue) and (P .. 'fifo:' .. queue) or (P .. 'queue:' .. queue)), { 'XX' }, {}
local ids = redis.call('ZREVRANGE', ready, '0', 500 - 1)
local over = redis.pcall('ZMSCORE', P .. 'expiring', unpack(ids))
for i, id in ipairs(ids) do
local expires = over[i]
if not expires then
expires = redis.pcall('HGET', (P .. 'job:' .. id), 'expires_at')
if tonumber(expires) then missing[#missing + 1], missing[#missing + 2] = expires, id end
end
if (tonumber(expires) or now_ms + 1) <= now_ms then aside[#aside + 1], aside[#aside + 2] = '-0.5', id end
end
if missing[1] then redis.pcall('ZADD', P .. 'expiring', unpack(missing)) end
if aside[2] then redis.call('ZADD', ready, unpack(aside)) end
end
--@include/job/claim.lua:177
local function set_aside(queue, id, key, head, task, deliveries, log_tag)
if (tonumber(deliveries) or 0) >= PROBATION then
local lost, on_lost = unpack(redis.call('HMGET', key, 'lost', 'on_lost'))
if (tonumber(lost) or 0) >= PROBATION and on_lost ~= 'again' then
local score = score_in(queue, head)
park(id, key, queue, 'probation:' .. queue, score, '+inf', 'lost again and again: each runs alone')
rare(47, 'blocked', id, queue, log_tag, 'worker', ARGV[1], 'reason', 'probation')
return true
end
end
local why, set = task and lacking[task], task and 'held:' .. queue .. ':' .. task
if not why or not has_room(set) then return false end
local since = tonumber(redis.call('HGET', key, 'held_since'))
park(id, key, queue, set, score_in(queue, head), (since or now_ms) + HOLD_MS, why, 'held_since', since or now_ms,
'reason', why)
if not since then rare(47, 'blocked', id, queue, log_tag, 'worker', ARGV[1], 'reason', string.match(why, '^[%w_.]*')) end
return true
end
--@include/job/claim.lua:197
local function put_off_broken(id, key, queue, set, log_tag, why)
rare(55, id, now_ms + 30000)
redis.call('HSET', key, 'status', 'scheduled', 'reason', error_text(why))
if set then unpark(id, key, queue) end
rare(47, 'held', id, queue, log_tag, 'worker', ARGV[1], 'reason', 'its concurrency key is broken')
end
--@include/job/claim.lua:207
local function read_by_name(key)
local names, fields = { 'status', 'expires_at', 'deliveries', 'seq', "data", "func", "created_at", "ties", "origin", "log_tag", "serializer", "timeout", "ttl", "meta", "priority", "description", "attempts", "retryCount", "retry", "enqueued_at", "on_success", "on_failure", "held_since", "isolate", "on_stopped", "success_task_handler", "failed_task_handler", "callback_url", "on_lost", "signature", "cursor", "suspect", "keep_logs", 'hooks' }, {}
for i, value in ipairs(redis.call('HMGET', key, unpack(names))) do fields[names[i]] = value or nil end
return fields
end
--@include/job/claim.lua:214
local function end_expired(id, key, queue, set, job)
if job.hooks then hooked[key] = true end
local class = redis.call('HGET', key, 'priority')
rare(62, id, key, queue, class, 'expired', 86400, nil, 'origin', queue, 'ended_at', now_iso, 'reason', 'expired', 'seq', job.seq or '')
--@include/job/claim.lua:219
rare(45, job.seq, job.origin, class, queue, class)
if set then unpark(id, key, queue) end
rare(47, 'expired', id, queue, job.log_tag, 'reason', 'waited longer than its ttl')
end
--@include/job/claim.lua:227
local function add_to(list, ...)
local words = { ... }
list[#list + 1] = #words
for _, word in ipairs(words) do list[#list + 1] = word end
end
--@include/job/wildcards.lua:8
local function expand(wildcard, last)
local key, lists = (P .. 'work:' .. wildcard), {}
lists[1] = redis.pcall('ZREVRANGE', key, '0', 16 - 1, 'WITHSCORES')
if #lists[1] == 2 * 16 then
crowded = true
local class = lists[1][2]
--@include/job/wildcards.lua:15
if last ~= '' and class == lists[1][2 * 16] then
local rank = redis.call('ZREVRANK', key, last)
local missing = not rank
if missing then
redis.call('ZADD', key, class, last)
rank = redis.call('ZREVRANK', key, last)
end
local found = redis.call('ZREVRANGE', key, rank, rank + 16, 'WITHSCORES')
if missing then redis.call('ZREM', key, last) end
if found[2] == class then lists[2] = found end
end
end
for nth = #lists, 1, -1 do
local found = lists[nth]
for i = nth == 2 and 3 or 1, #found, 2 do
local queue, class = found[i], found[i + 1]
if not listed[queue] and (nth == 1 or class == lists[1][2]) then
listed[queue] = true
local entry = { queue, tonumber(class), wildcard }
if nth == 2 or last == '' or queue < last then
names[count], bound[count], origin[count] = unpack(entry)
count = count + 1
else
tail[#tail + 1] = entry
end
end
end
end
end
--@include/gates/turn_gates.lua:10
local function read_gates(names, count)
local broken = {}
for first = 0, count - 1, 1000 do
local asked = {}
for i = first, math.min(count, first + 1000) - 1 do asked[#asked + 1] = names[i] end
for k, text in ipairs(redis.pcall('HMGET', P .. 'gates', unpack(asked))) do
if text then
local ok, gate = pcall(read_gate, asked[k], text)
if ok then
gates[first + k - 1] = gate
else
broken[#broken + 1] = { asked[k], error_text(gate) }
gates[first + k - 1] = { places = 0, tokens = 0, broken = true }
end
end
end
end
return broken
end
--@include/gates/turn_gates.lua:32
local function is_open(i, ahead)
local room = math.min(gates[i].places, gates[i].tokens)
return room >= 1 and not (ahead and room < math.huge)
end
--@include/gates/turn_gates.lua:38
local function is_shut(i)
local gate = gates[i]
return not is_open(i) and (gate.places < 1 or (gate.opens or 0) - gate.at > 3000 * 1000)
end
--@include/gates/turn_gates.lua:43
local function note_start(i)
local gate = gates[i]
gate.places, gate.tokens, gate.started = gate.places - 1, gate.tokens - 1, gate.started + 1
end
--@include/gates/turn_gates.lua:51
local function keep_gate(i, queue, head, spare, claims)
local gate, key, closed = gates[i], (P .. 'gate:' .. queue), (P .. 'wake:' .. queue .. ':closed')
if gate.broken then return false end
if gate.interval and gate.started > 0 then
gate.tat = rate_spend(gate.tat, gate.at, gate.interval, gate.burst, gate.started)
redis.call('HSET', key, 'tat', string.format('%.17g', gate.tat))
local _, at = rate_room(gate.tat, gate.at, gate.interval, gate.burst)
gate.opens = at
end
if gate.max_wait and claims > 0 then redis.call('HSET', key, 'claims', (tonumber(gate.claims) or 0) + claims) end
if not head or is_open(i) then return redis.call('DEL', closed) == 1 and head end
if gate.places < 1 then
redis.call('SET', closed, 'limit', 'PX', 10000)
return false
end
local mine, wait = gate.waiter == ARGV[1], math.max(1, math.ceil((gate.opens - gate.at) / 1000))
if mine or not is_awaited(gate) then
if not spare or head.class < spare then
redis.call('HDEL', key, 'waiter', 'named')
redis.call('DEL', closed)
return true
end
redis.call('HSET', key, 'waiter', ARGV[1], 'named', now_ms)
opens = math.min(opens or wait, wait)
end
redis.call('SET', closed, 'rate', 'PX', wait)
return false
end
--@include/gates/turn_gates.lua:82
local function overdue(i, queue, class, claims)
local gate = gates[i]
if not gate.max_wait or not is_open(i) then return nil end
if ((tonumber(gate.claims) or 0) + claims + 1) % 10 ~= 0 then return nil end
local since = rare(38, gate.max_wait * 1000)
for _ = 1, 3 do
local found = redis.call('ZREVRANGEBYSCORE', (fifos[queue] ~= false and rare(83, queue) and (P .. 'fifo:' .. queue) or (P .. 'queue:' .. queue)), '(' .. class, 0, 'WITHSCORES', 'LIMIT', 0, 1)
if not found[1] then return nil end
local enqueued, created = unpack(redis.pcall('HMGET', (P .. 'job:' .. found[1]), 'enqueued_at', 'created_at'))
class = (math.max(0, math.min(255, math.floor(tonumber(found[2]) or 1))))
if (enqueued or created or since) < since then
return { id = found[1], class = class, score = tonumber(found[2]) }
end
end
end
--@
groups_made[3] = { is_terminal, is_elsewhere, locks_key, unique_key, in_fifo, set_of, error_text, rate_of, used_ahead, rate_room, rate_spend, has_turns, open_turns, forget_turns, turn_of, has_room, ring_set, park, unpark, news_of_waits, mark_hooks, is_full, accept_delivery, tell_ended, do_later, release_later, keeps_result, end_for_kin, let_go, set_due, settle_batch, open_member, enter_batch, leave_batch, let_read_end, end_callback, leave_batches, is_counted_in, count_failure, take_out_failure, drop_failure_group, failure_group_for, join_failure, fail_corrupt, gate_word, held_until, without_until, hold_back, forget_until, read_gate, is_awaited, reopen, renew_ttl, repeat_job, passed, is_struck, move_back, take_given, note_pickle, keep_origin, take_over_one, take_over, gather, score_in, pass_expired, set_aside, put_off_broken, read_by_name, end_expired, add_to, expand, read_gates, is_open, is_shut, note_start, keep_gate, overdue }
end
return groups_made[3][nth - 78](...)
end
end
--@turn.lua:41
local incarnation, memory, was, beat, finished, worked
if argv[10] == '0' then
incarnation, memory, was, beat = unpack(command('HMGET', KEYS[1], 'incarnation', 'turn', 'state', 'beat_ms'))
else
incarnation, memory, was, beat, finished, worked = unpack(command('HMGET', KEYS[1], 'incarnation', 'turn',
'state', 'beat_ms', 'successful_job_count', 'total_working_us'))
end
if incarnation ~= argv[2] then return { 'unregistered', false, false } end
local token, last = argv[3] + 0, memory and tonumber(string.match(memory, '^%d+')) or 0
if token < last then return { 'outdated', false, false } end
local execution = argv[2] .. ':' .. argv[3] .. ':'
reply[1], reply[2], reply[3] = 'ok', false, false
local n_given, bad = 0, {}
local answers
--@turn.lua:56
local mark, known, only_sets, listed_queues, n_ahead = '', '', false, false, 0
--@turn.lua:59
local n_slots = argv[8] + 0
local begun_from = 13 + argv[7]
local sets_from, lacking_from, outcomes_from = begun_from, begun_from, begun_from
if argv[6] ~= '' then
local alone, only, listed_too, ahead, n_begun, n_sets, n_lacking, version = string.match(argv[6],
'^(%d) (%d) (%d) (%d+) (%d+) (%d+) (%d+) (.*)$')
mark, only_sets, listed_queues = alone == '1' and "s" or '', only == '1', listed_too == '1'
n_ahead, known = ahead + 0, version
sets_from = begun_from + 2 * n_begun
lacking_from = sets_from + n_sets
outcomes_from = lacking_from + 2 * n_lacking
end
--@turn.lua:77
local remembered = argv[3]
--@turn.lua:80
local NONE = {}
local n_finished, n_failed, spent = 0, 0, nil
--@turn.lua:135
local set_at = NONE
local sets_of, unindexed = NONE, NONE
local n_sources
--@turn.lua:139
local queued, out = { [0] = nil }, { [0] = nil }
local single
local start, again = 0, 0
local stopped, suspended, due_limits, waiting, gated, releasing
--@turn.lua:234
local function head_of(i)
local line, looked = queued[i], false
if line and line.id then return line end
repeat
if line then
--@include/job/claim.lua:132
do
--@turn.lua:239
local line = line
--@include/job/claim.lua:133
local at = line.at + line.step
local id = line.found[at]
line.at, line.id = at, id
if id and line.step == 2 then
local score = line.found[at + 1] + 0
local aside = score < 0
line.score, line.aside = score, aside
line.class = aside and 0 or score < 255 and score - score % 1 or 255
end
end
--@turn.lua:240
end
if looked or line == false or line and (line.id or line.whole) then break end
looked = true
local queue = set_at[i] or names[i]
--@turn.lua:227
repeat
--@turn.lua:244
local i = i
--@turn.lua:228
if not out[i][1] then break end
--@turn.lua:73
do
--@turn.lua:229
local verb, key, list, first = 'ZREM', set_at[i] and (P .. 'waits:' .. set_at[i]) or (fifos[names[i]] ~= false and rare(83, names[i]) and (P .. 'fifo:' .. names[i]) or (P .. 'queue:' .. names[i])), out[i], 1
--@turn.lua:74
for i = first, #list, 1000 do redis.pcall(verb, key, unpack(list, i, math.min(i + 999, #list))) end
end
--@turn.lua:230
out[i] = {}
until true
--@turn.lua:245
if set_at[i] then
--@turn.lua:247
elseif stopped then rare(83, queue) elseif fifos[queue] == nil then fifos[queue] = false end
--@turn.lua:250
local alike = line and line.score and not line.aside and line.class < 255 and not sets_of[i] and not set_at[i]
and not fifos[queue]
local ok, found, more = pcall(look, queue, line and n_slots - n_given + 1 or (n_slots > 1 or stopped or gated
or wildcards[1]) and 2 or 1, set_at[i], alike and line.found[#line.found], alike and line.class)
if not ok then bad[#bad + 1] = { queue, rare(85, found) } end
if ok and more then again = 1 end
line = ok and found
queued[i] = line
until false
return line and line.id and line
end
--@turn.lua:303
local work, expired = 0, 0
--@turn.lua:415
local spare
--@turn.lua:531
if token == last then
answers = {}
for answer in string.gmatch(memory, '\n<([^\n]+)') do answers[#answers + 1] = answer end
local found, mine, most = try_command('HGETALL', held_key), {}, 0
for i = 1, #found, 2 do
local id, exec = found[i], found[i + 1]
local nth = string.sub(exec, 1, #execution) == execution and string.match(exec, '^(%d+)%a?$', #execution + 1)
if nth and not string.find(memory .. '\n', '\n!' .. id .. '\n', 1, true) then
mine[nth + 0], most = { id, exec }, math.max(most, nth)
end
end
for nth = 1, most do
local id, exec = unpack(mine[nth] or {})
local job = id and try_command('HMGET', (P .. 'job:' .. id), 'status', 'execution_id', 'origin', "data", "func", "created_at", "ties", "origin", "log_tag", "serializer", "timeout", "ttl", "meta", "priority", "description", "attempts", "retryCount", "retry", "enqueued_at", "on_success", "on_failure", "held_since", "isolate", "on_stopped", "success_task_handler", "failed_task_handler", "callback_url", "on_lost", "signature", "cursor", "suspect", "keep_logs", "takes", "batch", "given", "given_as", "gather", "repeats_left", "repeat_intervals",
"concurrency_key", "follows")
if job and job[1] == 'started' and job[2] == exec then
local last = 3 + 29 + 7 + ((string.sub(exec, -1)) == "a" and 2 or 0)
rare(148, reply, job[3], id, exec, unpack(job, 4, last))
end
end
reply[2] = answers[1] and table.concat(answers, '\n') or argv[10] ~= '0' and 'ok'
reply[3] = { false, 0, command('EXISTS', P .. 'releasing'), tonumber(string.match(memory, '\n@(%d+)')) or -1,
rare(98, known), tonumber(string.match(memory, '\n~(%d+)')) or false }
return reply
end
--@turn.lua:557
unrung = {}
expected = math.max(1, argv[10] + n_slots)
--@turn.lua:82
do
local done, at = { nil }, outcomes_from
for i = 1, argv[10] + 0 do
local kind, id, exec, elapsed, age = argv[at], argv[at + 1], argv[at + 2], argv[at + 3], argv[at + 4]
local n, delay, reason, keyed = argv[at + 5], nil, nil, kind == 'keyed'
if keyed then kind = 'finished' end
local more = n == '0' and kind == 'finished' and NONE or { unpack(argv, at + 6, at + 5 + n) }
at = at + 6 + n
if kind ~= 'finished' then
delay, reason, at = argv[at] + 0, argv[at + 1], at + 2
end
local raised = NONE
if more[1] then
--@include/job/commit.lua:23
do
--@turn.lua:95
local more = more
--@include/job/commit.lua:24
local found = nothing
for i = 1, #more, 2 do
if more[i] == 'callback_error' then
found = { 'callback_error', string.sub(string.match(more[i + 1], '^%l+_%l+[^:]*: ([^%s:]+)') or '', 1, 200) }
end
end
raised = found
end
--@turn.lua:96
end
local ok, answer, changed = pcall(commit, kind, id, exec, elapsed, age, delay, reason, more, raised, keyed)
if not ok then answer = 'error: ' .. rare(85, answer) end
if answer ~= 'ok' and not answers then
answers = {}
for before = 1, i - 1 do answers[before] = 'ok' end
end
if answers then answers[i] = answer end
if ok and (answer == 'ok' or try_command('HGET', held_key, id) == exec) then done[#done + 1] = id end
if ok and changed then
if raised[1] then
try_command('HINCRBY', P .. 'callback_errors', 'count', 1)
try_command('HSET', P .. 'callback_errors', 'job_id', id, 'at', now_iso)
end
spent = (spent or 0) + elapsed
if kind == 'finished' or kind == 'repeat' then
n_finished = n_finished + 1
elseif kind == 'failed' or kind == 'retry' or answer == 'failed' then
n_failed = n_failed + 1
end
end
end
if unsettled then rare(15) end
if answers then remembered = remembered .. '\n<' .. table.concat(answers, '\n<') end
if n_failed > 0 and type(try_command('HINCRBY', KEYS[1], 'failed_job_count', n_failed)) ~= 'number' then
command('HSET', KEYS[1], 'failed_job_count', n_failed)
end
for queue, ids in pairs(left) do
local wip = (P .. 'wip:' .. queue)
for i = 1, #ids, 1000 do left[queue] = try_command('ZREM', wip, unpack(ids, i, math.min(i + 999, #ids))) end
end
--@turn.lua:73
do
--@turn.lua:127
local verb, key, list, first = 'HDEL', held_key, done, 1
--@turn.lua:74
for i = first, #list, 1000 do try_command(verb, key, unpack(list, i, math.min(i + 999, #list))) end
end
--@turn.lua:128
if done[1] then
--@include/job/count.lua:52
repeat
if not first_count then break end
if counts then
rare(3, P .. 'totals' .. ':' .. first_queue, first_what, first_class, first_count)
rare(4)
else
local class = (first_class == '1' or not first_class) and '1' or string.format('%d', (math.max(0, math.min(255, math.floor(tonumber(first_class) or 1)))))
try_command('HINCRBY', P .. 'totals' .. ':' .. first_queue, first_what .. ':' .. class,
first_count == 1 and '1' or first_count)
end
first_count = nil
until true
--@turn.lua:130
end
end
--@turn.lua:515
do
--@turn.lua:144
do
if n_slots > 0 and not only_sets then
for i = 13, begun_from - 1 do
if (string.find(argv[i], '[*?%[]') ~= nil) then
for j = 13, begun_from - 1 do listed[argv[j]] = true end
rare(149, string.match(argv[i], '^(%S+) ?(.*)$'))
else
names[count] = argv[i]
count = count + 1
end
end
for i = 1, #tail do
names[count], bound[count], origin[count] = unpack(tail[i])
count = count + 1
end
end
end
--@turn.lua:180
do
for i = begun_from, sets_from - 1, 2 do
local key = (P .. 'job:' .. argv[i])
local job = try_command('HMGET', key, 'status', 'execution_id')
if job[1] == 'started' and job[2] == argv[i + 1] then command('HSET', key, 'begun', argv[i + 1]) end
end
end
--@turn.lua:162
do
if lacking_from > sets_from and n_slots > 0 then
local index = {}
sets_of, set_at, unindexed = {}, {}, {}
for i = 0, count - 1 do index[names[i]] = i end
for i = sets_from, lacking_from - 1 do
local queue = (string.match(argv[i], '^%a+:([^:]+)'))
if not index[queue] then
index[queue], names[count], unindexed[count] = count, queue, true
count = count + 1
end
sets_of[index[queue]] = sets_of[index[queue]] or {}
table.insert(sets_of[index[queue]], argv[i])
end
end
end
--@turn.lua:519
for i = lacking_from, outcomes_from - 1, 2 do
lacking = lacking or {}
lacking[argv[i]] = argv[i + 1]
end
--@turn.lua:189
do
local paused = { nil }
for i = 0, count - 1 do paused[i + 1] = (P .. 'paused:' .. names[i]) end
local there = command('EXISTS', P .. 'suspended', P .. 'fifos', P .. 'wildcards', P .. 'limits:due', P .. 'waits', P .. 'gates', P .. 'releasing',
unpack(paused, 1, math.min(count, 1000)))
for first = 1001, count, 1000 do
there = there + command('EXISTS', unpack(paused, first, math.min(first + 999, count)))
end
if there == 0 then wildcards = {} elseif rare(48) then there = there - 1 end
due_limits = there > 0 and command('EXISTS', P .. 'limits:due') == 1
if due_limits then there = there - 1 end
waiting = there > 0 and command('EXISTS', P .. 'waits') == 1
if waiting then there = there - 1 end
gated = there > 0 and command('EXISTS', P .. 'gates') == 1
if gated then there = there - 1 end
releasing = there > 0 and command('EXISTS', P .. 'releasing') == 1
if releasing then there = there - 1 end
stopped = there > 0
suspended = stopped and command('EXISTS', P .. 'suspended') == 1
if suspended then count = 0 end
if gated and count > 0 then bad = rare(150, names, count) end
for i = 0, count - 1 do
out[i] = { nil }
if stopped and command('EXISTS', paused[i + 1]) == 1 then queued[i] = false end
end
n_sources = count
if sets_of ~= NONE then
for i, sets in pairs(sets_of) do
if queued[i] == false or not waiting then sets_of[i], sets = nil, {} end
if unindexed[i] then queued[i] = false end
for k, set in ipairs(sets) do
set_at[n_sources], out[n_sources], sets[k] = set, {}, n_sources
n_sources = n_sources + 1
end
end
end
end
--@turn.lua:417
do
single = count == 1 and n_sources == 1 and not gated and not bound[0] and not unindexed[0]
local floor, floors, last_at_once = tonumber(argv[9]), nil, n_slots - n_ahead
if not floor then floors = string.gmatch(argv[9], '%d+') end
for nth = 1, n_slots do
if floors then floor = floors() + 0 end
if nth > last_at_once then mark = "a" end
local given
--@turn.lua:306
do
--@turn.lua:424
local floor, mark = floor, mark
--@turn.lua:307
local job
while not job do
if work >= 100 then
again = 1
break
end
local from, of
--@turn.lua:264
do
--@turn.lua:313
local floor, ahead = floor, mark == "a"
--@turn.lua:265
local best, class, its_queue
if single then
local head = head_of(0)
if head and not head.shut and head.class >= floor then best, its_queue = 0, 0 end
end
for k = 0, single and -1 or count - 1 do
local i = (start + k) % count
local closed, sets = gates[i] and not rare(151, i, ahead), sets_of[i]
local passed_over = closed or bound[i] and queued[i] == nil and bound[i] <= (class or floor - 1)
local head, at = not passed_over and head_of(i), i
if sets and not closed then
for _, other in ipairs(sets) do
local theirs = head_of(other)
if theirs and (not head or theirs.score > head.score) then head, at = theirs, other end
end
end
if head and queued[at].shut then head = nil end
if head and head.class >= floor and (not class or head.class > class) then
best, class, its_queue = at, head.class, i
end
end
from, of = best, its_queue
end
--@turn.lua:314
if not from then break end
local head, late, late_of = queued[from], nil, nil
if gated and floor <= 0 and head.class > 0 and mark ~= "a" then
--@turn.lua:290
do
--@turn.lua:317
local class = head.class
--@turn.lua:291
local found, at
for k = 0, count - 1 do
local i = (start + k) % count
local head = not found and gates[i] and queued[i] ~= false and rare(155, i, names[i], class, n_given)
if head then found, at = head, i end
end
late, late_of = found, at
end
--@turn.lua:318
end
if late then head, from, of = late, late_of, late_of end
local queue, line = names[of], queued[from]
local nth = n_given > 0 and string.format('%d', n_given + 1) or '1'
local ok, found, expired_now = pcall(take, queue, head, execution .. nth .. mark, set_at[from])
if not ok then
bad[#bad + 1] = { queue, rare(85, found) }
if (#head.id <= 128 and (string.find(head.id, '^%w+$') or string.find(head.id, '^[%w_.:-]+$')) ~= nil) then remembered = remembered .. '\n!' .. head.id end
queued[from] = false
elseif found == 'keyed' then
line.shut = true
else
local gone = out[from]
gone[#gone + 1] = head.id
if late then
--@turn.lua:227
repeat
--@turn.lua:333
local i = from
--@turn.lua:228
if not out[i][1] then break end
--@turn.lua:73
do
--@turn.lua:229
local verb, key, list, first = 'ZREM', set_at[i] and (P .. 'waits:' .. set_at[i]) or (fifos[names[i]] ~= false and rare(83, names[i]) and (P .. 'fifo:' .. names[i]) or (P .. 'queue:' .. names[i])), out[i], 1
--@turn.lua:74
for i = first, #list, 1000 do try_command(verb, key, unpack(list, i, math.min(i + 999, #list))) end
end
--@turn.lua:230
out[i] = {}
until true
--@turn.lua:334
queued[from] = nil
else
line.id = nil
end
if found then
job = found
if gates[of] then rare(153, of) end
if not listed_queues then start = of + 1 end
else
work = work + (found == nil and 1 or 5)
if expired_now and not head.aside and not set_at[from] then
expired = expired + 1
if expired == 5 then
--@turn.lua:227
repeat
--@turn.lua:347
local i = from
--@turn.lua:228
if not out[i][1] then break end
--@turn.lua:73
do
--@turn.lua:229
local verb, key, list, first = 'ZREM', set_at[i] and (P .. 'waits:' .. set_at[i]) or (fifos[names[i]] ~= false and rare(83, names[i]) and (P .. 'fifo:' .. names[i]) or (P .. 'queue:' .. names[i])), out[i], 1
--@turn.lua:74
for i = first, #list, 1000 do try_command(verb, key, unpack(list, i, math.min(i + 999, #list))) end
end
--@turn.lua:230
out[i] = {}
until true
--@turn.lua:348
rare(143, queue)
queued[from] = nil
head_of(from)
end
end
end
end
end
given = job
end
--@turn.lua:425
if not given and mark == "a" and chains[1] then
--@turn.lua:362
do
--@turn.lua:426
local floor = floor
--@turn.lua:365
local function claim_behind(chain)
local id, score = unpack(redis.call('ZRANGE', (P .. 'limits:waiting:' .. chain.name), 0, 0, 'REV', 'WITHSCORES'))
score = tonumber(score)
local slots = rare(6, chain.name)
if not score or (math.max(0, math.min(255, math.floor(tonumber(score) or 1)))) < floor or slots.interval
or redis.call('ZCARD', (P .. 'limits:held:' .. chain.name)) > slots.limit then
return nil
end
local status, queue, set, deliveries, isolate, ties = unpack(redis.call('HMGET', (P .. 'job:' .. id), 'status', 'origin',
'waits_in', 'deliveries', 'isolate', 'ties'))
local of
for i = 0, count - 1 do
local head = head_of(i)
if head and (head.class > (math.max(0, math.min(255, math.floor(tonumber(score) or 1)))) or names[i] == queue and rare(142, queue, head) > score) then
return nil
end
if names[i] == queue and queued[i] ~= false and not gates[i] then of = i end
end
if not of or lacking or status ~= 'blocked' or set ~= 'limit:' .. chain.name or deliveries or isolate
or string.find(ties or '', '[dmt]') then
return nil
end
local exec = execution .. (n_given + 1) .. "a"
chain.tried = id
rare(11, chain.name, id, score, true)
local job = take(queue, { id = id, class = (math.max(0, math.min(255, math.floor(tonumber(score) or 1)))), score = score }, exec, nil, chain)
out[of][#out[of] + 1] = id
if not job then return nil end
redis.call('HSET', (P .. 'job:' .. chain.id), 'followed_by', id .. ' ' .. exec)
chain.id, chain.exec = id, exec
return job
end
local share, found = math.min(15, math.ceil(n_ahead / math.max(1, n_slots - n_ahead))), nil
while chains[1] and not found do
local chain = table.remove(chains, 1)
chain.behind, chain.tried = (chain.behind or 0) + 1, nil
local size = #reply
local ok, job = pcall(claim_behind, chain)
if not ok then
if chain.tried then remembered = remembered .. '\n!' .. chain.tried end
while #reply > size do table.remove(reply) end
end
if ok and job then
if chain.behind < share then chains[#chains + 1] = chain end
found = job
end
end
given = found
end
--@turn.lua:427
end
if not given and mark ~= "a" then spare = math.min(spare or floor, floor) end
if given then
n_given = n_given + 1
elseif floor <= 0 then
break
end
end
end
--@turn.lua:437
do
for queue, entries in pairs(leased) do
--@turn.lua:73
do
--@turn.lua:439
local verb, key, list, first = 'ZADD', (P .. 'wip:' .. queue), entries, 1
--@turn.lua:74
for i = first, #list, 1000 do try_command(verb, key, unpack(list, i, math.min(i + 999, #list))) end
end
--@turn.lua:441
if not (tonumber(left[queue]) and left[queue] > 0) then try_command('ZADD', P .. 'leases', 'NX', LEASE_END, queue) end
end
--@turn.lua:73
do
--@turn.lua:443
local verb, key, list, first = 'HSET', held_key, held, 3
--@turn.lua:74
for i = first, #list, 1000 do try_command(verb, key, unpack(list, i, math.min(i + 999, #list))) end
end
--@turn.lua:73
do
--@turn.lua:444
local verb, key, list, first = 'ZREM', P .. 'expiring', unexpected, 1
--@turn.lua:74
for i = first, #list, 1000 do try_command(verb, key, unpack(list, i, math.min(i + 999, #list))) end
end
--@turn.lua:445
for i = 0, n_sources - 1 do
--@turn.lua:227
repeat
--@turn.lua:446
local i = i
--@turn.lua:228
if not out[i][1] then break end
--@turn.lua:73
do
--@turn.lua:229
local verb, key, list, first = 'ZREM', set_at[i] and (P .. 'waits:' .. set_at[i]) or (fifos[names[i]] ~= false and rare(83, names[i]) and (P .. 'fifo:' .. names[i]) or (P .. 'queue:' .. names[i])), out[i], 1
--@turn.lua:74
for i = first, #list, 1000 do try_command(verb, key, unpack(list, i, math.min(i + 999, #list))) end
end
--@turn.lua:230
out[i] = {}
until true
--@turn.lua:447
end
end
--@turn.lua:450
do
if gated then
for i = 0, count - 1 do
if not unindexed[i] then freed[names[i]] = nil end
end
for queue in pairs(freed) do pcall(rare, 130, queue) end
end
for i in pairs(gates) do
local head = head_of(i)
for _, other in ipairs(sets_of[i] or NONE) do head = head or head_of(other) end
if rare(154, i, names[i], head, spare, n_given) then rare(52, names[i], head.class) end
end
end
--@turn.lua:465
do
for i = 0, count - 1 do
if n_given > 0 then unrung[names[i]] = nil end
end
for queue in pairs(unrung) do rare(52, queue) end
unrung = nil
if unsettled then rare(15) end
end
--@turn.lua:475
do
for i = 0, count - 1 do
if bound[i] and queued[i] ~= nil then
local head = head_of(i)
if crowded and head and gates[i] and rare(152, i) then
try_command('ZREM', (P .. 'work:' .. origin[i]), names[i])
if n_given < n_slots then again = 1 end
elseif head and head.class < bound[i] then
try_command('ZADD', (P .. 'work:' .. origin[i]), head.class, names[i])
elseif not head and not ((names[i] == 'scheduler') and try_command('EXISTS', (P .. 'queue:' .. names[i])) == 1) then
try_command('ZREM', (P .. 'work:' .. origin[i]), names[i])
if crowded and n_given < n_slots then again = 1 end
end
end
end
end
--@turn.lua:529
end
--@turn.lua:562
local state, due = 'busy', soonest
if soonest then remembered = remembered .. '\n@' .. math.max(0, soonest - now_ms) end
if opens then remembered = remembered .. '\n~' .. opens end
if n_given > 0 then
--@turn.lua:493
do
local plain = not (stopped or gated or wildcards[1])
for i = 0, count - 1 do
local line = not (names[i] == 'scheduler') and queued[i]
if plain and line and not line.id and not line.whole and line.class and line.class < 2 then
--@turn.lua:499
local ready, bell = (fifos[names[i]] ~= false and rare(83, names[i]) and (P .. 'fifo:' .. names[i]) or (P .. 'queue:' .. names[i])), (P .. 'wake:' .. names[i])
if command('EXISTS', ready, ready, bell) == 2 then command('RPUSH', bell, '1') end
else
local head = not (bound[i] and queued[i] == nil) and head_of(i)
if head then
--@include/lib/ring.lua:52
repeat
--@turn.lua:504
local queue, class, known = names[i], head.class, true
--@include/lib/ring.lua:53
local bell, paused, closed = (P .. 'wake:' .. queue), (P .. 'paused:' .. queue), (P .. 'wake:' .. queue .. ':closed')
if command('EXISTS', bell, P .. 'suspended', paused, closed) == 0 then command('RPUSH', bell, '1') end
local any
--@include/lib/ring.lua:14
do
if not wildcards then
wildcards = try_command('HGETALL', P .. 'wildcards')
if wildcards.err then wildcards = {} end
end
any = wildcards[1]
end
--@include/lib/ring.lua:56
local matching = any and rare(49, queue)
if matching and matching[1] then
class = class or (math.max(0, math.min(255, math.floor(tonumber((try_command('ZREVRANGE', (fifos[queue] ~= false and rare(83, queue) and (P .. 'fifo:' .. queue) or (P .. 'queue:' .. queue)), 0, 0, 'WITHSCORES')[2])) or 1))))
local stopped = not known and command('EXISTS', P .. 'suspended', paused, closed) > 0
for _, wildcard in ipairs(matching) do
if not known then try_command('ZADD', (P .. 'work:' .. wildcard), 'GT', class, queue) end
if not stopped then rare(51, wildcard, class) end
end
end
if class and class < 2 then break end
local high = (P .. 'wake:' .. queue .. ':high')
if command('EXISTS', high, P .. 'suspended', paused, closed) > 0 then break end
local waiting = class and not (queue == 'scheduler') and 1 or try_command('ZCOUNT', (fifos[queue] ~= false and rare(83, queue) and (P .. 'fifo:' .. queue) or (P .. 'queue:' .. queue)), '2', '+inf')
if type(waiting) == 'number' and waiting > 0 then command('RPUSH', high, '1') end
until true
--@turn.lua:505
end
end
if bound[i] and queued[i] == nil then rare(51, origin[i], bound[i]) end
end
for i = count, n_sources - 1 do
local head = head_of(i)
if head then rare(95, set_at[i], head.class) end
end
end
--@turn.lua:567
else
if try_command('HLEN', held_key) == 0 then state = suspended and 'suspended' or 'idle' end
due = nil
--@include/job/schedule.lua:55
repeat
--@turn.lua:569
local limits = due_limits or soonest
--@include/job/schedule.lua:56
local limit = limits and tonumber(try_command('ZRANGE', P .. 'limits:due', 0, 0, 'WITHSCORES')[2])
if limit and limit <= now_ms then due = now_ms break end
local first = try_command('ZRANGE', P .. 'scheduler:scheduled_jobs', 0, 0, 'WITHSCORES')
if first[2] and (math.floor(tonumber(first[2]) * 1000 + 0.001)) <= now_ms then
local from = string.format('%.17g', (now_ms + 1) / 1000)
local ours = false
for _, id in ipairs(command('ZRANGEBYSCORE', P .. 'scheduler:scheduled_jobs', '-inf', '(' .. from, 'LIMIT', 0, 20)) do
ours = ours or try_command('HEXISTS', (P .. 'job:' .. id), 'seq') == 1
end
if ours then due = now_ms break end
first = command('ZRANGEBYSCORE', P .. 'scheduler:scheduled_jobs', from, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
end
local job = first[2] and (math.floor(tonumber(first[2]) * 1000 + 0.001))
due = limit and math.min(limit, job or limit) or job
until true
--@turn.lua:570
end
--@turn.lua:572
local note, n = { 'turn', remembered, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil }, 2
if spent then
note[3], note[4], n = 'total_working_us', string.format('%d', (tonumber(worked) or 0) + spent), 4
if n_finished > 0 then
note[5], note[6], n = 'successful_job_count', string.format('%d', (tonumber(finished) or 0) + n_finished), 6
end
end
if state ~= was then note[n + 1], note[n + 2], n = 'state', state, n + 2 end
if n_given > 0 or state ~= 'busy' then
note[n + 1], note[n + 2], n = 'current_job', n_given > 0 and reply[6] or '', n + 2
end
beat = tonumber(beat)
--@turn.lua:585
if not beat or now_ms < beat or now_ms - beat >= math.min(1000, argv[4] / 10) then
note[n + 1], note[n + 2], note[n + 3], note[n + 4] = 'beat_ms', now_ms, 'last_heartbeat', now_iso
command('EXPIRE', KEYS[1], argv[5])
end
command('HSET', KEYS[1], unpack(note))
--@include/lib/emit.lua:25
do
if reserved > 0 then try_command('HINCRBY', P .. 'events:meta', 'n', -reserved) end
reserved = 0
end
--@turn.lua:591
if first_count then rare(44) end
local waits, more = (waiting or parked or known ~= '') and rare(98, known), false
if bad[1] or again == 1 or releasing or due or waits or opens then
more = { bad[1] and bad or false, again, releasing and 1 or 0, due and math.max(0, due - now_ms) or -1,
waits or false, opens or false }
end
if suspended then reply[1] = 'suspended' end
if argv[10] ~= '0' then reply[2] = answers and table.concat(answers, '\n') or 'ok' end
reply[3] = more
return reply
