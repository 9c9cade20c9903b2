-- KEYS: queues
-- ARGV: nonce keep_place quarantined retry_count delay_ms operation n_jobs
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
--@include/lib/states.lua:14
local function may_be_requeued(status)
return status == 'failed' or status == 'canceled' or status == 'stopped'
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
local matching = any and rare(20, queue)
if matching and matching[1] then
class = class or (math.max(0, math.min(255, math.floor(tonumber((redis.pcall('ZREVRANGE', (fifos[queue] ~= false and in_fifo(queue) and (P .. 'fifo:' .. queue) or (P .. 'queue:' .. queue)), 0, 0, 'WITHSCORES')[2])) or 1))))
local stopped = not known and redis.call('EXISTS', P .. 'suspended', paused, closed) > 0
for _, wildcard in ipairs(matching) do
if not known then redis.pcall('ZADD', (P .. 'work:' .. wildcard), 'GT', class, queue) end
if not stopped then rare(22, wildcard, class) end
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
--@include/limit/limit.lua:504
local function on_arrive(id, key, queue, named)
if tied[key] then return rare(17, id, key, queue, named) end
end
--@include/job/again.lua:6
local function refuses_again(id, record, queue, ties)
local broken = ties and rare(27, redis.call('HGET', record, 'concurrency_key') or '', queue)
if broken then error(broken, 0) end
if ties and string.find(ties, 'p', 1, true) then
local parents, batch, as = unpack(redis.call('HMGET', record, 'parents', 'batch', 'batch_as'))
local around = batch and not as and rare(52, batch)
if around or redis.call('EXISTS', (P .. 'job:' .. id .. ':children')) == 1 then
local path = rare(53, id, rare(48, parents or '[]'), nil, nil, around)
if path then return 'cycle ' .. rare(54, path) end
end
end
if ties and string.find(ties, 'u', 1, true) then
local name, upto = unpack(redis.call('HMGET', record, 'unique_key', 'unique_until'))
local other = name and rare(45, name)
if other and other ~= id then return 'duplicate ' .. other end
if name then rare(46, name, id, upto) end
end
end
--@include/job/again.lua:26
local function waits_again(id, record, ties, asked)
local parents = ties and string.find(ties, 'p', 1, true) and redis.call('HGET', record, 'parents')
local waits = parents and rare(51, id, rare(48, parents), next_seq(), asked, true)
if parents and redis.call('EXISTS', (P .. 'job:' .. id .. ':parents')) == 1 then
waits = redis.call('SADD', (P .. 'job:' .. id .. ':dependencies'), '*again')
redis.call('HDEL', (P .. 'job:' .. id .. ':parents'), 'left', 'again')
rare(40, 'a ' .. id)
end
return waits
end
--@include/operation/count_operation.lua:10
local DONE = { ok = true, canceled = true, stopped = true, pending = true, deleted = true, kept = true }
local SKIPPED = { foreign = true, list = true, quarantined = true, unknown = true }
--@
rare = function(nth, ...)
if not groups_made then groups_made = {} end
if nth <= 19 then
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
if rate or own_rate then known.interval, known.burst = rare(37, rate or own_rate) end
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
local room = rare(39, tat, now, interval, burst)
local upto = redis.call('ZCARD', held) - idle + room
if upto >= limit then return limit end
--@include/limit/limit.lua:74
return upto, room < burst and math.floor((now + rare(38, tat, now, interval, burst) - (burst - room - 1) * interval)
/ 1000) + 1 or nil
end
--@include/limit/limit.lua:79
local function look_at_limit(member, ms)
redis.call('ZADD', P .. 'limits:due', 'LT', ms, member)
soonest = math.min(soonest or ms, ms)
if (redis.call('ZRANGE', P .. 'limits:due', 0, 0)[1]) == member then rare(23, ms) end
end
--@include/limit/limit.lua:88
local function place_in_key(key, queue, score, arrives)
if not rare(30, queue) then return score end
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
if status == 'started' and redis.call('ZRANGE', rare(28, name), 0, 0)[1] == id then
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
groups_made[1] = { counters_of_key, note_more, write_more, closed_until, bounds_of, limit_of, look_at_limit, place_in_key, put_in_line, admit, step_back, settle_now, settle_key, name_limit, look_once, arrive_like_others, arrive_at_limit, is_parent, pin_while_read }
end
return groups_made[1][nth](...)
end
if nth <= 27 then
if not groups_made[2] then
--@include/lib/ring.lua:11
local woken
--@include/job/schedule.lua:17
local instants = {}
--@include/limit/sound.lua:5
local sound = {}
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
--@include/limit/sound.lua:8
local function broken_limit(name, queue)
if sound[name .. ' ' .. queue] then return nil end
local blocked = P .. 'blocked:' .. queue
local found = redis.pcall('HGET', (P .. 'limit:' .. name), 'max')
if type(found) == 'table' and found.err and string.find(found.err, 'WRONGTYPE', 1, true) then
return 'WRONGTYPE the concurrency key ' .. name .. ' is broken at ' .. (P .. 'limit:' .. name)
end
for _, key in ipairs({ (P .. 'limits:held:' .. name), (P .. 'limits:waiting:' .. name), P .. 'limits', P .. 'limits:due', blocked }) do
local count = redis.pcall('ZCARD', key)
if type(count) == 'table' and string.find(count.err, 'WRONGTYPE', 1, true) then
return 'WRONGTYPE the concurrency key ' .. name .. ' is broken at ' .. key
end
end
sound[name .. ' ' .. queue] = true
return nil
end
--@
groups_made[2] = { wildcards_of, push, wake, ring_scheduler, score_at, schedule, expect_expiry, broken_limit }
end
return groups_made[2][nth - 19](...)
end
if nth <= 66 then
if not groups_made[3] then
--@include/job/turns.lua:16
local fair = {}
--@include/job/room.lua:8
local gate_texts = {}
--@include/operation/count_operation.lua:13
local cutoff, states, noted, examples
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
--@include/deps/releasing.lua:11
local function do_later(what) redis.call('ZADD', P .. 'releasing', 'NX', now_ms, what) end
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
--@include/batch/batch.lua:86
local function enter_again(id, key)
local batch, as = unpack(redis.call('HMGET', key, 'batch', 'batch_as'))
if batch and not as then enter_batch(batch, id) end
end
--@include/unique/unique.lua:9
local function owner_of(name)
local id = redis.pcall('GET', unique_key(name))
local broken = type(id) == 'table' and unique_key(name)
or type(redis.pcall('ZCARD', P .. 'uniques')) == 'table' and P .. 'uniques'
if broken then error('WRONGTYPE the unique key ' .. name .. ' is broken at ' .. broken, 0) end
if not id then return nil end
local status, own = unpack(redis.pcall('HMGET', (P .. 'job:' .. id), 'status', 'unique_key'))
if redis.call('PTTL', unique_key(name)) >= 0 then return id, status or '', true end
if status and own == name and not is_terminal(status) then return id, status, false end
end
--@include/unique/unique.lua:21
local function take_key(name, id, upto, window)
if upto == 'accept' then
redis.call('SET', unique_key(name), id, 'PX', window)
return redis.call('ZREM', P .. 'uniques', name)
end
redis.call('ZADD', P .. 'uniques', now_ms, name)
redis.call('SET', unique_key(name), id)
end
--@include/deps/kin.lua:18
local function parent_in(member)
local sign, id = string.match(member, '^([?~]?)(.*)$')
return sign, id
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
rare(19, parent, key, expiry)
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
groups_made[3] = { locks_key, unique_key, has_turns, open_turns, forget_turns, turn_of, gate_of, gate_value, timeout_of, rate_of, used_ahead, rate_room, do_later, set_due, open_member, enter_batch, enter_again, owner_of, take_key, parent_in, parents_of, waits_for, name_child, attach, batches_around, cycle_of, cycle_text, is_counted_in, count_failure, take_out_failure, leave_failure, entered_of, in_time, open_count, add_count, count_operation, is_new_to, of_operation, write_operation }
end
return groups_made[3][nth - 27](...)
end
end
--@requeue.lua:19
local delay = tonumber(argv[5])
--@requeue.lua:21
local function requeue(id)
local key = (P .. 'job:' .. id)
local status, nonce, origin, original, priority, seq, data, log_tag, ttl, quarantined,
times, ties, fair_key = unpack(redis.call('HMGET', key, 'status', 'requeue_nonce', 'origin', 'original_queue',
'priority', 'seq', 'data', 'log_tag', 'ttl', 'quarantined', 'requeued', 'ties', 'fair_key'))
if not status then
redis.call('ZREM', P .. 'queue:failed', id)
return 'missing'
end
if nonce == ARGV[1] then return 'ok' end
if not seq and not is_ours(id, key, origin or '', status) then return 'foreign' end
if not may_be_requeued(status) then return status end
if quarantined and ARGV[3] ~= '1' then return 'quarantined' end
local queue = original or origin
if not data or not queue then return 'corrupt' end
local why = refuses_again(id, key, queue, ties)
if why then return why end
local waits = waits_again(id, key, ties, true)
--@requeue.lua:40
redis.call('SADD', KEYS[1], (P .. 'queue:' .. queue))
if waits then
redis.call('ZADD', set_of('deferred', queue), now_ms, id)
redis.call('HSET', key, 'seq', '', 'arrival', next_seq())
if delay > 0 then redis.call('HSET', key, 'due', string.format('%d', now_ms + delay)) end
elseif delay > 0 then
rare(25, id, now_ms + delay)
if ARGV[2] ~= '1' then redis.call('HSET', key, 'seq', '', 'arrival', next_seq()) end
elseif ARGV[2] == '1' then
line_up_again(queue, id, key, priority, seq)
elseif ARGV[2] == 'front' then
seq = -redis.call('INCR', P .. 'seq:front')
enter_line(queue, (((priority == '1' or (queue == 'scheduler')) and 1 or (math.max(0, math.min(255, math.floor(tonumber(priority) or 1))))) + 0.5 - seq * (2 ^ -44)), id)
redis.call('HSET', key, 'seq', seq)
else
seq = rare(33, queue, priority, next_seq(), fair_key or '')
line_up(queue, id, priority, seq)
redis.call('HSET', key, 'seq', seq)
end
if status == 'failed' then pcall(rare, 58, id, key) end
local now = waits and 'deferred' or delay > 0 and 'scheduled' or 'queued'
redis.call('HSET', key, 'status', now, 'origin', queue, 'enqueued_at', now_iso,
'requeue_nonce', ARGV[1], 'retryCount', ARGV[4], 'lost', 0, 'requeued', (tonumber(times) or 0) + 1)
if ties and string.find(ties, '[dh]') then
ties = string.gsub(ties, '[dh]', '')
redis.call('HSET', key, 'ties', ties)
end
if ties then tied[key] = ties end
tally('requeued', queue, priority, ties and rare(1, key))
redis.call('HDEL', key, 'ended_at', 'exc_info', 'reason', 'error_class', 'error_bases', 'error_frame', 'quarantined',
'cancel', 'held_since', 'execution_id', 'expires_at', 'at_front', 'begun', 'spared', 'suspect',
'queue_timeout', 'wanted', 'retry_since', 'pin')
if ARGV[2] == 'front' and now ~= 'queued' then redis.call('HSET', key, 'at_front', 1) end
local given = not waits and not tonumber(ttl) and rare(36, queue)
if given then redis.call('HSET', key, 'queue_timeout', given) end
ttl = given or tonumber(ttl) and ttl * 1000
if ttl and not waits then
local expires_at = math.floor(now_ms + delay + ttl)
redis.call('HSET', key, 'expires_at', expires_at)
rare(26, id, expires_at)
end
if ties and string.find(ties, 'b', 1, true) then rare(44, id, key) end
redis.call('PERSIST', key)
redis.call('ZREM', set_of(status, origin or queue), id)
if waits then
emit('deferred', id, queue, log_tag, 'reason', 'requeued')
elseif delay > 0 then
local due = now_ms + delay
emit('scheduled', id, queue, log_tag, 'reason', 'requeued', 'due', iso(math.floor(due / 1000), due % 1000 * 1000))
else
emit('queued', id, queue, log_tag, 'reason', 'requeued')
if not on_arrive(id, key, queue) then ring(queue) end
end
return 'ok'
end
--@requeue.lua:96
local answers = each(rare(65, argv[6], requeue), 8, tonumber(argv[7]))
write_tallies()
rare(66, argv[6])
return answers
