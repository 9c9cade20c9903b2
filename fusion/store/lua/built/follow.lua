-- KEYS: worker suspended
-- ARGV: name incarnation token lease_ms queue class execution n id func gather serializer
-- FLAGS: allow-oom
--@
local command, argv = redis.call, ARGV
local rare, groups_made
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
--@include/lib/keys.lua:126
local function error_text(err)
local text = type(err) == 'table' and err.err or err
return (string.gsub(tostring(text), '%s+', ' '))
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
--@include/job/count.lua:11
local first_what, first_queue, first_class, first_count
local counts
--@include/job/count.lua:41
local function tally(what, queue, class, other)
if not first_count then
first_what, first_queue, first_class, first_count = what, queue, class, 1
elseif what == first_what and queue == first_queue and class == first_class then
first_count = first_count + 1
else
rare(2, P .. 'totals' .. ':' .. queue, what, class, 1)
end
if other then rare(2, other, what, class, 1) end
end
--@include/job/count.lua:52
local function write_tallies()
if not first_count then return end
if counts then
rare(2, P .. 'totals' .. ':' .. first_queue, first_what, first_class, first_count)
rare(3)
else
local class = (first_class == '1' or not first_class) and '1' or string.format('%d', (math.max(0, math.min(255, math.floor(tonumber(first_class) or 1)))))
redis.pcall('HINCRBY', P .. 'totals' .. ':' .. first_queue, first_what .. ':' .. class,
first_count == 1 and '1' or first_count)
end
first_count = nil
end
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
--@include/lib/ring.lua:10
local wildcards
--@include/lib/ring.lua:14
local function are_wildcards()
if not wildcards then
wildcards = redis.pcall('HGETALL', P .. 'wildcards')
if wildcards.err then wildcards = {} end
end
return wildcards[1]
end
--@include/lib/ring.lua:52
local function ring(queue, class, known)
local bell, paused, closed = (P .. 'wake:' .. queue), (P .. 'paused:' .. queue), (P .. 'wake:' .. queue .. ':closed')
if redis.call('EXISTS', bell, P .. 'suspended', paused, closed) == 0 then redis.call('RPUSH', bell, '1') end
local any = are_wildcards()
local matching = any and rare(37, queue)
if matching and matching[1] then
class = class or (math.max(0, math.min(255, math.floor(tonumber((redis.pcall('ZREVRANGE', (fifos[queue] ~= false and in_fifo(queue) and (P .. 'fifo:' .. queue) or (P .. 'queue:' .. queue)), 0, 0, 'WITHSCORES')[2])) or 1))))
local stopped = not known and redis.call('EXISTS', P .. 'suspended', paused, closed) > 0
for _, wildcard in ipairs(matching) do
if not known then redis.pcall('ZADD', (P .. 'work:' .. wildcard), 'GT', class, queue) end
if not stopped then rare(39, wildcard, class) end
end
end
if class and class < 2 then return end
local high = (P .. 'wake:' .. queue .. ':high')
if redis.call('EXISTS', high, P .. 'suspended', paused, closed) > 0 then return end
local waiting = class and not (queue == 'scheduler') and 1 or redis.pcall('ZCOUNT', (fifos[queue] ~= false and in_fifo(queue) and (P .. 'fifo:' .. queue) or (P .. 'queue:' .. queue)), '2', '+inf')
if type(waiting) == 'number' and waiting > 0 then redis.call('RPUSH', high, '1') end
end
--@include/job/schedule.lua:18
local soonest
--@include/limit/limit.lua:31
local unrung
local unsettled
--@include/limit/limit.lua:504
local function on_arrive(id, key, queue, named)
if tied[key] then return rare(20, id, key, queue, named) end
end
--@include/job/callbacks.lua:7
local hooked = {}
--@include/job/on_end.lua:7
local function on_end(id, key, queue, status)
if tied[key] then
if string.find(tied[key], 'k', 1, true) then pcall(rare, 30, id, key, status) end
if tied[key] == 'k' then return end
if string.find(tied[key], 'u', 1, true) then pcall(rare, 64, id, key, status) end
if string.find(tied[key], 'b', 1, true) then pcall(rare, 72, id, key, queue, status) end
if string.find(tied[key], '[pc]') then pcall(rare, 63, id, key) end
if tied[key] and string.find(tied[key], 'l', 1, true) then pcall(rare, 29, id, key) end
end
end
--@include/job/end_job.lua:7
local ended_before = 0
local net_of, net
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
local pinned = others and rare(32, id, key, expiry)
if pinned then seconds, expiry = -1, '+inf' end
redis.call('ZADD', status == 'failed' and P .. 'queue:failed' or P .. status .. ':' .. queue, expiry, id)
redis.call('HSET', key, 'status', status, ...)
tally(what, queue, class, tied[key] and rare(1, key))
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
if hooked[key] then rare(60, id, key, queue, status) end
end
--@include/job/park.lua:19
local parked = false
--@include/job/claim.lua:22
local function on_claim(id, key, queue)
if tied[key] then
if tied[key] ~= 'k' and string.find(tied[key], 'u', 1, true) then pcall(rare, 64, id, key, 'started') end
end
end
--@include/job/claim.lua:101
local function look(queue, count, set, text, class)
if text then
local found = redis.call('ZREVRANGEBYSCORE', (P .. 'queue:' .. queue), text, '(' .. class, 'LIMIT', '0', count)
if found[1] then
return { found = found, at = 0, step = 1, whole = false, id = nil, class = class, score = nil }
end
end
local more = not set and fifos[queue] and not (queue == 'scheduler') and rare(92, queue)
--@include/job/claim.lua:110
local last = count == 1 and '0' or count == 2 and '1' or count - 1
local found = redis.pcall('ZREVRANGE', set and (P .. 'waits:' .. set) or (fifos[queue] ~= false and in_fifo(queue) and (P .. 'fifo:' .. queue) or (P .. 'queue:' .. queue)), '0', last, 'WITHSCORES')
if set and found.err then
error(found)
elseif set then
elseif found.err and not fifos[queue] then
fifos[queue] = nil
if not in_fifo(queue) then error(found) end
more = rare(92, queue)
found = redis.call('ZREVRANGE', (fifos[queue] ~= false and in_fifo(queue) and (P .. 'fifo:' .. queue) or (P .. 'queue:' .. queue)), '0', count - 1, 'WITHSCORES')
elseif found.err then
error(found)
elseif not found[1] and (queue == 'scheduler') then
more = rare(91, queue)
found = redis.call('ZREVRANGE', (fifos[queue] ~= false and in_fifo(queue) and (P .. 'fifo:' .. queue) or (P .. 'queue:' .. queue)), '0', count - 1, 'WITHSCORES')
end
local whole = #found < 2 * count and (set or not (queue == 'scheduler') or not found[1])
return { found = found, at = -1, step = 2, whole = whole, id = nil, class = nil, score = nil, aside = nil }, more
end
--@include/job/claim.lua:132
local function advance(line)
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
rare(79, id, queue, nil, 'the queue names what is no job')
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
job = rare(96, key)
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
rare(79, id, queue, nil, 'the queue names a job of stock RQ')
return false
end
if set then
if status ~= 'blocked' or redis.call('HGET', key, 'waits_in') ~= set then return false end
elseif status ~= 'queued' and is_elsewhere(status) then
return false
end
if ties then tied[key] = ties end
if not data then
rare(79, id, queue, nil, 'the queue names a job that has no data', not head.score or head.score % 1 ~= 0)
return false
end
if expires and (tonumber(expires) or math.huge) <= now_ms then
rare(97, id, key, queue, set, job)
unexpected[#unexpected + 1] = id
return false, true
end
--@include/job/claim.lua:294
local placed = (not head.score or head.score % 1 ~= 0) and (fresh or tonumber(seq))
local own = placed and origin == queue
if fresh and not own then seq = redis.call('HGET', key, 'seq') end
if own and not set and (deliveries or lacking) then
local task = lacking and (func or string.match(data, '^%["([%w_.]+)"'))
if rare(94, queue, id, key, head, task, deliveries, log_tag) then return nil end
end
local ahead = ties and (string.sub(exec, -1)) == "a"
if ahead and string.find(ties, 'm', 1, true) then return 'keyed' end
local others = ties ~= 'k' and ties
local keyed = ties and (not others or string.find(others, 'k', 1, true))
if keyed and not behind then
local ok, has
ok, has, name = pcall(rare, 21, id, key, queue, head.score, log_tag, ahead, name)
if not ok then return rare(95, id, key, queue, set, log_tag, has) end
if has == nil then return 'keyed' end
if not has then
if set then
redis.call('ZREM', (P .. 'waits:' .. set), id)
if string.sub(set, 1, 5) == 'held:' then redis.call('HSET', key, 'wanted', 1) end
on_arrive(id, key, queue)
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
redis.call('HSET', key, 'seq', rare(34), 'priority', head.class, 'origin', queue)
rare(36, seq, origin, was, queue, head.class)
redis.call('SADD', P .. 'queues', (P .. 'queue:' .. queue))
rare(57, key)
if seq and origin then rare(89, key, origin, queue) end
if not seq and rare(88, key, data) then job.serializer = 'pickle' end
if job then job.origin = queue end
end
if not fresh then redis.call('PERSIST', key) end
if set then rare(86, id, key, queue) end
if set or not placed then on_arrive(id, key, queue) end
on_claim(id, key, queue)
if expires then unexpected[#unexpected + 1] = id end
emit('processing', id, queue, log_tag, 'worker', ARGV[1])
local follows = behind and exec .. ' ' .. behind.exec
if follows then redis.call('HSET', key, 'follows', follows) end
if name and not (behind or others and string.find(others, 'm', 1, true)) then
chains[#chains + 1] = { name = name, id = id, exec = exec }
end
--@include/job/claim.lua:354
local more
if others and string.find(others, '[bgmr]') or ahead and keyed then
if string.find(ties, 'g', 1, true) then rare(87, key) end
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
--@include/gates/turn_gates.lua:5
local gates = {}
local opens
--@
rare = function(nth, ...)
if not groups_made then groups_made = {} end
if nth <= 32 then
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
if rate or own_rate then known.interval, known.burst = rare(49, rate or own_rate) end
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
local room = rare(51, tat, now, interval, burst)
local upto = redis.call('ZCARD', held) - idle + room
if upto >= limit then return limit end
--@include/limit/limit.lua:74
return upto, room < burst and math.floor((now + rare(50, tat, now, interval, burst) - (burst - room - 1) * interval)
/ 1000) + 1 or nil
end
--@include/limit/limit.lua:79
local function look_at_limit(member, ms)
redis.call('ZADD', P .. 'limits:due', 'LT', ms, member)
soonest = math.min(soonest or ms, ms)
if (redis.call('ZRANGE', P .. 'limits:due', 0, 0)[1]) == member then rare(40, ms) end
end
--@include/limit/limit.lua:88
local function place_in_key(key, queue, score, arrives)
if not rare(53, queue) then return score end
local seq, known, priority, ran = unpack(redis.call('HMGET', key, 'seq', 'place_in_key', 'priority', 'deliveries'))
if not (known or arrives and not ran) or not tonumber(seq) or tonumber(seq) < 0 then return score end
local turn, place = string.match(known or '', '^(%S+) (%S+)$')
if turn ~= seq then
place = rare(34)
redis.call('HSET', key, 'place_in_key', seq .. ' ' .. string.format('%d', place))
end
return rare(33, queue, priority, place)
end
--@include/limit/limit.lua:101
local function put_in_line(name, id, key, queue, score, log_tag)
redis.call('ZADD', (P .. 'limits:waiting:' .. name), score, id)
redis.call('ZADD', P .. 'blocked:' .. queue, '+inf', id)
redis.call('HSET', key, 'status', 'blocked', 'waits_in', 'limit:' .. name)
redis.call('ZREM', (fifos[queue] ~= false and in_fifo(queue) and (P .. 'fifo:' .. queue) or (P .. 'queue:' .. queue)), id)
emit('blocked', id, queue, log_tag, 'reason', 'limit', 'limit', name)
end
--@include/limit/limit.lua:111
local function admit(name, id, score, behind)
local key, took = (P .. 'job:' .. id), 0
local status, queue, log_tag, set, place = unpack(redis.call('HMGET', key, 'status', 'origin', 'log_tag', 'waits_in',
'place_in_key'))
if status ~= 'blocked' or set ~= 'limit:' .. name then
if status == 'started' and redis.call('ZRANGE', rare(47, name), 0, 0)[1] == id then
took = redis.call('ZADD', (P .. 'limits:held:' .. name), '+inf', id)
end
redis.call('ZREM', (P .. 'limits:waiting:' .. name), id)
return took
end
local at = score
if place then
local priority, seq = unpack(redis.call('HMGET', key, 'priority', 'seq'))
if tonumber(seq) then at = rare(33, queue, priority, seq) end
end
rare(35, queue, at, id)
if not behind then took = redis.call('ZADD', (P .. 'limits:held:' .. name), score, id) end
redis.call('HSET', key, 'status', 'queued')
redis.call('HDEL', key, 'waits_in')
redis.call('ZREM', P .. 'blocked:' .. queue, id)
redis.call('ZREM', (P .. 'limits:waiting:' .. name), id)
emit('queued', id, queue, log_tag, 'reason', 'admitted')
if behind then return took end
if unrung then unrung[queue] = true else ring(queue, (math.max(0, math.min(255, math.floor(tonumber(score) or 1))))) end
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
if rare(51, tat, now, interval, burst) < 1 then return false end
redis.call('HSET', (P .. 'limit:' .. name), 'tat', string.format('%.17g', rare(52, tat, now, interval, burst, 1)))
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
local score = redis.call('ZSCORE', (fifos[queue] ~= false and in_fifo(queue) and (P .. 'fifo:' .. queue) or (P .. 'queue:' .. queue)), id)
if not score then return end
return arrive_like_others(name, id, key, queue, place_in_key(key, queue, score, true), log_tag, known)
end
local changed = name_limit(name, max, rate, named)
local score, held, way = redis.call('ZSCORE', (fifos[queue] ~= false and in_fifo(queue) and (P .. 'fifo:' .. queue) or (P .. 'queue:' .. queue)), id), (P .. 'limits:held:' .. name), nil
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
score = score or redis.call('ZSCORE', (fifos[queue] ~= false and in_fifo(queue) and (P .. 'fifo:' .. queue) or (P .. 'queue:' .. queue)), id)
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
local first = redis.call('ZRANGE', rare(47, name), 0, 0)[1]
if first and not redis.call('ZSCORE', (P .. 'limits:held:' .. name), first) then
redis.call('ZADD', (P .. 'limits:waiting:' .. name), '512', first)
end
settle_key(name)
end
--@include/limit/limit.lua:440
local function free_lock(name, id)
redis.call('ZREM', rare(47, name), id)
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
groups_made[1] = { counters_of_key, note_more, write_more, closed_until, bounds_of, limit_of, look_at_limit, place_in_key, put_in_line, admit, step_back, settle_now, settle_key, settle_all, name_limit, in_use_of, may_start, look_once, arrive_like_others, arrive_at_limit, take_slot, stop_counting, keep_for_worker, pass_slot_on, locks_of, write_locks, settle_lock, free_lock, free_locks, leave_limit, is_parent, pin_while_read }
end
return groups_made[1][nth](...)
end
if nth <= 46 then
if not groups_made[2] then
--@include/lib/ring.lua:11
local woken
--@include/job/schedule.lua:17
local instants = {}
--@include/lib/score.lua:11
local function score_of(q, class, n) return ((class == '1' or (q == 'scheduler')) and 1 or (math.max(0, math.min(255, math.floor(tonumber(class) or 1))))) + 0.5 - n * (2 ^ -44) end
--@include/lib/score.lua:13
local function next_seq() return redis.call('INCR', P .. 'seq') end
--@include/lib/score.lua:16
local function enter_line(queue, score, id)
local added = redis.pcall('ZADD', (fifos[queue] ~= false and in_fifo(queue) and (P .. 'fifo:' .. queue) or (P .. 'queue:' .. queue)), score, id)
if type(added) == 'number' then return end
if fifos[queue] ~= false then error(added) end
fifos[queue] = nil
if not in_fifo(queue) then error(added) end
redis.call('ZADD', (fifos[queue] ~= false and in_fifo(queue) and (P .. 'fifo:' .. queue) or (P .. 'queue:' .. queue)), score, id)
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
--@include/limit/limit.lua:512
local function on_leave(id, key, queue, how)
if tied[key] then
pcall(rare, 30, id, key, how)
pcall(rare, 29, id, key)
end
end
--@include/job/expiry.lua:10
local function forget_expiry(id, expires_at)
if expires_at then redis.pcall('ZREM', P .. 'expiring', id) end
end
--@include/job/end_job.lua:57
local function fail_job(id, key, queue, class, leave, log_tag, ttl, reason, told, ...)
end_job(id, key, queue, class, 'failed', tonumber(ttl) or FAILURE_TTL, leave, 'reason', reason, ...)
pcall(rare, 78, id, key)
emit('failed', id, queue, log_tag, unpack(told))
end
--@include/job/end_job.lua:82
local function discard(id, key, queue, log_tag, tell)
local class, hooks = unpack(redis.call('HMGET', key, 'priority', 'hooks'))
if tell and hooks then hooked[key] = true end
end_job(id, key, queue, class, 'discarded', 86400, (fifos[queue] ~= false and in_fifo(queue) and (P .. 'fifo:' .. queue) or (P .. 'queue:' .. queue)), 'ended_at', now_iso,
'reason', 'discarded')
forget_expiry(id, true)
emit('canceled', id, queue, log_tag, 'reason', 'discarded')
end
--@
groups_made[2] = { score_of, next_seq, enter_line, meet, wildcards_of, push, wake, ring_scheduler, score_at, schedule, on_leave, forget_expiry, fail_job, discard }
end
return groups_made[2][nth - 32](...)
end
if nth <= 108 then
if not groups_made[3] then
--@include/job/turns.lua:16
local fair = {}
--@include/lib/keys.lua:62
local function locks_key(name) return P .. 'limits:locks:' .. name end
--@include/lib/keys.lua:71
local function unique_key(name) return P .. 'unique:' .. name end
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
local ready, turns = (fifos[queue] ~= false and in_fifo(queue) and (P .. 'fifo:' .. queue) or (P .. 'queue:' .. queue)), { last = {}, count = 0 }
local first = tonumber(known) or class + 0.5
local best = redis.call('ZRANGE', ready, first, '(' .. name, 'BYSCORE', 'REV', 'LIMIT', 0, 1, 'WITHSCORES')[2]
turns.clock = tonumber(best) or rare(33, queue, class, seq)
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
local seq = rare(34)
local id = string.format('cb-%d%06d-%d', now_s, now_us, seq)
local key = (P .. 'job:' .. id)
local said = cjson.encode(message)
local secret = redis.pcall('GET', P .. 'callbacks:secret')
local seal = type(secret) == 'string' and '"' .. redis.sha1hex(secret .. redis.sha1hex(secret .. id .. said)) .. '"'
or ''
redis.call('SADD', P .. 'queues', (P .. 'queue:' .. '_callbacks'))
redis.call('ZADD', (P .. 'queue:' .. '_callbacks'), rare(33, '_callbacks', 1, seq), id)
redis.call('HSET', key, 'status', 'queued', 'origin', '_callbacks', 'original_queue', '_callbacks', 'created_at',
now_iso, 'enqueued_at', now_iso, 'priority', 1, 'seq', seq, 'description', 'callback of ' .. message.job_id,
'on_lost', 'again', 'result_ttl', 86400, 'failure_ttl', 604800,
'data', '["fusion.courier.deliver",null,[' .. seal .. '],' .. said .. ']')
rare(36, nil, nil, nil, '_callbacks', 1)
redis.call('ZADD', P .. 'callbacks:open', now_s, id)
on_arrive(id, key, '_callbacks')
ring('_callbacks', 1)
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
rare(45, record, (P .. 'job:' .. record), queue, class, nil, '', nil, why, { 'reason', why }, 'origin', queue,
'original_queue', queue, 'ended_at', now_iso, 'exc_info', why, 'raw_id', raw, 'seq', '')
if not marked and not (known and kind == 'none') then rare(36, nil, nil, nil, queue, class) end
if leave then redis.call('ZREM', leave, id) end
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
--@include/job/park.lua:15
local function has_room(set)
return redis.call('HEXISTS', P .. 'waits', set) == 1 or redis.call('HLEN', P .. 'waits') <= 1000
end
--@include/job/park.lua:22
local function ring_set(set, class)
local queue = (string.match(set, '^%a+:([^:]+)'))
local paused, closed = (P .. 'paused:' .. queue), (P .. 'wake:' .. queue .. ':closed')
rare(38, (P .. 'wake:' .. set), paused, closed)
local best = class or (math.max(0, math.min(255, math.floor(tonumber((redis.pcall('ZREVRANGE', (P .. 'waits:' .. set), 0, 0, 'WITHSCORES')[2])) or 1))))
if best >= 2 then rare(38, (P .. 'wake:' .. set .. ':high'), paused, closed) end
end
--@include/job/park.lua:32
local function park(id, key, queue, set, score, until_ms, why, ...)
redis.call('ZADD', (P .. 'waits:' .. set), score, id)
redis.call('ZADD', P .. 'blocked:' .. queue, until_ms, id)
redis.call('HSET', key, 'status', 'blocked', 'waits_in', set, ...)
redis.call('PERSIST', key)
--@include/job/park.lua:39
local keeps = string.sub(set, 1, 10) == 'probation:'
or tied[key] and rare(23, id, key, rare(8, key, queue, score))
if not keeps then rare(43, id, key, queue) end
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
if origin and origin ~= queue and tonumber(redis.pcall('ZSCORE', (fifos[origin] ~= false and in_fifo(origin) and (P .. 'fifo:' .. origin) or (P .. 'queue:' .. origin)), id)) then return end
if redis.call('ZSCORE', ready, id) then return end
if struck == 'again' then return end
if struck == 'struck' then return move_back(queue, id) end
local seq = turn_of(queue, 1, rare(34), '')
redis.call('ZADD', ready, rare(33, queue, 1, seq), id)
if not known then note_pickle(key, data) end
if known and origin then keep_origin(key, origin, queue) end
redis.call('HSET', key, 'status', 'queued', 'seq', seq, 'origin', queue)
rare(36, known, origin, class, queue, class)
mark_hooks(key)
redis.call('SADD', P .. 'queues', (P .. 'queue:' .. queue))
if (not known or ties) and on_arrive(id, key, queue) == 'discard' then rare(46, id, key, queue, nil, true) end
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
return head.score or tonumber(redis.call('ZSCORE', (fifos[queue] ~= false and in_fifo(queue) and (P .. 'fifo:' .. queue) or (P .. 'queue:' .. queue)), head.id))
end
--@include/job/claim.lua:177
local function set_aside(queue, id, key, head, task, deliveries, log_tag)
if (tonumber(deliveries) or 0) >= PROBATION then
local lost, on_lost = unpack(redis.call('HMGET', key, 'lost', 'on_lost'))
if (tonumber(lost) or 0) >= PROBATION and on_lost ~= 'again' then
local score = score_in(queue, head)
park(id, key, queue, 'probation:' .. queue, score, '+inf', 'lost again and again: each runs alone')
emit('blocked', id, queue, log_tag, 'worker', ARGV[1], 'reason', 'probation')
return true
end
end
local why, set = task and lacking[task], task and 'held:' .. queue .. ':' .. task
if not why or not has_room(set) then return false end
local since = tonumber(redis.call('HGET', key, 'held_since'))
park(id, key, queue, set, score_in(queue, head), (since or now_ms) + HOLD_MS, why, 'held_since', since or now_ms,
'reason', why)
if not since then emit('blocked', id, queue, log_tag, 'worker', ARGV[1], 'reason', string.match(why, '^[%w_.]*')) end
return true
end
--@include/job/claim.lua:197
local function put_off_broken(id, key, queue, set, log_tag, why)
rare(42, id, now_ms + 30000)
redis.call('HSET', key, 'status', 'scheduled', 'reason', error_text(why))
if set then unpark(id, key, queue) end
emit('held', id, queue, log_tag, 'worker', ARGV[1], 'reason', 'its concurrency key is broken')
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
end_job(id, key, queue, class, 'expired', 86400, nil, 'origin', queue, 'ended_at', now_iso, 'reason',
'expired', 'seq', job.seq or '')
rare(36, job.seq, job.origin, class, queue, class)
if set then unpark(id, key, queue) end
emit('expired', id, queue, job.log_tag, 'reason', 'waited longer than its ttl')
end
--@include/job/claim.lua:227
local function add_to(list, ...)
local words = { ... }
list[#list + 1] = #words
for _, word in ipairs(words) do list[#list + 1] = word end
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
--@
groups_made[3] = { locks_key, unique_key, rate_of, used_ahead, rate_room, rate_spend, has_turns, open_turns, forget_turns, turn_of, mark_hooks, is_full, accept_delivery, tell_ended, do_later, release_later, end_for_kin, let_go, set_due, settle_batch, open_member, enter_batch, leave_batch, let_read_end, end_callback, leave_batches, is_counted_in, count_failure, take_out_failure, drop_failure_group, failure_group_for, join_failure, fail_corrupt, passed, is_struck, move_back, has_room, ring_set, park, unpark, take_given, note_pickle, keep_origin, take_over_one, take_over, gather, score_in, set_aside, put_off_broken, read_by_name, end_expired, add_to, gate_word, held_until, without_until, forget_until, read_gate, is_awaited, read_gates, is_open, note_start, keep_gate }
end
return groups_made[3][nth - 46](...)
end
end
--@follow.lua:16
local incarnation, memory = unpack(command('HMGET', KEYS[1], 'incarnation', 'follow'))
if incarnation ~= argv[2] then return { 'unregistered', 0 } end
local execution, given, first = argv[7] .. '.' .. argv[3] .. '.', {}, argv[7] .. ' ' .. argv[3] .. ' '
if memory and string.sub(memory, 1, #first) == first then
reply[1], reply[2] = 'ok', tonumber(string.sub(memory, #first + 1, #first + 1)) or 0
local i = 0
for id in string.gmatch(memory, '\n(%S+)') do
i = i + 1
local exec, job = execution .. i, redis.pcall('HMGET', (P .. 'job:' .. id), 'status', 'execution_id', "data", "func", "created_at", "ties", "origin", "log_tag", "serializer", "timeout", "ttl", "meta", "priority", "description", "attempts", "retryCount", "retry", "enqueued_at", "on_success", "on_failure", "held_since", "isolate", "on_stopped", "success_task_handler", "failed_task_handler", "callback_url", "on_lost", "signature", "cursor", "suspect", "keep_logs",
"takes", "batch", "given", "given_as", "gather", "repeats_left", "repeat_intervals")
if job[1] == 'started' and job[2] == exec then
rare(98, reply, argv[5], id, exec, unpack(job, 3, 2 + 29 + 7))
end
end
return reply
end
--@follow.lua:34
local function is_alike(entry)
if entry.class ~= tonumber(ARGV[6]) or entry.aside or not (#entry.id <= 128 and (string.find(entry.id, '^%w+$') or string.find(entry.id, '^[%w_.:-]+$')) ~= nil) then return false end
local job = redis.pcall('HMGET', (P .. 'job:' .. entry.id), 'status', 'gather', 'func', 'serializer', 'origin', 'suspect')
return not job.err and job[1] == 'queued' and job[2] == ARGV[11] and job[3] == ARGV[10]
and (job[4] or '') == ARGV[12] and job[5] == ARGV[5] and (job[6] or '0') == '0'
end
--@follow.lua:42
local function is_on_probation()
local found = redis.pcall('HMGET', (P .. 'job:' .. ARGV[9]), 'lost', 'on_lost')
return (tonumber(found[1]) or 0) >= PROBATION and found[2] ~= 'again'
end
--@follow.lua:47
if is_on_probation() or command('EXISTS', KEYS[2], (P .. 'paused:' .. argv[5])) > 0
or rare(105, { [0] = argv[5] }, 1)[1] then
return { 'closed', 0 }
end
unrung = {}
local n, out, more = tonumber(argv[8]), {}, 1
reply[1], reply[2] = 'ok', 0
local head = look(argv[5], n, nil)
advance(head)
while #given < n and head.id do
if not is_alike(head) or gates[0] and not rare(106, 0, false) then
more = 0
break
end
local ok, job = pcall(take, argv[5], head, execution .. (#given + 1), nil)
if not ok then
more = 0
break
end
out[#out + 1] = head.id
if job then
if gates[0] then rare(107, 0) end
given[#given + 1] = head.id
end
advance(head)
end
--@follow.lua:74
if leased[argv[5]] and leased[argv[5]][1] then command('ZADD', (P .. 'wip:' .. argv[5]), unpack(leased[argv[5]])) end
if held[1] then command('HSET', (P .. 'worker:' .. argv[1] .. ':jobs'), unpack(held)) end
if unexpected[1] then command('ZREM', P .. 'expiring', unpack(unexpected)) end
if out[1] then command('ZREM', (fifos[argv[5]] ~= false and in_fifo(argv[5]) and (P .. 'fifo:' .. argv[5]) or (P .. 'queue:' .. argv[5])), unpack(out)) end
if given[1] then redis.pcall('ZADD', P .. 'leases', 'NX', LEASE_END, argv[5]) end
if gates[0] then
if rare(108, 0, argv[5], head.id and head, nil, #given) then ring(argv[5], head.class) end
end
local rung = unrung
unrung = nil
for queue in pairs(rung) do ring(queue) end
if unsettled then rare(14) end
command('HSET', KEYS[1], 'follow', first .. more .. (given[1] and '\n' .. table.concat(given, '\n') or ''))
give_back_numbers()
write_tallies()
reply[2] = more
return reply
