-- KEYS: releasing
-- ARGV: limit
-- FLAGS: allow-oom
--@
local rare, groups_made
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
--@include/lib/score.lua:26
local function line_up(queue, id, priority, seq)
if (queue == 'scheduler') then
redis.call('RPUSH', (P .. 'queue:' .. queue), id)
else
enter_line(queue, (((priority == '1' or (queue == 'scheduler')) and 1 or (math.max(0, math.min(255, math.floor(tonumber(priority) or 1))))) + 0.5 - seq * (2 ^ -44)), id)
end
end
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
local matching = any and rare(29, queue)
if matching and matching[1] then
class = class or (math.max(0, math.min(255, math.floor(tonumber((redis.pcall('ZREVRANGE', (fifos[queue] ~= false and in_fifo(queue) and (P .. 'fifo:' .. queue) or (P .. 'queue:' .. queue)), 0, 0, 'WITHSCORES')[2])) or 1))))
local stopped = not known and redis.call('EXISTS', P .. 'suspended', paused, closed) > 0
for _, wildcard in ipairs(matching) do
if not known then redis.pcall('ZADD', (P .. 'work:' .. wildcard), 'GT', class, queue) end
if not stopped then rare(31, wildcard, class) end
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
--@include/limit/limit.lua:504
local function on_arrive(id, key, queue, named)
if tied[key] then return rare(17, id, key, queue, named) end
end
--@include/job/callbacks.lua:7
local hooked = {}
--@include/job/on_end.lua:7
local function on_end(id, key, queue, status)
if tied[key] then
if string.find(tied[key], 'k', 1, true) then pcall(rare, 25, id, key, status) end
if tied[key] == 'k' then return end
if string.find(tied[key], 'u', 1, true) then pcall(rare, 72, id, key, status) end
if string.find(tied[key], 'b', 1, true) then pcall(rare, 80, id, key, queue, status) end
if string.find(tied[key], '[pc]') then pcall(rare, 70, id, key) end
if tied[key] and string.find(tied[key], 'l', 1, true) then pcall(rare, 24, id, key) end
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
local pinned = others and rare(27, id, key, expiry)
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
if hooked[key] then rare(58, id, key, queue, status) end
end
--@include/job/forget.lua:5
local function forget(id, key, status, queue, away)
local found = redis.call('ZREM', set_of(status, queue), id)
if found == 0 and (queue == 'scheduler') and not is_elsewhere(status) then rare(93, queue, id) end
if queue == '_callbacks' then redis.pcall('ZREM', P .. 'callbacks:open', id) end
if not is_terminal(status) then on_end(id, key, queue, 'deleted') end
if status == 'failed' then pcall(rare, 84, id, key) end
if tied[key] then rare(71, id, key) end
if redis.pcall('EXISTS', P .. 'logs') == 1 then rare(94, id) end
if away and away() then
redis.call('UNLINK', (P .. 'job:' .. id .. ':dependents'))
else
redis.call('UNLINK', key, (P .. 'job:' .. id .. ':dependents'))
end
end
--@include/deps/release_some.lua:6
local work_left, worked_off = 0, 0
--@include/deps/release_some.lua:62
local function work_off(kind, id)
if kind == 'u' then
work_left = work_left - 1
if rare(61, redis.call('HGET', (P .. 'job:' .. id), 'graph')) then
redis.call('ZADD', P .. 'releasing', now_ms + 30000, 'u ' .. id)
return false
end
if rare(39, id, (P .. 'job:' .. id), '') then worked_off = worked_off + 1 end
elseif kind == 'c' or kind == 'b' then
local limit = work_left
work_left = work_left - rare(43, id, limit, kind == 'b')
worked_off = worked_off + limit - work_left
return work_left > 0
elseif kind == 'p' then
local key = (P .. 'job:' .. id)
local status, queue = unpack(redis.call('HMGET', key, 'status', 'origin'))
work_left = work_left - 1
if status and not is_terminal(status) then return true end
work_left = work_left - rare(68, id, key)
while work_left > 0 do
local count = rare(69, id, not status)
if not count then
local score = status and redis.call('ZSCORE', set_of(status, queue), id)
redis.call('ZREM', P .. 'releasing', 'p ' .. id)
if score then rare(64, id, key, score) end
return true
end
work_left = work_left - count
end
return false
elseif kind == 'a' then
return rare(95, id)
elseif kind == 'g' or kind == 'x' then
return rare(96, kind, id)
end
return true
end
--@include/deps/release_some.lua:101
local function release_batch()
local found = redis.call('ZRANGEBYSCORE', P .. 'releasing', '-inf', now_ms, 'LIMIT', 0, work_left)
for _, what in ipairs(found) do
if work_left <= 0 then return false end
local ok, over = pcall(work_off, string.match(what, '^(%a) (.*)$'))
if not ok then
redis.call('ZADD', P .. 'releasing', now_ms + 30000, what)
elseif over then
redis.call('ZREM', P .. 'releasing', what)
end
end
return found[1]
end
--@
rare = function(nth, ...)
if not groups_made then groups_made = {} end
if nth <= 27 then
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
--@include/limit/limit.lua:31
local unrung
local unsettled
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
if rate or own_rate then known.interval, known.burst = rare(53, rate or own_rate) end
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
local room = rare(55, tat, now, interval, burst)
local upto = redis.call('ZCARD', held) - idle + room
if upto >= limit then return limit end
--@include/limit/limit.lua:74
return upto, room < burst and math.floor((now + rare(54, tat, now, interval, burst) - (burst - room - 1) * interval)
/ 1000) + 1 or nil
end
--@include/limit/limit.lua:79
local function look_at_limit(member, ms)
redis.call('ZADD', P .. 'limits:due', 'LT', ms, member)
soonest = math.min(soonest or ms, ms)
if (redis.call('ZRANGE', P .. 'limits:due', 0, 0)[1]) == member then rare(32, ms) end
end
--@include/limit/limit.lua:88
local function place_in_key(key, queue, score, arrives)
if not rare(46, queue) then return score end
local seq, known, priority, ran = unpack(redis.call('HMGET', key, 'seq', 'place_in_key', 'priority', 'deliveries'))
if not (known or arrives and not ran) or not tonumber(seq) or tonumber(seq) < 0 then return score end
local turn, place = string.match(known or '', '^(%S+) (%S+)$')
if turn ~= seq then
place = next_seq()
redis.call('HSET', key, 'place_in_key', seq .. ' ' .. string.format('%d', place))
end
return (((priority == '1' or (queue == 'scheduler')) and 1 or (math.max(0, math.min(255, math.floor(tonumber(priority) or 1))))) + 0.5 - place * (2 ^ -44))
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
if status == 'started' and redis.call('ZRANGE', rare(44, name), 0, 0)[1] == id then
took = redis.call('ZADD', (P .. 'limits:held:' .. name), '+inf', id)
end
redis.call('ZREM', (P .. 'limits:waiting:' .. name), id)
return took
end
local at = score
if place then
local priority, seq = unpack(redis.call('HMGET', key, 'priority', 'seq'))
if tonumber(seq) then at = (((priority == '1' or (queue == 'scheduler')) and 1 or (math.max(0, math.min(255, math.floor(tonumber(priority) or 1))))) + 0.5 - seq * (2 ^ -44)) end
end
enter_line(queue, at, id)
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
--@include/limit/limit.lua:356
local function stop_counting(name, id, key)
if string.find(tied[key], 't') then redis.call('ZREM', P .. 'limits:due', name .. ' ' .. id) end
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
local first = redis.call('ZRANGE', rare(44, name), 0, 0)[1]
if first and not redis.call('ZSCORE', (P .. 'limits:held:' .. name), first) then
redis.call('ZADD', (P .. 'limits:waiting:' .. name), '512', first)
end
settle_key(name)
end
--@include/limit/limit.lua:440
local function free_lock(name, id)
redis.call('ZREM', rare(44, name), id)
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
groups_made[1] = { counters_of_key, note_more, write_more, closed_until, bounds_of, limit_of, look_at_limit, place_in_key, put_in_line, admit, step_back, settle_now, settle_key, name_limit, look_once, arrive_like_others, arrive_at_limit, stop_counting, pass_slot_on, locks_of, write_locks, settle_lock, free_lock, free_locks, leave_limit, is_parent, pin_while_read }
end
return groups_made[1][nth](...)
end
if nth <= 43 then
if not groups_made[2] then
--@include/lib/ring.lua:11
local woken
--@include/job/schedule.lua:17
local instants = {}
--@include/deps/undefer.lua:7
local released = {}
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
--@include/job/expiry.lua:6
local function expect_expiry(id, expires_at)
if tonumber(expires_at) then redis.pcall('ZADD', P .. 'expiring', expires_at, id) end
end
--@include/job/expiry.lua:10
local function forget_expiry(id, expires_at)
if expires_at then redis.pcall('ZREM', P .. 'expiring', id) end
end
--@include/job/end_job.lua:57
local function fail_job(id, key, queue, class, leave, log_tag, ttl, reason, told, ...)
end_job(id, key, queue, class, 'failed', tonumber(ttl) or FAILURE_TTL, leave, 'reason', reason, ...)
pcall(rare, 87, id, key)
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
--@include/deps/undefer.lua:11
local function undefer(id, key, queue, front)
local status, origin, priority, log_tag, ties, fair_key, at_front, due, ttl, hooks = unpack(redis.call('HMGET', key,
'status', 'origin', 'priority', 'log_tag', 'ties', 'fair_key', 'at_front', 'due', 'ttl', 'hooks'))
if status ~= 'deferred' then return false end
queue = origin or queue
if ties then
ties = string.gsub(ties, 'h', '')
tied[key] = ties ~= '' and ties or nil
end
front, due = front or at_front, tonumber(due)
local later, seq = due and due > now_ms, nil
redis.call('SADD', P .. 'queues', (P .. 'queue:' .. queue))
if later then
schedule(id, due)
redis.call('HSET', key, 'status', 'scheduled', 'ties', ties or '', unpack(front and { 'at_front', 1 } or {}))
else
seq = front and -redis.call('INCR', P .. 'seq:front') or rare(49, queue, priority, next_seq(), fair_key or '')
if front then enter_line(queue, (((priority == '1' or (queue == 'scheduler')) and 1 or (math.max(0, math.min(255, math.floor(tonumber(priority) or 1))))) + 0.5 - seq * (2 ^ -44)), id) else line_up(queue, id, priority, seq) end
redis.call('HSET', key, 'status', 'queued', 'ties', ties or '', 'seq', seq, 'enqueued_at', now_iso)
redis.call('HDEL', key, 'at_front', 'arrival')
end
local given = not tonumber(ttl) and rare(52, queue)
if given then redis.call('HSET', key, 'queue_timeout', given) end
ttl = given or tonumber(ttl) and ttl * 1000
if ttl then
local expires_at = math.floor((later and due or now_ms) + ttl)
redis.call('HSET', key, 'expires_at', expires_at)
expect_expiry(id, expires_at)
end
redis.call('HDEL', key, 'due', 'reason')
redis.call('ZREM', set_of('deferred', queue), id)
if later then
emit('scheduled', id, queue, log_tag, 'reason', 'released', 'due', iso(math.floor(due / 1000), due % 1000 * 1000))
return true
end
emit('queued', id, queue, log_tag, 'reason', 'released')
local way = on_arrive(id, key, queue)
if way == 'discard' then
discard(id, key, queue, log_tag, true)
elseif not way then
released[queue] = math.max(released[queue] or 0, (math.max(0, math.min(255, math.floor(tonumber(priority) or 1)))))
end
return true
end
--@include/deps/undefer.lua:56
local function ring_released()
for queue, class in pairs(released) do ring(queue, class) end
end
--@include/deps/settle_children.lua:6
local function fail_child(id, key, queue, parent, how)
rare(88, id, key, queue, 'fusion.exceptions.DependencyFailed', 'its parent ' .. parent .. ' was ' .. how)
end
--@include/deps/settle_children.lua:11
local function settle_child(parent, id, score, met, gone, how)
local key, children, unmet = (P .. 'job:' .. id), (P .. 'job:' .. parent .. ':children'), (P .. 'job:' .. id .. ':dependencies')
local status, queue = unpack(redis.call('HMGET', key, 'status', 'origin'))
if not status or is_terminal(status) then return redis.call('ZREM', children, id) end
if status == 'deferred' then
if met then
redis.call('SREM', unmet, parent, '?' .. parent, '~' .. parent)
elseif not gone and redis.call('SISMEMBER', unmet, '~' .. parent) == 1 then
return redis.call('ZADD', children, score + (2 ^ 44), id)
elseif redis.call('SREM', unmet, '?' .. parent) == 0 and redis.call('SISMEMBER', unmet, parent) == 1
or redis.call('SISMEMBER', unmet, '~' .. parent) == 1 then
if redis.call('HGET', key, 'graph') then
redis.call('HSET', key, 'doomed', parent .. ' ' .. how)
else
fail_child(id, key, queue, parent, how)
return redis.call('ZREM', children, id)
end
end
if redis.call('EXISTS', unmet) == 0 then undefer(id, key, queue) end
end
if gone then return redis.call('ZREM', children, id) end
redis.call('ZADD', children, '+inf', id)
end
--@include/deps/settle_children.lua:38
local function settle_children(id, limit, met)
local key, children = (P .. 'job:' .. id), (P .. 'job:' .. id .. ':children')
local status, reason, quarantined = unpack(redis.call('HMGET', key, 'status', 'reason', 'quarantined'))
if status and not is_terminal(status) and not met then return 0 end
local how = status or 'deleted'
if status == 'canceled' and (reason == 'expired' or reason == 'discarded') then how = reason end
if status == 'failed' and quarantined then how = 'quarantined' end
met = met or status == 'finished'
local upto = not status and '+inf' or met and '(+inf' or string.format('(%.17g', (2 ^ 44))
local found = redis.call('ZRANGEBYSCORE', children, '-inf', upto, 'WITHSCORES', 'LIMIT', 0, limit)
for i = 1, #found, 2 do settle_child(id, found[i], tonumber(found[i + 1]), met, not status, how) end
if redis.call('EXISTS', children) == 0 then rare(66, id) end
return #found / 2
end
--@
groups_made[2] = { meet, wildcards_of, push, wake, ring_scheduler, score_at, schedule, expect_expiry, forget_expiry, fail_job, discard, undefer, ring_released, fail_child, settle_child, settle_children }
end
return groups_made[2][nth - 27](...)
end
if nth <= 97 then
if not groups_made[3] then
--@include/job/turns.lua:16
local fair = {}
--@include/job/room.lua:8
local gate_texts = {}
--@include/lib/keys.lua:62
local function locks_key(name) return P .. 'limits:locks:' .. name end
--@include/lib/keys.lua:71
local function unique_key(name) return P .. 'unique:' .. name end
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
turns.clock = tonumber(best) or (((class == '1' or (queue == 'scheduler')) and 1 or (math.max(0, math.min(255, math.floor(tonumber(class) or 1))))) + 0.5 - seq * (2 ^ -44))
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
--@include/job/room.lua:11
local function gate_of(queue)
if gate_texts[queue] == nil then
local text = redis.pcall('HGET', P .. 'gates', queue)
gate_texts[queue] = type(text) == 'string' and text
end
return gate_texts[queue]
end
--@include/job/room.lua:20
local function gate_value(text, name) return text and string.match(' ' .. text, ' ' .. name .. '=(%S+)') or nil end
--@include/job/room.lua:23
local function timeout_of(queue)
local ms = tonumber(gate_value(gate_of(queue), 'timeout')) or QUEUE_TIMEOUT
return ms > 0 and ms or nil
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
local seq = next_seq()
local id = string.format('cb-%d%06d-%d', now_s, now_us, seq)
local key = (P .. 'job:' .. id)
local said = cjson.encode(message)
local secret = redis.pcall('GET', P .. 'callbacks:secret')
local seal = type(secret) == 'string' and '"' .. redis.sha1hex(secret .. redis.sha1hex(secret .. id .. said)) .. '"'
or ''
redis.call('SADD', P .. 'queues', (P .. 'queue:' .. '_callbacks'))
redis.call('ZADD', (P .. 'queue:' .. '_callbacks'), (((1 == '1' or ('_callbacks' == 'scheduler')) and 1 or (math.max(0, math.min(255, math.floor(tonumber(1) or 1))))) + 0.5 - seq * (2 ^ -44)), id)
redis.call('HSET', key, 'status', 'queued', 'origin', '_callbacks', 'original_queue', '_callbacks', 'created_at',
now_iso, 'enqueued_at', now_iso, 'priority', 1, 'seq', seq, 'description', 'callback of ' .. message.job_id,
'on_lost', 'again', 'result_ttl', 86400, 'failure_ttl', 604800,
'data', '["fusion.courier.deliver",null,[' .. seal .. '],' .. said .. ']')
rare(28, nil, nil, nil, '_callbacks', 1)
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
--@include/deps/releasing.lua:18
local function is_coming(graph)
return graph and (redis.call('ZSCORE', P .. 'graphs', graph) or redis.call('ZSCORE', P .. 'releasing', 'x ' .. graph))
end
--@include/deps/kin.lua:18
local function parent_in(member)
local sign, id = string.match(member, '^([?~]?)(.*)$')
return sign, id
end
--@include/deps/kin.lua:40
local function is_read_in_batch(batch)
local read, complete, success = unpack(redis.call('HMGET', (P .. 'batch:' .. batch), 'read', 'on_complete', 'on_success'))
return not read and (complete or success)
end
--@include/deps/kin.lua:47
local function expire_later(id, key, score)
if tonumber(score) < math.huge and not redis.call('ZSCORE', P .. 'releasing', 'p ' .. id) then
redis.call('PEXPIRE', key, string.format('%d', 1000 * (math.max(tonumber(score) - now_s, 0) + 3600)))
end
end
--@include/deps/kin.lua:55
local function time_from_now(ttl, func)
local seconds = tonumber(ttl) or tonumber(func and 500 or RESULT_TTL)
if seconds < 0 then return nil end
return string.format('%d.%06d', now_s + math.min(math.max(seconds, 60), 1e9), math.max(1, now_us))
end
--@include/deps/kin.lua:63
local function unpin(id)
local key = (P .. 'job:' .. id)
local status, queue, pin, ttl, batch, func = unpack(redis.call('HMGET', key, 'status', 'origin', 'pin', 'result_ttl',
'batch', 'func'))
local kept = status == 'finished' and batch and is_read_in_batch(batch)
if pin and is_terminal(status) and not kept then
if pin == 'inf' and status == 'finished' then pin = time_from_now(ttl, func) or pin end
local least = string.format('%d.%06d', now_s + 60, math.max(1, now_us))
if tonumber(pin) < tonumber(least) then pin = least end
redis.call('ZADD', set_of(status, queue), 'XX', pin, id)
expire_later(id, key, pin)
if ttl == '0' then redis.call('HDEL', key, 'result') end
end
redis.call('HDEL', key, 'pin')
redis.call('ZREM', P .. 'pinned', id)
end
--@include/deps/kin.lua:81
local function leave_all(id, text)
local ok, parents = pcall(cjson.decode, text or '[]')
local left = 0
for _, member in ipairs(ok and parents or {}) do
local _, parent = parent_in(member)
if redis.call('ZREM', (P .. 'job:' .. parent .. ':children'), id) == 1 then
left = left + 1
if redis.call('EXISTS', (P .. 'job:' .. parent .. ':children')) == 0 then unpin(parent) end
end
end
return left
end
--@include/deps/kin.lua:95
local function leave_parents(id, key)
redis.call('UNLINK', (P .. 'job:' .. id .. ':dependencies'))
return leave_all(id, redis.call('HGET', key, 'parents'))
end
--@include/deps/kin.lua:101
local function leave_more(id, gone)
local key = (P .. 'job:' .. id .. ':parents')
local nth = tonumber(redis.call('HGET', key, 'left') or 0) + 1
local text = redis.call('HGET', key, nth)
if text then
redis.call('HSET', key, 'left', nth)
return leave_all(id, text) + 1
end
if gone then redis.call('DEL', key) else redis.call('HDEL', key, 'left') end
end
--@include/deps/kin.lua:113
local function end_for_kin(id, key)
if string.find(tied[key], 'c', 1, true) then do_later('c ' .. id) end
if string.find(tied[key], 'p', 1, true) then do_later('p ' .. id) end
end
--@include/deps/kin.lua:119
local function forget_kin(id, key)
if string.find(tied[key], 'c', 1, true) then do_later('c ' .. id) end
if string.find(tied[key], 'p', 1, true) then
leave_parents(id, key)
if redis.call('EXISTS', (P .. 'job:' .. id .. ':parents')) == 1 then do_later('p ' .. id) end
end
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
--@include/failures/failures.lua:44
local function leave_failure(id, key)
local group, queue, origin, quarantined = unpack(redis.call('HMGET', key, 'failure_group', 'original_queue',
'origin', 'quarantined'))
if not group then return end
take_out_failure(group, id, queue or origin or '', quarantined)
redis.call('HDEL', key, 'failure_group')
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
--@include/job/end_job.lua:92
local function fail_deferred(id, key, queue, class, why)
local priority, log_tag, ttl, hooks, ties = unpack(redis.call('HMGET', key, 'priority', 'log_tag', 'failure_ttl',
'hooks', 'ties'))
if hooks then hooked[key] = true end
tied[key] = ties or nil
rare(37, id, key, queue, priority, set_of('deferred', queue), log_tag, ttl, why, { 'reason', class },
'ended_at', now_iso, 'error_class', class, 'exc_info', class .. ': ' .. why)
redis.call('HDEL', key, 'due')
end
--@include/deps/attach.lua:8
local function parents_of(text)
local ok, found = pcall(cjson.decode, text)
if not ok or type(found) ~= 'table' then error('ERR a list of parents is none', 0) end
return found
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
rare(27, parent, key, expiry)
redis.call('ZADD', set, '+inf', parent)
end
redis.call('PERSIST', key)
end
if ended and score == arrival then do_later('c ' .. parent) end
end
end
return waits
end
--@include/job/inbox.lua:7
local function strike(queue, id)
local key, waiting = (P .. 'inbox:' .. queue), redis.call('LLEN', (P .. 'queue:' .. queue))
if waiting == 0 then return end
local left = redis.call('ZSCORE', key, '')
if not left then redis.call('ZADD', key, 0, '') end
redis.call('ZADD', key, (left or 0) + waiting, id)
redis.call('ZREM', key, '>' .. id)
end
--@include/job/lines.lua:8
local function drop_log(id)
redis.call('UNLINK', (P .. 'log:' .. id))
redis.call('ZREM', P .. 'logs', id)
local size = redis.call('HGET', P .. 'logs:sizes', id)
if not size then return false end
redis.call('HDEL', P .. 'logs:sizes', id)
if redis.call('HINCRBY', P .. 'logs:sizes', '*', -size) <= 0 and redis.call('EXISTS', P .. 'logs') == 0 then
redis.call('DEL', P .. 'logs:sizes')
end
return true
end
--@include/deps/release_some.lua:9
local function attach_again(id)
local key, parents = (P .. 'job:' .. id), (P .. 'job:' .. id .. ':parents')
local status, arrival, queue = unpack(redis.call('HMGET', key, 'status', 'arrival', 'origin'))
if status ~= 'deferred' then return true end
while work_left > 0 do
local nth = tonumber(redis.call('HGET', parents, 'again') or 0) + 1
local text = redis.call('HGET', parents, nth)
if not text then
redis.call('HDEL', parents, 'again')
redis.call('SREM', (P .. 'job:' .. id .. ':dependencies'), '*again')
if redis.call('EXISTS', (P .. 'job:' .. id .. ':dependencies')) == 0 then rare(39, id, key, queue) end
return true
end
attach(id, parents_of(text), tonumber(arrival) or 0, true)
redis.call('HSET', parents, 'again', nth)
work_left = work_left - 50
end
return false
end
--@include/deps/release_some.lua:31
local function work_off_graph(kind, token)
local graph = (P .. 'graph:' .. token)
for _, id in ipairs(redis.call('ZRANGE', graph, 0, work_left - 1)) do
local key = (P .. 'job:' .. id)
local status, own, queue, doomed, log_tag, ties, seq, class = unpack(redis.call('HMGET', key, 'status', 'graph',
'origin', 'doomed', 'log_tag', 'ties', 'seq', 'priority'))
if own == token and kind == 'x' then
tied[key] = ties
local counters = rare(1, key)
forget(id, key, status, queue)
if not is_terminal(status) then tally('deleted', queue, class, counters) end
emit('deleted', id, queue, log_tag)
redis.call('ZREM', P .. 'releasing', 'u ' .. id)
elseif own == token then
redis.call('SREM', (P .. 'job:' .. id .. ':dependencies'), '*' .. token)
redis.call('HDEL', key, 'graph', 'doomed')
if string.find(ties or '', 'h', 1, true) then redis.call('ZADD', P .. 'releasing', 'XX', now_ms, 'u ' .. id) end
if status == 'deferred' and doomed then
rare(41, id, key, queue, string.match(doomed, '^(%S+) (.*)$'))
elseif status == 'deferred' and redis.call('EXISTS', (P .. 'job:' .. id .. ':dependencies')) == 0
and not string.find(ties or '', 'h', 1, true) then
rare(39, id, key, queue)
end
end
redis.call('ZREM', graph, id)
work_left, worked_off = work_left - 1, worked_off + 1
end
return redis.call('EXISTS', graph) == 0
end
--@include/deps/release_some.lua:116
local function release_some(limit)
work_left = limit
repeat until work_left <= 0 or not release_batch()
return worked_off
end
--@
groups_made[3] = { locks_key, unique_key, has_turns, open_turns, forget_turns, turn_of, gate_of, gate_value, timeout_of, rate_of, used_ahead, rate_room, is_full, accept_delivery, tell_ended, do_later, release_later, is_coming, parent_in, is_read_in_batch, expire_later, time_from_now, unpin, leave_all, leave_parents, leave_more, end_for_kin, forget_kin, let_go, set_due, settle_batch, open_member, enter_batch, leave_batch, let_read_end, end_callback, leave_batches, is_counted_in, count_failure, take_out_failure, leave_failure, drop_failure_group, failure_group_for, join_failure, fail_deferred, parents_of, waits_for, name_child, attach, strike, drop_log, attach_again, work_off_graph, release_some }
end
return groups_made[3][nth - 43](...)
end
end
--@release.lua:9
local done = rare(97, tonumber(ARGV[1]))
write_tallies()
rare(40)
give_back_numbers()
local first = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
return { done, first[1] and math.max(0, math.ceil(tonumber(first[2]) - now_ms)) or -1 }
