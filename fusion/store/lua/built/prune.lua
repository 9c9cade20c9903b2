-- KEYS: workers
-- ARGV: name incarnation reason lease_ms limit duties
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
--@include/lib/score.lua:35
local function line_up_again(queue, id, key, priority, seq)
if not tonumber(seq) then
seq = next_seq()
redis.call('HSET', key, 'seq', seq)
end
enter_line(queue, (((priority == '1' or (queue == 'scheduler')) and 1 or (math.max(0, math.min(255, math.floor(tonumber(priority) or 1))))) + 0.5 - seq * (2 ^ -44)), id)
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
local matching = any and rare(30, queue)
if matching and matching[1] then
class = class or (math.max(0, math.min(255, math.floor(tonumber((redis.pcall('ZREVRANGE', (fifos[queue] ~= false and in_fifo(queue) and (P .. 'fifo:' .. queue) or (P .. 'queue:' .. queue)), 0, 0, 'WITHSCORES')[2])) or 1))))
local stopped = not known and redis.call('EXISTS', P .. 'suspended', paused, closed) > 0
for _, wildcard in ipairs(matching) do
if not known then redis.pcall('ZADD', (P .. 'work:' .. wildcard), 'GT', class, queue) end
if not stopped then rare(32, wildcard, class) end
end
end
if class and class < 2 then return end
local high = (P .. 'wake:' .. queue .. ':high')
if redis.call('EXISTS', high, P .. 'suspended', paused, closed) > 0 then return end
local waiting = class and not (queue == 'scheduler') and 1 or redis.pcall('ZCOUNT', (fifos[queue] ~= false and in_fifo(queue) and (P .. 'fifo:' .. queue) or (P .. 'queue:' .. queue)), '2', '+inf')
if type(waiting) == 'number' and waiting > 0 then redis.call('RPUSH', high, '1') end
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
--@include/job/schedule.lua:18
local soonest
--@include/limit/limit.lua:504
local function on_arrive(id, key, queue, named)
if tied[key] then return rare(17, id, key, queue, named) end
end
--@include/limit/limit.lua:521
local function on_return(id, key, queue)
if tied[key] then
pcall(rare, 24, id, key)
if tied[key] then rare(26, id, key, queue) end
end
end
--@include/job/callbacks.lua:7
local hooked = {}
--@include/job/on_end.lua:7
local function on_end(id, key, queue, status)
if tied[key] then
if string.find(tied[key], 'k', 1, true) then pcall(rare, 25, id, key, status) end
if tied[key] == 'k' then return end
if string.find(tied[key], 'u', 1, true) then pcall(rare, 57, id, key, status) end
if string.find(tied[key], 'b', 1, true) then pcall(rare, 65, id, key, queue, status) end
if string.find(tied[key], '[pc]') then pcall(rare, 56, id, key) end
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
local pinned = others and rare(28, id, key, expiry)
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
if hooked[key] then rare(53, id, key, queue, status) end
end
--@include/job/settle.lua:8
local function read_job(key)
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
return read
end
--@include/lib/life.lua:7
local function silence(key, beat)
beat = tonumber(beat)
if beat and beat > now_ms then
redis.pcall('HSET', key, 'beat_ms', now_ms)
beat = now_ms
end
return beat and now_ms - beat
end
--@include/lib/life.lua:18
local function hold_until(lease_ms)
local seen = redis.call('HMGET', P .. 'reap', 'last', 'hold')
local last, hold = tonumber(seen[1]), tonumber(seen[2]) or 0
if not last or now_ms < last or now_ms - last > lease_ms / 2 then return now_ms + lease_ms end
return math.min(hold, now_ms + lease_ms)
end
--@
rare = function(nth, ...)
if not groups_made then groups_made = {} end
if nth <= 28 then
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
if rate or own_rate then known.interval, known.burst = rare(47, rate or own_rate) end
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
local room = rare(49, tat, now, interval, burst)
local upto = redis.call('ZCARD', held) - idle + room
if upto >= limit then return limit end
--@include/limit/limit.lua:74
return upto, room < burst and math.floor((now + rare(48, tat, now, interval, burst) - (burst - room - 1) * interval)
/ 1000) + 1 or nil
end
--@include/limit/limit.lua:79
local function look_at_limit(member, ms)
redis.call('ZADD', P .. 'limits:due', 'LT', ms, member)
soonest = math.min(soonest or ms, ms)
if (redis.call('ZRANGE', P .. 'limits:due', 0, 0)[1]) == member then rare(33, ms) end
end
--@include/limit/limit.lua:88
local function place_in_key(key, queue, score, arrives)
if not rare(50, queue) then return score end
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
if status == 'started' and redis.call('ZRANGE', rare(45, name), 0, 0)[1] == id then
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
local first = redis.call('ZRANGE', rare(45, name), 0, 0)[1]
if first and not redis.call('ZSCORE', (P .. 'limits:held:' .. name), first) then
redis.call('ZADD', (P .. 'limits:waiting:' .. name), '512', first)
end
settle_key(name)
end
--@include/limit/limit.lua:440
local function free_lock(name, id)
redis.call('ZREM', rare(45, name), id)
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
local score = name and redis.call('ZSCORE', (fifos[queue] ~= false and in_fifo(queue) and (P .. 'fifo:' .. queue) or (P .. 'queue:' .. queue)), id)
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
--@
groups_made[1] = { counters_of_key, note_more, write_more, closed_until, bounds_of, limit_of, look_at_limit, place_in_key, put_in_line, admit, step_back, settle_now, settle_key, name_limit, look_once, arrive_like_others, arrive_at_limit, stop_counting, pass_slot_on, locks_of, write_locks, settle_lock, free_lock, free_locks, leave_limit, return_to_limit, is_parent, pin_while_read }
end
return groups_made[1][nth](...)
end
if nth <= 44 then
if not groups_made[2] then
--@include/lib/ring.lua:11
local woken
--@include/job/schedule.lua:17
local instants = {}
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
pcall(rare, 71, id, key)
emit('failed', id, queue, log_tag, unpack(told))
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
emit('abandoned', id, queue, job.log_tag, 'reason', reason, 'worker', worker, 'lost', lost, 'delay_ms', pause,
'blame', (job.shared or job.unbegun) and 'shared' or 'job')
else
emit('released', id, queue, job.log_tag, 'worker', worker, 'reason', reason)
end
on_return(id, key, queue)
end
--@include/job/settle.lua:98
local function recover(id, key, queue, job, leave, reason, worker)
local exec = job.execution_id or ''
job.shared = (string.sub(exec, -1)) ~= "s"
if (string.sub(exec, -1)) == "a" and redis.call('HGET', key, 'begun') ~= exec then
job.unbegun = let_off(key)
end
settle('lost', id, key, queue, job, leave, reason, worker, {})
redis.call('HDEL', key, 'execution_id')
end
--@
groups_made[2] = { meet, wildcards_of, push, wake, ring_scheduler, score_at, schedule, expect_expiry, call_off, fail_job, cut, note_attempt, wish_of, let_off, settle, recover }
end
return groups_made[2][nth - 28](...)
end
if nth <= 80 then
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
--@include/job/turns.lua:20
local function has_turns(queue)
if fair[queue] == nil then fair[queue] = redis.pcall('EXISTS', (P .. 'fair:' .. queue)) == 1 end
return fair[queue]
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
rare(29, nil, nil, nil, '_callbacks', 1)
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
--@include/gates/queue_gate.lua:65
local function reopen(queue, changed)
local text = redis.call('HGET', P .. 'gates', queue)
local gate = text and read_gate(queue, text)
if gate and (gate.places < 1 or gate.tokens < 1 and not changed and is_awaited(gate)) then return end
if changed then redis.call('HDEL', (P .. 'gate:' .. queue), 'waiter', 'named') end
if redis.call('DEL', (P .. 'wake:' .. queue .. ':closed')) == 0 and not changed then return end
if redis.call('EXISTS', (fifos[queue] ~= false and in_fifo(queue) and (P .. 'fifo:' .. queue) or (P .. 'queue:' .. queue)), (P .. 'queue:' .. queue)) > 0 then ring(queue) end
end
--@include/gates/queue_gate.lua:75
local function reopen_all(queues)
local gated
for queue in pairs(queues) do
if gated == nil then gated = redis.call('EXISTS', P .. 'gates') == 1 end
if gated then pcall(reopen, queue) end
end
end
--@include/gates/queue_gate.lua:84
local function hand_on(names)
for _, queue in ipairs(redis.pcall('HKEYS', P .. 'gates')) do
if names[redis.pcall('HGET', (P .. 'gate:' .. queue), 'waiter')] then
redis.call('HDEL', (P .. 'gate:' .. queue), 'waiter', 'named')
pcall(reopen, queue, true)
end
end
end
--@
groups_made[3] = { locks_key, unique_key, rate_of, used_ahead, rate_room, has_turns, is_full, accept_delivery, tell_ended, do_later, release_later, end_for_kin, let_go, set_due, settle_batch, open_member, enter_batch, leave_batch, let_read_end, end_callback, leave_batches, is_counted_in, count_failure, take_out_failure, drop_failure_group, failure_group_for, join_failure, gate_word, held_until, without_until, forget_until, read_gate, is_awaited, reopen, reopen_all, hand_on }
end
return groups_made[3][nth - 44](...)
end
end
--@include/job/portion.lua:4
local portion_left = 60
--@include/job/portion.lua:8
local function give_portion(name, give)
local list = (P .. 'worker:' .. name .. ':jobs')
while portion_left > 0 do
local held = redis.call('HRANDFIELD', list, portion_left, 'WITHVALUES')
if not held[1] then return true end
for i = 1, #held, 2 do
local key = (P .. 'job:' .. held[i])
pcall(give, held[i], held[i + 1], key)
redis.call('HDEL', list, held[i])
portion_left = portion_left - (tied[key] and 4 or 1)
if portion_left <= 0 then break end
end
end
return redis.call('EXISTS', list) == 0
end
--@include/lib/tell.lua:5
local function tell(channel, ...)
redis.pcall('PUBLISH', channel, table.concat({ ... }, ' '))
end
--@prune.lua:12
local recovered, again, queues, removed = 0, 0, {}, nil
--@prune.lua:14
local function remove(name, why)
recovered = 0
local whole = give_portion(name, function(id, exec, key)
local job = read_job(key)
if job.status ~= 'started' or job.execution_id ~= exec then return end
rare(44, id, key, job.origin, job, (P .. 'wip:' .. job.origin), why, name)
recovered = recovered + 1
queues[job.origin] = true
end)
if whole then
redis.call('DEL', (P .. 'worker:' .. name))
redis.call('SREM', KEYS[1], (P .. 'worker:' .. name))
redis.call('SREM', P .. 'fleet', name)
removed = removed or {}
removed[name] = true
else
again = 1
end
return recovered
end
--@prune.lua:35
local function told(found)
write_tallies()
rare(79, queues)
if removed then rare(80, removed) end
return { again, unpack(found) }
end
--@prune.lua:42
if argv[1] ~= '' then
local known = command('HGET', (P .. 'worker:' .. argv[1]), 'incarnation')
if argv[2] ~= '' and known and known ~= argv[2] then return { 0 } end
if not known and command('EXISTS', (P .. 'worker:' .. argv[1])) == 1 then return { 0 } end
return told({ argv[1], remove(argv[1], argv[3] ~= '' and argv[3] or 'worker ' .. argv[1] .. ' died') })
end
local held, found = now_ms < hold_until(tonumber(argv[4])), {}
--@prune.lua:52
local function is_fusions(key, incarnation)
if incarnation then return true end
return redis.call('EXISTS', key) == 0 and redis.call('SISMEMBER', P .. 'fleet', (string.sub(key, #P + 8))) == 1
end
--@prune.lua:57
for _, key in ipairs(command('SMEMBERS', KEYS[1])) do
if #found >= 2 * argv[5] or again == 1 then break end
local beat, lease, incarnation = unpack(command('HMGET', key, 'beat_ms', 'lease_ms', 'incarnation'))
local ours = is_fusions(key, incarnation)
local silent = ours and silence(key, beat)
if ours and not held and (not silent or silent > (tonumber(lease) or tonumber(argv[4]))) then
local name = (string.sub(key, #P + 8))
found[#found + 1] = name
found[#found + 1] = remove(name, 'ProcessPrunedError: worker ' .. name .. ' stopped giving signs of life')
end
end
--@prune.lua:69
local last, more = unpack(command('HMGET', P .. 'reap', 'last', 'more'))
if again == 0 and #found < 2 * argv[5] and last and more ~= '1' then
local running = redis.pcall('ZCOUNT', P .. 'operations', '+inf', '+inf')
tell(argv[6], 'recover', now_ms - last, type(running) == 'number' and running or 0)
end
return told(found)
