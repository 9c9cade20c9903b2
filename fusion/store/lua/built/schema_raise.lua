-- KEYS: schema workers schedulers relays
-- ARGV: version min_reader min_writer by
-- FLAGS: allow-oom
--@include/lib/states.lua:3
local function is_terminal(status)
return status == 'finished' or status == 'stopped' or status == 'canceled' or status == 'failed'
end
--@include/lib/keys.lua:88
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
--@include/lib/keys.lua:102
local function ready_key(queue)
if fifos[queue] ~= false and in_fifo(queue) then return (P .. 'fifo:' .. queue) end
return (P .. 'queue:' .. queue)
end
--@include/lib/time.lua:2
local clock = redis.call('TIME')
local now_s, now_us = tonumber(clock[1]), tonumber(clock[2])
local now_ms = now_s * 1000 + (now_us - now_us % 1000) / 1000
--@include/lib/time.lua:6
local minute, prefix
--@include/lib/time.lua:9
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
--@include/lib/time.lua:30
local now_iso = iso(now_s, now_us)
--@include/job/count.lua:9
local first_what, first_queue, first_class, first_count
--@include/lib/member.lua:3
local schema = redis.pcall('HMGET', P .. 'schema', 'min_reader', 'min_writer', 'version', 'fusion')
if schema.err then return redis.error_reply('FUSION_SCHEMA broken') end
local needed = math.max(tonumber(schema[1]) or 0, tonumber(schema[2]) or 0)
if needed > SCHEMA then
return redis.error_reply('FUSION_SCHEMA ' .. (schema[3] or 0) .. ' ' .. needed .. ' ' .. (schema[4] or ''))
end
--@schema_raise.lua:12
if tonumber(ARGV[1]) <= (tonumber(schema[3]) or 1) then return { 'ok' } end
local required, older = math.max(tonumber(ARGV[2]), tonumber(ARGV[3])), { 'older' }
--@schema_raise.lua:15
local function ask(kind, name, key)
local known = redis.pcall('HMGET', key, 'schema', 'incarnation')
if known.err or not known[2] then return end
local knows = tonumber(known[1]) or 1
if knows >= required then return end
older[#older + 1] = kind
older[#older + 1] = name
older[#older + 1] = knows
end
--@schema_raise.lua:25
for _, key in ipairs(redis.call('SMEMBERS', KEYS[2])) do ask('worker', (string.sub(key, #P + 8)), key) end
for _, name in ipairs(redis.call('ZRANGE', KEYS[3], 0, -1)) do ask('scheduler', name, (P .. 'scheduler:process:' .. name)) end
for _, name in ipairs(redis.call('ZRANGE', KEYS[4], 0, -1)) do ask('relay', name, (P .. 'relay:' .. name)) end
if #older > 1 then return older end
--@schema_raise.lua:30
local there, seen = {}, {}
local function add(queue, n) there[queue] = (there[queue] or 0) + n end
--@schema_raise.lua:33
local function add_marked(ids)
for _, id in ipairs(ids) do
local job = not seen[id] and redis.pcall('HMGET', (P .. 'job:' .. id), 'status', 'seq', 'origin') or {}
seen[id] = true
if job[2] and job[3] and not is_terminal(job[1]) then add(job[3], 1) end
end
end
--@schema_raise.lua:41
for _, key in ipairs(redis.call('SMEMBERS', P .. 'queues')) do
local queue = (string.sub(key, #P + 7))
local ready = redis.pcall('ZCARD', ready_key(queue))
add(queue, tonumber(ready) or 0)
for class = 0, tonumber(ready) and 255 or -1 do add(queue, -redis.call('ZCOUNT', ready_key(queue), class, class)) end
for _, n in ipairs({ redis.pcall('ZCOUNT', (P .. 'wip:' .. queue), (1e11), '(+inf'), redis.pcall('ZCARD', P .. 'blocked:'
.. queue) }) do
add(queue, tonumber(n) or 0)
end
if (queue == 'scheduler') then add_marked(redis.pcall('LRANGE', key, 0, -1)) end
end
add_marked(redis.pcall('ZRANGE', P .. 'scheduler:scheduled_jobs', 0, -1))
for _, queue in ipairs(redis.pcall('ZRANGE', P .. 'totals', 0, -1)) do there[queue] = there[queue] or 0 end
for queue, count in pairs(there) do
redis.call('DEL', P .. 'totals' .. ':' .. queue)
redis.call('HSET', P .. 'totals' .. ':' .. queue, 'base', count)
end
redis.call('HSET', KEYS[1], 'version', ARGV[1], 'min_reader', ARGV[2], 'min_writer', ARGV[3], 'fusion',
FUSION, 'by', ARGV[4], 'at', now_iso)
return { 'ok' }
