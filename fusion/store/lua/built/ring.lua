-- ARGV: queue waiter
-- FLAGS: allow-oom
--@
local argv = ARGV
local rare, groups_made
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
local matching = any and rare(1, queue)
if matching and matching[1] then
class = class or (math.max(0, math.min(255, math.floor(tonumber((redis.pcall('ZREVRANGE', (fifos[queue] ~= false and in_fifo(queue) and (P .. 'fifo:' .. queue) or (P .. 'queue:' .. queue)), 0, 0, 'WITHSCORES')[2])) or 1))))
local stopped = not known and redis.call('EXISTS', P .. 'suspended', paused, closed) > 0
for _, wildcard in ipairs(matching) do
if not known then redis.pcall('ZADD', (P .. 'work:' .. wildcard), 'GT', class, queue) end
if not stopped then rare(3, wildcard, class) end
end
end
if class and class < 2 then return end
local high = (P .. 'wake:' .. queue .. ':high')
if redis.call('EXISTS', high, P .. 'suspended', paused, closed) > 0 then return end
local waiting = class and not (queue == 'scheduler') and 1 or redis.pcall('ZCOUNT', (fifos[queue] ~= false and in_fifo(queue) and (P .. 'fifo:' .. queue) or (P .. 'queue:' .. queue)), '2', '+inf')
if type(waiting) == 'number' and waiting > 0 then redis.call('RPUSH', high, '1') end
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
--@include/job/ties.lua:5
local tied
tied = {}
--@include/lib/emit.lua:8
local epoch, cap, number, reserved = nil, nil, 0, 0
--@include/job/park.lua:19
local parked = false
--@
rare = function(nth, ...)
if not groups_made then groups_made = {} end
if nth <= 4 then
if not groups_made[1] then
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
groups_made[1] = { wildcards_of, push, wake, score_at }
end
return groups_made[1][nth](...)
end
if nth <= 16 then
if not groups_made[2] then
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
--@include/job/park.lua:22
local function ring_set(set, class)
local queue = (string.match(set, '^%a+:([^:]+)'))
local paused, closed = (P .. 'paused:' .. queue), (P .. 'wake:' .. queue .. ':closed')
rare(2, (P .. 'wake:' .. set), paused, closed)
local best = class or (math.max(0, math.min(255, math.floor(tonumber((redis.pcall('ZREVRANGE', (P .. 'waits:' .. set), 0, 0, 'WITHSCORES')[2])) or 1))))
if best >= 2 then rare(2, (P .. 'wake:' .. set .. ':high'), paused, closed) end
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
groups_made[2] = { rate_of, used_ahead, rate_room, ring_set, gate_word, held_until, without_until, forget_until, read_gate, is_awaited, reopen, hand_on }
end
return groups_made[2][nth - 4](...)
end
end
--@ring.lua:7
if argv[2] ~= '' then
rare(16, { [argv[2]] = true })
elseif (string.find(argv[1], '[*?%[]') ~= nil) then
local best = redis.pcall('ZREVRANGE', (P .. 'work:' .. argv[1]), 0, 0, 'WITHSCORES')[2]
if best then rare(2, (P .. 'wake:' .. argv[1])) end
if best and tonumber(best) >= 2 then rare(2, (P .. 'wake:' .. argv[1] .. ':high')) end
elseif (string.match(argv[1], '^%a+:([^:]+)')) then
rare(8, argv[1])
else
ring(argv[1])
end
return 1
