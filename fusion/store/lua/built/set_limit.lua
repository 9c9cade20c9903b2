-- ARGV: key pause_ms n_pairs
-- FLAGS: allow-oom
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
--@include/lib/score.lua:16
local function enter_line(queue, score, id)
local added = redis.pcall('ZADD', (fifos[queue] ~= false and in_fifo(queue) and (P .. 'fifo:' .. queue) or (P .. 'queue:' .. queue)), score, id)
if type(added) == 'number' then return end
if fifos[queue] ~= false then error(added) end
fifos[queue] = nil
if not in_fifo(queue) then error(added) end
redis.call('ZADD', (fifos[queue] ~= false and in_fifo(queue) and (P .. 'fifo:' .. queue) or (P .. 'queue:' .. queue)), score, id)
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
local matching = any and rare(10, queue)
if matching and matching[1] then
class = class or (math.max(0, math.min(255, math.floor(tonumber((redis.pcall('ZREVRANGE', (fifos[queue] ~= false and in_fifo(queue) and (P .. 'fifo:' .. queue) or (P .. 'queue:' .. queue)), 0, 0, 'WITHSCORES')[2])) or 1))))
local stopped = not known and redis.call('EXISTS', P .. 'suspended', paused, closed) > 0
for _, wildcard in ipairs(matching) do
if not known then redis.pcall('ZADD', (P .. 'work:' .. wildcard), 'GT', class, queue) end
if not stopped then rare(12, wildcard, class) end
end
end
if class and class < 2 then return end
local high = (P .. 'wake:' .. queue .. ':high')
if redis.call('EXISTS', high, P .. 'suspended', paused, closed) > 0 then return end
local waiting = class and not (queue == 'scheduler') and 1 or redis.pcall('ZCOUNT', (fifos[queue] ~= false and in_fifo(queue) and (P .. 'fifo:' .. queue) or (P .. 'queue:' .. queue)), '2', '+inf')
if type(waiting) == 'number' and waiting > 0 then redis.call('RPUSH', high, '1') end
end
--@include/job/ties.lua:5
local tied
tied = {}
--@
rare = function(nth, ...)
if not groups_made then groups_made = {} end
if nth <= 9 then
if not groups_made[1] then
--@include/job/schedule.lua:18
local soonest
--@include/limit/limit.lua:19
local steps_left = 80
--@include/limit/limit.lua:24
local arrivals = {}
local bounds = {}
local in_use = {}
--@include/limit/limit.lua:31
local unrung
local unsettled
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
if rate or own_rate then known.interval, known.burst = rare(16, rate or own_rate) end
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
local room = rare(18, tat, now, interval, burst)
local upto = redis.call('ZCARD', held) - idle + room
if upto >= limit then return limit end
--@include/limit/limit.lua:74
return upto, room < burst and math.floor((now + rare(17, tat, now, interval, burst) - (burst - room - 1) * interval)
/ 1000) + 1 or nil
end
--@include/limit/limit.lua:79
local function look_at_limit(member, ms)
redis.call('ZADD', P .. 'limits:due', 'LT', ms, member)
soonest = math.min(soonest or ms, ms)
if (redis.call('ZRANGE', P .. 'limits:due', 0, 0)[1]) == member then rare(13, ms) end
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
if status == 'started' and redis.call('ZRANGE', rare(15, name), 0, 0)[1] == id then
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
--@
groups_made[1] = { closed_until, bounds_of, limit_of, look_at_limit, put_in_line, admit, step_back, settle_now, settle_key }
end
return groups_made[1][nth](...)
end
if nth <= 14 then
if not groups_made[2] then
--@include/lib/ring.lua:11
local woken
--@include/job/schedule.lua:17
local instants = {}
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
--@
groups_made[2] = { wildcards_of, push, wake, ring_scheduler, score_at }
end
return groups_made[2][nth - 9](...)
end
if nth <= 18 then
if not groups_made[3] then
--@include/lib/keys.lua:62
local function locks_key(name) return P .. 'limits:locks:' .. name end
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
--@
groups_made[3] = { locks_key, rate_of, used_ahead, rate_room }
end
return groups_made[3][nth - 14](...)
end
end
--@set_limit.lua:8
local key, gone, set = (P .. 'limit:' .. argv[1]), {}, {}
local before = command('HGETALL', key)
if argv[2] ~= '' then
set[1], set[2], set[3], set[4] = 'paused', argv[2] == '-1' and 'inf' or string.format('%d', now_ms + argv[2]),
'paused_since', now_iso
end
for i = 4, 4 + argv[3] - 1, 2 do
if argv[i + 1] == '' then gone[#gone + 1] = argv[i] else set[#set + 1], set[#set + 2] = argv[i], argv[i + 1] end
end
if set[1] then command('HSET', key, unpack(set)) end
if gone[1] then command('HDEL', key, unpack(gone)) end
command('ZADD', P .. 'limits', 'NX', now_ms, argv[1])
rare(9, argv[1])
return before
